//! A node of real shards on a disk in memory: outputs are carried out at once, in order, until nothing is left to do.

#![allow(dead_code, unreachable_pub, missing_docs, clippy::unwrap_used)]

mod client;
mod disk;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use lockgate_engine::{
    Input, JournalSettings, Lane, Limits, NodeConfig, Output, RecoveryReport, ScrubSettings, Shard, ShardMetrics,
    recover,
};
use lockgate_storage::disk::Disk;
use lockgate_wire::batch::{BatchBuilder, Codec, Producer, Record};
use lockgate_wire::{ConnectionId, Frame, MonoTime, NodeId, Now, OutFrame, ShardId, Uid, WallMs, proto};

pub use client::*;
pub use disk::FaultyDisk;

pub struct Node {
    pub disk: FaultyDisk,
    pub config: Arc<NodeConfig>,
    pub shards: Vec<Shard>,
    pub now: Now,
    queue: VecDeque<(usize, Output)>,
    /// Frames that connections were sent, decoded.
    received: BTreeMap<u64, VecDeque<Frame>>,
    homes: BTreeMap<u64, usize>,
    /// Frames that wait in the sockets of connections that may not be read.
    unread: BTreeMap<u64, VecDeque<OutFrame>>,
    /// Connections that send nothing by themselves.
    silent: BTreeSet<u64>,
    pub closed: Vec<ConnectionId>,
    pub stopped: usize,
    next_connection: u64,
    next_request: u64,
    /// While set, these are kept back instead of carried out.
    pub hold_journal: bool,
    /// The journal writes of this shard are kept back.
    pub hold_journal_of: Option<usize>,
    pub hold_reads: bool,
    pub hold_background: bool,
    pub hold_mesh: bool,
    pub hold_views: bool,
    held: VecDeque<(usize, Output)>,
    /// While set, bytes sent to clients are not reported as written.
    pub hold_written: bool,
    unwritten: BTreeMap<u64, usize>,
    /// Connections whose bytes are never reported as written.
    stuck: BTreeSet<u64>,
    /// While set, clients show life by themselves as time passes.
    pub clients_live: bool,
    pub logs: Vec<String>,
}

pub fn config(shards: u16) -> NodeConfig {
    NodeConfig {
        node: NodeId(1),
        cluster: Uid([7; 16]),
        shards,
        journals: 0,
        incarnation: 1,
        journal: JournalSettings { file_bytes: 4 << 20, max_write_bytes: 2 << 20, ..JournalSettings::default() },
        scrub: ScrubSettings::default(),
        limits: Limits::default(),
        advertise: Vec::new(),
        version: "test".into(),
    }
}

impl Node {
    pub fn new(shards: u16) -> Self {
        Self::start(FaultyDisk::default(), config(shards))
    }

    pub fn start(disk: FaultyDisk, config: NodeConfig) -> Self {
        let now = Now { mono: MonoTime(1_000_000_000), wall: WallMs(1_700_000_000_000) };
        Self::start_at(disk, config, now)
    }

    pub fn start_at(disk: FaultyDisk, config: NodeConfig, now: Now) -> Self {
        let config = Arc::new(config);
        let mut node = Self {
            disk,
            config: config.clone(),
            shards: Vec::new(),
            now,
            queue: VecDeque::new(),
            received: BTreeMap::new(),
            homes: BTreeMap::new(),
            unread: BTreeMap::new(),
            silent: BTreeSet::new(),
            closed: Vec::new(),
            stopped: 0,
            next_connection: 0,
            next_request: 0,
            hold_journal: false,
            hold_journal_of: None,
            hold_reads: false,
            hold_background: false,
            hold_mesh: false,
            hold_views: false,
            held: VecDeque::new(),
            hold_written: false,
            unwritten: BTreeMap::new(),
            stuck: BTreeSet::new(),
            clients_live: true,
            logs: Vec::new(),
        };
        for shard in 0..config.shards {
            let recovered = recover(&node.disk, &config, ShardId(shard)).unwrap();
            node.logs.extend(recovered.report.findings.iter().chain(&recovered.report.damage).cloned());
            let mut out = Vec::new();
            let started = Shard::start(config.clone(), ShardId(shard), recovered, 42, now, &mut out);
            node.shards.push(started);
            node.queue.extend(out.into_iter().map(|output| (usize::from(shard), output)));
        }
        node.run();
        node
    }

