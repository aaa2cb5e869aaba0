use proptest::prelude::*;

use super::*;
use crate::proto;

const LIMIT: u32 = 1024;

fn publish(payload: Vec<Bytes>) -> OutFrame {
    let body = proto::Publish { topic_id: 5, partition: 2, ..Default::default() };
    OutFrame::new(FrameKind::Request, 77, &body, payload)
}

fn received(bytes: &[u8]) -> Result<Option<Frame>, FrameError> {
    Frame::decode(&mut BytesMut::from(bytes), LIMIT)
}

#[test]
fn what_is_sent_is_received() {
    let out = publish(vec![Bytes::from_static(b"first "), Bytes::from_static(b"second")]);
    let bytes = out.to_bytes();
    assert_eq!(bytes.len(), out.size());
    let frame = received(&bytes).unwrap().unwrap();
    assert_eq!((frame.kind, frame.flags, frame.op(), frame.request_id), (FrameKind::Request, 0, Some(Op::Publish), 77));
    assert_eq!(frame.payload, "first second");
    assert_eq!(frame.size(), out.size());
    let body: proto::Publish = frame.message().unwrap();
    assert_eq!((body.topic_id, body.partition), (5, 2));
}

#[test]
fn a_frame_waits_for_its_last_byte() {
    let bytes = publish(vec![Bytes::from_static(b"payload")]).to_bytes();
    let mut buffer = BytesMut::new();
    for byte in &bytes[..bytes.len() - 1] {
        buffer.put_u8(*byte);
        assert_eq!(Frame::decode(&mut buffer, LIMIT), Ok(None));
    }
    assert_eq!(buffer, bytes[..bytes.len() - 1], "what is there stays there");
    buffer.put_u8(bytes[bytes.len() - 1]);
    assert!(Frame::decode(&mut buffer, LIMIT).unwrap().is_some());
    assert!(buffer.is_empty());
}

#[test]
fn missing_bytes_are_counted() {
    let bytes = publish(vec![]).to_bytes();
    assert_eq!(Frame::missing(&[], LIMIT), Ok(HEADER_BYTES));
    assert_eq!(Frame::missing(&bytes[..3], LIMIT), Ok(HEADER_BYTES - 3));
    assert_eq!(Frame::missing(&bytes[..4], LIMIT), Ok(bytes.len() - 4));
    assert_eq!(Frame::missing(&bytes, LIMIT), Ok(0));
}

#[test]
fn frames_follow_one_another() {
    let first = OutFrame::request(1, &proto::Ping {}).to_bytes();
    let second = OutFrame::request(2, &proto::Ping {}).to_bytes();
    let mut buffer = BytesMut::from(&[first, second].concat()[..]);
    assert_eq!(Frame::decode(&mut buffer, LIMIT).unwrap().unwrap().request_id, 1);
    assert_eq!(Frame::decode(&mut buffer, LIMIT).unwrap().unwrap().request_id, 2);
    assert_eq!(Frame::decode(&mut buffer, LIMIT), Ok(None));
}

#[test]
fn the_frame_limit_is_exact() {
    let empty = publish(vec![]).size();
    let frame_of = |size: usize| publish(vec![vec![0; size - empty].into()]).to_bytes();
    assert_eq!(received(&frame_of(LIMIT as usize)).unwrap().unwrap().size(), LIMIT as usize);
    let error = received(&frame_of(LIMIT as usize + 1)).unwrap_err();
    assert_eq!(error, FrameError::TooLarge { bytes: u64::from(LIMIT) + 1, limit: LIMIT });
    let error = error.to_error();
    assert_eq!((error.kind, error.details.limit), (ErrorKind::FrameTooLarge, Some(u64::from(LIMIT))));
    assert!(error.message.contains("1025") && error.message.contains("1024"), "{error}");
}

#[test]
fn a_frame_above_the_limit_is_refused_by_its_first_four_bytes() {
    let error = FrameError::TooLarge { bytes: u64::from(u32::MAX) + 4, limit: HARD_MAX_FRAME_BYTES };
    assert_eq!(Frame::decode(&mut BytesMut::from(&[0xff; 4][..]), HARD_MAX_FRAME_BYTES), Err(error.clone()));
    assert_eq!(Frame::missing(&[0xff; 4], HARD_MAX_FRAME_BYTES), Err(error));
}

