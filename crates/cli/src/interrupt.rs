//! The user's wish to end a command that runs on: SIGINT and SIGTERM.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// Listens as long as it lives; the signals do not end the process by themselves any more.
pub(crate) struct Interrupt {
    interrupt: Signal,
    terminate: Signal,
}

impl Interrupt {
    pub(crate) fn listen() -> Result<Self, Failure> {
        let listen = |kind| signal(kind).map_err(Failure::io("the signal handlers cannot be set up"));
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    /// Waits for the next signal; cancel-safe. Gives its name.
    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}
