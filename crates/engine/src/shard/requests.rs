//! Frames from clients and from other shards, to whom they are for.

use std::sync::Arc;

use lockgate_catalog::settings;
use lockgate_catalog::view::TopicView;
use lockgate_wire::name::TopicName;
use lockgate_wire::proto;
use lockgate_wire::{
    ConnectionId, Error, ErrorKind, Frame, FrameKind, Op, OutFrame, PartitionId, ShardId, SubscriptionId,
};

use super::Shard;
use crate::controller::METADATA_SHARD;
use crate::limits::GATHERS;
use crate::mesh::{Message, Origin};
use crate::request::{ControllerRequest, PartitionRequest};
use crate::route::shard_of;
use crate::session::Phase;
use crate::session::decode::{self, Request};

/// A topic's description while its partitions answer.
pub(super) struct Gather {
    origin: Origin,
    topic: Arc<TopicView>,
    partitions: Vec<proto::PartitionDescription>,
}

impl Shard {
    /// A frame of a client.
    pub(super) fn frame(&mut self, connection: ConnectionId, frame: Frame) {
        let now = self.core.now;
        let Some(state) = self.sessions.get_mut(connection) else { return };
        state.received(now.mono);
        let greeting = match state.phase {
            Phase::Greeting => true,
            Phase::Open => false,
            Phase::Closing(_) | Phase::Closed => return,
        };
        if frame.kind != FrameKind::Request {
            let error =
                Error::new(ErrorKind::BadFrame, "clients send requests only; the frame's kind says something else");
            return self.sessions.close_with(&mut self.core, connection, &error);
        }
        if greeting != (frame.op() == Some(Op::Hello)) {
            let text = if greeting { "the first frame of a connection is Hello" } else { "Hello comes once, first" };
            return self.sessions.close_with(&mut self.core, connection, &Error::new(ErrorKind::HelloRequired, text));
        }
        let request = decode::request(&frame, &self.view, &self.core.node);
        self.take(connection, &frame, request);
    }

    /// Charges the connection and hands the request on.
    fn take(&mut self, connection: ConnectionId, frame: &Frame, request: Result<Request, Error>) {
        let charge = request.as_ref().map_or(0, |request| decode::charge(frame, request));
        let publish = frame.op() == Some(Op::Publish);
        let silent =
            matches!(&request, Ok(Request::Partition(_, PartitionRequest::Publish { ack: proto::Ack::None, .. })));
        let subscription = match &request {
            Ok(Request::Partition(_, PartitionRequest::Subscribe { subscription, .. }))
            | Ok(Request::Unsubscribe { subscription }) => Some(*subscription),
            _ => None,
        };
        let request_id = if silent { 0 } else { frame.request_id };
        let origin =
            Origin { shard: self.core.shard, connection, request_id, op: frame.op, charge, publish, subscription };
        self.sessions.charge(&mut self.core, connection, charge, publish);
        let result = request.and_then(|request| {
            if self.sessions.is_stopping && is_new_work(&request) {
                let message = "the broker stops; it takes no new work, connect to another one or try again soon";
                return Err(Error::new(ErrorKind::ShuttingDown, message));
            }
            self.dispatch(origin, request)
        });
        if let Err(error) = result {
            // What was refused here never went to a partition: the id may be another one's.
            let origin = Origin { subscription: None, ..origin };
            self.core.refuse(origin, &error);
        }
    }

    fn dispatch(&mut self, origin: Origin, request: Request) -> Result<(), Error> {
        match request {
            Request::Hello(hello) => {
                // A Hello that is refused ends the connection: there is nothing to go on with.
                if let Err(error) = self.sessions.hello(&mut self.core, origin, &hello) {
                    self.core.refuse(origin, &error);
                    self.pass_on_replies();
                    self.sessions.close_with(&mut self.core, origin.connection, &error);
                }
            }
            Request::Ping => self.sessions.respond(&mut self.core, origin, &proto::PingOk {}),
            Request::Close => self.sessions.close(&mut self.core, origin),
            Request::Topology(topics) => {
                let body = self.topology(&topics);
                self.sessions.respond(&mut self.core, origin, &body);
            }
            Request::ListTopics { after, limit } => {
                let body = self.list_topics(&after, limit);
                self.sessions.respond(&mut self.core, origin, &body);
            }
            Request::Describe { name } => self.describe(origin, &name)?,
            Request::Controller(request) => self.ask_controller(origin, request),
            Request::Partition(partition, request) => {
                if let PartitionRequest::Subscribe { subscription, .. } = &request {
                    self.register(origin, *subscription, partition)?;
                }
                self.ask_partition(origin, partition, request);
            }
            Request::Credit { subscription, bytes } => {
                let partition = self.subscribed(origin.connection, subscription)?;
                self.ask_partition(origin, partition, PartitionRequest::Credit { subscription, bytes });
            }
            Request::Unsubscribe { subscription } => {
                self.subscribed(origin.connection, subscription)?;
                if let Some(partition) = self.sessions.unsubscribe(&mut self.core, origin.connection, subscription) {
                    if let Some(connection) = self.sessions.get_mut(origin.connection) {
                        connection.unsettled.push(subscription);
                    }
                    self.ask_partition(origin, partition, PartitionRequest::Unsubscribe { subscription });
                }
            }
        }
        Ok(())
    }