    /// Stops in order and starts again on the same disk.
    pub fn restart(mut self) -> Self {
        self.stop();
        let (config, now) = ((*self.config).clone(), self.now);
        Self::start_at(self.disk, config, now)
    }

    /// Dies at once and starts again on the same disk.
    pub fn crash(self) -> Self {
        let (config, now) = ((*self.config).clone(), self.now);
        Self::start_at(self.disk, config, now)
    }

    /// Tells every shard to stop.
    pub fn begin_stop(&mut self) {
        for shard in 0..self.shards.len() {
            self.input(shard, Input::Stop);
        }
        self.run();
    }

    /// Stops in order, which takes what it takes.
    pub fn stop(&mut self) {
        self.begin_stop();
        for _ in 0..2_000 {
            self.advance(10);
            if self.stopped == self.shards.len() {
                return;
            }
        }
        panic!("the node did not stop: {:?}", self.logs);
    }

    /// What a start of this shard on a copy of the disk would find.
    pub fn recovery_report(&self, shard: u16) -> RecoveryReport {
        recover(&self.disk.copy(), &self.config, ShardId(shard)).unwrap().report
    }

    fn input(&mut self, shard: usize, input: Input) {
        let mut out = Vec::new();
        self.shards[shard].handle(self.now, input, &mut out);
        self.queue.extend(out.into_iter().map(|output| (shard, output)));
    }

    fn round(&mut self) {
        for shard in 0..self.shards.len() {
            let mut out = Vec::new();
            self.shards[shard].finish_round(self.now, &mut out);
            self.queue.extend(out.into_iter().map(|output| (shard, output)));
        }
    }

    /// Works until nothing is left to do at this moment. What is left waits for a time to come or for something held.
    pub fn run(&mut self) {
        loop {
            self.round();
            if self.queue.is_empty() {
                break;
            }
            while let Some((shard, output)) = self.queue.pop_front() {
                self.output(shard, output);
            }
        }
        for shard in &self.shards {
            let deadline = shard.next_deadline();
            assert!(deadline.is_none_or(|at| at > self.now.mono), "a shard would spin: {deadline:?}");
        }
    }

    /// Lets time pass. Shards are looked at when they asked for it, and at no other time.
    pub fn advance(&mut self, ms: u64) {
        let end = self.now.mono.plus_ms(ms);
        let mut beat = self.now.mono.plus_ms(1_000);
        loop {
            let due = self.shards.iter().filter_map(Shard::next_deadline).min();
            let next = due.into_iter().chain([end, beat]).min().unwrap();
            self.now.wall.0 += next.ms_since(self.now.mono) as i64;
            self.now.mono = next;
            if next == beat {
                beat = beat.plus_ms(1_000);
                self.show_life();
            }
            self.run();
            if next == end {
                return;
            }
        }
    }

    /// Carries out what was kept back.
    pub fn release(&mut self) {
        (self.hold_journal, self.hold_reads, self.hold_background) = (false, false, false);
        self.hold_journal_of = None;
        (self.hold_mesh, self.hold_views) = (false, false);
        let held = std::mem::take(&mut self.held);
        self.queue.extend(held);
        self.run();
    }

    /// Sets whether bytes sent to clients stay in their sockets; those that waited are taken when they do not.
    pub fn set_hold_written(&mut self, hold: bool) {
        self.hold_written = hold;
        if !hold {
            for (id, bytes) in std::mem::take(&mut self.unwritten) {
                self.written(ConnectionId(id), bytes);
            }
        }
    }

    /// How many outputs are kept back.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Carries out the journal writes that were kept back, and nothing else.
    pub fn release_only_journal(&mut self) {
        self.hold_journal = false;
        let (journal, others) = self.held.drain(..).partition(|(_, output)| matches!(output, Output::Journal(_)));
        self.held = others;
        self.queue.extend::<VecDeque<_>>(journal);
        self.run();
    }

    /// Half of the journal write that is kept back gets to the disk.
    pub fn tear_held_journal_write(&mut self) {
        let write = self.held.iter().find_map(|(_, output)| match output {
            Output::Journal(write) => Some(write),
            _ => None,
        });
        let write = write.expect("a journal write is kept back");
        let bytes: Vec<u8> = write.pieces.iter().flatten().copied().collect();
        let half = Bytes::copy_from_slice(&bytes[..bytes.len() / 2]);
        self.disk.memory.write(&write.path, write.offset, &[half]).unwrap();
    }

