//! The bodies of consensus's journal records: their layout, and the checks on what comes back from a disk.
//!
//! All numbers are little endian. A body is judged by itself here; what it means among the others is recovery's.
//!
//! ```text
//! bootstrap      configuration, then the engine's tag to the end
//! entry          index u64, term u64, written in u64, kind u8, context length u32, context, data to the end
//! external entry the same: what the engine put in the place of context and data
//! hard state     term u64, vote u64, commit u64
//! configuration  index u64, configuration
//! truncate       from u64, term u64
//! removed        nothing
//! accepted       from u64, term u64 (a truncation), then a base if there is one; nothing in the buffered journal
//! checkpoint     the text "buffered" (entries may be in the buffered journal), or a base: index u64, term u64,
//!                next offset u64
//! configuration within those: four times (count u16, replica ids u64 each): voters, learners, outgoing, learners next
//! ```

use bytes::{Buf, BufMut, Bytes, BytesMut};
use lockgate_storage::journal::RecordKind;
use lockgate_wire::{LogIndex, Offset, ReplicaId, Term};

use crate::{Base, Configuration, Entry, EntryKind};

/// The largest index that is taken for one: far above what a log reaches, far below where sums overflow.
pub const LOG_INDEX_MAX: LogIndex = LogIndex(1 << 62);
/// The largest term: it must fit a batch's leader epoch.
pub const TERM_MAX: Term = Term(i32::MAX as u64);
/// The most replicas in one list of a configuration.
const REPLICAS_MAX: usize = 64;
/// The bytes of an entry's body before its context.
pub(crate) const ENTRY_HEAD_BYTES: usize = 8 + 8 + 8 + 1 + 4;

/// The virtual snapshot that every group starts from.
pub(crate) const SNAPSHOT_INDEX: LogIndex = LogIndex(1);
/// Its term.
pub(crate) const SNAPSHOT_TERM: Term = Term(1);

/// The body of a checkpoint mark that says: entries of this replica may be in the buffered journal.
pub const BUFFERED_MARK: &[u8] = b"buffered";

/// Why a body is not what its record's kind says.
pub(crate) type Malformed = &'static str;

/// Term and vote, with the commit index as it was when they changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct HardState {
    pub(crate) term: Term,
    /// Whom this replica voted for in the term; 0 is nobody.
    pub(crate) vote: ReplicaId,
    pub(crate) commit: LogIndex,
}

/// An entry with the group's term at the time of writing. A later term's write at an index supersedes all that earlier
/// terms wrote at it and above, in whichever journal: that is how two journals merge without a common order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Written {
    pub(crate) written_in: Term,
    pub(crate) entry: Entry,
}

impl Written {
    /// Whether the two are one entry. It may have been carried forward as it was proposed just before its data went into
    /// the engine's files.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let place = |written: &Self| (written.entry.index, written.entry.term, written.written_in);
        let is_external = |written: &Self| written.entry.kind == EntryKind::External;
        let may_differ = is_external(self) != is_external(other);
        self == other || (may_differ && place(self) == place(other))
    }
}

/// Everything from an index on that was written before a term is void.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Truncation {
    pub(crate) from: LogIndex,
    pub(crate) term: Term,
}

/// A bootstrap's body: who takes part, and the engine's tag by reference.
pub(crate) fn encode_bootstrap(configuration: &Configuration, tag: Bytes) -> Vec<Bytes> {
    let mut head = BytesMut::new();
    put_configuration(&mut head, configuration);
    vec![head.freeze(), tag]
}

pub(crate) fn decode_bootstrap(mut body: Bytes) -> Result<(Configuration, Bytes), Malformed> {
    let configuration = take_configuration(&mut body)?;
    Ok((configuration, body))
}

/// The kind of record that an entry has.
pub(crate) fn record_kind(entry: &Entry) -> RecordKind {
    if entry.kind == EntryKind::External { RecordKind::ExternalEntry } else { RecordKind::Entry }
}

/// An entry in the pieces of `encode_entry`, before it was written.
pub fn entry_of(body: &[Bytes]) -> Option<Entry> {
    written_of(body).map(|written| written.entry)
}

