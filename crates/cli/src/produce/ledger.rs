//! What became of each input line.
//!
//! Lines are settled in their order, so that what is known is a few ranges, whatever order the answers come in.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use lockgate_client::{ClientError, Delivery, Receipt, Record};

/// See the module.
pub(super) struct Ledger {
    pending: VecDeque<Pending>,
    pub(super) acknowledged: Ranges,
    /// Known not to be applied.
    pub(super) refused: Ranges,
    /// May or may not be applied.
    pub(super) unknown: Ranges,
    pub(super) partitions: BTreeMap<u32, Tally>,
    /// Of keys and values that were acknowledged.
    pub(super) bytes: u64,
    pub(super) first_error: Option<(u64, ClientError)>,
    /// Why the file for acknowledgements got no more of them.
    pub(super) acks_error: Option<io::Error>,
    acks: Option<BufWriter<File>>,
}

/// A line that was handed over.
struct Pending {
    line: u64,
    bytes: u64,
    delivery: Delivery,
}

/// A partition's share.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Tally {
    pub(super) records: u64,
    /// None where no answer was asked for.
    pub(super) first_offset: Option<u64>,
    pub(super) last_offset: Option<u64>,
}

/// Numbers that only grow, as ranges with both ends included.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Ranges(pub(super) Vec<(u64, u64)>);

impl Ranges {
    pub(super) fn push(&mut self, number: u64) {
        match self.0.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => self.0.push((number, number)),
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.0.iter().map(|(first, last)| last - first + 1).sum()
    }
}

impl Ledger {
    pub(super) fn new(acks: Option<BufWriter<File>>) -> Self {
        Self {
            pending: VecDeque::new(),
            acknowledged: Ranges::default(),
            refused: Ranges::default(),
            unknown: Ranges::default(),
            partitions: BTreeMap::new(),
            bytes: 0,
            first_error: None,
            acks_error: None,
            acks,
        }
    }

    /// A line that was handed over; lines come in their order.
    pub(super) fn push(&mut self, line: u64, record: &Record, delivery: Delivery) {
        let length = |bytes: &Option<bytes::Bytes>| bytes.as_ref().map_or(0, bytes::Bytes::len);
        let bytes = (length(&record.key) + length(&record.value)) as u64;
        self.pending.push_back(Pending { line, bytes, delivery });
    }

    /// Lines that are not settled.
    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// A line was not acknowledged, or its acknowledgement could not be written down.
    pub(super) fn has_failed(&self) -> bool {
        self.first_error.is_some() || self.acks_error.is_some()
    }

    /// Waits for the first line's answer, and takes it with all that follow and are there. Cancel-safe.
    pub(super) async fn settle_some(&mut self) {
        let Some(first) = self.pending.front_mut() else { return };
        let mut answer = (&mut first.delivery).await;
        loop {
            let Some(Pending { line, bytes, .. }) = self.pending.pop_front() else { break };
            self.settle(line, bytes, answer);
            let Some(next) = self.pending.front_mut() else { break };
            match Pin::new(&mut next.delivery).poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(next) => answer = next,
                Poll::Pending => break,
            }
        }
        self.write_acks(Write::flush);
    }

    fn settle(&mut self, line: u64, bytes: u64, answer: Result<Receipt, ClientError>) {
        match answer {
            Ok(receipt) => {
                let offset = receipt.offset.map(|offset| offset.0);
                self.acknowledged.push(line);
                self.bytes += bytes;
                let tally = self.partitions.entry(receipt.partition).or_default();
                tally.records += 1;
                tally.first_offset = tally.first_offset.or(offset);
                tally.last_offset = offset.max(tally.last_offset);
                if let Some(offset) = offset {
                    self.write_acks(|acks| writeln!(acks, "{line} {} {offset}", receipt.partition));
                }
            }
            Err(error) => {
                let lines = if error.outcome_unknown() { &mut self.unknown } else { &mut self.refused };
                lines.push(line);
                self.first_error.get_or_insert((line, error));
            }
        }
    }

    /// Writes to the file for acknowledgements, if there is one. The first failure is kept, and ends the writing: the
    /// report still tells of every line.
    fn write_acks(&mut self, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) {
        let Some(acks) = &mut self.acks else { return };
        if let Err(error) = write(acks) {
            self.acks_error = Some(error);
            self.acks = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use lockgate_wire::Offset;

    use super::*;

    fn receipt(partition: u32, offset: u64) -> Result<Receipt, ClientError> {
        Ok(Receipt { partition, offset: Some(Offset(offset)), append_time_ms: Some(1), duplicate: false })
    }

    #[test]
    fn every_line_is_in_exactly_one_account() {
        let mut ledger = Ledger::new(None);
        ledger.settle(1, 10, receipt(0, 5));
        ledger.settle(2, 10, receipt(1, 0));
        ledger.settle(3, 10, Err(ClientError::Closed));
        ledger.settle(4, 10, Err(ClientError::OutcomeUnknown { last: "cut".into() }));
        ledger.settle(5, 10, receipt(0, 6));
        assert_eq!(ledger.acknowledged, Ranges(vec![(1, 2), (5, 5)]));
        assert_eq!(ledger.refused, Ranges(vec![(3, 3)]));
        assert_eq!(ledger.unknown, Ranges(vec![(4, 4)]));
        assert_eq!((ledger.bytes, ledger.acknowledged.count()), (30, 3));
        let tally = Tally { records: 2, first_offset: Some(5), last_offset: Some(6) };
        assert_eq!(ledger.partitions[&0], tally);
        assert_eq!(ledger.first_error, Some((3, ClientError::Closed)));
    }

    #[test]
    fn the_file_of_acknowledgements_has_a_line_each() {
        let mut file = tempfile::tempfile().unwrap();
        let mut ledger = Ledger::new(Some(BufWriter::new(file.try_clone().unwrap())));
        ledger.settle(7, 1, receipt(2, 30));
        ledger.settle(8, 1, Err(ClientError::Closed));
        ledger.settle(9, 1, receipt(0, 4));
        drop(ledger);
        let mut text = String::new();
        std::io::Seek::rewind(&mut file).unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "7 2 30\n9 0 4\n");
    }
}
