//! The driver over epoll: plain non-blocking sockets, edge-triggered.
//!
//! An edge is told once, so a connection that still has something is kept in a list: `readable` for bytes left in its
//! socket or buffer, `writable` for bytes left in its queue that the kernel would take.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use lockgate_engine::limits::FRAME_STALL_MS;
use lockgate_wire::{ConnectionId, MonoTime, OutFrame};
use mio::{Events, Interest, Poll, Token};
use rustc_hash::FxHashMap;

use super::connection::{Incoming, Read, SHARED_BUFFER_BYTES};
use super::outgoing::{Flushed, Outgoing};
use super::{Driver, Handler, Wake};

/// Events taken in one wait.
const MAX_EVENTS: usize = 1024;
/// Bytes read from one connection in a round, and frames taken from it.
const MAX_CONNECTION_BYTES: usize = 256 * 1024;
const MAX_CONNECTION_FRAMES: usize = 1024;
/// Bytes read in a round from all connections.
const MAX_ROUND_BYTES: usize = 8 * 1024 * 1024;
/// How long a connection lingers for its peer to close too.
const LINGER_MS: u64 = 1_000;
/// The token of the waker; connections use their ids, which are counted from 1.
const WAKER: Token = Token(usize::MAX);

pub(crate) struct EpollDriver {
    poll: Poll,
    events: Events,
    wake: Arc<Wake>,
    connections: FxHashMap<ConnectionId, Connection>,
    /// Connections to be read, each once ([`Connection::listed`]).
    readable: VecDeque<ConnectionId>,
    /// Connections with something to send, each once ([`Connection::queued`]).
    writable: VecDeque<ConnectionId>,
    /// Bytes sent and not yet told.
    written: Vec<(ConnectionId, usize)>,
    /// Connections that ended and were not yet told.
    ended: Vec<ConnectionId>,
    /// When closes must be enforced.
    deadlines: BTreeSet<(MonoTime, ConnectionId)>,
    /// When connections are looked at whose frame had begun ([`Connection::watched`]).
    begun: BTreeSet<(MonoTime, ConnectionId)>,
    shared: Vec<u8>,
}

struct Connection {
    stream: mio::net::TcpStream,
    incoming: Incoming,
    outgoing: Outgoing,
    state: State,
    /// The socket has or may have bytes, or an end.
    has_bytes: bool,
    /// The kernel has told that the peer sends no more.
    peer_ended: bool,
    /// The kernel takes bytes.
    takes_bytes: bool,
    listed: bool,
    queued: bool,
    /// The handler takes no frames of it: what stands still is not the peer's fault.
    paused: bool,
    /// When bytes came last, as far as a begun frame is concerned.
    moved: MonoTime,
    /// Its entry among those whose frame had begun.
    watched: Option<MonoTime>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Open,
    /// The other side sends no more. Answers still leave.
    Ended,
    /// What came was no frame: not read any more.
    Bad,
    /// Sends what is queued. Nothing is read.
    Flushing(MonoTime),
    /// All is sent, and that side of the connection shut. What still comes is thrown away, because closing a socket with
    /// unread bytes resets it, and a reset can take the last frames from the peer.
    Lingering(MonoTime),
}

impl EpollDriver {
    pub(crate) fn new() -> io::Result<Self> {
        let poll = Poll::new()?;
        let wake = Arc::new(Wake::new(mio::Waker::new(poll.registry(), WAKER)?));
        Ok(Self {
            poll,
            events: Events::with_capacity(MAX_EVENTS),
            wake,
            connections: FxHashMap::default(),
            readable: VecDeque::new(),
            writable: VecDeque::new(),
            written: Vec::new(),
            ended: Vec::new(),
            deadlines: BTreeSet::new(),
            begun: BTreeSet::new(),
            shared: Vec::with_capacity(SHARED_BUFFER_BYTES),
        })
    }

    /// True when there is work that no event will announce.
    fn has_leftovers(&self) -> bool {
        !(self.readable.is_empty() && self.writable.is_empty() && self.written.is_empty() && self.ended.is_empty())
    }

    /// Bytes that a connection's reading side holds.
    #[cfg(test)]
    pub(super) fn held(&self, id: ConnectionId) -> usize {
        self.connections[&id].incoming.held()
    }

    fn remove(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.remove(&id) {
            if let State::Flushing(deadline) | State::Lingering(deadline) = connection.state {
                self.deadlines.remove(&(deadline, id));
            }
            if let Some(watched) = connection.watched {
                self.begun.remove(&(watched, id));
            }
            self.ended.push(id);
        }
    }

