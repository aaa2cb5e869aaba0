//! Readers on a real connection.

use std::time::Duration;

use lockgate_client::{Item, ProducerConfig, Reader, ReaderConfig, Record, Start};
use lockgate_wire::Offset;

use super::broker::Broker;
use super::{connect, kind, soon, until};

async fn fill(client: &lockgate_client::Client, records: std::ops::Range<u64>) {
    let producer = client.producer("t", ProducerConfig { batch_records: 5, ..Default::default() }).await.unwrap();
    for value in records {
        let record = Record::new(value.to_string()).with_header("h", "v");
        drop(soon(producer.send_to((value % 2) as u32, record)).await.unwrap());
    }
    soon(producer.close()).await.unwrap();
}

/// The next record, whatever else comes before it.
async fn next_record(reader: &mut Reader) -> lockgate_client::ReceivedRecord {
    loop {
        if let Item::Record(record) = soon(reader.next()).await.expect("it goes on").unwrap() {
            return record;
        }
    }
}

#[tokio::test]
async fn everything_is_read_in_order_and_then_it_ends() {
    let broker = Broker::start().await;
    broker.add_topic("t", 2);
    let client = connect(&broker).await;
    fill(&client, 0..100).await;
    let mut reader = client.reader("t", ReaderConfig { stop_at_end: true, ..Default::default() }).await.unwrap();
    let (mut next, mut ends) = ([0u64, 1], 0);
    while let Some(item) = soon(reader.next()).await {
        match item.unwrap() {
            Item::Record(record) => {
                let expected = &mut next[record.partition as usize];
                assert_eq!(record.value.unwrap(), expected.to_string());
                assert_eq!((record.offset, record.append_time_ms), (Offset(*expected / 2), 1_234));
                assert_eq!(record.headers[0].name, "h");
                *expected += 2;
            }
            Item::EndOfPartition { offset, .. } => {
                assert_eq!(offset, Offset(50));
                ends += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((next, ends), ([100, 101], 2));
    assert_eq!(reader.positions(), &[(0, Offset(50)), (1, Offset(50))].into());
}

#[tokio::test]
async fn a_reader_resumes_from_the_positions_of_another() {
    let broker = Broker::start().await;
    broker.add_topic("t", 2);
    let client = connect(&broker).await;
    fill(&client, 0..40).await;
    let mut first = client.reader("t", ReaderConfig::default()).await.unwrap();
    let mut seen: Vec<u64> = Vec::new();
    for _ in 0..13 {
        let value = next_record(&mut first).await.value.unwrap();
        seen.push(std::str::from_utf8(&value).unwrap().parse().unwrap());
    }
    let config = ReaderConfig { stop_at_end: true, ..Default::default() }.resume_from(first.positions().clone());
    let mut second = client.reader("t", config).await.unwrap();
    while let Some(items) = soon(second.next_batch()).await {
        for item in items.unwrap() {
            let Item::Record(record) = item else { continue };
            seen.push(std::str::from_utf8(&record.value.unwrap()).unwrap().parse().unwrap());
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..40).collect::<Vec<u64>>());
}

#[tokio::test]
async fn tailing_goes_on_over_a_broker_that_dies_and_comes_back() {
    let mut broker = Broker::start().await;
    broker.add_topic("t", 2);
    let client = connect(&broker).await;
    let config = ReaderConfig { from: Start::Latest, partitions: Some(vec![1]), ..Default::default() };
    let mut reader = client.reader("t", config).await.unwrap();
    for round in 0..3u64 {
        fill(&client, round * 20..round * 20 + 20).await;
        for expected in (round * 20..round * 20 + 20).filter(|value| value % 2 == 1) {
            assert_eq!(next_record(&mut reader).await.value.unwrap(), expected.to_string());
        }
        broker.stop().await;
        until(|| !client.is_connected()).await;
        broker.restart().await;
        let (mut lost, mut recovered) = (false, false);
        while !recovered {
            match soon(reader.next()).await.unwrap().unwrap() {
                Item::PartitionLost { partition: 1, .. } => lost = true,
                Item::PartitionRecovered { partition: 1 } => recovered = true,
                Item::EndOfPartition { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        assert!(lost);
    }
}

#[tokio::test]
async fn giving_up_on_next_loses_nothing() {
    let broker = Broker::start().await;
    broker.add_topic("t", 2);
    let client = connect(&broker).await;
    let mut reader =
        client.reader("t", ReaderConfig { partitions: Some(vec![0]), ..Default::default() }).await.unwrap();
    let filling = tokio::spawn({
        let client = client.clone();
        async move { fill(&client, 0..400).await }
    });
    let mut expected = 0;
    while expected < 400 {
        let Ok(item) = tokio::time::timeout(Duration::from_micros(20), reader.next()).await else { continue };
        if let Item::Record(record) = item.unwrap().unwrap() {
            assert_eq!(record.value.unwrap(), expected.to_string());
            expected += 2;
        }
    }
    soon(filling).await.unwrap();
}

#[tokio::test]
async fn a_reader_that_does_not_read_stops_the_flow_and_disturbs_nobody() {
    let broker = Broker::start().await;
    broker.add_topic("t", 1);
    let client = connect(&broker).await;
    let config = ReaderConfig { credit_bytes: 1, ..Default::default() };
    let mut idle = client.reader("t", config.clone()).await.unwrap();
    let mut busy = client.reader("t", config).await.unwrap();
    let producer = client.producer("t", Default::default()).await.unwrap();
    let sending = async {
        for value in 0..40 {
            drop(soon(producer.send(Record::new(format!("{value:0>60000}").repeat(3)))).await.unwrap());
        }
        soon(producer.flush()).await.unwrap();
    };
    let reading = async {
        for _ in 0..40 {
            next_record(&mut busy).await;
        }
    };
    tokio::join!(sending, reading);
    // One reader took 8 MB, the other at most its window of one largest batch of 1 MiB.
    assert!(client.stats().bytes_delivered < 9_500_000, "{}", client.stats().bytes_delivered);
    for value in 0..40 {
        assert_eq!(next_record(&mut idle).await.value.unwrap(), format!("{value:0>60000}").repeat(3));
    }
}

#[tokio::test]
async fn what_cannot_be_opened_says_why() {
    let broker = Broker::start().await;
    broker.add_topic("t", 2);
    let client = connect(&broker).await;
    assert_eq!(kind(client.reader("nothing", Default::default()).await), "topic_not_found");
    for partitions in [vec![2], vec![]] {
        let config = ReaderConfig { partitions: Some(partitions), ..Default::default() };
        assert_eq!(kind(client.reader("t", config).await), "invalid_argument");
    }
}
