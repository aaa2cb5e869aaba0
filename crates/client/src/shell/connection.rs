//! One connection: dials, then reads frames and writes them until either ends.
//!
//! The reader hands the core all frames of a read at once; the writer takes many frames at once, copies the small pieces
//! together and writes the large ones where they are.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use lockgate_wire::frame::FrameError;
use lockgate_wire::{Frame, HostPort, OutFrame};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Notify;

use super::shared::Shared;
use crate::core::{Input, LinkId};

/// The buffer that is read into.
const READ_BYTES: usize = 256 * 1024;
/// Below this much room a new buffer is begun: what was read may still be in use, and small reads share one.
const READ_ROOM_BYTES: usize = 32 * 1024;
/// What is taken from the outbox for one write.
const WRITE_BYTES: usize = 512 * 1024;
/// Pieces from this size on are written where they are.
const COPY_BELOW_BYTES: usize = 8 * 1024;
/// Pieces of one write; below what kernels take.
const WRITE_PIECES: usize = 256;
/// How long a connection that is to be closed may take to write what was sent before.
const CLOSE_WITHIN: Duration = Duration::from_millis(500);

/// Lives as long as the connection; the core decides what follows its end.
pub(super) async fn run(shared: Arc<Shared>, link: LinkId, address: HostPort, to_write: Arc<Notify>) {
    let stream = match dial(&address).await {
        Ok(stream) => stream,
        Err(error) => {
            let reason = error.to_string();
            tracing::debug!(%address, reason, "not connected");
            return shared.with(|state, now| state.input(now, Input::DialFailed { link, reason }));
        }
    };
    tracing::debug!(%address, "connected");
    let max_frame_bytes = shared.with(|state, now| {
        if let Some(open) = state.open_link(link) {
            open.connected = true;
        }
        state.input(now, Input::Connected { link });
        state.max_frame_bytes
    });
    let (reading, writing) = stream.into_split();
    let mut writer = AbortOnDrop(tokio::spawn(write(Arc::clone(&shared), link, writing, to_write)));
    let reason = tokio::select! {
        end = read(&shared, link, reading, max_frame_bytes) => end,
        end = &mut writer.0 => match end {
            Ok(Ok(())) => "it was closed".to_owned(),
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        },
    };
    tracing::info!(%address, reason, "connection ended");
    shared.with(|state, now| state.input(now, Input::Disconnected { link, reason }));
    shared.written.notify_waiters();
}

/// Tries every address that the name stands for now.
async fn dial(address: &HostPort) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((address.host.as_str(), address.port)).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Reads until the connection ends; gives the reason.
async fn read(shared: &Arc<Shared>, link: LinkId, mut stream: OwnedReadHalf, max_frame_bytes: u32) -> String {
    let mut buffer = BytesMut::new();
    let mut frames = Vec::new();
    loop {
        let missing = match Frame::missing(&buffer, max_frame_bytes) {
            Ok(missing) => missing,
            Err(error) => return not_a_frame(&buffer, &error),
        };
        if buffer.capacity() - buffer.len() < missing.max(READ_ROOM_BYTES) {
            buffer.reserve(missing.max(READ_BYTES));
        }
        match stream.read_buf(&mut buffer).await {
            Ok(0) => return "the broker closed the connection".into(),
            Ok(_) => {}
            Err(error) => return error.to_string(),
        }
        let broken = loop {
            match Frame::decode(&mut buffer, max_frame_bytes) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break None,
                Err(error) => break Some(not_a_frame(&buffer, &error)),
            }
        };
        if frames.is_empty() {
            shared.with(|state, now| state.input(now, Input::BytesReceived { link }));
        } else {
            shared.with(|state, now| {
                for frame in frames.drain(..) {
                    state.input(now, Input::Received { link, frame });
                }
            });
        }
        if let Some(reason) = broken {
            return reason;
        }
    }
}

/// Why the connection cannot go on. No first frame begins like an answer of HTTP: read as a length, that is above any limit.
fn not_a_frame(buffer: &[u8], error: &FrameError) -> String {
    if buffer.starts_with(b"HTTP") {
        return "this looks like an HTTP port; is it the broker's admin port (admin.listen)? Clients connect to the port \
                for clients (listen)"
            .into();
    }
    error.to_string()
}

/// Writes until the connection is to be closed.
async fn write(shared: Arc<Shared>, link: LinkId, mut stream: OwnedWriteHalf, to_write: Arc<Notify>) -> io::Result<()> {
    let mut pieces = Pieces::default();
    loop {
        let closing = fill(&shared, link, &mut pieces);
        if closing {
            let _ = tokio::time::timeout(CLOSE_WITHIN, pieces.write(&mut stream)).await;
            return Ok(());
        }
        if pieces.bytes == 0 {
            to_write.notified().await;
            continue;
        }
        // A close while the peer does not read must not wait for it.
        let bytes = pieces.bytes;
        tokio::select! {
            written = pieces.write(&mut stream) => written?,
            () = closed(&shared, link, &to_write) => return Ok(()),
        }
        shared.with(|state, now| state.input(now, Input::Written { link, bytes }));
        shared.written.notify_waiters();
    }
}

/// Takes what fits from the outbox. Tells whether the link is to be closed after it.
fn fill(shared: &Shared, link: LinkId, pieces: &mut Pieces) -> bool {
    let mut state = shared.lock();
    let Some(closing) = state.link.as_ref().filter(|open| open.id == link).map(|open| open.closing) else {
        return true;
    };
    while pieces.bytes < WRITE_BYTES && pieces.list.len() < WRITE_PIECES {
        let Some(frame) = state.outbox.pop_front() else { break };
        pieces.add(frame);
    }
    closing && state.outbox.is_empty()
}

/// Waits until the link has been closing for long enough.
async fn closed(shared: &Shared, link: LinkId, to_write: &Notify) {
    loop {
        to_write.notified().await;
        let mut state = shared.lock();
        // Other signs are for the next write, which looks for itself.
        if state.open_link(link).is_none_or(|open| open.closing) {
            break;
        }
    }
    tokio::time::sleep(CLOSE_WITHIN).await;
}

/// What one write takes: runs of small pieces copied together, and large ones.
#[derive(Default)]
struct Pieces {
    list: Vec<Bytes>,
    /// Small pieces since the last large one.
    run: BytesMut,
    bytes: usize,
}

impl Pieces {
    fn add(&mut self, frame: OutFrame) {
        self.bytes += frame.size();
        for piece in std::iter::once(frame.head).chain(frame.payload) {
            if piece.len() < COPY_BELOW_BYTES {
                self.run.extend_from_slice(&piece);
            } else {
                self.end_run();
                self.list.push(piece);
            }
        }
    }

    fn end_run(&mut self) {
        if !self.run.is_empty() {
            self.list.push(self.run.split().freeze());
        }
    }

    /// Writes everything; empty afterwards.
    async fn write(&mut self, stream: &mut OwnedWriteHalf) -> io::Result<()> {
        self.end_run();
        let mut first = 0;
        while first < self.list.len() {
            let slices: Vec<IoSlice<'_>> = self.list[first..].iter().map(|piece| IoSlice::new(piece)).collect();
            let mut written = stream.write_vectored(&slices).await?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            while let Some(piece) = self.list.get_mut(first).filter(|_| written > 0) {
                let step = written.min(piece.len());
                piece.advance(step);
                written -= step;
                first += usize::from(piece.is_empty());
            }
        }
        self.list.clear();
        self.bytes = 0;
        Ok(())
    }
}

/// A task that goes with its owner.
struct AbortOnDrop(tokio::task::JoinHandle<io::Result<()>>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