    /// Reads one connection for a round; true if it is to be read again without a new event.
    fn receive_from(
        &mut self,
        id: ConnectionId,
        now: MonoTime,
        handler: &mut dyn Handler,
        round_bytes: &mut usize,
    ) -> bool {
        let was_paused = self.connections.get(&id).is_some_and(|connection| connection.paused);
        let (mut bytes, mut frames) = (0, 0);
        let again = self.take_frames(id, handler, &mut bytes, &mut frames);
        *round_bytes += bytes;
        if bytes > 0 && frames == 0 && self.connections.get(&id).is_some_and(|c| c.state == State::Open) {
            handler.progressed(id);
        }
        self.watch(id, now, bytes > 0 || was_paused);
        again
    }

    /// Notes that a connection's frame has begun, or has moved.
    fn watch(&mut self, id: ConnectionId, now: MonoTime, moved: bool) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if connection.state != State::Open || !connection.incoming.has_begun() {
            return;
        }
        if moved || connection.watched.is_none() {
            connection.moved = now;
        }
        if connection.watched.is_none() {
            let at = now.plus_ms(FRAME_STALL_MS);
            connection.watched = Some(at);
            self.begun.insert((at, id));
        }
    }

    /// Tells of connections whose begun frame stands still.
    fn look_after_begun(&mut self, now: MonoTime, handler: &mut dyn Handler) {
        while let Some((at, id)) = self.begun.first().copied()
            && at <= now
        {
            self.begun.pop_first();
            let Some(connection) = self.connections.get_mut(&id) else { continue };
            connection.watched = None;
            if connection.state != State::Open || !connection.incoming.has_begun() {
                continue;
            }
            if connection.paused || connection.listed {
                connection.moved = now;
            }
            let at = connection.moved.plus_ms(FRAME_STALL_MS);
            if at <= now {
                handler.stalled(id);
            } else {
                connection.watched = Some(at);
                self.begun.insert((at, id));
            }
        }
    }

    /// Hands a connection's frames to the handler; counts what it read and gave.
    fn take_frames(
        &mut self,
        id: ConnectionId,
        handler: &mut dyn Handler,
        bytes: &mut usize,
        frames: &mut usize,
    ) -> bool {
        let Some(connection) = self.connections.get_mut(&id) else { return false };
        loop {
            match connection.state {
                State::Open => {}
                State::Lingering(_) => return self.discard(id),
                State::Ended | State::Bad | State::Flushing(_) => return false,
            }
            connection.paused = !handler.may_read(id);
            if connection.paused {
                return false;
            }
            if *bytes >= MAX_CONNECTION_BYTES || *frames >= MAX_CONNECTION_FRAMES {
                return true;
            }
            let limit = handler.frame_limit(id);
            match connection.incoming.next(limit) {
                Ok(Some(frame)) => {
                    *frames += 1;
                    handler.received(id, frame);
                    continue;
                }
                Ok(None) => {}
                Err(error) => {
                    connection.state = State::Bad;
                    handler.bad_bytes(id, error);
                    return false;
                }
            }
            if !connection.has_bytes {
                return false;
            }
            match connection.incoming.read(&connection.stream, &mut self.shared, limit) {
                Ok(Read::Bytes { count, last }) => {
                    *bytes += count;
                    // The kernel will tell of later bytes; of an end that it has told already it will not.
                    connection.has_bytes = !last || connection.peer_ended;
                }
                Ok(Read::Blocked) => connection.has_bytes = false,
                Ok(Read::End) => {
                    connection.state = State::Ended;
                    connection.incoming = Incoming::default();
                    handler.ended(id);
                    return false;
                }
                Err(_) => {
                    self.remove(id);
                    return false;
                }
            }
        }
    }

    /// Throws away what a lingering connection still sends; true if there may be more.
    fn discard(&mut self, id: ConnectionId) -> bool {
        let Some(connection) = self.connections.get_mut(&id) else { return false };
        let mut bytes = 0;
        while bytes < MAX_CONNECTION_BYTES {
            self.shared.clear();
            match super::connection::read(&connection.stream, &mut self.shared) {
                Ok(Read::Bytes { count, .. }) => bytes += count,
                Ok(Read::Blocked) => {
                    connection.has_bytes = false;
                    return false;
                }
                Ok(Read::End) | Err(_) => {
                    self.remove(id);
                    return false;
                }
            }
        }
        true
    }

    fn flush_one(&mut self, id: ConnectionId, now: MonoTime) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.queued = false;
        if !connection.takes_bytes {
            return;
        }
        match connection.outgoing.flush(&mut connection.stream) {
            Ok((sent, flushed)) => {
                if sent > 0 {
                    self.written.push((id, sent));
                }
                match flushed {
                    Flushed::All => self.sent_all(id, now),
                    Flushed::Blocked => connection.takes_bytes = false,
                    Flushed::Share => {
                        connection.queued = true;
                        self.writable.push_back(id);
                    }
                }
            }
            Err(_) => self.remove(id),
        }
    }

    /// A connection that is closing and has sent everything lingers.
    fn sent_all(&mut self, id: ConnectionId, now: MonoTime) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if let State::Flushing(deadline) = connection.state {
            self.deadlines.remove(&(deadline, id));
            let deadline = deadline.min(now.plus_ms(LINGER_MS));
            self.deadlines.insert((deadline, id));
            connection.state = State::Lingering(deadline);
            connection.incoming = Incoming::default();
            if connection.stream.shutdown(Shutdown::Write).is_err() {
                return self.remove(id);
            }
            self.list_readable(id);
        }
    }

    fn list_readable(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(&id)
            && !std::mem::replace(&mut connection.listed, true)
        {
            self.readable.push_back(id);
        }
    }

    fn list_writable(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(&id)
            && connection.takes_bytes
            && !connection.outgoing.is_empty()
            && !std::mem::replace(&mut connection.queued, true)
        {
            self.writable.push_back(id);
        }
    }
}

