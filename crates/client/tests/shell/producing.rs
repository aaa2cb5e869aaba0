//! Producers on a real connection.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lockgate_client::{Ack, Client, ClientConfig, Codec, OnUnknown, ProducerConfig, Record};
use lockgate_wire::Offset;
use lockgate_wire::batch::{self, BatchBuilder};

use super::broker::{Broker, Mode, values};
use super::{connect, kind, soon, until};

fn plain() -> ProducerConfig {
    ProducerConfig { idempotent: false, in_flight: 100, ..Default::default() }
}

/// All values of a partition.
fn stored(broker: &Broker, partition: usize) -> Vec<String> {
    let state = broker.state();
    let log = &state.topics["default/default/t"].partitions[partition];
    log.batches.iter().cloned().flat_map(values).map(|value| String::from_utf8(value.to_vec()).unwrap()).collect()
}

#[tokio::test]
async fn each_record_gets_its_own_offset() {
    let broker = Broker::start().await;
    broker.add_topic("t", 1);
    let client = connect(&broker).await;
    let config = ProducerConfig { linger: Duration::from_millis(20), compression: Codec::Lz4, ..Default::default() };
    let producer = client.producer("t", config).await.unwrap();
    let mut deliveries = Vec::new();
    for value in 0..10 {
        deliveries.push(producer.send(Record::new(value.to_string())).await.unwrap());
    }
    for (offset, delivery) in deliveries.into_iter().enumerate() {
        let receipt = soon(delivery).await.unwrap();
        assert_eq!((receipt.partition, receipt.offset), (0, Some(Offset(offset as u64))));
        assert_eq!((receipt.append_time_ms, receipt.duplicate), (Some(1_234), false));
    }
    assert_eq!(broker.state().publishes, 1, "they lingered for one batch");
}

