//! A driver without sockets: one client in the same thread that publishes the same batch again and again.

use std::collections::VecDeque;
use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use crossbeam_channel::Sender;
use lockgate_wire::op::Body;
use lockgate_wire::proto::Advice;
use lockgate_wire::{ConnectionId, Frame, FrameKind, MonoTime, OutFrame, proto};

use super::epoll::EpollDriver;
use super::{Driver, Handler, Wake};
use crate::feed::{Fed, Feed, FeedError};

/// How long nothing is sent after a refusal: what makes room gets the processor.
const REFUSED_PAUSE: Duration = Duration::from_millis(5);

/// See the module. Answers are counted, nothing is kept.
pub(crate) struct FedDriver {
    /// Its waits and wakes; it has no connection.
    idle: EpollDriver,
    feed: Feed,
    connection: Option<ConnectionId>,
    /// What goes in at the next [`Driver::receive`].
    outgoing: VecDeque<Frame>,
    /// Bytes of answers that the engine is told went out.
    taken: usize,
    /// A publish without its payload, once there is a topic.
    publish: Option<Frame>,
    paused: bool,
    unanswered: u32,
    fed: Fed,
    began: Option<Instant>,
    /// Nothing is sent before, as something was refused.
    resumes: Option<Instant>,
    /// Told once, at the end or at the first error.
    ended: Option<Sender<Result<Fed, FeedError>>>,
}

impl FedDriver {
    pub(crate) fn new(feed: Feed, ended: Sender<Result<Fed, FeedError>>) -> io::Result<Self> {
        Ok(Self {
            idle: EpollDriver::new()?,
            feed,
            connection: None,
            outgoing: VecDeque::new(),
            taken: 0,
            publish: None,
            paused: false,
            unanswered: 0,
            fed: Fed::default(),
            began: None,
            resumes: None,
            ended: Some(ended),
        })
    }

    fn is_over(&self) -> bool {
        self.began.is_some_and(|began| began.elapsed() >= self.feed.duration)
    }

    /// Keeps as many publishes under way as were asked for, until the time is over.
    fn fill(&mut self) {
        let Some(publish) = self.publish.clone() else { return };
        if self.is_over() {
            if self.unanswered == 0 {
                self.fed.took = self.began.map_or(Duration::ZERO, |began| began.elapsed());
                self.end(Ok(self.fed.clone()));
            }
            return;
        }
        if self.pause_left() > Duration::ZERO {
            return;
        }
        while self.unanswered < self.feed.in_flight {
            self.unanswered += 1;
            self.outgoing.push_back(Frame { payload: self.feed.batch.clone(), ..publish.clone() });
        }
    }

    /// How long nothing is to be sent yet.
    fn pause_left(&self) -> Duration {
        self.resumes.map_or(Duration::ZERO, |resumes| resumes.saturating_duration_since(Instant::now()))
    }

    fn end(&mut self, result: Result<Fed, FeedError>) {
        if let Some(ended) = self.ended.take() {
            // Whoever waits for it has nothing else to wait for.
            drop(ended.send(result));
        }
    }

    fn answered(&mut self, frame: Frame) -> Result<(), lockgate_wire::Error> {
        if frame.kind == FrameKind::Error {
            let error = lockgate_wire::Error::from_proto(frame.message()?);
            if frame.op != proto::Publish::OP.number() || error.advice() != Advice::Retry {
                return Err(error);
            }
            self.unanswered -= 1;
            self.fed.refused += 1;
            self.resumes = Some(Instant::now() + REFUSED_PAUSE);
            return Ok(());
        }
        if frame.kind == FrameKind::Push {
            return Ok(());
        }
        if frame.op == proto::HelloOk::OP.number() {
            let settings = self.feed.settings.iter().cloned().collect();
            let create = proto::CreateTopic { name: "fed".into(), partitions: 1, settings, ..Default::default() };
            self.outgoing.push_back(request(&create));
        } else if frame.op == proto::CreateTopicOk::OP.number() {
            let topic_id = frame.message::<proto::CreateTopicOk>()?.topic_id;
            let ack = proto::Ack::Quorum as i32;
            self.publish = Some(request(&proto::Publish { topic_id, partition: 0, ack, partitioning_version: 1 }));
            self.began = Some(Instant::now());
        } else {
            self.unanswered -= 1;
            self.fed.batches += 1;
        }
        Ok(())
    }
}

/// A request as it would be received. All have the same id: what is counted needs no names.
fn request<B: Body>(body: &B) -> Frame {
    received(&OutFrame::request(1, body))
}

fn received(frame: &OutFrame) -> Frame {
    let frame = Frame::decode(&mut BytesMut::from(&frame.to_bytes()[..]), u32::MAX);
    frame.ok().flatten().expect("what was encoded is decoded")
}

impl Driver for FedDriver {
    fn wake_handle(&self) -> Arc<Wake> {
        self.idle.wake_handle()
    }

    /// The stream only stands for the client.
    fn open(&mut self, connection: ConnectionId, _stream: TcpStream) -> io::Result<()> {
        self.connection = Some(connection);
        self.outgoing.push_back(request(&proto::Hello::default()));
        Ok(())
    }

    fn send(&mut self, _connection: ConnectionId, frame: OutFrame) {
        self.taken += frame.size();
        if let Err(error) = self.answered(received(&frame)) {
            self.end(Err(FeedError::Refused(error)));
        }
    }

    fn resume(&mut self, _connection: ConnectionId) {
        self.paused = false;
    }

    fn close(&mut self, _connection: ConnectionId, _now: MonoTime, _deadline: MonoTime) {
        self.connection = None;
    }

    fn close_all(&mut self) {
        self.connection = None;
    }

    fn flush(&mut self, _now: MonoTime) {}

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.fill();
        let has_work = self.connection.is_some() && (self.taken > 0 || (!self.outgoing.is_empty() && !self.paused));
        let pause = Some(self.pause_left()).filter(|pause| *pause > Duration::ZERO);
        let timeout = timeout.into_iter().chain(pause).min();
        self.idle.wait(if has_work { Some(Duration::ZERO) } else { timeout })
    }

    fn receive(&mut self, _now: MonoTime, handler: &mut dyn Handler) {
        let Some(connection) = self.connection else { return };
        if self.taken > 0 {
            handler.written(connection, std::mem::take(&mut self.taken));
        }
        self.fill();
        while !self.outgoing.is_empty() {
            if !handler.may_read(connection) {
                self.paused = true;
                return;
            }
            if let Some(frame) = self.outgoing.pop_front() {
                handler.received(connection, frame);
            }
        }
    }

    fn next_deadline(&self) -> Option<MonoTime> {
        None
    }

    fn is_closing(&self) -> bool {
        false
    }
}