    fn is_held(&self, output: &Output) -> bool {
        match output {
            Output::Journal(_) => self.hold_journal,
            Output::File { lane: Lane::Read, .. } => self.hold_reads,
            Output::File { lane: Lane::Background | Lane::Journal, .. } => self.hold_background,
            Output::Mesh { .. } => self.hold_mesh,
            Output::View(_) => self.hold_views,
            _ => false,
        }
    }

    pub fn metrics(&mut self, shard: usize) -> ShardMetrics {
        self.shards[shard].metrics()
    }

    /// Nothing is charged, waits or is under way; with no connection there is no subscription.
    pub fn assert_idle(&mut self) {
        for shard in 0..self.shards.len() {
            let m = self.metrics(shard);
            let gauges = [m.charged_bytes, m.unanswered_requests, m.publish_in_flight_bytes, m.mesh_requests];
            assert_eq!(gauges, [0; 4], "shard {shard}: charged, unanswered, publishing, mesh");
            assert_eq!((m.mesh_parked, m.outgoing_bytes, m.connections_paused), (0, 0, 0), "shard {shard}");
            assert!(m.connections > 0 || m.subscriptions == 0, "shard {shard}: {} subscriptions", m.subscriptions);
            assert_eq!((m.internal_errors, m.mesh_misrouted), (0, 0), "shard {shard}");
        }
    }

    fn output(&mut self, shard: usize, output: Output) {
        let is_of_held = self.hold_journal_of == Some(shard) && matches!(output, Output::Journal(_));
        if is_of_held || self.is_held(&output) {
            self.held.push_back((shard, output));
            return;
        }
        match output {
            Output::Send { connection, frame } => {
                let mut bytes = BytesMut::from(&frame.to_bytes()[..]);
                let decoded = Frame::decode(&mut bytes, u32::MAX).unwrap().expect("a whole frame");
                self.received.entry(connection.0).or_default().push_back(decoded);
                if self.hold_written || self.stuck.contains(&connection.0) {
                    *self.unwritten.entry(connection.0).or_default() += frame.size();
                } else {
                    self.input(shard, Input::Written { connection, bytes: frame.size() });
                }
            }
            Output::ResumeReading { connection } => self.read_socket(connection),
            Output::Ready => {}
            Output::Close { connection, .. } => {
                self.closed.push(connection);
                self.silent.insert(connection.0);
                self.input(shard, Input::ConnectionClosed { connection });
            }
            Output::Mesh { to, frame } => {
                self.input(usize::from(to.0), Input::Mesh { from: ShardId(shard as u16), frame });
            }
            Output::Journal(write) => {
                let result = write.execute(&self.disk);
                self.input(shard, Input::JournalWritten { journal: write.kind, result });
            }
            Output::File { token, op, .. } => {
                let result = op.execute(&self.disk);
                self.input(shard, Input::FileDone { token, result });
            }
            Output::View(view) => {
                for other in (0..self.shards.len()).filter(|other| *other != shard) {
                    self.input(other, Input::View(view.clone()));
                }
            }
            Output::Stopped => self.stopped += 1,
            Output::Log { message, .. } => self.logs.push(message),
        }
    }
}

pub fn publish(topic_id: u64, partition: u32) -> proto::Publish {
    publish_at(topic_id, partition, proto::Ack::Quorum)
}

pub fn publish_at(topic_id: u64, partition: u32, ack: proto::Ack) -> proto::Publish {
    proto::Publish { topic_id, partition, ack: ack as i32, partitioning_version: 1 }
}

/// The records of a payload: offset and value.
pub fn records(payload: Bytes) -> Vec<(u64, String)> {
    lockgate_wire::batch::split(payload)
        .flat_map(|batch| lockgate_wire::batch::decode(batch.unwrap(), 1 << 26).unwrap().records)
        .map(|(offset, record)| (offset.0, String::from_utf8(record.value.unwrap().to_vec()).unwrap()))
        .collect()
}

pub fn batch(values: &[&str]) -> Bytes {
    numbered_batch(values, None)
}

pub fn numbered_batch(values: &[&str], producer: Option<Producer>) -> Bytes {
    batch_at(values, producer, 1_700_000_000_000)
}

pub fn batch_at(values: &[&str], producer: Option<Producer>, timestamp_ms: i64) -> Bytes {
    let mut builder = BatchBuilder::new(Codec::None);
    for value in values {
        let value = Some(Bytes::copy_from_slice(value.as_bytes()));
        builder.push(&Record { key: None, value, headers: Vec::new(), timestamp_ms }).unwrap();
    }
    builder.build(producer)
}
