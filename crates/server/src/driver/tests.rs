use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::time::Instant;

use bytes::Bytes;
use lockgate_engine::limits::FRAME_STALL_MS;
use lockgate_wire::{Error, ErrorKind, FrameKind, Op, proto};

use super::epoll::EpollDriver;
use super::fed::FedDriver;
use super::*;
use crate::feed::{Fed, Feed, FeedError};

/// How long a test waits for what must come; a bound, never a pause.
const PATIENCE: Duration = Duration::from_secs(20);

/// Notes what it is told.
#[derive(Default)]
struct Toy {
    frames: Vec<(ConnectionId, Frame)>,
    written: BTreeMap<ConnectionId, usize>,
    bad: Vec<FrameError>,
    progressed: usize,
    stalled: Vec<ConnectionId>,
    ended: Vec<ConnectionId>,
    closed: Vec<ConnectionId>,
    paused: BTreeSet<ConnectionId>,
    /// Pause a connection after each of its frames.
    one_by_one: bool,
    limit: u32,
}

impl Handler for Toy {
    fn may_read(&mut self, connection: ConnectionId) -> bool {
        !self.paused.contains(&connection)
    }
    fn frame_limit(&self, _connection: ConnectionId) -> u32 {
        self.limit
    }
    fn received(&mut self, connection: ConnectionId, frame: Frame) {
        self.frames.push((connection, frame));
        if self.one_by_one {
            self.paused.insert(connection);
        }
    }
    fn progressed(&mut self, _connection: ConnectionId) {
        self.progressed += 1;
    }
    fn stalled(&mut self, connection: ConnectionId) {
        self.stalled.push(connection);
    }
    fn ended(&mut self, connection: ConnectionId) {
        self.ended.push(connection);
    }
    fn bad_bytes(&mut self, _connection: ConnectionId, error: FrameError) {
        self.bad.push(error);
    }
    fn written(&mut self, connection: ConnectionId, bytes: usize) {
        *self.written.entry(connection).or_default() += bytes;
    }
    fn closed(&mut self, connection: ConnectionId) {
        self.closed.push(connection);
    }
}

struct World {
    driver: EpollDriver,
    toy: Toy,
    listener: TcpListener,
    started: Instant,
    /// How far the driver's clock is ahead.
    ahead_ms: u64,
    next: u64,
}

impl World {
    fn new() -> Self {
        Self {
            driver: EpollDriver::new().unwrap(),
            toy: Toy { limit: 8 << 20, ..Toy::default() },
            listener: TcpListener::bind("127.0.0.1:0").unwrap(),
            started: Instant::now(),
            ahead_ms: 0,
            next: 1,
        }
    }
    fn connect(&mut self) -> (ConnectionId, TcpStream) {
        let client = TcpStream::connect(self.listener.local_addr().unwrap()).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.set_write_timeout(Some(PATIENCE)).unwrap();
        let id = ConnectionId(self.next);
        self.next += 1;
        self.driver.open(id, self.listener.accept().unwrap().0).unwrap();
        (id, client)
    }
    fn now(&self) -> MonoTime {
        MonoTime(self.started.elapsed().as_nanos() as u64).plus_ms(self.ahead_ms)
    }
    fn round(&mut self) {
        self.driver.wait(Some(Duration::from_millis(5))).unwrap();
        let now = self.now();
        self.driver.receive(now, &mut self.toy);
        self.driver.flush(now);
    }
    fn until(&mut self, what: &str, done: impl Fn(&Toy) -> bool) {
        let begin = Instant::now();
        while !done(&self.toy) {
            assert!(begin.elapsed() < PATIENCE, "never happened: {what}");
            self.round();
        }
    }
}

fn frame(request_id: u64, payload: usize) -> OutFrame {
    let payload = Bytes::from((0..payload).map(|n| n as u8 ^ request_id as u8).collect::<Vec<u8>>());
    OutFrame::new(FrameKind::Request, request_id, &proto::Ping::default(), vec![payload])
}

