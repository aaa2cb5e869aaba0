//! A connection's queue of bytes to be sent: pieces in order, written by vectored writes, the first one cut as it goes.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};

use bytes::{Buf, Bytes};
use lockgate_wire::OutFrame;

/// Slices of one vectored write; the kernel's own limit (`IOV_MAX`) is 1024.
const MAX_SLICES: usize = 256;
/// Bytes that one connection may send in a round, so that others have their turn.
const MAX_ROUND_BYTES: usize = 4 * 1024 * 1024;

/// How far a flush came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flushed {
    /// Nothing is left.
    All,
    /// The kernel takes no more now; it will say when it does.
    Blocked,
    /// The round's share is used up.
    Share,
}

#[derive(Default)]
pub(super) struct Outgoing {
    pieces: VecDeque<Bytes>,
}

impl Outgoing {
    pub(super) fn push(&mut self, frame: OutFrame) {
        self.pieces.push_back(frame.head);
        self.pieces.extend(frame.payload.into_iter().filter(|piece| !piece.is_empty()));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Writes until nothing is left, the kernel takes no more or the share is used up. Tells how many bytes went.
    pub(super) fn flush(&mut self, socket: &mut impl Write) -> io::Result<(usize, Flushed)> {
        let mut sent = 0;
        while !self.pieces.is_empty() {
            if sent >= MAX_ROUND_BYTES {
                return Ok((sent, Flushed::Share));
            }
            let mut slices = [IoSlice::new(&[]); MAX_SLICES];
            let count = self.pieces.len().min(MAX_SLICES);
            for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
                *slice = IoSlice::new(piece);
            }
            match socket.write_vectored(&slices[..count]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    sent += written;
                    self.advance(written);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok((sent, Flushed::Blocked)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if self.pieces.capacity() > 2 * MAX_SLICES {
            // A burst does not keep its room while the connection idles.
            self.pieces = VecDeque::new();
        }
        Ok((sent, Flushed::All))
    }

    fn advance(&mut self, mut written: usize) {
        while let Some(first) = self.pieces.front_mut() {
            if written < first.len() {
                first.advance(written);
                return;
            }
            written -= first.len();
            self.pieces.pop_front();
        }
    }
}
