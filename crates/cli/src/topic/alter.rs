//! `lockgate topic alter`.

use clap::Args;
use lockgate_client::Admin;
use serde_json::json;

use crate::args::{Global, parse_pair};
use crate::failure::Failure;
use crate::output;

#[derive(Debug, Args)]
pub(crate) struct Alter {
    /// The topic
    name: String,
    /// A setting's new value; without a value (`K=`) it is the default again
    #[arg(long = "set", value_name = "K=V", value_parser = parse_pair, required = true)]
    settings: Vec<(String, String)>,
}

pub(crate) async fn run(args: Alter, admin: &Admin, global: &Global) -> Result<(), Failure> {
    let version = admin.alter_topic(&args.name, args.settings.into_iter().collect(), None).await?;
    let text = || format!("topic {} is altered", args.name);
    output::confirm(global, text, || json!({ "topic": args.name, "version": version }))
}
