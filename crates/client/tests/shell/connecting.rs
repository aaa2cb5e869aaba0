//! Connections, calls, administration.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use lockgate_client::{Client, ClientConfig, ClientError, TopicSpec};
use lockgate_wire::Offset;
use tokio::net::TcpListener;

use super::broker::{Broker, Mode};
use super::{connect, kind, soon, until};

async fn refused(config: ClientConfig) -> (String, Duration) {
    let started = Instant::now();
    match soon(Client::connect(config)).await {
        Ok(_) => panic!("nobody should answer"),
        Err(error) => (error.to_string(), started.elapsed()),
    }
}

#[tokio::test]
async fn nobody_there_is_told_with_every_address() {
    let free: Vec<String> = {
        let listeners =
            [TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap()];
        listeners.iter().map(|listener| listener.local_addr().unwrap().to_string()).collect()
    };
    let (text, _) = refused(ClientConfig::with_seeds(&free).unwrap()).await;
    assert!(free.iter().all(|address| text.contains(address)), "{text}");
    assert!(text.contains("refused"), "{text}");
}

#[tokio::test]
async fn a_server_that_takes_connections_and_never_answers_is_given_up_in_time() {
    let broker = Broker::start().await;
    broker.state().mode = Mode::Silent;
    let connect_timeout = Duration::from_millis(300);
    let config = ClientConfig { connect_timeout, ..ClientConfig::with_seeds(broker.seeds()).unwrap() };
    let (text, took) = refused(config).await;
    assert!(text.contains("did not answer Hello"), "{text}");
    assert!(took >= connect_timeout, "{took:?}");
}

#[tokio::test]
async fn a_server_of_another_protocol_is_told_apart() {
    let broker = Broker::start().await;
    broker.state().mode = Mode::Garbage;
    let (text, _) = refused(ClientConfig::with_seeds(broker.seeds()).unwrap()).await;
    assert!(text.contains(&broker.address.to_string()) && text.contains("looks like an HTTP port"), "{text}");
    assert!(text.contains("admin.listen") && !text.contains("bytes"), "{text}");
}

#[tokio::test]
async fn a_seed_that_fails_leaves_the_others() {
    let broker = Broker::start().await;
    let name = format!("localhost:{}", broker.address.port());
    let config = ClientConfig::with_seeds(["no-such-host.invalid:1".to_owned(), name]).unwrap();
    let client = soon(Client::connect(config)).await.unwrap();
    assert!(client.is_connected());
    assert_eq!(client.endpoints().len(), 2);
}

#[tokio::test]
async fn a_configuration_out_of_bounds_is_refused_before_anything_is_sent() {
    let bad = [
        ClientConfig { seeds: Vec::new(), ..Default::default() },
        ClientConfig { client_id: "x".repeat(250), ..Default::default() },
        ClientConfig { max_frame_bytes: 1, ..Default::default() },
        ClientConfig { call_timeout: Duration::MAX, ..Default::default() },
    ];
    for config in bad {
        assert_eq!(kind(Client::connect(config).await), "invalid_argument");
    }
    assert_eq!(kind(ClientConfig::with_seeds(["no port"])), "invalid_argument");
}

#[tokio::test]
async fn garbage_in_the_middle_ends_the_connection_and_not_the_client() {
    let broker = Broker::start().await;
    broker.add_topic("t", 1);
    let client = connect(&broker).await;
    broker.state().mode = Mode::Garbage;
    let call = tokio::spawn({
        let client = client.clone();
        async move { client.topology("t").await }
    });
    until(|| client.stats().disconnections > 0).await;
    broker.state().mode = Mode::Serve;
    assert_eq!(soon(call).await.unwrap().unwrap().partitions, 1);
}

#[tokio::test]
async fn a_call_outlives_the_broker_that_comes_back_on_its_port() {
    let mut broker = Broker::start().await;
    broker.add_topic("t", 3);
    let client = connect(&broker).await;
    broker.stop().await;
    until(|| !client.is_connected()).await;
    let call = tokio::spawn({
        let client = client.clone();
        async move { client.topology("t").await }
    });
    broker.restart().await;
    assert_eq!(soon(call).await.unwrap().unwrap().partitions, 3);
    assert_eq!(client.stats().connections, 2);
}

