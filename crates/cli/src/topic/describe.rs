//! `lockgate topic describe`.

use clap::Args;
use lockgate_client::Admin;

use super::view;
use crate::args::Global;
use crate::failure::Failure;
use crate::output;

#[derive(Debug, Args)]
pub(crate) struct Describe {
    /// The topic
    name: String,
}

pub(crate) async fn run(args: &Describe, admin: &Admin, global: &Global) -> Result<(), Failure> {
    let topic = admin.describe_topic(&args.name).await?;
    output::print(global, || view::describe_text(&topic), || view::describe_json(&topic))
}
