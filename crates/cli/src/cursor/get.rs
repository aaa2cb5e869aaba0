//! `lockgate cursor get`.

use lockgate_client::Client;

use super::{CursorArgs, partitions, view};
use crate::args::Global;
use crate::failure::Failure;
use crate::output;

pub(crate) async fn run(args: &CursorArgs, client: &Client, global: &Global) -> Result<(), Failure> {
    let cursors = client.cursors(&args.topic).await?;
    let mut positions = Vec::new();
    for partition in partitions(&cursors, args.partition) {
        positions.push((partition, cursors.get(&args.name, partition).await?));
    }
    output::print(global, || view::positions_text(&positions), || view::positions_json(&args.name, &positions))
}