    fn subscribed(&mut self, connection: ConnectionId, subscription: SubscriptionId) -> Result<PartitionId, Error> {
        let partition = self.sessions.get_mut(connection).and_then(|c| c.subscriptions.get(&subscription).copied());
        partition.ok_or_else(|| {
            Error::new(
                ErrorKind::SubscriptionNotFound,
                format!("the session has no subscription {subscription}; it may have ended"),
            )
        })
    }

    fn register(&mut self, origin: Origin, subscription: SubscriptionId, partition: PartitionId) -> Result<(), Error> {
        let superseded = self.sessions.subscribe(&mut self.core, origin.connection, subscription, partition)?;
        if let Some(old) = superseded {
            let request = PartitionRequest::Unsubscribe { subscription: old };
            let silent = Origin { request_id: 0, charge: 0, publish: false, subscription: Some(old), ..origin };
            self.sessions.charge(&mut self.core, origin.connection, 0, false);
            self.ask_partition(silent, partition, request);
        }
        Ok(())
    }

    fn ask_controller(&mut self, origin: Origin, request: ControllerRequest) {
        match &mut self.controller {
            Some(controller) => controller.handle(&mut self.core, origin, request),
            None => self.request_mesh(METADATA_SHARD, Message::Controller { origin, request }, origin.connection),
        }
    }

    fn ask_partition(&mut self, origin: Origin, partition: PartitionId, request: PartitionRequest) {
        let shard = shard_of(partition, self.core.node.shards);
        if shard == self.core.shard {
            self.at_partition(origin, partition, request);
        } else {
            self.request_mesh(shard, Message::Partition { origin, partition, request }, origin.connection);
        }
    }

    fn at_partition(&mut self, origin: Origin, partition: PartitionId, request: PartitionRequest) {
        if self.partitions.contains_key(&partition) {
            return self.with_partition(partition, |partition, core| partition.handle(core, origin, request));
        }
        // What the view does not know yet may come with the next one: only a deletion is final.
        let error = if self.view.deleted_topics().contains(partition.topic.0) {
            Error::new(ErrorKind::TopicNotFound, format!("the topic of partition {partition} was deleted"))
        } else {
            Error::new(ErrorKind::Recovering, format!("partition {partition} is being opened; try again soon"))
        };
        self.core.refuse(origin, &error);
    }

    /// Sends a request to another shard if there is a slot; else it waits with its connection, which is not read.
    fn request_mesh(&mut self, to: ShardId, message: Message, connection: ConnectionId) {
        let slot = usize::from(to.0);
        if self.slots[slot] < self.core.node.limits.mesh_requests && self.parked[slot].is_empty() {
            self.slots[slot] += 1;
            return self.send_mesh(to, message);
        }
        match self.sessions.get_mut(connection) {
            Some(state) if state.parked.is_none() => {
                state.parked = Some((to, message));
                self.parked[slot].push_back(connection);
            }
            // The second frame of a superseding subscription: one beyond the bound, once per connection.
            _ => {
                self.slots[slot] += 1;
                self.send_mesh(to, message);
            }
        }
    }

    /// A slot is free: the connection that has waited longest goes on.
    fn free_slot(&mut self, shard: ShardId) {
        let slot = usize::from(shard.0);
        self.slots[slot] -= 1;
        while self.slots[slot] < self.core.node.limits.mesh_requests
            && let Some(connection) = self.parked[slot].pop_front()
        {
            if let Some((to, message)) = self.sessions.get_mut(connection).and_then(|state| state.parked.take()) {
                self.slots[slot] += 1;
                self.send_mesh(to, message);
            }
        }
    }

