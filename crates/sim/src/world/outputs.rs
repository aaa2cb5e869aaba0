//! What shards want done, done: frames to clients, journal writes and file operations to the disk, frames and views to
//! other shards.

use lockgate_engine::{Lane, Level, MeshFrame, Output};

use super::World;
use super::queue::{Happening, Toward};
use super::storage::FileTask;
use crate::telling;
use crate::time::Time;
use crate::trace::{Trace, Who};

impl World {
    /// Carries the outputs of one shard out, in order.
    pub(super) fn carry_out(&mut self, shard: usize, outputs: Vec<Output>) {
        let process = self.node.life.process;
        for output in outputs {
            trace_output(&mut self.trace, self.now, shard, &output);
            match output {
                Output::Send { connection, frame } => {
                    if let Some(link) =
                        self.links.get_mut(&connection.0).filter(|link| !link.node_is_gone && !link.closing)
                    {
                        link.to_client.send(frame.to_bytes());
                        self.pump(connection.0, Toward::Client);
                    }
                }
                Output::ResumeReading { connection } => {
                    if let Some(link) = self.links.get_mut(&connection.0).filter(|link| !link.node_is_gone) {
                        link.paused = false;
                        self.node.shards[shard].readable.insert(connection.0);
                        self.plan_round(shard);
                        self.drain_pipe(connection.0);
                    }
                }
                Output::Close { connection, flush_ms } => self.close(connection.0, flush_ms),
                Output::Mesh { to, frame } => self.send_mesh(shard, usize::from(to.0), frame),
                Output::Journal(write) => self.start_journal_write(shard, write),
                Output::File { lane, token, op } => {
                    let task = FileTask { token, op };
                    match lane {
                        Lane::Read => self.start_read(shard, task),
                        Lane::Journal | Lane::Background => self.start_file(shard, lane, task),
                    }
                }
                Output::View(view) => {
                    for to in (0..self.node.shards.len()).filter(|to| *to != shard) {
                        let at = self.mesh_delay(self.node.shards[to].views.0);
                        let views = &mut self.node.shards[to].views;
                        views.0 = at;
                        views.1.push_back(view.clone());
                        self.queue.push(at, Happening::View { process, to });
                    }
                }
                Output::Ready => self.shard_is_ready(shard),
                Output::Stopped => self.shard_has_stopped(shard),
                Output::Log { .. } => {}
            }
        }
    }

    fn send_mesh(&mut self, from: usize, to: usize, frame: MeshFrame) {
        if from == to || to >= self.node.shards.len() {
            return self.report("the_mesh_knows_its_targets", format!("shard {from} sends to shard {to}: {frame:?}"));
        }
        let last = self.node.shards[to].mesh.get(&from).map_or(0, |(last, _)| *last);
        let at: Time = self.mesh_delay(last);
        let entry = self.node.shards[to].mesh.entry(from).or_default();
        entry.0 = at;
        entry.1.push_back(frame);
        self.queue.push(at, Happening::Mesh { process: self.node.life.process, from, to });
    }
}

fn trace_output(trace: &mut Trace, at: Time, shard: usize, output: &Output) {
    let who = Who::Shard(shard);
    match output {
        Output::Send { connection, frame } => {
            trace.step(at, who, "> frame", &[connection.0], format_args!("c{connection} {}", telling::OutFrame(frame)));
            trace.bytes(&frame.head);
            frame.payload.iter().for_each(|piece| trace.bytes(piece));
        }
        Output::ResumeReading { connection } => {
            trace.step(at, who, "> read on", &[connection.0], format_args!("c{connection}"));
        }
        Output::Close { connection, .. } => {
            trace.step(at, who, "> close", &[connection.0], format_args!("c{connection}"));
        }
        Output::Journal(write) => {
            let numbers = [write.kind as u64, write.offset, write.bytes as u64, write.last.0];
            trace.step(at, who, "> journal", &numbers, format_args!("{}", telling::Write(write)));
            write.pieces.iter().for_each(|piece| trace.bytes(piece));
        }
        Output::File { lane, token, op } => {
            let text = format_args!("f{} {lane:?}: {}", token.0, telling::Operation(op));
            trace.step(at, who, "> file", &[token.0], text);
        }
        Output::Mesh { to, frame } => {
            trace.step(at, who, "> mesh", &[u64::from(to.0)], format_args!("to shard {to}: {frame:?}"));
        }
        Output::View(view) => trace.step(at, who, "> view", &[view.version], format_args!("version {}", view.version)),
        Output::Ready => trace.step(at, who, "> READY", &[], format_args!("")),
        Output::Stopped => trace.step(at, who, "> STOPPED", &[], format_args!("")),
        Output::Log { level, message } => {
            let kind = match level {
                Level::Error => "ERROR",
                Level::Warn => "warn",
                Level::Info => "info",
                Level::Debug => "debug",
            };
            trace.step(at, who, kind, &[], format_args!("{message}"));
            trace.bytes(message.as_bytes());
        }
    }
}