impl Driver for EpollDriver {
    fn wake_handle(&self) -> Arc<Wake> {
        self.wake.clone()
    }

    fn open(&mut self, id: ConnectionId, stream: TcpStream) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        let mut stream = mio::net::TcpStream::from_std(stream);
        self.poll.registry().register(&mut stream, Token(id.0 as usize), Interest::READABLE | Interest::WRITABLE)?;
        let connection = Connection {
            stream,
            incoming: Incoming::default(),
            outgoing: Outgoing::default(),
            state: State::Open,
            has_bytes: false,
            peer_ended: false,
            takes_bytes: true,
            listed: false,
            queued: false,
            paused: false,
            moved: MonoTime::default(),
            watched: None,
        };
        self.connections.insert(id, connection);
        Ok(())
    }

    fn send(&mut self, id: ConnectionId, frame: OutFrame) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if matches!(connection.state, State::Open | State::Ended | State::Bad) {
            connection.outgoing.push(frame);
            self.list_writable(id);
        }
    }

    fn resume(&mut self, id: ConnectionId) {
        self.list_readable(id);
    }

    fn close(&mut self, id: ConnectionId, now: MonoTime, deadline: MonoTime) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if !matches!(connection.state, State::Open | State::Ended | State::Bad) {
            return;
        }
        connection.state = State::Flushing(deadline);
        connection.incoming = Incoming::default();
        self.deadlines.insert((deadline, id));
        if connection.outgoing.is_empty() {
            self.sent_all(id, now);
        }
    }

    fn close_all(&mut self) {
        let all: Vec<ConnectionId> = self.connections.keys().copied().collect();
        all.into_iter().for_each(|id| self.remove(id));
    }

    fn flush(&mut self, now: MonoTime) {
        for _ in 0..self.writable.len() {
            let Some(id) = self.writable.pop_front() else { break };
            self.flush_one(id, now);
        }
        while let Some((deadline, id)) = self.deadlines.first().copied()
            && deadline <= now
        {
            self.remove(id);
        }
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let timeout = if self.has_leftovers() { Some(Duration::ZERO) } else { timeout };
        match self.poll.poll(&mut self.events, timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            result => result?,
        }
        // Taken out, so that the connections can be touched meanwhile.
        let events = std::mem::replace(&mut self.events, Events::with_capacity(0));
        for event in events.iter().filter(|event| event.token() != WAKER) {
            let id = ConnectionId(event.token().0 as u64);
            if event.is_error() || event.is_write_closed() {
                // Nothing can be sent any more, so nothing that came is worth answering.
                self.remove(id);
                continue;
            }
            let Some(connection) = self.connections.get_mut(&id) else { continue };
            connection.has_bytes |= event.is_readable();
            connection.peer_ended |= event.is_read_closed();
            connection.takes_bytes |= event.is_writable();
            if connection.has_bytes {
                self.list_readable(id);
            }
            self.list_writable(id);
        }
        self.events = events;
        Ok(())
    }

    fn receive(&mut self, now: MonoTime, handler: &mut dyn Handler) {
        for (id, bytes) in std::mem::take(&mut self.written) {
            handler.written(id, bytes);
        }
        let mut round_bytes = 0;
        for _ in 0..self.readable.len() {
            if round_bytes >= MAX_ROUND_BYTES {
                break;
            }
            let Some(id) = self.readable.pop_front() else { break };
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.listed = false;
            }
            if self.receive_from(id, now, handler, &mut round_bytes) {
                self.list_readable(id);
            }
        }
        self.look_after_begun(now, handler);
        for id in std::mem::take(&mut self.ended) {
            handler.closed(id);
        }
    }

    fn next_deadline(&self) -> Option<MonoTime> {
        let firsts = [self.deadlines.first(), self.begun.first()];
        firsts.into_iter().flatten().map(|(at, _)| *at).min()
    }

    fn is_closing(&self) -> bool {
        !self.deadlines.is_empty()
    }
}
