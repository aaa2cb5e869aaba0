//! The journal's promises.
