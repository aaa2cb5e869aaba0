//! `lockgate cursor set`.

use clap::Args;
use lockgate_client::{Client, Offsets, Topic};
use lockgate_wire::Offset;

use super::{CursorArgs, partitions, view};
use crate::args::Global;
use crate::failure::Failure;
use crate::output;
use crate::position::Position;

#[derive(Debug, Args)]
pub(crate) struct Set {
    #[command(flatten)]
    cursor: CursorArgs,
    /// Where to: earliest, latest, offset:N, time:T, last:N or cursor:NAME
    #[arg(long, value_name = "POSITION")]
    to: Position,
    /// Move it backwards, too
    #[arg(long)]
    force: bool,
}

pub(crate) async fn run(args: &Set, client: &Client, global: &Global) -> Result<(), Failure> {
    let Set { cursor, to, force } = args;
    let cursors = client.cursors(&cursor.topic).await?;
    let chosen = partitions(&cursors, cursor.partition);
    if matches!(to, Position::Offset(_)) && chosen.len() > 1 {
        let count = chosen.len();
        return Err(Failure::Usage(format!(
            "an offset means one partition, and {} has {count}; name it with --partition",
            cursor.topic
        )));
    }
    let mut positions = Vec::new();
    for partition in chosen {
        let offset = match to {
            Position::Offset(offset) => Some(Offset(*offset)),
            Position::Cursor(name) => cursors.get(name, partition).await?,
            to => Some(resolve(client, cursors.topic(), partition, to).await?),
        };
        if let Some(offset) = offset {
            cursors.commit(&cursor.name, partition, offset, *force).await?;
        }
        positions.push((partition, offset));
    }
    output::confirm(global, || view::positions_text(&positions), || view::positions_json(&cursor.name, &positions))
}

/// The offset that a position means in a partition now.
async fn resolve(client: &Client, topic: &Topic, partition: u32, to: &Position) -> Result<Offset, Failure> {
    let time = if let Position::Time(ms) = to { Some(*ms) } else { None };
    let Offsets { earliest, high_watermark, at } = client.list_offsets(topic, partition, time).await?;
    Ok(match to {
        Position::Earliest => earliest,
        Position::Time(_) => at.map_or(high_watermark, |(offset, _)| offset),
        Position::Last(records) => Offset(high_watermark.0.saturating_sub(*records)).max(earliest),
        Position::Latest | Position::Offset(_) | Position::Cursor(_) => high_watermark,
    })
}
