//! The user's wish to end a benchmark: loads end early, what was measured is printed, and what was made is cleaned up.

use std::sync::atomic::{AtomicBool, Ordering};

use super::target::runtime;
use crate::failure::Failure;
use crate::interrupt::Interrupt;

/// Process-wide, as signals are.
static WANTED: AtomicBool = AtomicBool::new(false);

/// Takes SIGINT and SIGTERM from here on. The second one ends the process at once.
pub(super) fn listen() -> Result<(), Failure> {
    let runtime = runtime()?;
    let mut interrupt = runtime.block_on(async { Interrupt::listen() })?;
    let waiting = move || {
        runtime.block_on(async {
            interrupt.next().await;
            WANTED.store(true, Ordering::Relaxed);
            interrupt.next().await;
        });
        std::process::exit(1)
    };
    // It ends with the process.
    let thread = std::thread::Builder::new().name("signals".into()).spawn(waiting);
    thread.map(drop).map_err(Failure::io("a thread for signals cannot be started"))
}

/// Whether a signal came.
pub(super) fn is_wanted() -> bool {
    WANTED.load(Ordering::Relaxed)
}
