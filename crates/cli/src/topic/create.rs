//! `lockgate topic create`.

use clap::{Args, ValueEnum};
use lockgate_client::{Admin, TopicSpec};
use lockgate_wire::proto::TopicKind;
use serde_json::json;

use crate::args::{Global, parse_pair};
use crate::failure::Failure;
use crate::output;

#[derive(Debug, Args)]
pub(crate) struct Create {
    /// TOPIC, NAMESPACE/TOPIC or TENANT/NAMESPACE/TOPIC
    name: String,
    /// What it is
    #[arg(long, value_enum, value_name = "K", default_value_t)]
    kind: Kind,
    /// How many partitions, 1 to 1024; they are the unit of order
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    partitions: u32,
    /// How many replicas, 1 to 7; by default 3, or as many brokers as there are
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=7))]
    replicas: Option<u32>,
    /// A setting; `topic describe` shows all of them
    #[arg(long = "set", value_name = "K=V", value_parser = parse_pair)]
    settings: Vec<(String, String)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
enum Kind {
    /// An ordered log, read by position
    #[default]
    Stream,
    /// An ordered log, read by leases
    Queue,
    /// Keys with values and time to live
    Cache,
}

pub(crate) async fn run(args: Create, admin: &Admin, global: &Global) -> Result<(), Failure> {
    let kind = match args.kind {
        Kind::Stream => TopicKind::Stream,
        Kind::Queue => TopicKind::Queue,
        Kind::Cache => TopicKind::Cache,
    };
    let (name, partitions) = (args.name.clone(), args.partitions);
    let id = admin
        .create_topic(TopicSpec {
            name: args.name,
            kind,
            partitions,
            replication_factor: args.replicas.unwrap_or(0),
            settings: args.settings.into_iter().collect(),
        })
        .await?;
    let text = || {
        let plural = if partitions == 1 { "" } else { "s" };
        format!("topic {name} is made, with {partitions} partition{plural}")
    };
    output::confirm(global, text, || json!({ "topic": name, "topic_id": id.0, "partitions": partitions }))
}
