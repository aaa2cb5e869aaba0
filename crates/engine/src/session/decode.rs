//! From a frame to a request: every field is checked against its bounds and against the view, here and nowhere else.

use lockgate_catalog::view::ClusterView;
use lockgate_wire::batch::validate;
use lockgate_wire::name::{TopicName, check_cursor_name};
use lockgate_wire::proto::{self, Ack, start_position::At};
use lockgate_wire::{Error, ErrorKind, Frame, Offset, Op, PartitionId, SubscriptionId, WallMs};

use crate::config::NodeConfig;
use crate::limits::{Limits, PAGE};
use crate::request::{ControllerRequest, PartitionRequest, Start};
use crate::route;

/// Largest subscription id a client may choose.
const MAX_SUBSCRIPTION: u64 = (1 << 48) - 1;
/// What a fetch gives unless it says otherwise.
const DEFAULT_FETCH_BYTES: u32 = 1 << 20;

/// What a frame asks for.
pub(crate) enum Request {
    Hello(proto::Hello),
    Ping,
    Close,
    Topology(Vec<String>),
    ListTopics {
        after: String,
        limit: usize,
    },
    Describe {
        name: String,
    },
    Controller(ControllerRequest),
    Partition(PartitionId, PartitionRequest),
    /// For a subscription of this connection; its partition is known there.
    Credit {
        subscription: SubscriptionId,
        bytes: u64,
    },
    Unsubscribe {
        subscription: SubscriptionId,
    },
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidRequest, message)
}

/// Decodes a request.
pub(crate) fn request(frame: &Frame, view: &ClusterView, node: &NodeConfig) -> Result<Request, Error> {
    let limits = &node.limits;
    let Some(op) = frame.op() else {
        let message = format!("operation {} is not known to this broker", frame.op);
        return Err(Error::new(ErrorKind::UnknownOp, message));
    };
    Ok(match op {
        Op::Hello => Request::Hello(frame.message()?),
        Op::Ping => Request::Ping,
        Op::Close => Request::Close,
        Op::Topology => topology(frame.message()?, limits)?,
        Op::ListTopics => {
            let proto::ListTopics { after, limit } = frame.message()?;
            Request::ListTopics { after, limit: page(limit) }
        }
        Op::DescribeTopic => Request::Describe { name: full_name(&frame.message::<proto::DescribeTopic>()?.name)? },
        Op::CreateTopic => Request::Controller(ControllerRequest::CreateTopic(create(frame.message()?)?)),
        Op::DeleteTopic => {
            let proto::DeleteTopic { name } = frame.message()?;
            Request::Controller(ControllerRequest::DeleteTopic { name })
        }
        Op::AlterTopic => {
            let proto::AlterTopic { name, set, if_version } = frame.message()?;
            Request::Controller(ControllerRequest::AlterTopic { name, set, if_version })
        }
        Op::InitProducer => Request::Controller(ControllerRequest::InitProducer),
        Op::Credit => {
            let proto::Credit { subscription_id, bytes } = frame.message()?;
            Request::Credit { subscription: SubscriptionId(subscription_id), bytes }
        }
        Op::Unsubscribe => {
            let proto::Unsubscribe { subscription_id } = frame.message()?;
            Request::Unsubscribe { subscription: SubscriptionId(subscription_id) }
        }
        Op::Publish => publish(frame, view, node)?,
        Op::Subscribe | Op::Fetch | Op::ListOffsets => read(op, frame, view, limits)?,
        Op::CommitCursor | Op::GetCursor | Op::ListCursors | Op::DeleteCursor => cursor(op, frame, view)?,
        Op::GoingAway | Op::Deliver | Op::SubscriptionClosed => {
            return Err(invalid(format!("{} is sent by brokers only", op.name())));
        }
    })
}

fn full_name(name: &str) -> Result<String, Error> {
    TopicName::parse(name).map(|name| name.to_string())
}

fn page(limit: u32) -> usize {
    if limit == 0 { PAGE } else { PAGE.min(limit as usize) }
}

fn topology(body: proto::Topology, limits: &Limits) -> Result<Request, Error> {
    if body.topics.len() > limits.topics_per_request as usize {
        let message = format!("{} topics in one request, at most {}", body.topics.len(), limits.topics_per_request);
        return Err(invalid(message).with_limit(limits.topics_per_request.into()));
    }
    Ok(Request::Topology(body.topics))
}

fn create(body: proto::CreateTopic) -> Result<proto::CreateTopic, Error> {
    match proto::TopicKind::try_from(body.kind) {
        Ok(_) => Ok(body),
        Err(_) => Err(invalid(format!("topic kind {} is none of stream (0), queue (1), cache (2)", body.kind))),
    }
}

/// The partition that a request names.
fn located(view: &ClusterView, topic_id: u64, partition: u32) -> Result<PartitionId, Error> {
    route::partition(route::topic(view, topic_id)?, partition)
}