#[test]
fn frames_arrive_whole_and_in_order_however_the_bytes_are_cut() {
    let mut world = World::new();
    let (id, mut client) = world.connect();
    let sizes = [0, 1, 4_000, 31_000, 33_000, 70_000, 5, 3_000_000, 0, 0, 65_536, 12];
    let all: Vec<u8> = sizes.iter().zip(1..).flat_map(|(size, id)| frame(id, *size).to_bytes()).collect();
    let writer = std::thread::spawn(move || {
        let mut at = 0;
        for step in [1, 3, 18, 19, 20, 1000, 4096, 65_537, 1 << 20].into_iter().cycle() {
            let end = all.len().min(at + step);
            client.write_all(&all[at..end]).unwrap();
            at = end;
            if at == all.len() {
                return client;
            }
        }
        unreachable!("a cycle has no end")
    });
    world.until("all frames", |toy| toy.frames.len() == sizes.len());
    drop(writer.join().unwrap());
    for ((size, id), (_, got)) in sizes.iter().zip(1..).zip(&world.toy.frames) {
        let mut expected = bytes::BytesMut::from(&frame(id, *size).to_bytes()[..]);
        assert_eq!(*got, Frame::decode(&mut expected, u32::MAX).unwrap().unwrap());
    }
    world.until("the end", |toy| toy.ended == [id]);
}

#[test]
fn ten_thousand_small_frames_are_read_and_answered() {
    const COUNT: usize = 10_000;
    let mut world = World::new();
    let (id, client) = world.connect();
    let mut sender = client.try_clone().unwrap();
    let all: Vec<u8> = (1..=COUNT as u64).flat_map(|n| frame(n, 20).to_bytes()).collect();
    let answer_bytes = frame(1, 20).size();
    let peer = std::thread::spawn(move || {
        sender.write_all(&all).unwrap();
        let mut answers = vec![0; COUNT * answer_bytes];
        (&client).read_exact(&mut answers).unwrap();
        (client, answers)
    });
    let mut answered = 0;
    let begin = Instant::now();
    while world.toy.written.get(&id).copied().unwrap_or(0) < COUNT * answer_bytes {
        assert!(begin.elapsed() < PATIENCE);
        world.round();
        for (_, received) in &world.toy.frames[answered..] {
            world.driver.send(id, frame(received.request_id, 20));
        }
        answered = world.toy.frames.len();
    }
    let answers = peer.join().unwrap().1;
    let expected: Vec<u8> = (1..=COUNT as u64).flat_map(|n| frame(n, 20).to_bytes()).collect();
    assert_eq!(answers, expected);
}

#[test]
fn a_slow_reader_gets_every_byte_and_written_adds_up() {
    let mut world = World::new();
    let (id, mut client) = world.connect();
    let big = frame(1, 30_000_000);
    let expected = [big.to_bytes(), frame(2, 100).to_bytes()].concat();
    world.driver.send(id, big);
    world.driver.send(id, frame(2, 100));
    for _ in 0..50 {
        world.round();
    }
    let stuck = world.toy.written.get(&id).copied().unwrap_or(0);
    assert!(
        stuck > 0 && stuck < expected.len(),
        "{stuck} bytes fit into socket buffers: the test needs a partial write"
    );
    let total = expected.len();
    let reader = std::thread::spawn(move || {
        let mut all = vec![0; total];
        client.read_exact(&mut all).unwrap();
        (client, all)
    });
    world.until("all written", |toy| toy.written[&id] == total);
    assert!(reader.join().unwrap().1 == expected);
}

