use proptest::prelude::*;

use super::*;
use crate::journal::format::*;
use crate::journal::layout::{Pending, lay_out};
use crate::journal::recovery::records_of;

fn file_header() -> FileHeader {
    FileHeader {
        kind: JournalKind::Buffered,
        identity: identity(),
        file_sequence: 5,
        first_sequence: 77,
        epoch: 3,
        file_bytes: FILE_BYTES,
        synced: 70,
        reused: true,
        oldest_file: 2,
    }
}

fn write_header() -> WriteHeader {
    WriteHeader {
        file_sequence: 5,
        epoch: 3,
        first_sequence: 77,
        synced: 76,
        oldest_file: 2,
        length: 64,
        count: 0,
        chain: 0x1234_5678,
        flags: FLAG_MARK,
        block: 9,
    }
}

#[test]
fn a_file_header_lies_in_one_sector_and_is_read_back() {
    let bytes = file_header().encode();
    assert_eq!(bytes.len(), BLOCK_BYTES);
    assert!(bytes[SECTOR_BYTES..].iter().all(|byte| *byte == 0));
    assert_eq!(FileHeader::decode(&bytes).unwrap().0, file_header());
}

#[test]
fn an_unknown_version_is_told_from_rot() {
    let mut bytes = file_header().encode();
    bytes[8] = 9;
    assert_eq!(FileHeader::decode(&bytes), Err(FileHeaderFault::Bad));
    let crc = crc32c::crc32c(&bytes[..SECTOR_BYTES - 4]);
    bytes[SECTOR_BYTES - 4..SECTOR_BYTES].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(FileHeader::decode(&bytes), Err(FileHeaderFault::UnknownVersion(9)));
}

#[test]
fn no_header_and_a_bad_one_are_different_things() {
    assert_eq!(FileHeader::decode(&[]), Err(FileHeaderFault::Empty));
    assert_eq!(FileHeader::decode(&[0; BLOCK_BYTES]), Err(FileHeaderFault::Empty));
    assert_eq!(FileHeader::decode(&[1; 100]), Err(FileHeaderFault::Bad));
}

#[test]
fn another_journals_write_is_no_write_here() {
    let mut bytes = Vec::new();
    let salt_here = salt(&identity(), JournalKind::Synced);
    write_header().encode(salt_here, &mut bytes);
    assert_eq!(WriteHeader::decode(&bytes, salt_here), Some(write_header()));
    assert_eq!(WriteHeader::decode(&bytes, salt(&identity(), JournalKind::Buffered)), None);
    let other = JournalIdentity { shard: ShardId(2), ..identity() };
    assert_eq!(WriteHeader::decode(&bytes, salt(&other, JournalKind::Synced)), None);
}

#[test]
fn names_are_read_as_they_are_written_and_nothing_else_is() {
    assert_eq!(file_name(2, 30), "0000000002-00000000000000000030.journal");
    assert_eq!(parse_name(&file_name(2, 30)), Name::File(2, 30));
    assert_eq!(parse_name(&file_name(u64::MAX, u64::MAX)), Name::File(u64::MAX, u64::MAX));
    assert_eq!(parse_name("free-12"), Name::Free(12));
    for name in ["free-", "free-+1", "free-01", "2-30.journal", "lost+found", "0000000002-00000000000000000030"] {
        assert_eq!(parse_name(name), Name::Other, "{name}");
    }
}

fn laid_out(bodies: &[Vec<u8>]) -> (WriteHeader, Vec<u8>) {
    let pending = |(index, body): (usize, &Vec<u8>)| {
        Pending::new(draft(index as u64 % 3, body.clone()), body.len() as u32, 77 + index as u64, 1)
    };
    let header = WriteHeader { flags: 0, ..write_header() };
    let layout = lay_out(header, 5, bodies.iter().enumerate().map(pending).collect());
    let bytes = layout.pieces.concat();
    assert_eq!(bytes.len(), layout.bytes);
    (WriteHeader::decode(&bytes, 5).unwrap(), bytes)
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn what_was_laid_out_is_read_back(sizes in prop::collection::vec(0usize..3000, 0..20)) {
        let bodies: Vec<Vec<u8>> = sizes.iter().enumerate().map(|(seed, size)| body(seed as u64, *size)).collect();
        let (header, bytes) = laid_out(&bodies);
        let (records, _) = records_of(&header, &bytes.clone().into()).unwrap();
        prop_assert_eq!(records.iter().map(|record| record.body.to_vec()).collect::<Vec<_>>(), bodies);
        prop_assert_eq!(header.next_sequence(), 77 + sizes.len() as u64);
    }

    #[test]
    fn a_changed_byte_is_noticed_or_means_nothing(sizes in prop::collection::vec(0usize..900, 1..6), place: prop::sample::Index, flip in 1u8..) {
        let bodies: Vec<Vec<u8>> = sizes.iter().enumerate().map(|(seed, size)| body(seed as u64, *size)).collect();
        let (header, mut bytes) = laid_out(&bodies);
        let good = records_of(&header, &bytes.clone().into()).unwrap();
        let at = place.index(bytes.len());
        bytes[at] ^= flip;
        if at < WRITE_HEADER_BYTES {
            prop_assert_eq!(WriteHeader::decode(&bytes, 5), None);
        } else if let Ok(read) = records_of(&header, &bytes.clone().into()) {
            prop_assert_eq!(read, good, "padding only");
        }
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..2000), count: u32, length: u32, first: u64, name in ".{0,60}") {
        let _ = FileHeader::decode(&bytes);
        let _ = WriteHeader::decode(&bytes, 5);
        let _ = RecordHeader::decode(&bytes, 5);
        let _ = parse_name(&name);
        let header = WriteHeader { count, length, first_sequence: first, ..write_header() };
        prop_assert!(count == 0 || records_of(&header, &bytes.clone().into()).is_err());
    }

    /// The same with right checksums in front, which is as far as a decoder can be led.
    #[test]
    fn no_fields_behind_good_checksums_panic(body_bytes: u32, kind: u8, sequence: u64, count in 1u32.., length in 0u32..500) {
        let mut bytes = vec![0; WRITE_HEADER_BYTES];
        let record = RecordHeader { body_crc: 0, body_bytes, kind, sequence, group: GroupId(1), replica: ReplicaId(1), counter: 1 };
        record.encode(write_header().chain, &mut bytes);
        bytes.resize(500, 0);
        let header = WriteHeader { count, length, first_sequence: sequence, ..write_header() };
        let _ = records_of(&header, &bytes.clone().into());
    }
}
