//! The client connections of a shard: what they may send, what they are owed, when they are given up.
//!
//! A session lives with its connection here. It decides nothing about partitions: it charges a request, hands it on, and
//! gives the charge back with the answer.

mod connection;
pub(crate) mod decode;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lockgate_wire::op::Body;
use lockgate_wire::proto::{self, CloseReason};
use lockgate_wire::{ConnectionId, Error, ErrorKind, FrameKind, MonoTime, Op, OutFrame, PartitionId, SubscriptionId};

use self::connection::Silence;
pub(crate) use self::connection::{Connection, Phase};
use crate::core::Core;
use crate::limits::{CLOSE_FLUSH_MS, DELIVER_BELOW_BYTES, FRAME_STALL_MS, HEARTBEAT_MS, SWEEP_EVERY_MS};
use crate::mesh::Origin;
use crate::output::{Level, Output};

/// All connections of a shard.
pub(crate) struct Sessions {
    connections: BTreeMap<ConnectionId, Connection>,
    /// Those that are not read at the moment.
    paused: BTreeSet<ConnectionId>,
    next_session: u32,
    next_sweep: MonoTime,
    /// Whether the shard stops: requests for new work are refused from then on, what was taken is answered.
    pub(crate) is_stopping: bool,
}

/// What one connection uses of what is bounded, for whoever checks the bounds.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionUse {
    /// Which.
    pub connection: ConnectionId,
    /// Requests that wait for their answer.
    pub unanswered_requests: u32,
    /// Bytes charged for them.
    pub charged_bytes: u64,
    /// Bytes in frames not yet handed to the kernel.
    pub outgoing_bytes: u64,
    /// Its subscriptions.
    pub subscriptions: u64,
}

/// A subscription whose slot is free again.
pub(crate) type Taken = (PartitionId, SubscriptionId);

impl Sessions {
    pub(crate) fn new() -> Self {
        Self {
            connections: BTreeMap::new(),
            paused: BTreeSet::new(),
            next_session: 0,
            next_sweep: MonoTime::default(),
            is_stopping: false,
        }
    }

