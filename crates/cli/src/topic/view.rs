//! How topics look, as text and as JSON.

use lockgate_wire::TopicName;
use lockgate_wire::proto::{DescribeTopicOk, PartitionDescription, Setting, SettingOrigin, TopicKind, TopicSummary};
use serde_json::{Value, json};

use crate::output;

pub(super) fn list_text(topics: &[TopicSummary]) -> String {
    if topics.is_empty() {
        return "there are no topics; make one: lockgate topic create NAME".into();
    }
    let rows = topics.iter().map(|topic| {
        let (partitions, replicas) = (topic.partitions.to_string(), topic.replication_factor.to_string());
        [short(&topic.name), kind(topic.kind()).into(), partitions, replicas]
    });
    output::table(["TOPIC", "KIND", "PARTITIONS", "REPLICAS"], rows)
}

pub(super) fn list_json(topics: &[TopicSummary]) -> Value {
    let topics = topics.iter().map(|topic| {
        json!({
            "topic": topic.name, "topic_id": topic.topic_id, "kind": kind(topic.kind()),
            "partitions": topic.partitions, "replication_factor": topic.replication_factor,
        })
    });
    topics.collect()
}

pub(super) fn describe_text(topic: &DescribeTopicOk) -> String {
    let head = format!(
        "{}: {}, id {}, version {}, {}, {}\n{}",
        short(&topic.name),
        kind(topic.kind()),
        topic.topic_id,
        topic.version,
        output::count(topic.partitions.len() as u64, "partition"),
        output::count(topic.replication_factor.into(), "replica"),
        topic.durability,
    );
    let settings = topic.settings.iter().map(|setting| {
        let value = if setting.value.is_empty() { "none".into() } else { setting.value.clone() };
        [setting.name.clone(), value, origin(setting).into(), setting.bounds.clone()]
    });
    let settings = output::table(["SETTING", "VALUE", "FROM", "ALLOWED"], settings);
    let partitions = topic.partitions.iter().map(partition_row);
    let names = ["PARTITION", "LEADER", "EPOCH", "REPLICAS", "IN SYNC", "EARLIEST", "HIGH WATERMARK", "SIZE", "STATE"];
    format!("{head}\n\n{settings}\n\n{}", output::table(names, partitions))
}

fn partition_row(partition: &PartitionDescription) -> [String; 9] {
    let state = partition.error.as_ref().map_or("serving", |error| &error.message);
    [
        partition.partition.to_string(),
        leader(partition).map_or_else(|| "none".into(), |node| node.to_string()),
        partition.leader_epoch.to_string(),
        nodes(&partition.replica_nodes),
        nodes(&partition.in_sync_nodes),
        partition.earliest_offset.to_string(),
        partition.high_watermark.to_string(),
        output::bytes(partition.size_bytes as f64),
        state.to_owned(),
    ]
}

pub(super) fn describe_json(topic: &DescribeTopicOk) -> Value {
    let settings = topic.settings.iter().map(|setting| {
        json!({
            "name": setting.name, "value": setting.value, "from": origin(setting),
            "allowed": setting.bounds, "description": setting.description,
        })
    });
    let partitions = topic.partitions.iter().map(|partition| {
        json!({
            "partition": partition.partition, "leader": leader(partition), "leader_epoch": partition.leader_epoch,
            "replicas": partition.replica_nodes, "in_sync": partition.in_sync_nodes,
            "generation": partition.generation, "earliest_offset": partition.earliest_offset,
            "high_watermark": partition.high_watermark, "size_bytes": partition.size_bytes,
            "error": partition.error.as_ref().map(|error| json!({ "kind": error.kind, "message": error.message })),
        })
    });
    json!({
        "topic": topic.name, "topic_id": topic.topic_id, "kind": kind(topic.kind()), "version": topic.version,
        "partitioning_version": topic.partitioning_version, "replication_factor": topic.replication_factor,
        "created_ms": topic.created_ms, "durability": topic.durability,
        "settings": settings.collect::<Value>(), "partitions": partitions.collect::<Value>(),
    })
}

/// The shortest name that means the topic.
fn short(name: &str) -> String {
    TopicName::parse(name).map_or_else(|_| name.to_owned(), |name| name.short().to_owned())
}

fn kind(kind: TopicKind) -> &'static str {
    match kind {
        TopicKind::Stream => "stream",
        TopicKind::Queue => "queue",
        TopicKind::Cache => "cache",
    }
}

fn origin(setting: &Setting) -> &'static str {
    match setting.origin() {
        SettingOrigin::Default => "default",
        SettingOrigin::Topic => "topic",
    }
}

fn leader(partition: &PartitionDescription) -> Option<u32> {
    Some(partition.leader_node).filter(|node| *node != 0)
}

fn nodes(nodes: &[u32]) -> String {
    nodes.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}
