//! Accepting: one thread that hands plain sockets to the least loaded shard before any byte of theirs is read.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lockgate_wire::ConnectionId;
use mio::{Events, Interest, Poll, Token};
use socket2::{Domain, Protocol, Socket, Type};

use crate::shard_loop::inbox::{InboxSender, Message};
use crate::status::NodeStatus;

/// Connections that wait in the kernel to be accepted.
const BACKLOG: i32 = 1024;
/// How long accepting pauses when the machine has no descriptor or memory for one more connection.
const PAUSE: Duration = Duration::from_millis(100);
/// At most one line of a kind is logged in this time.
const LOG_EVERY: Duration = Duration::from_secs(10);
/// Connections above the limit that a shard is given all the same, so that it can answer them before it closes them.
const REFUSAL_ROOM: usize = 64;

const LISTENER: Token = Token(0);
const WAKER: Token = Token(1);

/// A socket that holds its address; nobody can connect until it [listens](Bound::listen).
pub(crate) struct Bound {
    socket: Socket,
    pub(crate) address: SocketAddr,
}

impl Bound {
    pub(crate) fn new(address: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        // A restart must not wait for the old connections' last packets.
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        let address =
            socket.local_addr()?.as_socket().ok_or_else(|| io::Error::other("a TCP socket without an address"))?;
        Ok(Self { socket, address })
    }

    pub(crate) fn listen(self) -> io::Result<TcpListener> {
        self.socket.listen(BACKLOG)?;
        self.socket.set_nonblocking(true)?;
        Ok(self.socket.into())
    }
}

/// How many connections are accepted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AcceptLimits {
    /// Of one shard, before it is left to refuse them.
    pub(crate) per_shard: usize,
    /// Of all shards: the descriptors that files do not need.
    pub(crate) node: usize,
}

/// The accepting thread.
pub(crate) struct Acceptor {
    waker: mio::Waker,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Acceptor {
    /// Starts accepting. `on_failure` is told why accepting ended by itself.
    pub(crate) fn start(
        listener: TcpListener,
        inboxes: Arc<[InboxSender]>,
        status: Arc<NodeStatus>,
        limits: AcceptLimits,
        on_failure: impl FnOnce(io::Error) + Send + 'static,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = mio::Waker::new(poll.registry(), WAKER)?;
        let mut listener = mio::net::TcpListener::from_std(listener);
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        let stop = Arc::new(AtomicBool::new(false));
        let mut accepting = Accepting {
            poll,
            listener,
            stop: stop.clone(),
            inboxes,
            status,
            limits,
            next_connection: 1,
            refused: RateLimit::default(),
            failed: RateLimit::default(),
        };
        let thread = std::thread::Builder::new().name("acceptor".into()).spawn(move || {
            if let Err(error) = accepting.run() {
                on_failure(error);
            }
        })?;
        Ok(Self { waker, stop, thread })
    }

    /// Ends accepting; the address is free when this returns.
    pub(crate) fn stop(self) {
        self.stop.store(true, Ordering::Release);
        // An eventfd's write fails only when its counter is full, and then the thread wakes anyway.
        drop(self.waker.wake());
        if self.thread.join().is_err() {
            tracing::error!("the accepting thread panicked");
        }
    }
}

struct Accepting {
    poll: Poll,
    listener: mio::net::TcpListener,
    stop: Arc<AtomicBool>,
    inboxes: Arc<[InboxSender]>,
    status: Arc<NodeStatus>,
    limits: AcceptLimits,
    next_connection: u64,
    refused: RateLimit,
    failed: RateLimit,
}

impl Accepting {
    fn run(&mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(8);
        let mut timeout = None;
        while !self.stop.load(Ordering::Acquire) {
            match self.poll.poll(&mut events, timeout) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => result?,
            }
            timeout = self.accept_all();
        }
        Ok(())
    }

    /// Accepts what waits. `Some` when the machine is at a limit: to be tried again after that time, because the
    /// readiness that was told is not told again.
    fn accept_all(&mut self) -> Option<Duration> {
        while !self.stop.load(Ordering::Acquire) {
            match self.listener.accept() {
                Ok((stream, peer)) => self.hand_over(stream.into(), peer),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                // The peer was gone before it was accepted.
                Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted) => {
                }
                Err(error) => {
                    self.status.accept_failures.fetch_add(1, Ordering::Relaxed);
                    if let Some(more) = self.failed.permit() {
                        tracing::error!(more, "no connection can be accepted: {error}; trying again every {PAUSE:?}");
                    }
                    return Some(PAUSE);
                }
            }
        }
        None
    }

    fn hand_over(&mut self, stream: TcpStream, peer: SocketAddr) {
        let load = |shard: usize| self.status.shards[shard].connections.load(Ordering::Relaxed);
        let shard = (0..self.inboxes.len()).min_by_key(|shard| load(*shard)).expect("a node has at least one shard");
        let AcceptLimits { per_shard, node } = self.limits;
        let why = if (0..self.inboxes.len()).map(load).sum::<usize>() >= node {
            format!("the node has {node} connections, as many as its limit of open files allows")
        } else if load(shard) >= per_shard + REFUSAL_ROOM {
            format!("every shard has its {per_shard} connections (limits.connections_per_shard)")
        } else {
            return self.give(shard, stream, peer);
        };
        self.status.connections_refused.fetch_add(1, Ordering::Relaxed);
        if let Some(more) = self.refused.permit() {
            tracing::warn!(more, %peer, "closed at once: {why}");
        }
    }

    fn give(&mut self, shard: usize, stream: TcpStream, peer: SocketAddr) {
        if let Err(error) = stream.set_nodelay(true) {
            // The connection is gone already, or it works with more delay.
            tracing::debug!(%peer, "TCP_NODELAY could not be set: {error}");
        }
        let connection = ConnectionId(self.next_connection);
        self.next_connection += 1;
        self.status.shards[shard].connections.fetch_add(1, Ordering::Relaxed);
        // A shard that is gone takes the node down; its connections close with the message.
        self.inboxes[shard].send(Message::Accepted { connection, stream, peer: peer.to_string().into() });
    }
}