#[tokio::test]
async fn nothing_is_lost_or_doubled_over_a_broker_that_dies_and_comes_back() {
    let mut broker = Broker::start().await;
    broker.add_topic("t", 2);
    let client = connect(&broker).await;
    let config = ProducerConfig { batch_records: 7, ..Default::default() };
    let producer = Arc::new(client.producer("t", config).await.unwrap());
    let sending = tokio::spawn({
        let producer = Arc::clone(&producer);
        async move {
            let mut deliveries = Vec::new();
            for value in 0..3_000 {
                deliveries.push(producer.send_to(value % 2, Record::new(value.to_string())).await.unwrap());
                if value % 50 == 0 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
            deliveries
        }
    });
    for round in 1..=3 {
        let publishes = broker.state().publishes;
        until(|| broker.state().publishes > publishes + 5 || sending.is_finished()).await;
        // What is answered from here on never arrives.
        broker.state().drop_answers = 3;
        until(|| broker.state().drop_answers == 0 || sending.is_finished()).await;
        broker.stop().await;
        broker.restart().await;
        until(|| client.stats().connections > round).await;
    }
    let mut duplicates = 0;
    for delivery in soon(sending).await.unwrap() {
        duplicates += u64::from(soon(delivery).await.unwrap().duplicate);
    }
    for partition in 0..2 {
        let expected: Vec<String> = (0..3_000).filter(|v| v % 2 == partition).map(|v| v.to_string()).collect();
        assert_eq!(stored(&broker, partition as usize), expected, "in order, each once");
    }
    assert!(duplicates > 0, "some answers were lost on the way");
    let report = soon(Arc::into_inner(producer).unwrap().close()).await.unwrap();
    assert_eq!((report.acknowledged, report.refused, report.unconfirmed), (3_000, 0, 0));
}

#[tokio::test]
async fn dropped_futures_leave_no_hole() {
    let broker = Broker::start().await;
    broker.add_topic("t", 1);
    let client = connect(&broker).await;
    let config = ProducerConfig { buffer_bytes: 500, ..Default::default() };
    let producer = client.producer("t", config).await.unwrap();
    for value in 0..200 {
        // Some sends are given up while they wait for room, and no delivery is waited for.
        let send = producer.send(Record::new(format!("{value}")));
        let _ = tokio::time::timeout(Duration::from_micros(value % 3 * 50), send).await;
    }
    let last = soon(soon(producer.send(Record::new("last"))).await.unwrap()).await.unwrap();
    let stored = stored(&broker, 0);
    assert_eq!(stored.last().map(String::as_str), Some("last"));
    assert_eq!(last.offset, Some(Offset(stored.len() as u64 - 1)));
    let numbers: Vec<u64> = stored[..stored.len() - 1].iter().map(|value| value.parse().unwrap()).collect();
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    let report = soon(producer.close()).await.unwrap();
    assert_eq!(report.acknowledged, stored.len() as u64);
}

#[tokio::test]
async fn a_full_buffer_makes_senders_wait_in_turn() {
    let broker = Broker::start().await;
    broker.add_topic("t", 1);
    let client = connect(&broker).await;
    let config = ProducerConfig { buffer_bytes: 300, ..Default::default() };
    let producer = Arc::new(client.producer("t", config).await.unwrap());
    let mut refused = 0;
    for value in 0..100 {
        refused += u32::from(kind(producer.try_send(None, Record::new(value.to_string()))) == "buffer_full");
    }
    assert!(refused > 90, "{refused}");
    let senders = (0..50).map(|value| {
        let producer = Arc::clone(&producer);
        tokio::spawn(async move { producer.send(Record::new(value.to_string())).await.unwrap().await.unwrap() })
    });
    for sender in senders.collect::<Vec<_>>() {
        soon(sender).await.unwrap();
    }
    assert_eq!(client.stats().bytes_buffered, 0);
}

#[tokio::test]
async fn an_unanswered_publish_without_idempotence_is_unknown_unless_resending_was_asked_for() {
    let mut broker = Broker::start().await;
    broker.add_topic("t", 1);
    let client = connect(&broker).await;
    let returning = client.producer("t", plain()).await.unwrap();
    let resending = client.producer("t", ProducerConfig { on_unknown: OnUnknown::Resend, ..plain() }).await.unwrap();
    broker.state().mode = Mode::SilentOnPublish;
    let returned = returning.send(Record::new("a")).await.unwrap();
    let resent = resending.send(Record::new("b")).await.unwrap();
    until(|| broker.state().publishes == 2).await;
    broker.stop().await;
    assert_eq!(kind(soon(returned).await), "outcome_unknown");
    broker.state().mode = Mode::Serve;
    broker.restart().await;
    assert_eq!(soon(resent).await.unwrap().offset, Some(Offset(2)));
    assert_eq!(stored(&broker, 0), ["a", "b", "b"], "at least once");
}

#[tokio::test]
async fn a_flush_waits_for_every_answer() {
    let broker = Broker::start().await;
    broker.add_topic("t", 4);
    let client = connect(&broker).await;
    let config = ProducerConfig { linger: Duration::from_secs(20), ..Default::default() };
    let producer = client.producer("t", config).await.unwrap();
    soon(producer.flush()).await.unwrap();
    for value in 0..100 {
        drop(producer.send(Record::new("v").with_key(value.to_string())).await.unwrap());
    }
    soon(producer.flush()).await.unwrap();
    assert_eq!(producer.report().acknowledged, 100);
    assert_eq!((0..4).map(|partition| stored(&broker, partition).len()).sum::<usize>(), 100);
}

#[tokio::test]
async fn a_raw_batch_is_published_and_fetched_as_it_is() {
    let broker = Broker::start().await;
    broker.add_topic("t", 1);
    let client = connect(&broker).await;
    let topic = client.topology("t").await.unwrap();
    let mut builder = BatchBuilder::new(Codec::None);
    for value in ["a", "b"] {
        builder.push(&batch::Record { value: Some(value.into()), ..Default::default() }).unwrap();
    }
    let raw = builder.build(None);
    for expected in [0, 2] {
        let receipt = soon(client.publish_batch(&topic, 0, raw.clone(), Ack::Quorum)).await.unwrap();
        assert_eq!(receipt.offset, Some(Offset(expected)));
    }
    let none = client.publish_batch(&topic, 0, raw.clone(), Ack::None).await.unwrap();
    assert_eq!(none.offset, None);
    until(|| broker.state().publishes == 3).await;
    let fetched = soon(client.fetch(&topic, 0, Offset(2), 0, Duration::ZERO)).await.unwrap();
    assert_eq!(values(fetched.batches), ["a", "b", "a", "b"].map(|value| Bytes::from_static(value.as_bytes())));
    assert_eq!(fetched.next_offset, Offset(6));
    let beyond = client.fetch(&topic, 0, Offset(7), 0, Duration::ZERO).await;
    assert_eq!(kind(beyond), "offset_out_of_range");
    assert_eq!(soon(client.list_offsets(&topic, 0, None)).await.unwrap().high_watermark, Offset(6));
    assert_eq!(kind(client.publish_batch(&topic, 9, raw, Ack::Quorum).await), "partition_not_found");
    let not_a_batch = client.publish_batch(&topic, 0, Bytes::from_static(b"x"), Ack::Quorum).await;
    assert_eq!(kind(not_a_batch), "invalid_argument");
}

#[tokio::test]
async fn large_batches_go_through_one_connection_with_small_ones() {
    let broker = Broker::start().await;
    broker.add_topic("t", 1);
    let config =
        ClientConfig { max_frame_bytes: 64 * 1024 * 1024, ..ClientConfig::with_seeds(broker.seeds()).unwrap() };
    let client = soon(Client::connect(config)).await.unwrap();
    let producer = client.producer("t", ProducerConfig { batch_bytes: 1 << 20, ..plain() }).await.unwrap();
    let sizes = [1, 500_000, 10, 900_000, 0, 8 * 1024, 8 * 1024 - 100, 100_000];
    for round in 0..40 {
        for size in sizes {
            drop(producer.send(Record::new("x".repeat(size + round))).await.unwrap());
        }
    }
    let report = soon(producer.close()).await.unwrap();
    assert_eq!(report.acknowledged, 320);
    let lengths: Vec<usize> = stored(&broker, 0).iter().map(String::len).collect();
    let expected: Vec<usize> = (0..40).flat_map(|round| sizes.map(|size| size + round)).collect();
    assert_eq!(lengths, expected);
}

#[tokio::test]
async fn batches_that_nobody_answers_wait_for_the_connection_to_take_them() {
    let broker = Broker::start().await;
    broker.add_topic("t", 1);
    let client = connect(&broker).await;
    let topic = client.topology("t").await.unwrap();
    let mut builder = BatchBuilder::new(Codec::None);
    builder.push(&batch::Record { value: Some(vec![0; 1_000_000].into()), ..Default::default() }).unwrap();
    let raw = builder.build(None);
    for _ in 0..50 {
        soon(client.publish_batch(&topic, 0, raw.clone(), Ack::None)).await.unwrap();
    }
    assert!(broker.state().publishes > 30, "all but what may wait to be written was taken");
    until(|| broker.state().publishes == 50).await;
}
