//! What a host tells the engine.

use lockgate_wire::{GroupId, LogIndex, Term};

use crate::Entry;

/// Something that happened in a group. Events of one group come in the order in which they happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// This replica's own log is as durable as its journal makes it, up to this entry. Answers level `leader`.
    Persisted {
        /// The group.
        group: GroupId,
        /// The entry's term.
        term: Term,
        /// The entry's index.
        index: LogIndex,
    },
    /// The next committed entries, without a gap after those before. The engine applies them and says so
    /// ([`crate::Host::applied`]).
    Committed {
        /// The group.
        group: GroupId,
        /// At least one entry, in index order.
        entries: Vec<Entry>,
    },
    /// This replica leads and its own first entry was just committed: once that is applied, the replica serves. Comes
    /// right after the [`Event::Committed`] that holds that entry, once per term.
    Serving {
        /// The group.
        group: GroupId,
        /// The term it leads in.
        term: Term,
    },
    /// This replica no longer leads. What it proposed and has not seen committed has an unknown outcome.
    SteppedDown {
        /// The group.
        group: GroupId,
        /// The term it led in.
        term: Term,
    },
}

/// Where a proposal stands in the log. It is committed when an entry with this index *and* this term is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Proposed {
    /// The leader's term.
    pub term: Term,
    /// The entry's index.
    pub index: LogIndex,
}

/// A replica's part in its group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// It leads.
    Leader,
    /// It asks for votes.
    Candidate,
    /// It follows.
    Follower,
}

/// A group's state as one glance sees it: applied ≤ committed ≤ last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupStatus {
    /// The current term.
    pub term: Term,
    /// This replica's part.
    pub role: Role,
    /// The log's last entry, confirmed or not.
    pub last: LogIndex,
    /// The last committed entry.
    pub committed: LogIndex,
    /// The last entry that the engine said it applied.
    pub applied: LogIndex,
}
