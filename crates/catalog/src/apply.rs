//! What each command does, by concept. Every file checks first and changes afterwards: a refusal leaves no trace.

mod cluster;
mod producer;
mod topic;

pub(crate) use topic::find;