    /// A frame of another shard.
    pub(super) fn mesh(&mut self, from: ShardId, message: Message) {
        match message {
            Message::Partition { origin, partition, request } => {
                if shard_of(partition, self.core.node.shards) != self.core.shard {
                    self.core.metrics.mesh_misrouted += 1;
                    self.bug("a frame of the mesh is for a partition of another shard");
                }
                self.at_partition(origin, partition, request);
            }
            Message::Controller { origin, request } => self.ask_controller(origin, request),
            Message::Answer { origin, frame } => {
                self.free_slot(from);
                self.sessions.answered(&mut self.core, origin, frame);
            }
            Message::Deliver { connection, subscription, frame } => self.deliver(connection, subscription, frame),
            Message::DeliveryTaken { partition, connection, subscription } => {
                self.with_partition(partition, |partition, _| partition.delivery_taken(from, connection, subscription));
            }
            Message::SubscriptionEnded { connection, subscription, frame } => {
                self.sessions.ended(&mut self.core, connection, subscription, frame);
            }
            Message::ConnectionGone { connection } => self.connection_gone_at(from, connection),
            Message::ViewTaken { version } => {
                if let Some(controller) = &mut self.controller {
                    controller.view_taken(usize::from(from.0), version);
                }
            }
            Message::Describe { gather, partition } => {
                let description = self.describe_partition(partition);
                self.send_mesh(from, Message::Described { gather, description });
            }
            Message::Described { gather, description } => self.described(gather, description),
        }
    }

    pub(super) fn deliver(&mut self, connection: ConnectionId, subscription: SubscriptionId, frame: OutFrame) {
        if let Some((partition, subscription)) = self.sessions.deliver(&mut self.core, connection, subscription, frame)
        {
            self.delivery_taken(partition, connection, subscription);
        }
    }

    /// A subscription's slot is free: its partition may deliver the next.
    pub(super) fn delivery_taken(
        &mut self,
        partition: PartitionId,
        connection: ConnectionId,
        subscription: SubscriptionId,
    ) {
        let (here, shard) = (self.core.shard, shard_of(partition, self.core.node.shards));
        if shard == here {
            self.with_partition(partition, |partition, _| partition.delivery_taken(here, connection, subscription));
        } else {
            self.send_mesh(shard, Message::DeliveryTaken { partition, connection, subscription });
        }
    }

    pub(super) fn connection_gone(&mut self, connection: ConnectionId) {
        let Some(state) = self.sessions.get_mut(connection) else { return };
        self.core.metrics.subscriptions -= state.subscriptions.len() as u64;
        if let Some((to, message)) = state.parked.take() {
            self.parked[usize::from(to.0)].retain(|parked| *parked != connection);
            if let Message::Partition { origin, .. } | Message::Controller { origin, .. } = message {
                self.sessions.answered(&mut self.core, origin, None);
            }
        }
        self.sessions.gone(&mut self.core, connection);
        self.connection_gone_at(self.core.shard, connection);
        let here = self.core.shard;
        for shard in (0..self.core.node.shards).map(ShardId).filter(|shard| *shard != here) {
            self.send_mesh(shard, Message::ConnectionGone { connection });
        }
    }

    fn connection_gone_at(&mut self, shard: ShardId, connection: ConnectionId) {
        for partition in self.partitions.values_mut() {
            partition.connection_gone(&mut self.core, shard, connection);
        }
    }

    // ── answered from the view ───────────────────────────────────────────────────────────────────────────────────

    fn topology(&self, names: &[String]) -> proto::TopologyOk {
        let node = &self.core.node;
        let broker = proto::Broker { node_id: node.node.0, endpoints: node.advertise.clone() };
        let topics = names.iter().map(|name| self.topic_topology(name)).collect();
        proto::TopologyOk { version: self.view.version, brokers: vec![broker], topics }
    }

    fn topic_topology(&self, name: &str) -> proto::TopicTopology {
        let topic = match self.find(name) {
            Ok(topic) => topic,
            Err(error) => {
                return proto::TopicTopology { name: name.into(), error: Some(error.to_proto()), ..Default::default() };
            }
        };
        let partition = |assignment: &Arc<lockgate_catalog::view::Assignment>| proto::PartitionTopology {
            partition: assignment.partition.partition,
            leader_node: assignment.preferred_leader.0,
            generation: assignment.generation.0,
            endpoints: Vec::new(),
        };
        proto::TopicTopology {
            name: topic.name.clone(),
            error: None,
            topic_id: topic.id.0,
            kind: topic.kind as i32,
            partitioning_version: topic.partitioning_version,
            max_batch_bytes: u32::try_from(topic.config.max_batch_bytes).unwrap_or(u32::MAX),
            partitions: topic.partitions.iter().map(partition).collect(),
        }
    }

