//! Bytes on their way: what arrives where, what a side learns and when, how a connection ends.

use lockgate_engine::Input;
use lockgate_wire::ConnectionId;

use super::World;
use super::link::Arrival;
use super::queue::{Happening, LinkNo, Toward};
use crate::oracle::ClientInput;
use crate::time::{MS, Time};

/// How long an attempt to reach a node that is down takes at most.
const REFUSAL_MAX: Time = 300 * MS;

impl World {
    /// A connection attempt reaches the node.
    pub(super) fn connects(&mut self, number: LinkNo) {
        let accepts = self.node.is_ready();
        // One that was cut on its way never reaches the node.
        let Some(link) = self.links.get_mut(&number).filter(|link| !link.node_is_gone) else { return };
        let delay = link.to_client.delay(&mut self.rng);
        if !accepts {
            link.node_is_gone = true;
            let pause = self.rng.below(REFUSAL_MAX);
            return self.queue.push(self.now + delay + pause, Happening::Connected { link: number });
        }
        link.process = self.node.life.process;
        link.shard = self.rng.below(self.node.shards.len() as u64) as usize;
        let shard = link.shard;
        let peer = format!("client-{}:{number}", link.client).into();
        self.give(shard, Input::ConnectionOpened { connection: ConnectionId(number), peer });
        self.queue.push(self.now + delay, Happening::Connected { link: number });
    }

    /// The pipe takes what it has room for.
    pub(super) fn pump(&mut self, number: LinkNo, toward: Toward) {
        let Some(link) = self.links.get_mut(&number) else { return };
        let stream = if toward == Toward::Node { &mut link.to_node } else { &mut link.to_client };
        let (taken, arrivals) = stream.pump(self.now, &mut self.rng);
        let (shard, is_flushed) = (link.shard, stream.waiting_bytes() == 0);
        for at in arrivals {
            self.queue.push(at, Happening::Arrives { link: number, toward });
        }
        let is_current = self.node.is_running() && link.process == self.node.life.process;
        if toward == Toward::Client && !link.node_is_gone && is_current {
            let is_closing = link.closing;
            if taken > 0 {
                link.written += taken;
                self.node.shards[shard].written.insert(number);
                self.plan_round(shard);
            }
            if is_closing && is_flushed {
                self.node_closes(number);
            }
        }
    }

    /// Bytes, or an end, may have arrived.
    pub(super) fn arrives(&mut self, number: LinkNo, toward: Toward) {
        match toward {
            Toward::Node => self.arrives_at_node(number),
            Toward::Client => self.arrives_at_client(number),
        }
    }

    fn arrives_at_node(&mut self, number: LinkNo) {
        if !self.is_of_this_process(number) {
            return;
        }
        let Some(link) = self.links.get_mut(&number) else { return };
        while let Some(arrival) = link.to_node.arrive(self.now) {
            match arrival {
                Arrival::Bytes(bytes) => {
                    link.in_pipe += bytes.len();
                    link.unread.extend_from_slice(&bytes);
                }
                Arrival::End => link.ended = true,
            }
        }
        if link.node_is_gone {
            return;
        }
        let shard = link.shard;
        if !link.paused {
            self.node.shards[shard].readable.insert(number);
            self.plan_round(shard);
        }
        self.drain_pipe(number);
    }

    /// A connection that is read is emptied into the node's own buffer; one that is not keeps its pipe full.
    pub(super) fn drain_pipe(&mut self, number: LinkNo) {
        let Some(link) = self.links.get_mut(&number).filter(|link| !link.paused && link.in_pipe > 0) else { return };
        let bytes = std::mem::take(&mut link.in_pipe);
        link.to_node.free(bytes);
        self.pump(number, Toward::Node);
    }

    fn arrives_at_client(&mut self, number: LinkNo) {
        let Some(link) = self.links.get_mut(&number) else { return };
        let client = link.client;
        if link.client_is_gone {
            return;
        }
        let resumes_at = self.client_pauses[client];
        if resumes_at > self.now {
            return self.queue.push(resumes_at, Happening::Arrives { link: number, toward: Toward::Client });
        }
        while let Some(link) = self.links.get_mut(&number).filter(|link| !link.client_is_gone) {
            match link.to_client.arrive(self.now) {
                None => break,
                Some(Arrival::End) => return self.client_loses(number),
                Some(Arrival::Bytes(bytes)) => {
                    link.to_client.free(bytes.len());
                    self.pump(number, Toward::Client);
                    self.tell_client(client, ClientInput::Received(bytes));
                }
            }
        }
    }

    /// A side learns that the connection was cut.
    pub(super) fn notices(&mut self, number: LinkNo, side: Toward) {
        match side {
            Toward::Client => self.client_loses(number),
            Toward::Node => self.node_loses(number),
        }
    }

    /// The shard is told that its connection is gone.
    pub(super) fn node_loses(&mut self, number: LinkNo) {
        let is_current = self.is_of_this_process(number);
        let Some(link) = self.links.get_mut(&number) else { return };
        if std::mem::replace(&mut link.node_is_gone, true) {
            return;
        }
        let shard = link.shard;
        link.to_node.die();
        if is_current {
            self.node.shards[shard].readable.remove(&number);
            self.give(shard, Input::ConnectionClosed { connection: ConnectionId(number) });
        }
        self.forget_if_gone(number);
    }

    /// The node's side has flushed what it had and closes, or closes without.
    fn node_closes(&mut self, number: LinkNo) {
        let Some(link) = self.links.get_mut(&number) else { return };
        let ends_at = link.to_client.end(self.now, &mut self.rng);
        self.queue.push(ends_at, Happening::Arrives { link: number, toward: Toward::Client });
        self.node_loses(number);
    }

    /// The shard wants a connection closed.
    pub(super) fn close(&mut self, number: LinkNo, flush_ms: u32) {
        let Some(link) = self.links.get_mut(&number).filter(|link| !link.node_is_gone && !link.closing) else { return };
        link.closing = true;
        self.queue.push(self.now + Time::from(flush_ms) * MS, Happening::FlushEnds { link: number });
        self.pump(number, Toward::Client);
    }

    pub(super) fn flush_ends(&mut self, number: LinkNo) {
        if self.links.get(&number).is_some_and(|link| !link.node_is_gone) && self.is_of_this_process(number) {
            self.node_closes(number);
        }
    }

    /// Whether the link was made to the process that runs now.
    pub(super) fn is_of_this_process(&self, number: LinkNo) -> bool {
        self.node.is_running() && self.links.get(&number).is_some_and(|link| link.process == self.node.life.process)
    }

    pub(super) fn forget_if_gone(&mut self, number: LinkNo) {
        if self.links.get(&number).is_some_and(|link| link.client_is_gone && link.node_is_gone) {
            self.links.remove(&number);
        }
    }
}
