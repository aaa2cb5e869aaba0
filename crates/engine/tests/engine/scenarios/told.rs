//! What a node says, in the words of the stories.

use lockgate_wire::proto::{self, CloseReason};
use lockgate_wire::{Error, Frame, Op};

/// An answer.
pub(super) fn told(answer: Option<Result<Frame, Error>>) -> String {
    match answer {
        None => "(nothing)".into(),
        Some(Err(error)) => refused(&error),
        Some(Ok(frame)) => match frame.op() {
            Some(Op::Publish) => {
                let ok: proto::PublishOk = frame.message().unwrap();
                format!("ok offset={}{}", ok.base_offset, if ok.duplicate { " duplicate" } else { "" })
            }
            Some(Op::Subscribe) => {
                let ok: proto::SubscribeOk = frame.message().unwrap();
                format!("ok next={} end={}", ok.next_offset, ok.high_watermark)
            }
            Some(Op::GetCursor) => {
                let ok: proto::GetCursorOk = frame.message().unwrap();
                ok.offset.map_or("none".into(), |offset| format!("ok offset={offset}"))
            }
            _ => "ok".into(),
        },
    }
}

/// How a subscription ended.
pub(super) fn ended((id, reason, error): &(u64, CloseReason, Error)) -> String {
    match reason {
        CloseReason::Shutdown => format!("{id} shutdown"),
        _ => format!("{id} {}", refused(error)),
    }
}

/// A refusal and the numbers that a client needs to go on.
fn refused(error: &Error) -> String {
    let details = &error.details;
    let numbers = [
        ("earliest", details.earliest_offset),
        ("end", details.high_watermark),
        ("expected", details.expected_sequence.map(|number| number as u64)),
    ];
    let numbers = numbers.iter().filter_map(|(name, value)| Some(format!(" {name}={}", (*value)?)));
    format!("{}{}", error.kind.name(), numbers.collect::<String>())
}