#[tokio::test]
async fn a_broker_that_stops_to_answer_is_unavailable_and_found_dead() {
    let broker = Broker::start().await;
    let call_timeout = Duration::from_millis(200);
    let config = ClientConfig { call_timeout, ..ClientConfig::with_seeds(broker.seeds()).unwrap() };
    let client = soon(Client::connect(config)).await.unwrap();
    broker.state().mode = Mode::SilentAfterHello;
    assert_eq!(kind(soon(client.topology("t")).await), "unavailable");
    let delete = soon(client.admin().delete_topic("t")).await;
    assert!(delete.is_err_and(|error| error.outcome_unknown() || error.kind() == "unavailable"));
    // Three heartbeats of 300 ms without a frame.
    until(|| client.stats().disconnections > 0).await;
}

#[tokio::test]
async fn the_last_handle_says_goodbye() {
    let broker = Broker::start().await;
    broker.add_topic("t", 1);
    let client = connect(&broker).await;
    let producer = client.producer("t", Default::default()).await.unwrap();
    drop(client);
    tokio::task::yield_now().await;
    assert_eq!(broker.state().orderly_closes, 0, "the producer still needs it");
    drop(producer);
    until(|| broker.state().orderly_closes == 1).await;
}

#[tokio::test]
async fn after_a_close_everything_says_so() {
    let broker = Broker::start().await;
    broker.add_topic("t", 1);
    let client = connect(&broker).await;
    let producer = client.producer("t", Default::default()).await.unwrap();
    let mut reader = client.reader("t", Default::default()).await.unwrap();
    client.close();
    assert_eq!(kind(client.topology("t").await), "closed");
    assert_eq!(kind(producer.send(lockgate_client::Record::new("a")).await), "closed");
    assert_eq!(kind(producer.close().await), "closed");
    while let Some(item) = soon(reader.next()).await {
        item.unwrap();
    }
}

#[tokio::test]
async fn topics_are_made_listed_over_pages_and_deleted() {
    let broker = Broker::start().await;
    let client = connect(&broker).await;
    let admin = client.admin();
    for name in ["a", "b", "c", "d", "e"] {
        let spec = TopicSpec { name: name.into(), partitions: 2, ..Default::default() };
        admin.create_topic(spec).await.unwrap();
    }
    let names: Vec<String> = admin.list_topics().await.unwrap().into_iter().map(|topic| topic.name).collect();
    assert_eq!(names, ["a", "b", "c", "d", "e"].map(|name| format!("default/default/{name}")));
    admin.delete_topic("c").await.unwrap();
    assert!(matches!(admin.delete_topic("c").await, Err(ClientError::NotFound(_))));
    assert_eq!(kind(client.topology("c").await), "topic_not_found");
    assert_eq!(kind(client.producer("c", Default::default()).await), "topic_not_found");
    assert_eq!(admin.alter_topic("a", BTreeMap::new(), None).await.unwrap_err().kind(), "unknown_op");
}

#[tokio::test]
async fn cursors_are_set_read_listed_over_pages_and_deleted() {
    let broker = Broker::start().await;
    broker.add_topic("t", 2);
    let client = connect(&broker).await;
    let cursors = client.cursors("t").await.unwrap();
    for (name, offset) in [("one", 1), ("three", 3), ("two", 2)] {
        cursors.commit(name, 1, Offset(offset), false).await.unwrap();
    }
    assert_eq!(cursors.get("two", 1).await.unwrap(), Some(Offset(2)));
    assert_eq!(cursors.get("two", 0).await.unwrap(), None);
    let names: Vec<String> = cursors.list(1).await.unwrap().into_iter().map(|cursor| cursor.name).collect();
    assert_eq!(names, ["one", "three", "two"]);
    assert!(cursors.delete("two", 1).await.unwrap());
    assert!(!cursors.delete("two", 1).await.unwrap());
}
