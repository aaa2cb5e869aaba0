//! The cursor that follows the printing: never ahead of it, and at most a second behind.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use lockgate_client::Cursors;
use lockgate_wire::Offset;

use crate::failure::Failure;

/// How often a cursor is committed while records keep coming.
const INTERVAL: Duration = Duration::from_secs(1);

/// See the module.
pub(super) struct Commits {
    cursors: Cursors,
    name: String,
    /// After the last record that was read, where that may not have reached the output yet.
    read: BTreeMap<u32, Offset>,
    /// Printed and not committed.
    printed: BTreeMap<u32, Offset>,
    last: Instant,
}

impl Commits {
    pub(super) fn new(cursors: Cursors, name: String) -> Self {
        Self { cursors, name, read: BTreeMap::new(), printed: BTreeMap::new(), last: Instant::now() }
    }

    /// A record is on its way to the output.
    pub(super) fn read(&mut self, partition: u32, offset: Offset) {
        self.read.insert(partition, offset.plus(1));
    }

    /// Everything that was read has been printed.
    pub(super) fn printed(&mut self) {
        self.printed.append(&mut self.read);
    }

    /// How long what was printed may wait for its commit; `None` when all of it is committed.
    pub(super) fn due_in(&self) -> Option<Duration> {
        (!self.printed.is_empty()).then(|| INTERVAL.saturating_sub(self.last.elapsed()))
    }

    /// Commits what was printed. Cancelled, it may be repeated.
    pub(super) async fn commit(&mut self) -> Result<(), Failure> {
        while let Some((partition, offset)) = self.printed.first_key_value() {
            self.cursors.commit(&self.name, *partition, *offset, false).await?;
            self.printed.pop_first();
        }
        self.last = Instant::now();
        Ok(())
    }
}
