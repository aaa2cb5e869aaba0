//! The frame: the unit of the native protocol.
//!
//! ```text
//!  0        4      5       6         8                16
//!  | length | kind | flags | op      | request id     | u24 body length | body … | payload …
//!    u32      u8     u8      u16       u64              little endian     protobuf raw bytes
//! ```
//! `length` counts everything after itself. What comes in is a [`Frame`] over slices of the read buffer; what goes out
//! is an [`OutFrame`], whose payload is a list of slices, so that stored batches are sent without being copied.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message;

use crate::error::{Error, ErrorKind};
use crate::op::{Body, Op};

/// Bytes before the body: length, kind, flags, op, request id, body length.
pub const HEADER_BYTES: usize = 19;
/// Largest frame unless negotiated otherwise.
pub const DEFAULT_MAX_FRAME_BYTES: u32 = 8 * 1024 * 1024;
/// No negotiation goes above this.
pub const HARD_MAX_FRAME_BYTES: u32 = 64 * 1024 * 1024;
/// Largest frame before the connection is authenticated.
pub const MAX_FRAME_BYTES_BEFORE_HELLO: u32 = 64 * 1024;
/// Largest body, by its u24 length.
pub const MAX_BODY_BYTES: usize = (1 << 24) - 1;
/// Smallest value that `length` can have.
const MIN_LENGTH: usize = HEADER_BYTES - 4;

const _: () = assert!(DEFAULT_MAX_FRAME_BYTES <= HARD_MAX_FRAME_BYTES);
const _: () = assert!(MAX_FRAME_BYTES_BEFORE_HELLO as usize > HEADER_BYTES);

/// What a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum FrameKind {
    /// Asks; answered once if its request id is not 0.
    Request = 0,
    /// Answers a request.
    Response = 1,
    /// Sent by the broker unasked.
    Push = 2,
    /// Answers a request that failed; the body is a `proto::Error` whatever the op. With request id 0: about the
    /// connection, which closes.
    Error = 3,
}

/// A frame that was received. Body and payload are slices of the buffer they were read into.
#[derive(Clone, PartialEq, Debug)]
pub struct Frame {
    /// What it is.
    pub kind: FrameKind,
    /// Unused bits, 0.
    pub flags: u8,
    /// The operation's number; may be one that this build does not know.
    pub op: u16,
    /// Ties an answer to its request; 0: no answer wanted.
    pub request_id: u64,
    /// The op's message, encoded.
    pub body: Bytes,
    /// Raw bytes, by the op.
    pub payload: Bytes,
}

/// Why bytes are no frame. The connection cannot go on after either.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FrameError {
    /// The announced length is above the connection's limit. Nothing of the frame was buffered.
    TooLarge {
        /// Announced, all of the frame.
        bytes: u64,
        /// Allowed, all of the frame.
        limit: u32,
    },
    /// The bytes break the layout; the text says how.
    Malformed(&'static str),
    /// The bytes belong to another protocol, named here.
    OtherProtocol(&'static str),
}

impl FrameError {
    /// The error as the peer is told it.
    pub fn to_error(&self) -> Error {
        match self {
            Self::TooLarge { bytes, limit } => Error::new(
                ErrorKind::FrameTooLarge,
                format!("a frame of {bytes} bytes is above this connection's limit of {limit}; send smaller batches or raise the limit"),
            )
            .with_limit(u64::from(*limit)),
            Self::Malformed(what) => Error::new(ErrorKind::BadFrame, format!("not a frame: {what}")),
            Self::OtherProtocol(what) => {
                Error::new(ErrorKind::BadFrame, format!("this port speaks Lockgate's native protocol, the bytes look like {what}"))
            }
        }
    }
}

impl std::fmt::Display for FrameError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.to_error().message)
    }
}
impl std::error::Error for FrameError {}

impl Frame {
    /// Takes one whole frame from the front of `buffer`, or `None` while bytes are missing (then at least
    /// [`Frame::missing`] more are needed). `limit` is the largest frame allowed, length field included.
    pub fn decode(buffer: &mut BytesMut, limit: u32) -> Result<Option<Frame>, FrameError> {
        let Some(total) = announced(buffer, limit)? else { return Ok(None) };
        if buffer.len() < total {
            return Ok(None);
        }
        let mut bytes = buffer.split_to(total).freeze();
        bytes.advance(4);
        let kind = match bytes.get_u8() {
            0 => FrameKind::Request,
            1 => FrameKind::Response,
            2 => FrameKind::Push,
            3 => FrameKind::Error,
            _ => return Err(FrameError::Malformed("the kind is none of 0 to 3")),
        };
        let flags = bytes.get_u8();
        let op = bytes.get_u16_le();
        let request_id = bytes.get_u64_le();
        let body_len = bytes.get_uint_le(3) as usize;
        if body_len > bytes.len() {
            return Err(FrameError::Malformed("the body is longer than the frame"));
        }
        let body = bytes.split_to(body_len);
        Ok(Some(Frame { kind, flags, op, request_id, body, payload: bytes }))
    }

    /// How many bytes `buffer` lacks for its first frame; at least 1 unless the frame is whole.
    pub fn missing(buffer: &[u8], limit: u32) -> Result<usize, FrameError> {
        Ok(match announced(buffer, limit)? {
            Some(total) => total.saturating_sub(buffer.len()),
            None => HEADER_BYTES.saturating_sub(buffer.len()).max(1),
        })
    }

