//! Simulated time: nanoseconds since the beginning of the run.

/// Nanoseconds since the beginning of the run.
pub type Time = u64;

/// A microsecond.
pub const US: Time = 1_000;
/// A millisecond.
pub const MS: Time = 1_000 * US;
/// A second.
pub const SECOND: Time = 1_000 * MS;
