//! The state machine: commands in log order go in, the state moves, an outcome comes out.
//!
//! A command that is refused changes nothing but the position up to which the log is applied. A refusal depends on the
//! state and the command alone, so every replica refuses alike. Lives on shard 0 of a node with role controller.

use lockgate_wire::{Error, ErrorKind, LogIndex, ProducerId, TopicId};

use crate::ids::Ids;
use crate::{ClusterView, Command};

/// The cluster's metadata. The default is that of a cluster before its first command.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Catalog {
    /// The state that everybody sees.
    pub(crate) view: ClusterView,
    /// The last command that was handled, refused or not.
    pub(crate) applied: LogIndex,
    pub(crate) ids: Ids,
}

/// What an applied command did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The cluster has its identity and its first node.
    ClusterInitialised,
    /// The topic is there.
    TopicCreated {
        /// Its id.
        topic: TopicId,
    },
    /// The topic has its new settings.
    TopicAltered {
        /// The topic's new version.
        version: u64,
    },
    /// The topic is gone for good.
    TopicDeleted {
        /// The id that it had.
        topic: TopicId,
    },
    /// A block of producer ids, nobody else's.
    ProducerIds {
        /// The first one.
        first: ProducerId,
        /// How many follow each other from there.
        count: u32,
    },
}

impl Catalog {
    /// Applies the command at this index of the log.
    ///
    /// # Panics
    /// If the index is not above the last one: the log was fed out of order.
    pub fn apply(&mut self, index: LogIndex, command: &Command) -> Result<Outcome, Error> {
        assert!(index > self.applied, "log index {index} is applied after {}", self.applied);
        self.applied = index;
        let outcome = self.dispatch(command)?;
        self.view.version = index.0;
        Ok(outcome)
    }

    fn dispatch(&mut self, command: &Command) -> Result<Outcome, Error> {
        match command {
            Command::InitCluster { cluster_id, node, time } => self.init_cluster(*cluster_id, *node, *time),
            _ if !self.view.is_initialised() => {
                Err(Error::new(ErrorKind::InvalidRequest, "the cluster is not initialised yet; nothing can be changed"))
            }
            Command::CreateTopic { .. } => self.create_topic(command),
            Command::AlterTopic { name, set, if_version, .. } => self.alter_topic(name, set, *if_version),
            Command::DeleteTopic { name, .. } => self.delete_topic(name),
            Command::AllocateProducerIds { count, .. } => self.allocate_producer_ids(*count),
        }
    }

    /// The state as an immutable value; shares with earlier ones what did not change.
    pub fn view(&self) -> ClusterView {
        self.view.clone()
    }

    /// The log index of the last command that changed anything.
    pub fn version(&self) -> u64 {
        self.view.version
    }

    /// The log index of the last command that was handled, refused or not.
    pub fn applied(&self) -> LogIndex {
        self.applied
    }
}

#[cfg(test)]
mod tests;
