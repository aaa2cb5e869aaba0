//! How cursors look, as text and as JSON.

use lockgate_wire::Offset;
use lockgate_wire::proto::Cursor;
use serde_json::{Value, json};

use crate::output;

pub(super) fn list_text(cursors: &[(u32, Cursor)]) -> String {
    if cursors.is_empty() {
        return "there are no cursors".into();
    }
    let rows = cursors
        .iter()
        .map(|(partition, cursor)| [cursor.name.clone(), partition.to_string(), cursor.offset.to_string()]);
    output::table(["CURSOR", "PARTITION", "OFFSET"], rows)
}

pub(super) fn list_json(cursors: &[(u32, Cursor)]) -> Value {
    let cursors = cursors.iter().map(|(partition, cursor)| {
        json!({
            "cursor": cursor.name, "partition": partition, "offset": cursor.offset, "committed_ms": cursor.committed_ms,
        })
    });
    cursors.collect()
}

pub(super) fn positions_text(positions: &[(u32, Option<Offset>)]) -> String {
    let offset = |offset: &Option<Offset>| offset.map_or_else(|| "not set".into(), |offset| offset.to_string());
    let rows = positions.iter().map(|(partition, position)| [partition.to_string(), offset(position)]);
    output::table(["PARTITION", "OFFSET"], rows)
}

pub(super) fn positions_json(name: &str, positions: &[(u32, Option<Offset>)]) -> Value {
    let partitions = positions
        .iter()
        .map(|(partition, offset)| json!({ "partition": partition, "offset": offset.map(|offset| offset.0) }));
    json!({ "cursor": name, "partitions": partitions.collect::<Value>() })
}
