//! Frames off a connection, whatever the pieces in which they come.

use bytes::{Bytes, BytesMut};
use lockgate_wire::{Frame, FrameKind, OutFrame, proto};

/// Small, so that mutations meet it.
const LIMIT_BYTES: u32 = 4096;

pub(crate) fn run(bytes: &[u8]) {
    let whole = decode(&mut [bytes].into_iter());
    let in_pieces = decode(&mut bytes.chunks(7));
    assert_eq!(whole, in_pieces, "the pieces in which bytes come change nothing");
}

/// The frames, and whether they ended in an error.
fn decode(pieces: &mut dyn Iterator<Item = &[u8]>) -> (Vec<Frame>, bool) {
    let (mut buffer, mut frames) = (BytesMut::new(), Vec::new());
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            let (before, missing) = (buffer.len(), Frame::missing(&buffer, LIMIT_BYTES));
            match Frame::decode(&mut buffer, LIMIT_BYTES) {
                Ok(Some(frame)) => {
                    assert_eq!(missing, Ok(0), "a whole frame lacks nothing");
                    assert_eq!(before - buffer.len(), frame.size());
                    assert!(frame.size() <= LIMIT_BYTES as usize, "a frame above the limit");
                    let _ = (frame.op(), frame.message::<proto::Publish>());
                    frames.push(frame);
                }
                Ok(None) => {
                    assert!(missing != Ok(0), "a frame that is there lacks nothing");
                    break;
                }
                Err(_) => return (frames, true),
            }
        }
    }
    (frames, false)
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let publish = proto::Publish { topic_id: 7, partition: 3, ..proto::Publish::default() };
    let payload = vec![Bytes::from_static(b"payload")];
    let frames = [
        OutFrame::request(1, &proto::Hello { client_id: "me".into(), ..proto::Hello::default() }).to_bytes(),
        OutFrame::new(FrameKind::Request, 2, &publish, payload).to_bytes(),
        OutFrame::push(&proto::GoingAway::default()).to_bytes(),
    ];
    vec![frames[0].to_vec(), frames[1].to_vec(), frames.concat(), b"GET / HTTP/1.1\r\n".to_vec()]
}
