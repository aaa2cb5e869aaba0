//! `lockgate cursor list`.

use clap::Args;
use lockgate_client::Client;

use super::{partitions, view};
use crate::args::Global;
use crate::failure::Failure;
use crate::output;

#[derive(Debug, Args)]
pub(crate) struct List {
    /// The topic
    topic: String,
    /// One partition; by default all of them
    #[arg(long, value_name = "P")]
    partition: Option<u32>,
}

pub(crate) async fn run(args: &List, client: &Client, global: &Global) -> Result<(), Failure> {
    let cursors = client.cursors(&args.topic).await?;
    let mut found = Vec::new();
    for partition in partitions(&cursors, args.partition) {
        found.extend(cursors.list(partition).await?.into_iter().map(|cursor| (partition, cursor)));
    }
    found.sort_by(|(p, a), (q, b)| (&a.name, p).cmp(&(&b.name, q)));
    output::print(global, || view::list_text(&found), || view::list_json(&found))
}
