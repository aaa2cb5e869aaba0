//! What an acknowledgement means with a topic's settings, in words that hide nothing.

use super::config::{Fsync, TopicConfig};
use super::value::Unit;

/// What an answer at level `quorum` promises for a topic with these settings and this many replicas, and what it does
/// not. At least one replica.
pub fn durability_words(config: &TopicConfig, replicas: u32) -> String {
    let majority = replicas / 2 + 1;
    match (config.fsync, replicas) {
        (Fsync::Always, 0..=1) => "An acknowledged batch was synced, with the file's size, to the device of its only \
             replica. It survives the death of the process and of the machine, not the loss of that disk."
            .into(),
        (Fsync::Always, _) => {
            let spare = replicas - majority;
            let spare = match spare {
                0 => "every disk is needed: it does not survive the loss of one".to_string(),
                1 => "it survives the loss of any one replica".to_string(),
                many => format!("it survives the loss of any {many} replicas"),
            };
            format!(
                "An acknowledged batch was synced, with the file's size, to the devices of a majority of the replicas \
                 ({majority} of {replicas}); {spare}."
            )
        }
        (Fsync::Interval { ms }, 0..=1) => format!(
            "An acknowledged batch was written to the operating system of its only replica; the sync follows within {}. \
             It survives the death of the process, not of the machine: a machine that loses power can lose acknowledged \
             data.",
            Unit::Duration.show(ms.into())
        ),
        (Fsync::Interval { ms }, _) => format!(
            "An acknowledged batch was written to the operating systems of a majority of the replicas ({majority} of \
             {replicas}); the sync follows within {}. It survives the death of the process, not of the machine: a replica \
             that lost power rejoins as one that knows nothing, and a partition of which a majority lost power together \
             can lose acknowledged data.",
            Unit::Duration.show(ms.into())
        ),
    }
}