fn publish(frame: &Frame, view: &ClusterView, node: &NodeConfig) -> Result<Request, Error> {
    let body: proto::Publish = frame.message()?;
    let topic = route::topic(view, body.topic_id)?;
    let partition = route::partition(topic, body.partition)?;
    let ack = Ack::try_from(body.ack)
        .map_err(|_| invalid(format!("acknowledgement level {} is none of 0, 1, 2", body.ack)))?;
    // A topic may allow more than the node does since its settings were lowered.
    let max = topic.config.max_batch_bytes.min(node.topic_limits().max_batch_bytes());
    let max = u32::try_from(max).unwrap_or(u32::MAX);
    let header = validate(&frame.payload, max).map_err(|error| error.to_error())?;
    if ack != Ack::Quorum && header.producer().is_some() {
        return Err(invalid("a numbered batch (idempotent producer) is published at level quorum only"));
    }
    let batch = frame.payload.clone();
    let partitioning_version = body.partitioning_version;
    Ok(Request::Partition(partition, PartitionRequest::Publish { ack, partitioning_version, header, batch }))
}

fn read(op: Op, frame: &Frame, view: &ClusterView, limits: &Limits) -> Result<Request, Error> {
    Ok(match op {
        Op::Subscribe => {
            let body: proto::Subscribe = frame.message()?;
            if !(1..=MAX_SUBSCRIPTION).contains(&body.subscription_id) {
                let message = format!("subscription id {} is not between 1 and 2^48 - 1", body.subscription_id);
                return Err(invalid(message).with_limit(MAX_SUBSCRIPTION));
            }
            let subscription = SubscriptionId(body.subscription_id);
            let partition = located(view, body.topic_id, body.partition)?;
            let start = start(body.start)?;
            Request::Partition(
                partition,
                PartitionRequest::Subscribe { subscription, start, credit: body.credit_bytes },
            )
        }
        Op::Fetch => {
            let body: proto::Fetch = frame.message()?;
            let partition = located(view, body.topic_id, body.partition)?;
            if body.max_wait_ms > limits.fetch_wait_ms {
                let message =
                    format!("max_wait_ms {} is above the limit of {}", body.max_wait_ms, limits.fetch_wait_ms);
                return Err(invalid(message).with_limit(limits.fetch_wait_ms.into()));
            }
            let max_bytes = fetch_bytes(body.max_bytes, limits);
            let offset = Offset(body.offset);
            Request::Partition(partition, PartitionRequest::Fetch { offset, max_bytes, max_wait_ms: body.max_wait_ms })
        }
        _ => {
            let body: proto::ListOffsets = frame.message()?;
            let partition = located(view, body.topic_id, body.partition)?;
            Request::Partition(partition, PartitionRequest::ListOffsets { time: body.timestamp_ms.map(WallMs) })
        }
    })
}

/// A fetch's bound on its payload: what fits a frame with room for its header.
fn fetch_bytes(asked: u32, limits: &Limits) -> usize {
    let asked = if asked == 0 { DEFAULT_FETCH_BYTES } else { asked };
    asked.min(limits.max_frame_bytes / 2) as usize
}

fn start(start: Option<proto::StartPosition>) -> Result<Start, Error> {
    Ok(match start.and_then(|start| start.at) {
        None => return Err(invalid("a subscription needs a start position")),
        Some(At::Earliest(_)) => Start::Earliest,
        Some(At::Latest(_)) => Start::Latest,
        Some(At::Offset(offset)) => Start::Offset(Offset(offset)),
        Some(At::TimestampMs(time)) => Start::Time(WallMs(time)),
        Some(At::Last(count)) => Start::Last(count),
        Some(At::Cursor(name)) => {
            check_cursor_name(&name)?;
            Start::Cursor(name)
        }
    })
}

fn cursor(op: Op, frame: &Frame, view: &ClusterView) -> Result<Request, Error> {
    let (topic_id, partition, request) = match op {
        Op::CommitCursor => {
            let proto::CommitCursor { topic_id, partition, name, offset, force } = frame.message()?;
            check_cursor_name(&name)?;
            (topic_id, partition, PartitionRequest::CommitCursor { name, offset: Offset(offset), force })
        }
        Op::GetCursor => {
            let proto::GetCursor { topic_id, partition, name } = frame.message()?;
            check_cursor_name(&name)?;
            (topic_id, partition, PartitionRequest::GetCursor { name })
        }
        Op::ListCursors => {
            let proto::ListCursors { topic_id, partition, after, limit } = frame.message()?;
            (topic_id, partition, PartitionRequest::ListCursors { after, limit: page(limit) })
        }
        _ => {
            let proto::DeleteCursor { topic_id, partition, name } = frame.message()?;
            check_cursor_name(&name)?;
            (topic_id, partition, PartitionRequest::DeleteCursor { name })
        }
    };
    Ok(Request::Partition(located(view, topic_id, partition)?, request))
}

/// Bytes to charge a connection with until the request is answered: what it holds, and the room for its answer.
pub(crate) fn charge(frame: &Frame, request: &Request) -> u32 {
    let reserved = match request {
        Request::Partition(_, PartitionRequest::Fetch { max_bytes, .. }) => *max_bytes,
        _ => 0,
    };
    u32::try_from(frame.size() + reserved).unwrap_or(u32::MAX)
}
