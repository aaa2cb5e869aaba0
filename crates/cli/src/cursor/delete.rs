//! `lockgate cursor delete`.

use lockgate_client::Client;
use serde_json::json;

use super::{CursorArgs, partitions};
use crate::args::Global;
use crate::failure::Failure;
use crate::output;

pub(crate) async fn run(args: &CursorArgs, client: &Client, global: &Global) -> Result<(), Failure> {
    let cursors = client.cursors(&args.topic).await?;
    let mut deleted = Vec::new();
    for partition in partitions(&cursors, args.partition) {
        if cursors.delete(&args.name, partition).await? {
            deleted.push(partition);
        }
    }
    if deleted.is_empty() {
        let what =
            format!("{} has no cursor {}; lockgate cursor list {} shows them", args.topic, args.name, args.topic);
        return Err(Failure::Incomplete { what, unknown: false });
    }
    let partitions = output::count(deleted.len() as u64, "partition");
    let text = || format!("cursor {} is deleted in {partitions} of {}", args.name, args.topic);
    output::confirm(global, text, || json!({ "cursor": args.name, "deleted": deleted }))
}