#[test]
fn other_protocols_are_told_apart_and_named() {
    let cases: [(&[u8], &str); 8] = [
        (b"GET / HTTP/1.1\r\n", "HTTP"),
        (b"PRI * HTTP/2.0\r\n", "HTTP"),
        (b"OPTIONS * HTTP/1.1\r\n", "HTTP"),
        (b"AMQP\x00\x00\x09\x01", "AMQP"),
        (b"SSH-2.0-client\r\n", "SSH"),
        (b"*1\r\n$4\r\nPING\r\n", "RESP"),
        (b"*12\r\n$4\r\n", "RESP"),
        (b"\x16\x03\x01\x00\xa5\x01", "TLS"),
    ];
    for (bytes, name) in cases {
        let error = Frame::decode(&mut BytesMut::from(bytes), MAX_FRAME_BYTES_BEFORE_HELLO).unwrap_err();
        assert!(matches!(error, FrameError::OtherProtocol(what) if what.starts_with(name)), "{name}: {error:?}");
        let error = error.to_error();
        assert_eq!(error.kind, ErrorKind::BadFrame);
        assert!(error.message.contains(name), "{error}");
    }
}

#[test]
fn bytes_that_break_the_layout_are_refused() {
    let good = publish(vec![]).to_bytes().to_vec();
    let with = |at: usize, value: u8| {
        let mut bad = good.clone();
        bad[at] = value;
        received(&bad)
    };
    for length in 0..15 {
        assert!(matches!(with(0, length), Err(FrameError::Malformed(_))), "length {length}");
    }
    for kind in 4..=255 {
        assert!(matches!(with(4, kind), Err(FrameError::Malformed(_))), "kind {kind}");
    }
    let body_len = good.len() - HEADER_BYTES;
    assert!(with(16, body_len as u8).is_ok());
    assert!(matches!(with(16, body_len as u8 + 1), Err(FrameError::Malformed(_))));
    let error = with(4, 9).unwrap_err().to_error();
    assert_eq!(error.kind, ErrorKind::BadFrame);
}

#[test]
fn an_unknown_operation_is_a_frame_and_can_be_refused_by_its_number() {
    let error = Error::new(ErrorKind::UnknownOp, "operation 9999 is not known");
    let frame = received(&OutFrame::error(9999, 5, &error).to_bytes()).unwrap().unwrap();
    assert_eq!((frame.kind, frame.op, frame.op(), frame.request_id), (FrameKind::Error, 9999, None, 5));
    assert_eq!(Error::from_proto(frame.message().unwrap()), error);
}

#[test]
fn a_body_that_is_not_its_operations_message_is_an_invalid_request() {
    let mut frame = received(&publish(vec![]).to_bytes()).unwrap().unwrap();
    frame.body = Bytes::from_static(&[0xff, 0xff]);
    assert_eq!(frame.message::<proto::Publish>().unwrap_err().kind, ErrorKind::InvalidRequest);
}

#[test]
fn pushes_and_answers_carry_their_kind() {
    let push = received(&OutFrame::push(&proto::GoingAway::default()).to_bytes()).unwrap().unwrap();
    assert_eq!((push.kind, push.request_id), (FrameKind::Push, 0));
    let answer = received(&OutFrame::response(3, &proto::PingOk {}).to_bytes()).unwrap().unwrap();
    assert_eq!((answer.kind, answer.request_id), (FrameKind::Response, 3));
}

proptest! {
    #[test]
    fn any_frame_survives(
        request_id: u64, topic_id: u64, partition: u32,
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..4),
    ) {
        let body = proto::Publish { topic_id, partition, ..Default::default() };
        let pieces: Vec<Bytes> = pieces.into_iter().map(Bytes::from).collect();
        let out = OutFrame::new(FrameKind::Request, request_id, &body, pieces.clone());
        let frame = received(&out.to_bytes()).unwrap().unwrap();
        prop_assert_eq!(frame.request_id, request_id);
        prop_assert_eq!(frame.message::<proto::Publish>().unwrap(), body);
        prop_assert_eq!(frame.payload, pieces.concat());
    }
}
