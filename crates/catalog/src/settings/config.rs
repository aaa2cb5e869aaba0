//! A topic's settings as the broker uses them.

use std::collections::BTreeSet;

/// The typed settings of a topic. Those of another kind have their defaults and mean nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopicConfig {
    /// When a batch counts as durable.
    pub fsync: Fsync,
    /// Largest batch that is taken.
    pub max_batch_bytes: u64,
    /// How long a stream keeps a record; `None`: for ever.
    pub retention_ms: Option<u64>,
    /// How much a stream's partition keeps; `None`: no bound.
    pub retention_bytes: Option<u64>,
    /// Size at which a partition begins its next segment.
    pub segment_bytes: u64,
    /// Whose time a record carries.
    pub timestamps: Timestamps,
    /// How long a delivered message of a queue may stay unsettled.
    pub lease_ms: u64,
    /// Failures after which a message is dead; 0: never.
    pub max_attempts: u64,
    /// Full name of the topic that takes dead messages.
    pub dead_letter: Option<String>,
    /// How long a message of a queue waits before it expires.
    pub message_ttl_ms: Option<u64>,
    /// How much a partition holds; `None`: no bound.
    pub max_bytes: Option<u64>,
    /// How many messages a queue's partition holds; `None`: no bound.
    pub max_messages: Option<u64>,
    /// What a full queue does.
    pub overflow: Overflow,
    /// How long a cache keeps a key that says nothing itself; `None`: for ever.
    pub ttl_ms: Option<u64>,
    /// What a full cache does.
    pub eviction: Eviction,
    /// The settings that the topic gives itself; the others follow the defaults.
    pub(super) own: BTreeSet<&'static str>,
}

impl TopicConfig {
    /// What stands here before the table's defaults are written over it: every field is in the table.
    pub(super) const BLANK: Self = Self {
        fsync: Fsync::Always,
        max_batch_bytes: 0,
        retention_ms: None,
        retention_bytes: None,
        segment_bytes: 0,
        timestamps: Timestamps::Create,
        lease_ms: 0,
        max_attempts: 0,
        dead_letter: None,
        message_ttl_ms: None,
        max_bytes: None,
        max_messages: None,
        overflow: Overflow::Reject,
        ttl_ms: None,
        eviction: Eviction::Reject,
        own: BTreeSet::new(),
    };
}

/// When a replica counts a batch as durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fsync {
    /// Once it is synced to the device.
    Always,
    /// Once the operating system has it; it is synced within the interval.
    Interval {
        /// The longest time until the sync.
        ms: u32,
    },
}

/// A setting whose values are a few words.
macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum $name { $($(#[$variant_doc])* $variant),+ }

        impl $name {
            pub(super) const WORDS: &'static [&'static str] = &[$($word),+];

            /// The word for it.
            pub fn word(self) -> &'static str {
                match self { $($name::$variant => $word),+ }
            }
            pub(super) fn from_word(word: &str) -> Option<Self> {
                match word { $($word => Some($name::$variant),)+ _ => None }
            }
        }
    };
}

choice! {
    /// Whose time a record carries.
    Timestamps {
        /// The producer's.
        Create = "create",
        /// The leader's, at the append.
        Append = "append",
    }
}
choice! {
    /// What a full queue does.
    Overflow {
        /// It refuses what comes.
        Reject = "reject",
        /// It drops what is oldest.
        DropOldest = "drop_oldest",
    }
}
choice! {
    /// What a full cache does.
    Eviction {
        /// It refuses what comes.
        Reject = "reject",
        /// It drops what was not used for longest.
        EvictLru = "evict_lru",
    }
}
