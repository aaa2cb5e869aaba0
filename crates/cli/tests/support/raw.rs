//! A connection below the client library: whatever bytes a test wants to send, and the frames that come back.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Instant;

use bytes::BytesMut;
use lockgate_wire::frame::DEFAULT_MAX_FRAME_BYTES;
use lockgate_wire::op::Body;
use lockgate_wire::{Error, Frame, FrameKind, OutFrame, proto};

use super::bound;

/// See the module.
pub(crate) struct Raw {
    pub(crate) stream: TcpStream,
    buffer: BytesMut,
    next_request: u64,
}

impl Raw {
    /// Connects, and says nothing.
    pub(crate) fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(bound(30))).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, buffer: BytesMut::new(), next_request: 1 }
    }

    /// Connects and says Hello.
    pub(crate) fn hello(address: &str) -> Self {
        let mut raw = Self::connect(address);
        let _: proto::HelloOk = raw.ask(&proto::Hello::default()).unwrap();
        raw
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Sends a request with a payload; gives its id.
    pub(crate) fn request<B: Body>(&mut self, body: &B, payload: &[u8]) -> u64 {
        let id = self.next_request;
        self.next_request += 1;
        let payload = vec![bytes::Bytes::copy_from_slice(payload)];
        let frame = OutFrame::new(FrameKind::Request, id, body, payload).to_bytes();
        self.send(&frame);
        id
    }

    /// Asks and waits for the answer.
    pub(crate) fn ask<B: Body, A: Body>(&mut self, body: &B) -> Result<A, Error> {
        self.ask_with(body, &[])
    }

    /// The same with a payload.
    pub(crate) fn ask_with<B: Body, A: Body>(&mut self, body: &B, payload: &[u8]) -> Result<A, Error> {
        let id = self.request(body, payload);
        self.answer(id).map(|(answer, _)| answer)
    }

    /// Asks for something that comes in the answer's payload.
    pub(crate) fn ask_for_payload<B: Body, A: Body>(&mut self, body: &B) -> Result<(A, bytes::Bytes), Error> {
        let id = self.request(body, &[]);
        self.answer(id)
    }

    fn answer<A: Body>(&mut self, id: u64) -> Result<(A, bytes::Bytes), Error> {
        loop {
            let frame = self.receive().expect("the connection closed before the answer");
            if frame.request_id != id || !matches!(frame.kind, FrameKind::Response | FrameKind::Error) {
                continue;
            }
            return match frame.kind {
                FrameKind::Error => Err(error(&frame)),
                _ => Ok((frame.message().unwrap(), frame.payload)),
            };
        }
    }

    /// The next frame; `None` when the broker closed the connection.
    pub(crate) fn receive(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = Frame::decode(&mut self.buffer, DEFAULT_MAX_FRAME_BYTES).unwrap() {
                return Some(frame);
            }
            let mut bytes = [0; 16 * 1024];
            match self.stream.read(&mut bytes) {
                Ok(0) => return None,
                Ok(count) => self.buffer.extend_from_slice(&bytes[..count]),
                // The broker closed while bytes of ours were on their way.
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("neither a frame nor the end within {:?}: {error}", bound(30)),
            }
        }
    }

    /// The error about the connection, after which it must close.
    pub(crate) fn closed_with(mut self) -> Error {
        let begin = Instant::now();
        let mut told = None;
        while let Some(frame) = self.receive() {
            assert!(begin.elapsed() < bound(30), "the connection lives on");
            if frame.kind == FrameKind::Error {
                told.get_or_insert(error(&frame));
            }
        }
        told.expect("the connection was closed without a word")
    }

    /// Sends no more, and reads on.
    pub(crate) fn half_close(&self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// The connection still serves.
    pub(crate) fn assert_alive(&mut self) {
        let _: proto::PingOk = self.ask(&proto::Ping {}).unwrap();
    }
}

fn error(frame: &Frame) -> Error {
    Error::from_proto(frame.message::<proto::Error>().unwrap())
}