/// The body of the record that has these in the place of the entry's context and data, which are in the engine's files.
pub fn external_body(body: &[Bytes], context: Bytes, data: Bytes) -> Option<Vec<Bytes>> {
    let Written { written_in, entry } = written_of(body)?;
    let mut head = BytesMut::with_capacity(ENTRY_HEAD_BYTES);
    Some(encode_entry(&mut head, Entry { kind: EntryKind::External, context, data, ..entry }, written_in))
}

fn written_of(body: &[Bytes]) -> Option<Written> {
    let [head, context, data] = body else { return None };
    if head.len() != ENTRY_HEAD_BYTES {
        return None;
    }
    let (index, term, written_in) = (get(head, 0), get(head, 8), get(head, 16));
    let kind = kind(head[24]).ok()?;
    let (context, data) = (context.clone(), data.clone());
    Some(Written {
        written_in: Term(written_in),
        entry: Entry { index: LogIndex(index), term: Term(term), kind, context, data },
    })
}

fn get(mut head: &[u8], at: usize) -> u64 {
    head.advance(at);
    head.get_u64_le()
}

fn kind(number: u8) -> Result<EntryKind, Malformed> {
    match number {
        1 => Ok(EntryKind::Normal),
        2 => Ok(EntryKind::Empty),
        3 => Ok(EntryKind::Configuration),
        4 => Ok(EntryKind::External),
        _ => Err("its entry kind is unknown"),
    }
}

/// An entry's body: a head that goes through `heads` (one allocation for many), context and data by reference.
pub(crate) fn encode_entry(heads: &mut BytesMut, entry: Entry, written_in: Term) -> Vec<Bytes> {
    heads.put_u64_le(entry.index.0);
    heads.put_u64_le(entry.term.0);
    heads.put_u64_le(written_in.0);
    heads.put_u8(entry.kind as u8);
    heads.put_u32_le(u32::try_from(entry.context.len()).expect("bounded by UNCOMMITTED_BYTES_MAX in propose"));
    vec![heads.split().freeze(), entry.context, entry.data]
}

/// As [`decode_entry`], of a record of this kind.
pub(crate) fn decode_entry_of(record: RecordKind, body: Bytes) -> Result<Written, Malformed> {
    let written = decode_entry(body)?;
    if record_kind(&written.entry) == record { Ok(written) } else { Err("its entry is not of the record's kind") }
}

pub(crate) fn decode_entry(mut body: Bytes) -> Result<Written, Malformed> {
    if body.len() < ENTRY_HEAD_BYTES {
        return Err("it is shorter than an entry's head");
    }
    let index = index(body.get_u64_le())?;
    let term = term(body.get_u64_le())?;
    let written_in = self::term(body.get_u64_le())?;
    let kind = kind(body.get_u8())?;
    let context_bytes = body.get_u32_le() as usize;
    if written_in < term {
        return Err("it was written before its own term");
    }
    if context_bytes > body.len() {
        return Err("its context is longer than the body");
    }
    let context = body.split_to(context_bytes);
    let carries = !(context.is_empty() && body.is_empty());
    let must_carry = matches!(kind, EntryKind::Normal | EntryKind::External);
    if (kind == EntryKind::Empty && carries) || (must_carry && !carries) {
        return Err("its kind does not fit what it carries");
    }
    Ok(Written { written_in, entry: Entry { index, term, kind, context, data: body } })
}

pub(crate) fn encode_hard_state(state: HardState) -> Vec<Bytes> {
    vec![numbers(&[state.term.0, state.vote.0, state.commit.0])]
}

pub(crate) fn decode_hard_state(mut body: Bytes) -> Result<HardState, Malformed> {
    if body.len() != 24 {
        return Err("it is not 24 bytes long");
    }
    let term = term(body.get_u64_le())?;
    let vote = ReplicaId(body.get_u64_le());
    let commit = LogIndex(body.get_u64_le());
    if commit > LOG_INDEX_MAX {
        return Err("its commit index is out of bounds");
    }
    Ok(HardState { term, vote, commit })
}

pub(crate) fn decode_configuration(mut body: Bytes) -> Result<(LogIndex, Configuration), Malformed> {
    if body.len() < 8 {
        return Err("it is shorter than an index");
    }
    let index = index(body.get_u64_le())?;
    let configuration = take_configuration(&mut body)?;
    if body.is_empty() { Ok((index, configuration)) } else { Err("it is longer than its configuration") }
}