/// Lets one line through per [`LOG_EVERY`] and counts the others.
#[derive(Default)]
struct RateLimit {
    last: Option<Instant>,
    held_back: u64,
}

impl RateLimit {
    /// `Some` with the number held back since the last line, if a line may be logged now.
    fn permit(&mut self) -> Option<u64> {
        if self.last.is_some_and(|last| last.elapsed() < LOG_EVERY) {
            self.held_back += 1;
            return None;
        }
        self.last = Some(Instant::now());
        Some(std::mem::take(&mut self.held_back))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::driver::{Driver, epoll::EpollDriver};
    use crate::shard_loop::inbox::inbox;

    struct World {
        drivers: Vec<EpollDriver>,
        receivers: Vec<crossbeam_channel::Receiver<Message>>,
        status: Arc<NodeStatus>,
        acceptor: Acceptor,
        address: SocketAddr,
    }

    fn start(shards: u16, per_shard: usize, node: usize) -> World {
        let drivers: Vec<_> = (0..shards).map(|_| EpollDriver::new().unwrap()).collect();
        let (senders, receivers): (Vec<_>, Vec<_>) = drivers.iter().map(|driver| inbox(driver.wake_handle())).unzip();
        let status = Arc::new(NodeStatus::new(shards));
        let bound = Bound::new("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = bound.address;
        assert!(TcpStream::connect(address).is_err(), "nobody connects before the node listens");
        let listener = bound.listen().unwrap();
        let acceptor =
            Acceptor::start(listener, senders.into(), status.clone(), AcceptLimits { per_shard, node }, |error| {
                panic!("{error}")
            })
            .unwrap();
        World { drivers, receivers, status, acceptor, address }
    }

    fn accepted(world: &World, shard: usize) -> (ConnectionId, TcpStream) {
        match world.receivers[shard].recv_timeout(Duration::from_secs(20)).unwrap() {
            Message::Accepted { connection, stream, .. } => (connection, stream),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn connections_go_to_the_least_loaded_shard_unread_under_ids_of_their_own() {
        let world = start(2, 100, 100);
        let clients: Vec<_> = (0..6).map(|_| TcpStream::connect(world.address).unwrap()).collect();
        let mut taken: Vec<_> =
            (0..2).flat_map(|shard| (0..3).map(move |_| shard)).map(|shard| accepted(&world, shard)).collect();
        assert!(taken.iter().all(|(_, stream)| stream.nodelay().unwrap()));
        taken.sort_by_key(|(id, _)| *id);
        assert_eq!(taken.iter().map(|(id, _)| id.0).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
        world.status.shards[1].connections.store(0, Ordering::Relaxed);
        let _client = TcpStream::connect(world.address).unwrap();
        accepted(&world, 1);
        world.acceptor.stop();
        drop((clients, world.drivers));
    }

    #[test]
    fn a_connection_above_the_limit_is_closed_at_once_and_counted() {
        let world = start(1, 0, 100);
        let kept: Vec<_> =
            (0..REFUSAL_ROOM).map(|_| (TcpStream::connect(world.address).unwrap(), accepted(&world, 0))).collect();
        let mut refused = TcpStream::connect(world.address).unwrap();
        refused.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        assert_eq!(refused.read(&mut [0]).unwrap(), 0);
        assert_eq!(world.status.connections_refused.load(Ordering::Relaxed), 1);
        world.acceptor.stop();
        assert!(TcpStream::connect(world.address).is_err(), "a stopped node does not listen");
        drop(kept);
    }

    #[test]
    fn descriptors_that_files_need_are_not_given_to_connections() {
        let world = start(2, 100, 3);
        let kept: Vec<_> = (0..3).map(|_| TcpStream::connect(world.address).unwrap()).collect();
        let mut refused = TcpStream::connect(world.address).unwrap();
        refused.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        assert_eq!(refused.read(&mut [0]).unwrap(), 0);
        accepted(&world, 0);
        world.status.shards[0].connections.fetch_sub(1, Ordering::Relaxed);
        let _next = TcpStream::connect(world.address).unwrap();
        accepted(&world, 1);
        world.acceptor.stop();
        drop((kept, world.drivers));
    }

    #[test]
    fn lines_of_a_kind_are_rare_and_say_how_many_were_held_back() {
        let mut limit = RateLimit::default();
        assert_eq!(limit.permit(), Some(0));
        assert_eq!((limit.permit(), limit.permit()), (None, None));
        limit.last = Some(Instant::now() - LOG_EVERY);
        assert_eq!(limit.permit(), Some(2));
    }
}
