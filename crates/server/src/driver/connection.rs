//! One connection's incoming side: bytes from the socket to frames, without a buffer while it idles.
//!
//! Small frames are read into a buffer that all connections of the driver share, and copied together into one
//! allocation of just their size; so a small frame keeps nothing alive but its neighbours. A large frame gets an
//! allocation of its own and is read straight into it. That grows with what has come: an announcement alone costs nothing.

use std::io;

use bytes::{Bytes, BytesMut};
use lockgate_wire::Frame;
use lockgate_wire::frame::FrameError;
use mio::net::TcpStream;
use rustix::buffer::spare_capacity;
use rustix::io::Errno;

/// The shared read buffer; also the most that a read of small frames takes.
pub(super) const SHARED_BUFFER_BYTES: usize = 64 * 1024;
/// A frame that lacks more than this is read into its own allocation.
const OWN_ALLOCATION_BYTES: usize = 32 * 1024;

/// The first size of a large frame's allocation; from there it doubles, up to the frame.
const FIRST_ALLOCATION_BYTES: usize = 64 * 1024;

/// What a read found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Read {
    /// Some bytes.
    Bytes {
        /// How many.
        count: usize,
        /// Fewer than there was room for: the socket has no more for now.
        last: bool,
    },
    /// Nothing for now; the kernel will say when there is more.
    Blocked,
    /// The other side has ended.
    End,
}

#[derive(Default)]
pub(super) struct Incoming {
    /// Frames to be decoded, the last one perhaps not whole.
    bytes: BytesMut,
    /// The beginning of one large frame; then `bytes` is empty.
    large: Vec<u8>,
    /// How long `large` must become to be whole.
    large_bytes: usize,
}

impl Incoming {
    /// The next whole frame, if it is there.
    pub(super) fn next(&mut self, limit: u32) -> Result<Option<Frame>, FrameError> {
        if self.bytes.is_empty() {
            return Ok(None);
        }
        let frame = Frame::decode(&mut self.bytes, limit)?;
        if self.bytes.is_empty() {
            // The frames keep the allocation alive as long as they need it; the connection does not.
            self.bytes = BytesMut::new();
        }
        Ok(frame)
    }

    /// Reads once. To be called when [`Incoming::next`] has nothing more to give.
    pub(super) fn read(&mut self, stream: &TcpStream, shared: &mut Vec<u8>, limit: u32) -> io::Result<Read> {
        self.prepare(limit);
        if self.large_bytes > 0 {
            self.grow();
            let read = read(stream, &mut self.large)?;
            if self.large.len() >= self.large_bytes {
                self.bytes = BytesMut::from(Bytes::from(std::mem::take(&mut self.large)));
                self.large_bytes = 0;
            }
            return Ok(read);
        }
        shared.clear();
        let read = read(stream, shared)?;
        if self.bytes.is_empty() {
            self.bytes = BytesMut::from(&shared[..])
        } else {
            self.bytes.extend_from_slice(shared)
        }
        Ok(read)
    }

    /// Gives the frame that has begun its own allocation if it is large.
    fn prepare(&mut self, limit: u32) {
        if self.bytes.is_empty() {
            return;
        }
        // What is no frame was refused by `next` already.
        let missing = Frame::missing(&self.bytes, limit).unwrap_or(0);
        if missing > OWN_ALLOCATION_BYTES {
            self.large_bytes = self.bytes.len() + missing;
            self.large = self.bytes.to_vec();
            self.bytes = BytesMut::new();
        }
    }

    /// Gives a large frame that has filled its allocation a larger one.
    fn grow(&mut self) {
        let have = self.large.len();
        if have == self.large.capacity() {
            let size = (2 * have).max(FIRST_ALLOCATION_BYTES).min(self.large_bytes);
            self.large.reserve_exact(size - have);
        }
    }

    /// Whether there are bytes of a frame.
    pub(super) fn has_begun(&self) -> bool {
        !self.bytes.is_empty() || self.large_bytes > 0
    }

    /// Bytes that this side holds.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.bytes.capacity() + self.large.capacity()
    }
}

/// Reads into the room behind what is there.
pub(super) fn read(stream: &TcpStream, into: &mut Vec<u8>) -> io::Result<Read> {
    let room = into.capacity() - into.len();
    loop {
        return match rustix::io::read(stream, spare_capacity(into)) {
            Ok(0) => Ok(Read::End),
            Ok(count) => Ok(Read::Bytes { count, last: count < room }),
            Err(Errno::AGAIN) => Ok(Read::Blocked),
            Err(Errno::INTR) => continue,
            Err(error) => Err(error.into()),
        };
    }
}