pub(crate) fn encode_truncation(truncation: Truncation) -> Vec<Bytes> {
    vec![numbers(&[truncation.from.0, truncation.term.0])]
}

pub(crate) fn decode_truncation(mut body: Bytes) -> Result<Truncation, Malformed> {
    if body.len() != 16 {
        return Err("it is not 16 bytes long");
    }
    let from = index(body.get_u64_le())?;
    let term = term(body.get_u64_le())?;
    Ok(Truncation { from, term })
}

pub(crate) fn encode_base(base: Base) -> Vec<Bytes> {
    vec![numbers(&[base.index.0, base.term.0, base.next_offset.0])]
}

pub(crate) fn decode_base(mut body: Bytes) -> Result<Base, Malformed> {
    if body.len() != 24 {
        return Err("it is not 24 bytes long");
    }
    let index = index(body.get_u64_le())?;
    let term = term(body.get_u64_le())?;
    Ok(Base { index, term, next_offset: Offset(body.get_u64_le()) })
}

/// What an operator accepted to be the group's log: everything up to the base is in the engine's files, and the cut is where
/// the log ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Acceptance {
    pub(crate) base: Base,
    pub(crate) cut: Truncation,
}

pub(crate) fn encode_acceptance(Acceptance { base, cut }: Acceptance) -> Vec<Bytes> {
    let mut body = encode_truncation(cut);
    if base != Base::default() {
        body.extend(encode_base(base));
    }
    body
}

pub(crate) fn decode_acceptance(mut body: Bytes) -> Result<Acceptance, Malformed> {
    let base = body.split_off(body.len().min(16));
    let cut = decode_truncation(body)?;
    let base = if base.is_empty() { Base::default() } else { decode_base(base)? };
    if base.index < cut.from { Ok(Acceptance { base, cut }) } else { Err("its log ends before its base") }
}

fn numbers(numbers: &[u64]) -> Bytes {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn index(value: u64) -> Result<LogIndex, Malformed> {
    let index = LogIndex(value);
    if index > SNAPSHOT_INDEX && index <= LOG_INDEX_MAX { Ok(index) } else { Err("its index is out of bounds") }
}

fn term(value: u64) -> Result<Term, Malformed> {
    let term = Term(value);
    if term >= SNAPSHOT_TERM && term <= TERM_MAX { Ok(term) } else { Err("its term is out of bounds") }
}

fn lists(configuration: &Configuration) -> [&Vec<ReplicaId>; 4] {
    let Configuration { voters, learners, voters_outgoing, learners_next } = configuration;
    [voters, learners, voters_outgoing, learners_next]
}

fn put_configuration(out: &mut BytesMut, configuration: &Configuration) {
    for replicas in lists(configuration) {
        assert!(replicas.len() <= REPLICAS_MAX, "a configuration of {} replicas", replicas.len());
        out.put_u16_le(replicas.len() as u16);
        for replica in replicas {
            out.put_u64_le(replica.0);
        }
    }
}

fn take_configuration(body: &mut Bytes) -> Result<Configuration, Malformed> {
    let mut list = || {
        if body.len() < 2 {
            return Err("it ends within its configuration");
        }
        let count = usize::from(body.get_u16_le());
        if count > REPLICAS_MAX {
            return Err("its configuration has too many replicas");
        }
        if body.len() < count * 8 {
            return Err("it ends within its configuration");
        }
        let replicas: Vec<_> = (0..count).map(|_| ReplicaId(body.get_u64_le())).collect();
        let ascending = replicas.is_sorted_by(|a, b| a < b) && replicas.first() != Some(&ReplicaId(0));
        if ascending { Ok(replicas) } else { Err("its replica ids are not ascending from 1 on") }
    };
    let (voters, learners) = (list()?, list()?);
    let (voters_outgoing, learners_next) = (list()?, list()?);
    if voters.is_empty() {
        return Err("its configuration has no voter");
    }
    Ok(Configuration { voters, learners, voters_outgoing, learners_next })
}

#[cfg(test)]
mod tests;
