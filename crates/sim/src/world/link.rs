//! One connection: an ordered stream of bytes each way, with delay, odd chunks and a bounded pipe; cut, deaf or slow.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use crate::rng::Rng;
use crate::time::{MS, Time, US};

/// How a link moves bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkSpeed {
    delay: Time,
    jitter: Time,
    /// Chunks are cut at random below this many bytes now and then.
    chunk_bytes: u64,
    chunk_per_mille: u64,
    pipe_bytes: usize,
}

impl LinkSpeed {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        Self {
            delay: rng.magnitude(10 * US..=5 * MS),
            jitter: rng.magnitude(10 * US..=5 * MS),
            chunk_bytes: rng.magnitude(1..=4096),
            chunk_per_mille: *rng.pick(&[0, 0, 20, 200]),
            pipe_bytes: rng.magnitude(8 << 10..=1 << 20) as usize,
        }
    }

    pub(super) fn delay(&self, rng: &mut Rng) -> Time {
        self.delay + rng.below(self.jitter + 1)
    }
}

#[derive(Debug)]
enum Chunk {
    Bytes(Bytes),
    /// The sender closed; nothing follows.
    End,
}

/// What a stream gave.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Arrival {
    Bytes(Bytes),
    End,
}

/// One direction of a link.
#[derive(Debug)]
pub(super) struct Stream {
    speed: LinkSpeed,
    /// At the sender, for want of room in the pipe.
    waiting: VecDeque<Bytes>,
    waiting_bytes: usize,
    in_flight: VecDeque<(Time, Chunk)>,
    /// Taken by the pipe and not by the receiver's program.
    pipe_bytes: usize,
    last_arrival: Time,
    /// Nothing arrives any more.
    is_dead: bool,
}

impl Stream {
    pub(super) fn new(speed: LinkSpeed) -> Self {
        Self {
            speed,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            in_flight: VecDeque::new(),
            pipe_bytes: 0,
            last_arrival: 0,
            is_dead: false,
        }
    }

    /// The sender wants these bytes sent.
    pub(super) fn send(&mut self, bytes: Bytes) {
        self.waiting_bytes += bytes.len();
        self.waiting.push_back(bytes);
    }

    /// Bytes that the pipe has not taken.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// The pipe takes what it has room for. Gives the bytes taken, and when the new chunks arrive.
    pub(super) fn pump(&mut self, now: Time, rng: &mut Rng) -> (usize, Vec<Time>) {
        let (mut taken, mut arrivals) = (0, Vec::new());
        while let Some(bytes) = self.waiting.front_mut() {
            let room = self.speed.pipe_bytes.saturating_sub(self.pipe_bytes);
            if room == 0 {
                break;
            }
            let mut len = bytes.len().min(room);
            if rng.per_mille(self.speed.chunk_per_mille) {
                len = len.min(rng.within(1..=self.speed.chunk_bytes) as usize);
            }
            let chunk = bytes.split_to(len);
            if bytes.is_empty() {
                self.waiting.pop_front();
            }
            self.waiting_bytes -= len;
            self.pipe_bytes += len;
            taken += len;
            arrivals.push(self.put(now, Chunk::Bytes(chunk), rng));
        }
        (taken, arrivals)
    }

    /// The sender closes; what waits is dropped. Gives when the receiver will see the end.
    pub(super) fn end(&mut self, now: Time, rng: &mut Rng) -> Time {
        self.waiting.clear();
        self.waiting_bytes = 0;
        self.put(now, Chunk::End, rng)
    }

    fn put(&mut self, now: Time, chunk: Chunk, rng: &mut Rng) -> Time {
        self.last_arrival = self.last_arrival.max(now + self.speed.delay(rng));
        self.in_flight.push_back((self.last_arrival, chunk));
        self.last_arrival
    }

    /// The next of what has arrived by now.
    pub(super) fn arrive(&mut self, now: Time) -> Option<Arrival> {
        if self.is_dead || self.in_flight.front().is_none_or(|(at, _)| *at > now) {
            return None;
        }
        self.in_flight.pop_front().map(|(_, chunk)| match chunk {
            Chunk::Bytes(bytes) => Arrival::Bytes(bytes),
            Chunk::End => Arrival::End,
        })
    }

    /// The receiver's program has taken these bytes: there is room for more.
    pub(super) fn free(&mut self, bytes: usize) {
        self.pipe_bytes -= bytes;
    }

    /// Nothing arrives before then, neither what is under way nor what follows.
    pub(super) fn stall_until(&mut self, time: Time) {
        self.last_arrival = self.last_arrival.max(time);
        self.in_flight.iter_mut().for_each(|(at, _)| *at = (*at).max(time));
    }

    /// Nothing arrives ever again.
    pub(super) fn die(&mut self) {
        self.is_dead = true;
    }

    pub(super) fn delay(&self, rng: &mut Rng) -> Time {
        self.speed.delay(rng)
    }
}

/// A connection between a client and a shard.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) client: usize,
    pub(super) shard: usize,
    pub(super) process: u32,
    pub(super) to_node: Stream,
    pub(super) to_client: Stream,
    /// Arrived at the node and not read by the shard.
    pub(super) unread: BytesMut,
    /// Of these, how many still take room in the pipe.
    pub(super) in_pipe: usize,
    /// Taken by the pipe toward the client and not told to the shard.
    pub(super) written: usize,
    /// The client's end was seen; the node learns of it once everything before is read.
    pub(super) ended: bool,
    /// The shard does not want to read it for now.
    pub(super) paused: bool,
    /// What came is no frame: it is read no further.
    pub(super) unreadable: bool,
    /// The shard wants it closed when everything is flushed.
    pub(super) closing: bool,
    pub(super) client_is_gone: bool,
    pub(super) node_is_gone: bool,
}

impl Link {
    pub(super) fn new(client: usize, speed: LinkSpeed) -> Self {
        Self {
            client,
            shard: 0,
            process: 0,
            to_node: Stream::new(speed),
            to_client: Stream::new(speed),
            unread: BytesMut::new(),
            in_pipe: 0,
            written: 0,
            ended: false,
            paused: false,
            unreadable: false,
            closing: false,
            client_is_gone: false,
            node_is_gone: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_arrive_in_order_whatever_the_chunks_and_never_more_than_the_pipe_holds() {
        for seed in 0..50 {
            let mut rng = Rng::new(seed);
            let mut stream = Stream::new(LinkSpeed::draw(&mut rng));
            let sent: Vec<u8> = (0..20_000u32).map(|i| (i / 7) as u8).collect();
            sent.chunks(3000).for_each(|part| stream.send(Bytes::copy_from_slice(part)));
            let (mut now, mut got) = (0, Vec::new());
            while got.len() < sent.len() {
                stream.pump(now, &mut rng);
                now += MS;
                while let Some(Arrival::Bytes(bytes)) = stream.arrive(now) {
                    stream.free(bytes.len());
                    got.extend_from_slice(&bytes);
                }
            }
            assert_eq!(got, sent);
        }
    }

    #[test]
    fn a_pipe_whose_receiver_does_not_read_takes_no_more() {
        let mut rng = Rng::new(1);
        let mut stream = Stream::new(LinkSpeed::draw(&mut rng));
        stream.send(Bytes::from(vec![0; 4 << 20]));
        let (taken, _) = stream.pump(0, &mut rng);
        assert!(taken <= 1 << 20);
        assert_eq!(stream.pump(MS, &mut rng).0, 0);
        assert_eq!(stream.waiting_bytes(), (4 << 20) - taken);
    }
}
