//! What can go wrong, with the values that explain it.

use std::fmt;

use lockgate_storage::journal::{JournalKind, RecordKind, Sequence};
use lockgate_wire::{GroupId, LogIndex, ReplicaId, Term};

/// Why a proposal was not taken. Nothing of it remains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProposeError {
    /// This replica does not lead the group.
    NotLeader,
    /// This host has no such group.
    NoSuchGroup,
    /// The shard's journal failed; nothing is taken until a restart.
    Poisoned,
    /// It carries neither context nor data, which marks a leader's own first entry.
    Empty,
    /// The group has as many proposed and not yet committed bytes as it may have.
    TooManyUncommitted {
        /// The bytes that wait.
        waiting_bytes: usize,
        /// The bytes of this proposal.
        bytes: usize,
        /// [`crate::UNCOMMITTED_BYTES_MAX`].
        limit_bytes: usize,
    },
}

impl fmt::Display for ProposeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLeader => write!(f, "this replica does not lead the group"),
            Self::NoSuchGroup => write!(f, "this shard has no such group"),
            Self::Poisoned => write!(f, "the shard's journal failed; restart the node to recover"),
            Self::Empty => write!(f, "a proposal must carry a context or data"),
            Self::TooManyUncommitted { waiting_bytes, bytes, limit_bytes } => write!(
                f,
                "{bytes} bytes do not fit beside {waiting_bytes} uncommitted bytes of the group, at most {limit_bytes} \
                 are allowed; wait for some to be committed"
            ),
        }
    }
}

impl std::error::Error for ProposeError {}

/// Why a group cannot be bootstrapped, recovered or opened. Such a replica is suspect: it must not serve.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConsensusError {
    /// The host has this group already.
    GroupExists {
        /// The group.
        group: GroupId,
    },
    /// The shard's journal failed; nothing is opened until a restart.
    Poisoned,
    /// Replica ids are 1 or more.
    InvalidReplica {
        /// The group.
        group: GroupId,
    },
    /// This build serves groups whose only voter is the replica itself.
    NotSoleVoter {
        /// The group.
        group: GroupId,
        /// The replica.
        replica: ReplicaId,
        /// The voters that its configuration names.
        voters: usize,
    },
    /// The log holds a configuration change, which this build never writes.
    ConfigurationChange {
        /// The group.
        group: GroupId,
        /// The entry.
        index: LogIndex,
    },
    /// A record's body is not what its kind says.
    BadRecord {
        /// The group.
        group: GroupId,
        /// The journal that holds it.
        journal: JournalKind,
        /// The record's number.
        sequence: Sequence,
        /// What it should be.
        kind: RecordKind,
        /// What is wrong.
        what: &'static str,
    },
    /// A record of a kind that this build does not write.
    UnknownRecord {
        /// The group.
        group: GroupId,
        /// The journal that holds it.
        journal: JournalKind,
        /// The record's number.
        sequence: Sequence,
        /// Its kind.
        kind: RecordKind,
    },
    /// Two records claim the same place in the log, written in the same term, with other contents.
    Conflict {
        /// The group.
        group: GroupId,
        /// The place.
        index: LogIndex,
        /// The term in which both were written.
        written_in: Term,
    },
    /// A group's term fell from one hard state to a later one.
    TermFell {
        /// The group.
        group: GroupId,
        /// The earlier term.
        from: Term,
        /// The later one.
        to: Term,
    },
    /// Records of a replica whose first record, the bootstrap, is not there.
    NoBootstrap {
        /// The group.
        group: GroupId,
        /// The replica.
        replica: ReplicaId,
    },
    /// Two replicas of one group, neither removed.
    TwoReplicas {
        /// The group.
        group: GroupId,
        /// One.
        first: ReplicaId,
        /// The other.
        second: ReplicaId,
    },
    /// Entries are missing between two that are there.
    Hole {
        /// The group.
        group: GroupId,
        /// The last entry before the hole.
        after: LogIndex,
        /// The first entry behind it.
        next: LogIndex,
    },
    /// An entry's term is below its predecessor's, or above the group's.
    TermOrder {
        /// The group.
        group: GroupId,
        /// The entry.
        index: LogIndex,
        /// Its term.
        term: Term,
    },
    /// The state machine's checkpoint is ahead of the log: something that was confirmed is gone.
    AppliedAboveLog {
        /// The group.
        group: GroupId,
        /// The checkpoint's index.
        applied: LogIndex,
        /// The log's last index.
        last: LogIndex,
    },
    /// The state machine's checkpoint was made from another log.
    AppliedTermDiffers {
        /// The group.
        group: GroupId,
        /// The checkpoint's index.
        applied: LogIndex,
        /// The checkpoint's term.
        applied_term: Term,
        /// The log's term at that index.
        log_term: Term,
    },
    /// The group has used up its terms: they must fit the 31 bits of a batch's leader epoch.
    TermsExhausted {
        /// The group.
        group: GroupId,
        /// The term.
        term: Term,
    },
}

impl fmt::Display for ConsensusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GroupExists { group } => write!(f, "group {group} is open already"),
            Self::Poisoned => write!(f, "the shard's journal failed; restart the node to recover"),
            Self::InvalidReplica { group } => write!(f, "group {group}: replica id 0; ids are 1 or more"),
            Self::NotSoleVoter { group, replica, voters } => write!(
                f,
                "group {group}: replica {replica} is not the only member ({voters} voters); this build serves groups of \
                 one replica"
            ),
            Self::ConfigurationChange { group, index } => write!(
                f,
                "group {group}: entry {index} changes the configuration, which this build does not know; start a newer one"
            ),
            Self::BadRecord { group, journal, sequence, kind, what } => {
                write!(f, "group {group}: record {sequence} of the {journal} journal is a bad {kind:?}: {what}")
            }
            Self::UnknownRecord { group, journal, sequence, kind } => write!(
                f,
                "group {group}: record {sequence} of the {journal} journal is a {kind:?}, which this build does not know; \
                 start a newer one"
            ),
            Self::Conflict { group, index, written_in } => {
                write!(f, "group {group}: two different entries {index} written in term {written_in}")
            }
            Self::TermFell { group, from, to } => write!(f, "group {group}: the term fell from {from} to {to}"),
            Self::NoBootstrap { group, replica } => {
                write!(f, "group {group}: replica {replica} has records and no bootstrap record")
            }
            Self::TwoReplicas { group, first, second } => {
                write!(f, "group {group}: replicas {first} and {second} are both here and neither was removed")
            }
            Self::Hole { group, after, next } => {
                write!(f, "group {group}: entries are missing after {after} and before {next}")
            }
            Self::TermOrder { group, index, term } => {
                write!(f, "group {group}: entry {index} has term {term}, out of order with its neighbours or the group")
            }
            Self::AppliedAboveLog { group, applied, last } => write!(
                f,
                "group {group}: the checkpoint is at {applied} and the log ends at {last}: confirmed entries are gone"
            ),
            Self::AppliedTermDiffers { group, applied, applied_term, log_term } => write!(
                f,
                "group {group}: the checkpoint at {applied} is of term {applied_term}, the log's entry of term {log_term}"
            ),
            Self::TermsExhausted { group, term } => {
                write!(f, "group {group}: term {term} is the last that fits a leader epoch")
            }
        }
    }
}

impl std::error::Error for ConsensusError {}
