//! `lockgate topic delete`.

use clap::Args;
use lockgate_client::Admin;
use serde_json::json;

use crate::args::Global;
use crate::failure::Failure;
use crate::output;

#[derive(Debug, Args)]
pub(crate) struct Delete {
    /// The topic
    name: String,
}

pub(crate) async fn run(args: &Delete, admin: &Admin, global: &Global) -> Result<(), Failure> {
    admin.delete_topic(&args.name).await?;
    output::confirm(global, || format!("topic {} is deleted", args.name), || json!({ "topic": args.name }))
}
