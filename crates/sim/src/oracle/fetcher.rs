//! A reader by single reads: chains of fetches with small and large bounds, waiting or not.

use lockgate_wire::batch;
use lockgate_wire::{Error, ErrorKind, Frame, PartitionId, proto};

use super::Role;
use super::client::{Io, Phase};
use super::founder::passes;
use super::payload::read_batches;
use crate::history::{ReaderNo, Start, What};
use crate::time::{MS, SECOND, Time};

/// Longest wait that is asked for.
const MAX_WAIT_MS: u64 = 3000;

struct Chain {
    partition: PartitionId,
    next: u64,
    /// Known to the invariants from its first answer on.
    reader: Option<ReaderNo>,
    /// The end of what was known to be there when the question was asked.
    known_end: u64,
    power: u32,
}

#[derive(Default)]
pub(super) struct Fetcher {
    chain: Option<Chain>,
    asked: Option<(Time, u32)>,
}

impl Fetcher {
    fn fetch(&mut self, io: &mut Io<'_>) {
        let power = io.life().power;
        if let Some(chain) = &self.chain
            && chain.power != power
            && io.board.is_weak(chain.partition)
        {
            self.chain = None;
        }
        let chain = self.chain.get_or_insert_with(|| {
            let partition = io.board.pick(io.rng).1;
            let end = io.board.known_end(partition);
            let next = if io.rng.coin() { 0 } else { io.rng.below(end + 2) };
            Chain { partition, next, reader: None, known_end: end, power }
        });
        chain.known_end = io.board.known_end(chain.partition);
        let max_bytes = if io.rng.per_mille(200) { 0 } else { io.rng.magnitude(1..=200_000) as u32 };
        let max_wait_ms = if io.rng.coin() { 0 } else { io.rng.below(MAX_WAIT_MS) as u32 };
        io.ask(&proto::Fetch {
            topic_id: chain.partition.topic.0,
            partition: chain.partition.partition,
            offset: chain.next,
            max_bytes,
            max_wait_ms,
        });
        self.asked = Some((io.now, max_bytes));
    }

    fn fetched(&mut self, io: &mut Io<'_>, asked: Time, max_bytes: u32, frame: &Frame) {
        let Some(chain) = &mut self.chain else { return };
        let (partition, append_time) =
            (chain.partition, io.board.topic(chain.partition.topic).is_some_and(|t| t.append_time));
        let (answer, batches) = match (
            frame.message::<proto::FetchOk>(),
            read_batches(io.board, &frame.payload, chain.next, append_time),
        ) {
            (Ok(answer), Ok(batches)) => (answer, batches),
            (Err(error), _) => return io.unexpected(error.to_string()),
            (_, Err(error)) => return io.unexpected(format!("partition {partition}: {error}")),
        };
        let (bytes, wire_batches) = (frame.payload.len(), batch::split(frame.payload.clone()).count());
        if wire_batches > 1 && max_bytes > 0 && bytes > max_bytes as usize {
            io.unexpected(format!("{bytes} bytes in {wire_batches} batches for a fetch of {max_bytes}"));
        }
        let (earliest, high_watermark, next) = (answer.earliest_offset, answer.high_watermark, answer.next_offset);
        io.saw(What::Bounds { partition, asked, earliest, high_watermark });
        let reader = match chain.reader {
            Some(reader) => reader,
            None => {
                let (reader, start) = (io.board.new_reader(), Start::Offset(chain.next));
                io.saw(What::Opened { reader, partition, start, next: chain.next, earliest, high_watermark });
                *chain.reader.insert(reader)
            }
        };
        io.saw(What::Read { reader, partition, batches, next, high_watermark });
        chain.next = next;
        if next >= high_watermark && io.rng.per_mille(200) {
            self.chain = None;
        }
    }

    fn refused(&mut self, io: &mut Io<'_>, error: &Error) {
        let Some(chain) = self.chain.take() else { return };
        let details = &error.details;
        let trims = io.board.topic(chain.partition.topic).is_some_and(|topic| topic.facts.trims);
        match (error.kind, details.earliest_offset, details.high_watermark) {
            (ErrorKind::OffsetOutOfRange, Some(earliest), _) if chain.next < earliest && trims => {
                self.chain = Some(Chain { next: earliest, reader: None, ..chain });
            }
            (ErrorKind::OffsetOutOfRange, _, Some(end))
                if chain.next > end && chain.reader.is_none() && chain.next > chain.known_end => {}
            _ if passes(error) => self.chain = Some(chain),
            _ => io
                .unexpected(format!("a fetch of partition {} at {} was refused: {error}", chain.partition, chain.next)),
        }
    }
}

impl Role for Fetcher {
    fn act(&mut self, io: &mut Io<'_>) {
        io.act_within(50 * MS..=3 * SECOND);
        if self.asked.is_none() && !io.board.topics.is_empty() && io.phase == Phase::Stir {
            self.fetch(io);
        }
    }

    fn answered(&mut self, io: &mut Io<'_>, _request: u64, answer: Result<Frame, Error>) {
        let Some((asked, max_bytes)) = self.asked.take() else { return };
        match answer {
            Ok(frame) => self.fetched(io, asked, max_bytes, &frame),
            Err(error) => self.refused(io, &error),
        }
    }

    fn lost(&mut self, _io: &mut Io<'_>) {
        self.asked = None;
    }

    fn waits_for(&self) -> Option<String> {
        self.asked.as_ref().map(|asked| format!("{asked:?}"))
    }
}