#[test]
fn many_pieces_are_sent_as_one_stream() {
    let mut world = World::new();
    let (id, mut client) = world.connect();
    let pieces: Vec<Bytes> = (0..5000u32).map(|n| Bytes::from(vec![n as u8; (n % 7) as usize])).collect();
    let out = OutFrame::new(FrameKind::Push, 0, &proto::Ping::default(), pieces);
    let expected = out.to_bytes();
    world.driver.send(id, out);
    world.until("all written", |toy| toy.written.get(&id) == Some(&expected.len()));
    let mut got = vec![0; expected.len()];
    client.read_exact(&mut got).unwrap();
    assert_eq!(got, expected);
}

#[test]
fn a_paused_connection_keeps_its_bytes_until_it_is_resumed() {
    let mut world = World::new();
    world.toy.one_by_one = true;
    let (id, mut client) = world.connect();
    for n in 1..=3 {
        client.write_all(&frame(n, 10).to_bytes()).unwrap();
    }
    world.until("the first frame", |toy| toy.frames.len() == 1);
    (0..5).for_each(|_| world.round());
    assert_eq!(world.toy.frames.len(), 1);
    for n in 2..=3 {
        world.toy.paused.clear();
        world.driver.resume(id);
        world.until("the next frame", |toy| toy.frames.len() == n);
        (0..5).for_each(|_| world.round());
        assert_eq!(world.toy.frames.len(), n);
    }
}

#[test]
fn an_idle_connection_holds_no_buffer_and_a_large_frame_only_its_own() {
    let mut world = World::new();
    let (id, mut client) = world.connect();
    let big = frame(1, 4 << 20).to_bytes();
    client.write_all(&big[..100_000]).unwrap();
    let begin = Instant::now();
    while world.driver.held(id) == 0 {
        assert!(begin.elapsed() < PATIENCE);
        world.round();
    }
    world.until("what was sent", |toy| toy.progressed > 0);
    (0..5).for_each(|_| world.round());
    let held = world.driver.held(id);
    assert!((100_000..=200_000).contains(&held), "{held} bytes for 100000 that came of {}", big.len());
    let rest = big.slice(100_000..);
    let writer = std::thread::spawn(move || {
        client.write_all(&rest).unwrap();
        client.write_all(&frame(2, 10).to_bytes()).unwrap();
        client
    });
    world.until("both frames", |toy| toy.frames.len() == 2);
    assert_eq!(world.driver.held(id), 0);
    for (_, frame) in std::mem::take(&mut world.toy.frames) {
        let payload = frame.payload;
        drop(frame.body);
        assert!(payload.is_unique(), "nobody but the frame keeps its memory");
    }
    drop(writer.join().unwrap());
}

#[test]
fn parts_of_a_frame_are_life_once_a_round_and_whole_frames_speak_for_themselves() {
    let mut world = World::new();
    let (_, mut client) = world.connect();
    let one = frame(1, 1000).to_bytes();
    for (n, part) in one[..900].chunks(300).enumerate() {
        client.write_all(part).unwrap();
        world.until("a part", |toy| toy.progressed == n + 1);
    }
    client.write_all(&one[900..]).unwrap();
    world.until("the frame", |toy| toy.frames.len() == 1);
    assert_eq!(world.toy.progressed, 3);
}

#[test]
fn a_frame_that_stands_still_is_told_once_and_one_that_moves_or_is_not_read_is_not() {
    let mut world = World::new();
    let (still, mut still_client) = world.connect();
    let (slow, mut slow_client) = world.connect();
    let (paused, mut paused_client) = world.connect();
    let (idle, _idle_client) = world.connect();
    let one = frame(1, 1000).to_bytes();
    still_client.write_all(&one[..500]).unwrap();
    slow_client.write_all(&one[..500]).unwrap();
    paused_client.write_all(&one[..500]).unwrap();
    world.until("the beginnings", |toy| toy.progressed == 3);
    world.toy.paused.insert(paused);
    for part in 0..4 {
        world.ahead_ms += FRAME_STALL_MS / 2 - 1000;
        let before = world.toy.progressed;
        paused_client.write_all(&one[500 + part..501 + part]).unwrap();
        slow_client.write_all(&one[500 + part..501 + part]).unwrap();
        world.until("a slow byte", |toy| toy.progressed > before);
        if part == 1 {
            assert_eq!(world.toy.stalled, []);
        }
    }
    assert_eq!(world.toy.stalled, [still]);
    world.toy.paused.clear();
    world.driver.resume(paused);
    paused_client.write_all(&one[504..]).unwrap();
    slow_client.write_all(&one[504..]).unwrap();
    world.until("both frames", |toy| toy.frames.len() == 2);
    world.ahead_ms += 10 * FRAME_STALL_MS;
    (0..5).for_each(|_| world.round());
    assert_eq!(world.toy.stalled, [still], "no frame has begun on {slow:?}, {paused:?} and {idle:?}");
    assert_eq!(world.driver.next_deadline(), None);
}