    /// The operation, if this build knows it.
    pub fn op(&self) -> Option<Op> {
        Op::from_number(self.op)
    }

    /// The body as its message.
    pub fn message<B: prost::Message + Default>(&self) -> Result<B, Error> {
        B::decode(self.body.clone()).map_err(|e| {
            Error::new(ErrorKind::InvalidRequest, format!("the body is not the message of its operation: {e}"))
        })
    }

    /// Bytes that holding this frame costs.
    pub fn size(&self) -> usize {
        HEADER_BYTES + self.body.len() + self.payload.len()
    }
}

/// The announced size of the first frame with its length field, once four bytes are there.
fn announced(buffer: &[u8], limit: u32) -> Result<Option<usize>, FrameError> {
    let Some(head) = buffer.first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_le_bytes(*head) as usize;
    let total = length + 4;
    if total > limit as usize {
        return Err(match foreign(head) {
            Some(name) => FrameError::OtherProtocol(name),
            None => FrameError::TooLarge { bytes: total as u64, limit },
        });
    }
    if length < MIN_LENGTH {
        return Err(FrameError::Malformed("the length is shorter than a header"));
    }
    Ok(Some(total))
}

/// The first bytes of protocols that people send here by mistake. Read as a length, each is above the limit that holds
/// before Hello, so no first frame is mistaken for one.
fn foreign(head: &[u8; 4]) -> Option<&'static str> {
    match head {
        b"GET " | b"POST" | b"PUT " | b"HEAD" | b"DELE" | b"OPTI" | b"PATC" | b"CONN" | b"PRI " => {
            Some("HTTP; the admin port serves that")
        }
        b"AMQP" => Some("AMQP"),
        b"SSH-" => Some("SSH"),
        [b'*', b'0'..=b'9', b'\r' | b'0'..=b'9', b'\n' | b'\r' | b'0'..=b'9'] => Some("RESP (Redis)"),
        [0x16, 0x03, _, _] => Some("TLS; this listener speaks plain TCP"),
        _ => None,
    }
}

/// A frame to be sent.
#[derive(Clone, PartialEq, Debug)]
pub struct OutFrame {
    /// Header and body, contiguous.
    pub head: Bytes,
    /// The payload's pieces, in order.
    pub payload: Vec<Bytes>,
}

impl OutFrame {
    /// A frame with a message and a payload in pieces.
    pub fn new<B: Body>(kind: FrameKind, request_id: u64, body: &B, payload: Vec<Bytes>) -> Self {
        Self::encode(kind, B::OP.number(), request_id, body, payload)
    }
    /// A request without payload.
    pub fn request<B: Body>(request_id: u64, body: &B) -> Self {
        Self::new(FrameKind::Request, request_id, body, Vec::new())
    }
    /// An answer without payload.
    pub fn response<B: Body>(request_id: u64, body: &B) -> Self {
        Self::new(FrameKind::Response, request_id, body, Vec::new())
    }
    /// A push without payload.
    pub fn push<B: Body>(body: &B) -> Self {
        Self::new(FrameKind::Push, 0, body, Vec::new())
    }
    /// An error in answer to a request; `op` is the request's number, known or not.
    pub fn error(op: u16, request_id: u64, error: &Error) -> Self {
        Self::encode(FrameKind::Error, op, request_id, &error.to_proto(), Vec::new())
    }

    fn encode(kind: FrameKind, op: u16, request_id: u64, body: &impl Message, payload: Vec<Bytes>) -> Self {
        let body_len = body.encoded_len();
        assert!(body_len <= MAX_BODY_BYTES, "a body of {body_len} bytes: listings are paged below this");
        let payload_len: usize = payload.iter().map(Bytes::len).sum();
        let length = MIN_LENGTH + body_len + payload_len;
        assert!(
            length + 4 <= HARD_MAX_FRAME_BYTES as usize,
            "a frame of {length} bytes: payloads are bounded below this"
        );
        let mut head = BytesMut::with_capacity(HEADER_BYTES + body_len);
        head.put_u32_le(length as u32);
        head.put_u8(kind as u8);
        head.put_u8(0);
        head.put_u16_le(op);
        head.put_u64_le(request_id);
        head.put_uint_le(body_len as u64, 3);
        body.encode_raw(&mut head);
        Self { head: head.freeze(), payload }
    }

    /// What the frame is.
    pub fn kind(&self) -> FrameKind {
        match self.head[4] {
            0 => FrameKind::Request,
            1 => FrameKind::Response,
            2 => FrameKind::Push,
            _ => FrameKind::Error,
        }
    }

    /// All bytes of the frame on the wire.
    pub fn size(&self) -> usize {
        self.head.len() + self.payload.iter().map(Bytes::len).sum::<usize>()
    }

    /// The frame as the other side would receive it; for the simulator and for tests.
    pub fn to_bytes(&self) -> Bytes {
        let mut all = BytesMut::with_capacity(self.size());
        all.put_slice(&self.head);
        self.payload.iter().for_each(|piece| all.put_slice(piece));
        all.freeze()
    }
}

#[cfg(test)]
mod tests;
