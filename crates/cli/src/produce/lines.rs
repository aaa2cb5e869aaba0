//! Reading lines ahead, on a thread of its own: whole lines in blocks, within a bound, none waiting for more than the
//! input has.

use std::io::{self, Read};
use std::vec;

use bytes::{Bytes, BytesMut};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Bytes asked of the input at once.
const READ_BYTES: usize = 64 * 1024;
/// Blocks that are read ahead.
const BLOCKS_AHEAD: usize = 4;

/// Some lines that follow each other, with their numbers from 1.
#[derive(Debug, Default)]
pub(super) struct Block {
    next_line: u64,
    lines: vec::IntoIter<Bytes>,
}

/// Why the input cannot be read on.
#[derive(Debug)]
pub(super) enum ReadError {
    /// This line is longer than any batch may be.
    LineTooLong { line: u64, limit: usize },
    /// The input failed after this line.
    Io { line: u64, error: io::Error },
}

impl Iterator for Block {
    type Item = (u64, Bytes);

    fn next(&mut self) -> Option<(u64, Bytes)> {
        let text = self.lines.next()?;
        self.next_line += 1;
        Some((self.next_line - 1, text))
    }
}

/// Starts to read. `limit` is the longest line that makes sense; `keep_ends` leaves the line ends on.
pub(super) fn start(
    input: impl Read + Send + 'static,
    limit: usize,
    keep_ends: bool,
) -> io::Result<Receiver<Result<Block, ReadError>>> {
    let (sender, receiver) = channel(BLOCKS_AHEAD);
    let reader = LineReader { input, limit, keep_ends, buffer: BytesMut::new(), next_line: 1 };
    // It ends with the input, or with the process while it waits for input.
    std::thread::Builder::new().name("lines".into()).spawn(move || read_all(reader, &sender))?;
    Ok(receiver)
}

fn read_all(mut reader: LineReader<impl Read>, sender: &Sender<Result<Block, ReadError>>) {
    loop {
        let next = reader.next_block();
        let is_last = next.is_err();
        let Some(block) = next.transpose() else { return };
        if sender.blocking_send(block).is_err() || is_last {
            return;
        }
    }
}

struct LineReader<R> {
    input: R,
    limit: usize,
    keep_ends: bool,
    /// The beginning of a line whose end was not read yet.
    buffer: BytesMut,
    next_line: u64,
}

impl<R: Read> LineReader<R> {
    /// The next lines, as soon as there is one; `None` at the end of the input.
    fn next_block(&mut self) -> Result<Option<Block>, ReadError> {
        loop {
            let begin = self.buffer.len();
            let read = self.read().map_err(|error| ReadError::Io { line: self.next_line - 1, error })?;
            if read == 0 {
                let rest = self.buffer.split().freeze();
                return Ok((!rest.is_empty()).then(|| self.block(&rest)));
            }
            if let Some(last) = self.buffer[begin..].iter().rposition(|byte| *byte == b'\n') {
                let whole = self.buffer.split_to(begin + last + 1).freeze();
                return Ok(Some(self.block(&whole)));
            }
            if self.buffer.len() > self.limit {
                return Err(ReadError::LineTooLong { line: self.next_line, limit: self.limit });
            }
        }
    }

    fn read(&mut self) -> io::Result<usize> {
        let begin = self.buffer.len();
        self.buffer.resize(begin + READ_BYTES, 0);
        let read = loop {
            match self.input.read(&mut self.buffer[begin..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        self.buffer.truncate(begin + read.as_ref().map_or(0, |read| *read));
        read
    }

    fn block(&mut self, bytes: &Bytes) -> Block {
        let mut lines = Vec::new();
        let mut begin = 0;
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let end = begin + line.len();
            let without_end = if line.ends_with(b"\n") && !self.keep_ends { end - 1 } else { end };
            lines.push(bytes.slice(begin..without_end));
            begin = end;
        }
        let block = Block { next_line: self.next_line, lines: lines.into_iter() };
        self.next_line += block.lines.len() as u64;
        block
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// An input that gives its pieces one read after the other.
    struct Pieces(VecDeque<Vec<u8>>);

    impl Read for Pieces {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let Some(piece) = self.0.pop_front() else { return Ok(0) };
            into[..piece.len()].copy_from_slice(&piece);
            Ok(piece.len())
        }
    }

    fn reader(pieces: &[&[u8]], limit: usize, keep_ends: bool) -> LineReader<Pieces> {
        let pieces = pieces.iter().map(|piece| piece.to_vec()).collect();
        LineReader { input: Pieces(pieces), limit, keep_ends, buffer: BytesMut::new(), next_line: 1 }
    }

    fn all(mut reader: LineReader<impl Read>) -> Vec<(u64, Vec<u8>)> {
        let mut lines = Vec::new();
        while let Some(block) = reader.next_block().unwrap() {
            lines.extend(block.map(|(line, text)| (line, text.to_vec())));
        }
        lines
    }

    #[test]
    fn lines_are_numbered_from_one_wherever_the_reads_cut_them() {
        let text = b"one\n\ntwo\r\nlast without an end";
        let expected =
            [(1, b"one".to_vec()), (2, vec![]), (3, b"two\r".to_vec()), (4, b"last without an end".to_vec())];
        for size in 1..=text.len() {
            let pieces: Vec<&[u8]> = text.chunks(size).collect();
            assert_eq!(all(reader(&pieces, 100, false)), expected, "reads of {size} bytes");
        }
    }

    #[test]
    fn with_their_ends_the_lines_are_the_input() {
        let text = b"a\nb\r\n\nc";
        let lines = all(reader(&[&text[..3], &text[3..]], 100, true));
        assert_eq!(lines.iter().flat_map(|(_, line)| line.clone()).collect::<Vec<_>>(), text);
        assert_eq!(lines.len(), 4);
    }

    #[test]
    fn what_was_read_is_given_without_waiting_for_more() {
        let mut reader = reader(&[b"first\nsec", b"ond\n"], 100, false);
        let block: Vec<_> = reader.next_block().unwrap().unwrap().collect();
        assert_eq!(block, [(1, Bytes::from("first"))]);
        assert_eq!(reader.input.0.len(), 1, "the second piece is not asked for");
    }

    #[test]
    fn a_line_without_an_end_is_refused_at_the_limit_by_its_number() {
        let long = vec![b'x'; 2000];
        let mut reader = reader(&[b"a\n", &long, &long, &long], 3000, false);
        assert!(reader.next_block().unwrap().is_some());
        let refused = reader.next_block().unwrap_err();
        assert!(matches!(refused, ReadError::LineTooLong { line: 2, limit: 3000 }), "{refused:?}");
        assert_eq!(reader.input.0.len(), 1, "no more is read than was needed to know");
    }

    #[test]
    fn an_empty_input_has_no_lines() {
        assert_eq!(all(reader(&[], 10, false)), []);
    }
}
