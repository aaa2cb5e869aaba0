//! What a scrub found in a partition's segments. It is told once for each place; nothing else comes of it: the partition
//! goes on, and whoever reads a damaged place is refused as before.

use std::collections::BTreeMap;

use bytes::Bytes;
use lockgate_storage::disk::{DiskResult, FileOp};
use lockgate_storage::segment::{Damage, Scrub, ScrubPlace, Scrubbed};
use lockgate_wire::PartitionId;

use super::Partition;
use crate::core::Core;
use crate::limits::{DAMAGED_PLACES, SCRUB_READ_BYTES};
use crate::output::Level;

/// The places that are known to be damaged, until they are read without a fault or retention removes them.
#[derive(Default)]
pub(super) struct Damaged(BTreeMap<ScrubPlace, String>);

impl Partition {
    /// Plans the next read of a scrub of this partition. `None` at the end of what is sealed.
    pub(crate) fn scrub(&self, scrub: &mut Scrub) -> Option<FileOp> {
        self.log.segments.scrub(scrub, SCRUB_READ_BYTES)
    }

    /// That read ended.
    pub(crate) fn scrubbed(&mut self, core: &mut Core, scrub: &mut Scrub, result: DiskResult<Bytes>) {
        let start = self.log.start();
        let known = &mut self.damaged.0;
        known.retain(|(segment, _), _| *segment >= start);
        match self.log.segments.scrubbed(scrub, result) {
            Scrubbed::Nothing => {}
            Scrubbed::Good(from) => {
                let to = scrub.place();
                known.retain(|place, _| !(from..to).contains(place));
            }
            Scrubbed::Damaged(place, damage) => {
                if known.len() < DAMAGED_PLACES && !known.contains_key(&place) {
                    let words = tell(self.id, &damage);
                    core.log(Level::Error, words.as_str());
                    known.insert(place, words);
                }
            }
        }
    }

    /// How many places are known to be damaged, and the first of them in words.
    pub(crate) fn damaged_places(&self) -> (usize, Option<&str>) {
        // Retention may have removed some since the last read.
        let mut kept = self.damaged.0.range((self.log.start(), 0)..).map(|(_, words)| words.as_str()).peekable();
        let first = kept.peek().copied();
        (kept.count(), first)
    }
}

fn tell(id: PartitionId, damage: &Damage) -> String {
    match damage {
        Damage::Log(error) => {
            format!("the scrub found damage in partition {id}: {error}. Who reads there is refused, all else is served")
        }
        Damage::Seal { path, reason } => format!(
            "the scrub found damage in partition {id}: {path} is damaged: {reason}. No reader needs it, and the next start \
             makes it anew"
        ),
    }
}