    pub(crate) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.connections.get_mut(&id)
    }

    /// Whether every request is answered. What waits to be sent has the time that closes have: a stop waits for no client
    /// that takes nothing.
    pub(crate) fn are_settled(&self) -> bool {
        self.connections.values().all(|connection| connection.unanswered == 0)
    }

    /// See [`crate::Shard::may_read`].
    pub(crate) fn may_read(&mut self, core: &Core, id: ConnectionId) -> bool {
        let may = self.has_room(core, id);
        if !may && let Some(connection) = self.connections.get_mut(&id) {
            // Whoever was told no is told when it may.
            connection.is_paused = true;
            self.paused.insert(id);
        }
        may
    }

    fn has_room(&self, core: &Core, id: ConnectionId) -> bool {
        let limits = &core.node.limits;
        self.connections.get(&id).is_some_and(|connection| {
            let memory = !connection.publishes || core.metrics.publish_in_flight_bytes < limits.publish_bytes_per_shard;
            connection.has_room(limits) && memory
        })
    }

    pub(crate) fn frame_limit(&self, core: &Core, id: ConnectionId) -> u32 {
        match self.connections.get(&id) {
            Some(connection) if connection.phase != Phase::Greeting => core.node.limits.max_frame_bytes,
            _ => core.node.limits.max_frame_bytes_before_hello,
        }
    }

    pub(crate) fn opened(&mut self, core: &mut Core, id: ConnectionId, peer: Arc<str>) {
        let limits = core.node.limits.clone();
        core.metrics.connections_opened += 1;
        self.connections.insert(id, Connection::new(peer, core.now.mono, &limits));
        if self.connections.len() > limits.connections_per_shard as usize {
            let max = limits.connections_per_shard;
            let message = format!(
                "the shard has {max} connections, the most it may have (limits.connections_per_shard); try again later"
            );
            self.close_with(core, id, &Error::new(ErrorKind::LimitReached, message).with_limit(max.into()));
        }
    }

    /// Part of a frame came in.
    pub(crate) fn progressed(&mut self, core: &Core, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.received(core.now.mono);
        }
    }

    /// The rest of a frame does not come.
    pub(crate) fn frame_stalled(&mut self, core: &mut Core, id: ConnectionId) {
        if self.connections.get(&id).is_some_and(|connection| connection.phase != Phase::Closed) {
            self.give_up(core, id, Silence::HalfFrame);
        }
    }

    /// The connection is gone. Gives whether it was known.
    pub(crate) fn gone(&mut self, core: &mut Core, id: ConnectionId) -> bool {
        self.paused.remove(&id);
        let Some(connection) = self.connections.remove(&id) else { return false };
        core.metrics.outgoing_bytes -= connection.outgoing_bytes as u64;
        true
    }

    // ── out ──────────────────────────────────────────────────────────────────────────────────────────────────────

    /// Sends a frame. To a connection that is gone or closed: nothing.
    pub(crate) fn send(&mut self, core: &mut Core, id: ConnectionId, frame: OutFrame) {
        if let Some(connection) = self.connections.get_mut(&id)
            && connection.phase != Phase::Closed
        {
            connection.sent(core.now.mono, frame.size());
            core.metrics.outgoing_bytes += frame.size() as u64;
            core.out.push(Output::Send { connection: id, frame });
        }
    }

    /// Answers a request of this shard's connection.
    pub(crate) fn respond<B: Body>(&mut self, core: &mut Core, origin: Origin, body: &B) {
        let frame = (origin.request_id != 0).then(|| OutFrame::response(origin.request_id, body));
        self.answered(core, origin, frame);
    }

    /// Gives a request's charge back and sends its answer, if one is wanted.
    pub(crate) fn answered(&mut self, core: &mut Core, origin: Origin, frame: Option<OutFrame>) {
        if origin.publish {
            core.metrics.publish_in_flight_bytes -= u64::from(origin.charge);
        }
        core.metrics.charged_bytes -= u64::from(origin.charge);
        core.metrics.unanswered_requests -= 1;
        let Some(connection) = self.connections.get_mut(&origin.connection) else { return };
        connection.unanswered -= 1;
        connection.charged -= u64::from(origin.charge);
        if let Some(at) = connection.unsettled.iter().position(|id| Some(*id) == origin.subscription) {
            connection.unsettled.swap_remove(at);
        }
        let closing = match connection.phase {
            Phase::Closing(request) if connection.unanswered == 0 => Some(request),
            _ => None,
        };
        if let Some(frame) = frame {
            let refused = frame.kind() == FrameKind::Error;
            if let Some(subscription) = origin.subscription.filter(|_| refused) {
                self.unsubscribe(core, origin.connection, subscription);
            }
            self.send(core, origin.connection, frame);
        }
        if let Some(request) = closing {
            self.finish_close(core, origin.connection, request);
        }
    }

    /// Charges a connection for a request that is handed on.
    pub(crate) fn charge(&mut self, core: &mut Core, id: ConnectionId, charge: u32, publish: bool) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.unanswered += 1;
        connection.charged += u64::from(charge);
        connection.publishes |= publish;
        core.metrics.charged_bytes += u64::from(charge);
        core.metrics.unanswered_requests += 1;
        if publish {
            core.metrics.publish_in_flight_bytes += u64::from(charge);
        }
    }

    /// Sends a delivery. Gives the subscription if its slot is free again at once; otherwise it is once the connection
    /// has less to send.
    pub(crate) fn deliver(
        &mut self,
        core: &mut Core,
        id: ConnectionId,
        subscription: SubscriptionId,
        frame: OutFrame,
    ) -> Option<Taken> {
        let connection = self.connections.get_mut(&id).filter(|connection| connection.phase != Phase::Closed)?;
        let partition = *connection.subscriptions.get(&subscription)?;
        self.send(core, id, frame);
        let connection = self.connections.get_mut(&id)?;
        if connection.outgoing_bytes < DELIVER_BELOW_BYTES {
            return Some((partition, subscription));
        }
        connection.held.push_back(subscription);
        None
    }

    /// The kernel took bytes. Gives the subscriptions whose slots are free by that.
    pub(crate) fn written(&mut self, core: &mut Core, id: ConnectionId, bytes: usize) -> Vec<Taken> {
        let Some(connection) = self.connections.get_mut(&id) else { return Vec::new() };
        let before = connection.outgoing_bytes;
        connection.written(core.now.mono, bytes);
        core.metrics.outgoing_bytes -= (before - connection.outgoing_bytes) as u64;
        if connection.outgoing_bytes >= DELIVER_BELOW_BYTES {
            return Vec::new();
        }
        let held = std::mem::take(&mut connection.held);
        held.into_iter()
            .filter_map(|subscription| connection.subscriptions.get(&subscription).map(|p| (*p, subscription)))
            .collect()
    }

    /// A subscription ended at its partition.
    pub(crate) fn ended(&mut self, core: &mut Core, id: ConnectionId, subscription: SubscriptionId, frame: OutFrame) {
        if self.connections.get_mut(&id).is_some_and(|connection| connection.forget(subscription)) {
            core.metrics.subscriptions -= 1;
            self.send(core, id, frame);
        }
    }

    // ── the session's own requests ───────────────────────────────────────────────────────────────────────────────

    pub(crate) fn hello(&mut self, core: &mut Core, origin: Origin, hello: &proto::Hello) -> Result<(), Error> {
        let invalid = |message: String| Err(Error::new(ErrorKind::InvalidRequest, message));
        lockgate_wire::name::check_client_id(&hello.client_id)?;
        lockgate_wire::name::check_client_id(&hello.client_name)?;
        let limits = core.node.limits.clone();
        if hello.max_frame_bytes != 0 && hello.max_frame_bytes < limits.max_frame_bytes {
            let (theirs, ours) = (hello.max_frame_bytes, limits.max_frame_bytes);
            return invalid(format!(
                "the client takes frames up to {theirs} bytes; this broker sends up to {ours} and needs at least that"
            ));
        }
        let heartbeat_ms = if hello.heartbeat_ms == 0 { limits.heartbeat_ms } else { hello.heartbeat_ms };
        if !HEARTBEAT_MS.contains(&heartbeat_ms) {
            let (low, high) = HEARTBEAT_MS.into_inner();
            return invalid(format!("a heartbeat of {heartbeat_ms} ms is not between {low} and {high}"));
        }
        self.next_session += 1;
        let counter = self.next_session.wrapping_mul(core.node.shards.into()).wrapping_add(core.shard.0.into());
        let Some(connection) = self.connections.get_mut(&origin.connection) else { return Ok(()) };
        connection.phase = Phase::Open;
        connection.heartbeat_ms = heartbeat_ms;
        connection.client_id.clone_from(&hello.client_id);
        let body = proto::HelloOk {
            session_id: u64::from(core.node.node.0) << 32 | u64::from(counter),
            node_id: core.node.node.0,
            cluster_id: core.node.cluster.0.to_vec().into(),
            features: 0,
            max_frame_bytes: limits.max_frame_bytes,
            heartbeat_ms,
            server_version: core.node.version.clone(),
            outcome: proto::HelloOutcome::New as i32,
            max_unanswered_requests: limits.unanswered_requests,
            max_unanswered_bytes: u32::try_from(limits.unanswered_bytes).unwrap_or(u32::MAX),
        };
        self.respond(core, origin, &body);
        Ok(())
    }

    /// Close was asked for: nothing more is taken, and what was asked before is answered first.
    pub(crate) fn close(&mut self, core: &mut Core, origin: Origin) {
        if let Some(connection) = self.connections.get_mut(&origin.connection) {
            connection.phase = Phase::Closing(origin.request_id);
        }
        self.answered(core, origin, None);
    }

    /// The other side sends no more: as if it had asked for a close without an answer.
    pub(crate) fn peer_ended(&mut self, core: &mut Core, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if !matches!(connection.phase, Phase::Greeting | Phase::Open) {
            return;
        }
        connection.phase = Phase::Closing(0);
        if connection.unanswered == 0 {
            self.finish_close(core, id, 0);
        }
    }

    fn finish_close(&mut self, core: &mut Core, id: ConnectionId, request: u64) {
        if request != 0 {
            self.send(core, id, OutFrame::response(request, &proto::CloseOk {}));
        }
        self.end(core, id);
    }

    /// Registers a subscription of a connection. Gives the one that it replaces.
    pub(crate) fn subscribe(
        &mut self,
        core: &mut Core,
        id: ConnectionId,
        subscription: SubscriptionId,
        partition: PartitionId,
    ) -> Result<Option<SubscriptionId>, Error> {
        let max = core.node.limits.subscriptions_per_session;
        let Some(connection) = self.connections.get_mut(&id) else { return Ok(None) };
        if connection.subscriptions.contains_key(&subscription) || connection.unsettled.contains(&subscription) {
            let message = format!("subscription id {subscription} is in use in this session; choose another");
            return Err(Error::new(ErrorKind::InvalidRequest, message));
        }
        let superseded = connection.by_partition.get(&partition).copied();
        if superseded.is_none() && connection.subscriptions.len() >= max as usize {
            let message =
                format!("the session has {max} subscriptions, the most it may have (limits.subscriptions_per_session)");
            return Err(Error::new(ErrorKind::LimitReached, message).with_limit(max.into()));
        }
        if let Some(old) = superseded {
            let error = Error::new(
                ErrorKind::SubscriptionNotFound,
                format!("subscription {subscription} of the same session replaced it"),
            );
            let body = closed(old, CloseReason::Superseded, &error);
            self.ended(core, id, old, body);
        }
        let Some(connection) = self.connections.get_mut(&id) else { return Ok(None) };
        connection.unsettled.push(subscription);
        connection.unsettled.extend(superseded);
        connection.subscriptions.insert(subscription, partition);
        connection.by_partition.insert(partition, subscription);
        core.metrics.subscriptions += 1;
        Ok(superseded)
    }

    /// Ends a subscription of a connection, by its wish or because it was refused. Gives its partition.
    pub(crate) fn unsubscribe(
        &mut self,
        core: &mut Core,
        id: ConnectionId,
        subscription: SubscriptionId,
    ) -> Option<PartitionId> {
        let connection = self.connections.get_mut(&id)?;
        let partition = connection.subscriptions.get(&subscription).copied()?;
        connection.forget(subscription);
        core.metrics.subscriptions -= 1;
        Some(partition)
    }

    // ── the end of connections ───────────────────────────────────────────────────────────────────────────────────

    /// Tells a connection why it ends, and ends it.
    pub(crate) fn close_with(&mut self, core: &mut Core, id: ConnectionId, error: &Error) {
        core.metrics.refused(error.kind, false);
        self.send(core, id, OutFrame::error(Op::Close.number(), 0, error));
        self.end(core, id);
    }

    fn end(&mut self, core: &mut Core, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(&id)
            && connection.phase != Phase::Closed
        {
            connection.phase = Phase::Closed;
            core.out.push(Output::Close { connection: id, flush_ms: CLOSE_FLUSH_MS });
        }
    }

    /// The node stops: every client is told by when, and nothing more is delivered. A subscription whose answer is still
    /// to come ends after it, with its connection.
    pub(crate) fn go_away(&mut self, core: &mut Core) {
        self.is_stopping = true;
        let deadline_ms = u32::try_from(core.node.limits.drain_ms).unwrap_or(u32::MAX);
        let body = proto::GoingAway { deadline_ms, reason: "the broker stops".into() };
        let ids: Vec<ConnectionId> = self.connections.keys().copied().collect();
        for id in ids {
            self.send(core, id, OutFrame::push(&body));
            self.end_subscriptions(core, id, |connection, subscription| !connection.unsettled.contains(&subscription));
        }
    }

    /// The stop is complete: every subscription is told, every connection ends.
    pub(crate) fn end_all(&mut self, core: &mut Core) {
        let ids: Vec<ConnectionId> = self.connections.keys().copied().collect();
        for id in ids {
            self.end_subscriptions(core, id, |_, _| true);
            self.end(core, id);
        }
    }

    fn end_subscriptions(
        &mut self,
        core: &mut Core,
        id: ConnectionId,
        which: impl Fn(&Connection, SubscriptionId) -> bool,
    ) {
        let Some(connection) = self.connections.get(&id) else { return };
        let error = Error::new(ErrorKind::ShuttingDown, "the broker stops");
        let ids = connection.subscriptions.keys().copied();
        let ending: Vec<SubscriptionId> = ids.filter(|subscription| which(connection, *subscription)).collect();
        for subscription in ending {
            self.ended(core, id, subscription, closed(subscription, CloseReason::Shutdown, &error));
        }
    }

    // ── time and room ────────────────────────────────────────────────────────────────────────────────────────────

    /// Lets connections go on that have room again.
    pub(crate) fn resume(&mut self, core: &mut Core) {
        if self.paused.is_empty() {
            return;
        }
        let ready: Vec<ConnectionId> = self.paused.iter().copied().filter(|id| self.has_room(core, *id)).collect();
        for id in ready {
            self.paused.remove(&id);
            if let Some(connection) = self.connections.get_mut(&id) {
                connection.is_paused = false;
                connection.received(core.now.mono);
                core.out.push(Output::ResumeReading { connection: id });
            }
        }
    }

    /// Sends heartbeats and gives up the silent, when it is time.
    pub(crate) fn sweep(&mut self, core: &mut Core) {
        if self.next_sweep > core.now.mono {
            return;
        }
        self.next_sweep = core.now.mono.plus_ms(SWEEP_EVERY_MS);
        let now = core.now.mono;
        let limits = core.node.limits.clone();
        let mut beats = Vec::new();
        let mut silent = Vec::new();
        for (id, connection) in &mut self.connections {
            match connection.silence(now, &limits) {
                Some(silence) => silent.push((*id, silence)),
                None if connection.wants_heartbeat(now) => beats.push(*id),
                None => {}
            }
        }
        for id in beats {
            self.send(core, id, OutFrame::push(&proto::Ping {}));
        }
        for (id, silence) in silent {
            self.give_up(core, id, silence);
        }
    }

    fn give_up(&mut self, core: &mut Core, id: ConnectionId, silence: Silence) {
        let Some(connection) = self.connections.get(&id) else { return };
        let (peer, client) = (connection.peer.clone(), connection.client_id.clone());
        let limits = &core.node.limits;
        let (counter, message) = match silence {
            Silence::NoHello => (None, format!("no Hello within {} ms", limits.hello_timeout_ms)),
            Silence::Dead => {
                let ms = connection.heartbeat_ms;
                (Some(&mut core.metrics.connections_dead), format!("nothing came for three heartbeats of {ms} ms"))
            }
            Silence::Stalled => {
                let message = format!(
                    "it took none of {} waiting bytes for {} ms",
                    connection.outgoing_bytes, limits.send_stall_ms
                );
                (Some(&mut core.metrics.connections_stalled), message)
            }
            Silence::HalfFrame => {
                let message = format!("a frame had begun, and nothing more of it came for {FRAME_STALL_MS} ms");
                (Some(&mut core.metrics.connections_half_frame), message)
            }
        };
        if let Some(counter) = counter {
            *counter += 1;
        }
        core.log(Level::Info, format!("connection of {peer} (client '{client}') closed: {message}"));
        self.close_with(core, id, &Error::new(ErrorKind::ConnectionLost, message));
    }

    /// When the next sweep is due; no connections, no sweeps.
    pub(crate) fn deadline(&self) -> Option<MonoTime> {
        (!self.connections.is_empty()).then_some(self.next_sweep)
    }

    /// What each connection uses of what is bounded.
    pub(crate) fn uses(&self) -> impl Iterator<Item = ConnectionUse> + '_ {
        self.connections.iter().map(|(id, connection)| ConnectionUse {
            connection: *id,
            unanswered_requests: connection.unanswered,
            charged_bytes: connection.charged,
            outgoing_bytes: connection.outgoing_bytes as u64,
            subscriptions: connection.subscriptions.len() as u64,
        })
    }

    /// Sets the gauges.
    pub(crate) fn gauge(&self, core: &mut Core) {
        core.metrics.connections = self.connections.len() as u64;
        core.metrics.connections_paused = self.paused.len() as u64;
    }
}

/// The push that says why a subscription ended.
pub(crate) fn closed(subscription: SubscriptionId, reason: CloseReason, error: &Error) -> OutFrame {
    let body = proto::SubscriptionClosed {
        subscription_id: subscription.0,
        reason: reason as i32,
        error: Some(error.to_proto()),
    };
    OutFrame::new(FrameKind::Push, 0, &body, Vec::new())
}