    fn find(&self, name: &str) -> Result<&Arc<TopicView>, Error> {
        let name = TopicName::parse(name)?.to_string();
        self.view.topic_by_name(&name).ok_or_else(|| {
            Error::new(
                ErrorKind::TopicNotFound,
                format!("there is no topic {name}; create it with: lockgate topic create {name}"),
            )
        })
    }

    fn list_topics(&self, after: &str, limit: usize) -> proto::ListTopicsOk {
        let mut topics = self.view.topics_after(after);
        let page = topics.by_ref().take(limit).map(|topic| proto::TopicSummary {
            name: topic.name.clone(),
            topic_id: topic.id.0,
            kind: topic.kind as i32,
            partitions: topic.partitions.len() as u32,
            replication_factor: topic.replication_factor,
        });
        let page = page.collect();
        proto::ListTopicsOk { topics: page, more: topics.next().is_some() }
    }

    fn describe(&mut self, origin: Origin, name: &str) -> Result<(), Error> {
        let topic = self.find(name)?.clone();
        if self.gathers.len() >= GATHERS {
            let message =
                format!("the shard describes {GATHERS} topics at the moment, the most it may; try again soon");
            return Err(Error::new(ErrorKind::Overloaded, message).with_limit(GATHERS as u64));
        }
        let gather = self.next_gather;
        self.next_gather += 1;
        self.gathers.insert(gather, Gather { origin, topic: topic.clone(), partitions: Vec::new() });
        for assignment in &topic.partitions {
            let partition = assignment.partition;
            let shard = shard_of(partition, self.core.node.shards);
            if shard == self.core.shard {
                let description = self.describe_partition(partition);
                self.described(gather, description);
            } else {
                self.send_mesh(shard, Message::Describe { gather, partition });
            }
        }
        Ok(())
    }

    fn describe_partition(&self, id: PartitionId) -> proto::PartitionDescription {
        match self.partitions.get(&id) {
            Some(partition) => partition.describe(self.core.node.node),
            None => proto::PartitionDescription {
                partition: id.partition,
                error: Some(Error::new(ErrorKind::Recovering, format!("partition {id} is not open")).to_proto()),
                ..Default::default()
            },
        }
    }

    fn described(&mut self, id: u64, description: proto::PartitionDescription) {
        let Some(gather) = self.gathers.get_mut(&id) else { return };
        gather.partitions.push(description);
        if gather.partitions.len() < gather.topic.partitions.len() {
            return;
        }
        let Some(Gather { origin, topic, mut partitions }) = self.gathers.remove(&id) else { return };
        partitions.sort_by_key(|description| description.partition);
        let body = describe_topic(&topic, partitions);
        self.sessions.respond(&mut self.core, origin, &body);
    }
}

fn describe_topic(topic: &TopicView, partitions: Vec<proto::PartitionDescription>) -> proto::DescribeTopicOk {
    let setting = |setting: settings::SettingView| proto::Setting {
        name: setting.name.into(),
        value: setting.value,
        origin: setting.origin as i32,
        bounds: setting.bounds,
        description: setting.description.into(),
    };
    proto::DescribeTopicOk {
        name: topic.name.clone(),
        topic_id: topic.id.0,
        kind: topic.kind as i32,
        version: topic.version,
        partitioning_version: topic.partitioning_version,
        replication_factor: topic.replication_factor,
        created_ms: topic.created.0,
        settings: settings::describe(topic.kind, &topic.config).into_iter().map(setting).collect(),
        partitions,
        durability: settings::durability_words(&topic.config, topic.replication_factor),
    }
}

/// What a stopping broker refuses. Ends and questions are still answered, and cursors committed: a reader that was told
/// of the stop leaves its place.
fn is_new_work(request: &Request) -> bool {
    match request {
        Request::Hello(_) | Request::Controller(_) => true,
        Request::Partition(_, request) => matches!(
            request,
            PartitionRequest::Publish { .. } | PartitionRequest::Subscribe { .. } | PartitionRequest::Fetch { .. }
        ),
        _ => false,
    }
}
