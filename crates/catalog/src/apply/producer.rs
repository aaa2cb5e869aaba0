//! Producer ids, in blocks: a leader takes a block and hands its ids out without asking again.

use lockgate_wire::{Error, ErrorKind};

use crate::limits::MAX_PRODUCER_IDS_PER_BLOCK;
use crate::{Catalog, Outcome};

impl Catalog {
    pub(crate) fn allocate_producer_ids(&mut self, count: u32) -> Result<Outcome, Error> {
        if !(1..=MAX_PRODUCER_IDS_PER_BLOCK).contains(&count) {
            let message = format!("a block of {count} producer ids; allowed: 1 to {MAX_PRODUCER_IDS_PER_BLOCK}");
            return Err(Error::new(ErrorKind::InvalidRequest, message).with_limit(MAX_PRODUCER_IDS_PER_BLOCK.into()));
        }
        let first = self.ids.producers(count)?;
        Ok(Outcome::ProducerIds { first, count })
    }
}