#[test]
fn a_peer_that_sends_no_more_still_gets_what_is_sent() {
    let mut world = World::new();
    let (id, mut client) = world.connect();
    client.write_all(&frame(1, 10).to_bytes()).unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    world.until("the end", |toy| toy.ended == [id]);
    assert_eq!((world.toy.frames.len(), &world.toy.closed[..]), (1, &[][..]));
    let expected = [frame(1, 10).to_bytes(), frame(2, 10).to_bytes()].concat();
    for n in 1..=2 {
        world.driver.send(id, frame(n, 10));
        world.round();
    }
    let now = world.now();
    world.driver.close(id, now, now.plus_ms(10_000));
    world.until("the close", |toy| toy.closed == [id]);
    let mut got = Vec::new();
    client.read_to_end(&mut got).unwrap();
    assert_eq!(got, expected);
    assert_eq!(world.toy.ended, [id], "told once");
}

#[test]
fn a_paused_connection_that_is_reset_is_noticed() {
    let mut world = World::new();
    let (id, client) = world.connect();
    world.toy.paused.insert(id);
    world.driver.send(id, frame(1, 10));
    world.until("written", |toy| toy.written.contains_key(&id));
    // Closing with unread bytes resets.
    drop(client);
    world.until("the reset", |toy| toy.closed == [id]);
}

#[test]
fn garbage_is_reported_once_and_the_error_reaches_the_peer() {
    let mut world = World::new();
    let (id, mut client) = world.connect();
    let sender = client.try_clone().unwrap();
    let garbage = std::thread::spawn(move || {
        let mut noise = b"GET / HTTP/1.1\r\n".to_vec();
        noise.resize(1 << 20, b'x');
        (&sender).write_all(&noise).expect("no reset: it could take the error from the peer");
        sender.shutdown(std::net::Shutdown::Write).unwrap();
    });
    world.until("the complaint", |toy| !toy.bad.is_empty());
    assert!(matches!(world.toy.bad[..], [FrameError::OtherProtocol(_)]));
    let last_words = frame(7, 50);
    let expected = last_words.to_bytes();
    world.driver.send(id, last_words);
    let now = world.now();
    world.driver.close(id, now, now.plus_ms(10_000));
    world.until("the close", |toy| toy.closed == [id]);
    garbage.join().unwrap();
    let mut got = Vec::new();
    client.read_to_end(&mut got).unwrap();
    assert_eq!(got, expected);
    assert_eq!(world.toy.bad.len(), 1);
}

#[test]
fn a_frame_above_the_limit_is_refused_before_it_is_buffered() {
    let mut world = World::new();
    world.toy.limit = 1000;
    let (_, mut client) = world.connect();
    client.write_all(&frame(1, 1000 - frame(1, 0).size()).to_bytes()).unwrap();
    world.until("the largest frame allowed", |toy| toy.frames.len() == 1);
    client.write_all(&frame(2, 1001 - frame(1, 0).size()).to_bytes()[..4]).unwrap();
    world.until("the refusal", |toy| toy.bad == [FrameError::TooLarge { bytes: 1001, limit: 1000 }]);
}

