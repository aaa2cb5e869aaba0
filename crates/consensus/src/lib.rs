//! Many Raft groups in one shard: what is written before what is answered, and what a restart makes of it.
//!
//! Pure: the [`Host`] is told what happened (a proposal, a journal write that was confirmed, an entry that was applied)
//! and says what to append to the shard's journals and what is committed. The algorithm is the `raft` crate's; ours is
//! the persistence order, the bounds, the records, and the care at the crate's edges: whatever would make it panic is
//! checked here first.
//!
//! A group lives on the shard of its replica, from [`Host::bootstrap`] or [`Host::open`] to [`Host::remove`].

mod election;
mod entry;
mod error;
mod event;
mod group;
mod host;
mod living;
mod log;
mod record;
mod recovery;

pub use entry::{Configuration, Entry, EntryKind};
pub use error::{ConsensusError, ProposeError};
pub use event::{Event, GroupStatus, Proposed, Role};
pub use group::UNCOMMITTED_BYTES_MAX;
pub use host::{Append, Host, Laggard};
pub use living::Base;
pub use record::{BUFFERED_MARK, LOG_INDEX_MAX, TERM_MAX, entry_of, external_body};
pub use recovery::{RecoveredGroup, Recovery, SuspectGroup};
