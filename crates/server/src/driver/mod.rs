//! The I/O of a shard's connections: one small trait, implemented per way of talking to the kernel.
//!
//! A driver moves bytes and knows frames' edges; it decides nothing. What comes in goes to a [`Handler`] at once, frame
//! by frame, and the handler is asked before each frame whether it takes one. What goes out is queued by `send` and
//! leaves with `flush`, once per round. Lives on its shard's thread; only the [`Wake`] leaves it.

mod connection;
pub(crate) mod epoll;
pub(crate) mod fed;
mod outgoing;
#[cfg(test)]
mod tests;

use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lockgate_wire::frame::FrameError;
use lockgate_wire::{ConnectionId, Frame, MonoTime, OutFrame};

/// What a driver tells, in the order in which it happened on each connection.
pub(crate) trait Handler {
    /// Asked before each frame is decoded. False leaves the bytes where they are until [`Driver::resume`].
    fn may_read(&mut self, connection: ConnectionId) -> bool;
    /// The largest frame that the connection may send right now.
    fn frame_limit(&self, connection: ConnectionId) -> u32;
    /// A whole frame.
    fn received(&mut self, connection: ConnectionId, frame: Frame);
    /// Some bytes of a frame that is not whole, and no whole frame: a sign of life. At most once a round.
    fn progressed(&mut self, connection: ConnectionId);
    /// A frame has begun and got no further for [`FRAME_STALL_MS`](lockgate_engine::limits::FRAME_STALL_MS).
    fn stalled(&mut self, connection: ConnectionId);
    /// The other side sends no more, and has not closed: what is sent may still reach it.
    fn ended(&mut self, connection: ConnectionId);
    /// No frame; the connection is read no further.
    fn bad_bytes(&mut self, connection: ConnectionId, error: FrameError);
    /// This many bytes went to the kernel since the last call.
    fn written(&mut self, connection: ConnectionId, bytes: usize);
    /// The connection is gone; nothing of it follows.
    fn closed(&mut self, connection: ConnectionId);
}

/// A shard's sockets. Connections are named by ids that the caller chooses and never reuses; calls for one that is gone
/// do nothing.
pub(crate) trait Driver {
    /// Ends a wait from any thread.
    fn wake_handle(&self) -> Arc<Wake>;
    /// Takes over a connection. On an error the socket is closed and the id is unknown.
    fn open(&mut self, connection: ConnectionId, stream: TcpStream) -> io::Result<()>;
    /// Queues a frame.
    fn send(&mut self, connection: ConnectionId, frame: OutFrame);
    /// The handler takes frames of this connection again.
    fn resume(&mut self, connection: ConnectionId);
    /// Sends what is queued, then closes; closes anyway at the deadline. Nothing more is read.
    fn close(&mut self, connection: ConnectionId, now: MonoTime, deadline: MonoTime);
    /// Closes everything now.
    fn close_all(&mut self);
    /// Hands queued bytes to the kernel, as many as it takes.
    fn flush(&mut self, now: MonoTime);
    /// Waits until something can be done, somebody wakes it, or the timeout ends. Does not wait when work is left over.
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()>;
    /// Reads what is there, bounded per connection and in all, and tells the handler.
    fn receive(&mut self, now: MonoTime, handler: &mut dyn Handler);
    /// When a close must be enforced or a begun frame be looked after.
    fn next_deadline(&self) -> Option<MonoTime>;
    /// Whether a close is under way.
    fn is_closing(&self) -> bool;
}

/// What ends a wait, however often it is given before.
pub(crate) trait Signal {
    /// Ends the wait under way, or else the next one.
    fn signal(&self);
}

impl Signal for mio::Waker {
    fn signal(&self) {
        // An eventfd's write fails only when its counter is full, and then the wait ends anyway.
        drop(self.wake());
    }
}

/// Wakes a waiting driver. Many wakes between two waits cost one system call.
#[derive(Debug)]
pub(crate) struct Wake<S = mio::Waker> {
    signal: S,
    /// A wake is on its way that no [`Wake::rest`] has taken back yet.
    pending: AtomicBool,
}

impl<S: Signal> Wake<S> {
    pub(crate) fn new(signal: S) -> Self {
        Self { signal, pending: AtomicBool::new(false) }
    }

    /// Call after what the driver's thread is to find was put where it looks.
    pub(crate) fn wake(&self) {
        if !self.pending.swap(true, Ordering::SeqCst) {
            self.signal.signal();
        }
    }

    /// Call on the driver's thread *before* looking: what is put there later wakes again.
    pub(crate) fn rest(&self) {
        self.pending.store(false, Ordering::SeqCst);
    }
}