#[test]
fn a_close_that_cannot_flush_is_enforced_at_its_deadline() {
    let mut world = World::new();
    let (id, _client) = world.connect();
    world.driver.send(id, frame(1, 30_000_000));
    let now = world.now();
    let deadline = now.plus_ms(50);
    world.driver.close(id, now, deadline);
    assert_eq!(world.driver.next_deadline(), Some(deadline));
    world.until("the close", |toy| toy.closed == [id]);
    assert!(world.now() >= deadline);
    assert_eq!(world.driver.next_deadline(), None);
}

#[test]
fn a_peer_that_does_not_close_is_not_waited_for_long() {
    let mut world = World::new();
    let (id, mut client) = world.connect();
    world.driver.send(id, frame(1, 10));
    let now = world.now();
    world.driver.close(id, now, now.plus_ms(1_000_000));
    world.until("the close", |toy| toy.closed == [id]);
    let mut got = Vec::new();
    client.read_to_end(&mut got).unwrap();
    assert_eq!(got, frame(1, 10).to_bytes());
}

#[test]
fn a_wake_ends_a_wait_and_many_wakes_are_one() {
    let mut world = World::new();
    let wake = world.driver.wake_handle();
    let thread = std::thread::spawn(move || (0..1000).for_each(|_| wake.wake()));
    let begin = Instant::now();
    world.driver.wait(Some(PATIENCE)).unwrap();
    assert!(begin.elapsed() < PATIENCE);
    thread.join().unwrap();
    world.driver.wake_handle().rest();
    world.driver.wake_handle().wake();
    world.driver.wait(Some(PATIENCE)).unwrap();
    assert!(begin.elapsed() < PATIENCE, "a wake after a rest is seen");
}

/// Answers what a fed client asks, publishes with these in turn, until it has ended.
fn feed_with(mut answers: impl FnMut() -> OutFrame) -> Result<Fed, FeedError> {
    let feed = Feed {
        batch: Bytes::from_static(b"a batch"),
        in_flight: 2,
        duration: Duration::from_millis(50),
        settings: Vec::new(),
    };
    let (ended, result) = crossbeam_channel::bounded(1);
    let mut driver = FedDriver::new(feed, ended).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    driver.open(ConnectionId(1), TcpStream::connect(listener.local_addr().unwrap()).unwrap()).unwrap();
    let (mut toy, begin) = (Toy::default(), Instant::now());
    loop {
        assert!(begin.elapsed() < PATIENCE, "the client never ended");
        driver.wait(Some(Duration::from_millis(5))).unwrap();
        driver.receive(MonoTime::default(), &mut toy);
        for (id, frame) in toy.frames.drain(..) {
            let answer = match frame.op() {
                Some(Op::Hello) => OutFrame::response(1, &proto::HelloOk::default()),
                Some(Op::CreateTopic) => OutFrame::response(1, &proto::CreateTopicOk::default()),
                _ => answers(),
            };
            driver.send(id, answer);
        }
        if let Ok(result) = result.try_recv() {
            return result;
        }
    }
}

fn refusal(kind: ErrorKind) -> OutFrame {
    OutFrame::error(Op::Publish.number(), 1, &Error::new(kind, "no"))
}

#[test]
fn a_fed_publish_that_is_refused_for_the_moment_is_counted_and_sent_again() {
    let mut refusals = [refusal(ErrorKind::StorageFull), refusal(ErrorKind::StorageFull)].into_iter();
    let fed = feed_with(|| refusals.next().unwrap_or_else(|| OutFrame::response(1, &proto::PublishOk::default())));
    let fed = fed.unwrap();
    assert!(fed.refused == 2 && fed.batches > 2, "{fed:?}");
}

#[test]
fn a_fed_publish_that_is_refused_for_good_ends_it() {
    let error = feed_with(|| refusal(ErrorKind::TopicNotFound)).unwrap_err();
    assert!(matches!(&error, FeedError::Refused(error) if error.kind == ErrorKind::TopicNotFound), "{error}");
}
