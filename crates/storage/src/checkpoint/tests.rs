//! A checkpoint is loaded as it was written, or not at all.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::disk::memory::MemoryDisk;

const DIRECTORY: &str = "partitions/7-0";

fn header(index: u64) -> CheckpointHeader {
    CheckpointHeader {
        group: GroupId(11),
        replica: ReplicaId(3),
        index: LogIndex(index),
        term: Term(5),
        next_offset: Offset(1000 + index),
    }
}

fn chunks() -> Vec<Bytes> {
    vec![Bytes::from_static(b"cursors"), Bytes::new(), Bytes::from(vec![7; MAX_CHUNK_BYTES]), Bytes::from_static(b"x")]
}

fn save(disk: &MemoryDisk, index: u64) {
    let pieces = encode(&header(index), &chunks());
    disk.create_directory(DIRECTORY).unwrap();
    FileOp::Replace { path: path(DIRECTORY, LogIndex(index)), pieces }.execute(disk).unwrap();
}

fn small() -> Vec<u8> {
    encode(&header(9), &[Bytes::from_static(b"one"), Bytes::new(), Bytes::from_static(b"three")]).concat()
}

#[test]
fn a_checkpoint_is_read_as_it_was_written() {
    let disk = MemoryDisk::new();
    assert_eq!(load_newest(&disk, DIRECTORY).unwrap(), Loaded::default());
    save(&disk, 42);
    let loaded = load_newest(&disk, DIRECTORY).unwrap();
    assert_eq!(loaded.checkpoint, Some((header(42), chunks())));
    assert_eq!((loaded.rejected, loaded.indices), (vec![], vec![LogIndex(42)]));
    assert_eq!(disk.paths(), ["partitions/7-0/state.00000000000000000042"]);
    assert_eq!(decode(encode(&header(1), &[]).concat().into()), Ok((header(1), vec![])));
}

#[test]
fn encoding_does_not_copy_the_chunks() {
    let chunks = chunks();
    let pieces = encode(&header(1), &chunks);
    assert!(chunks.iter().all(|chunk| pieces.iter().any(|piece| piece.as_ptr() == chunk.as_ptr())));
}

#[test]
#[should_panic(expected = "the limit is 65536")]
fn a_chunk_above_the_limit_is_a_broken_invariant() {
    encode(&header(1), &[Bytes::from(vec![0; MAX_CHUNK_BYTES + 1])]);
}

#[test]
fn the_newest_whole_one_is_loaded_and_newer_bad_ones_are_named() {
    let disk = MemoryDisk::new();
    [5, 10, 200, 1000].iter().for_each(|index| save(&disk, *index));
    let path_of = |index| path(DIRECTORY, LogIndex(index));
    disk.set_file(&path_of(1000), b"LGCHKPT".to_vec());
    let mut bytes = disk.file(&path_of(200)).unwrap();
    bytes[100] ^= 1;
    disk.set_file(&path_of(200), bytes);
    disk.set_file(&format!("{}.new", path_of(300)), vec![1, 2, 3]);
    disk.set_file("partitions/7-0/state.7", vec![]);

    let loaded = load_newest(&disk, DIRECTORY).unwrap();
    assert_eq!(loaded.checkpoint.unwrap().0, header(10));
    assert_eq!(loaded.indices, [LogIndex(5), LogIndex(10)]);
    let (names, reasons): (Vec<String>, Vec<String>) = loaded.rejected.into_iter().unzip();
    assert_eq!(names, ["state.00000000000000001000", "state.00000000000000000200"]);
    assert!(reasons[0].contains("ends early") && reasons[1].contains("checksum of chunk 2 of 4"), "{reasons:?}");
    assert_eq!(disk.file(&format!("{}.new", path_of(300))), None, "what an unfinished write left is removed");
    assert!(disk.file(&path_of(1000)).is_some(), "bad ones are left for people to look at");
}

#[test]
fn a_checkpoint_under_another_index_is_rejected() {
    let disk = MemoryDisk::new();
    save(&disk, 10);
    disk.rename(&path(DIRECTORY, LogIndex(10)), &path(DIRECTORY, LogIndex(11))).unwrap();
    let loaded = load_newest(&disk, DIRECTORY).unwrap();
    assert_eq!(loaded.checkpoint, None);
    assert_eq!(loaded.rejected[0].1, "it is the checkpoint of index 10");
}

#[test]
fn a_checkpoint_of_a_later_version_is_named_as_such() {
    let mut bytes = small();
    bytes[7] = VERSION + 1;
    let crc = crc32c::crc32c(&bytes[..HEADER_BYTES - 4]);
    bytes[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(decode(bytes.into()).unwrap_err(), "it has format version 2, this release knows 1");
}

#[test]
fn all_but_the_newest_two_are_obsolete() {
    let indices = [1, 2, 3, 4].map(LogIndex);
    assert_eq!(obsolete(DIRECTORY, &indices[..2]), None);
    assert_eq!(obsolete(DIRECTORY, &[]), None);
    let paths = vec![path(DIRECTORY, LogIndex(1)), path(DIRECTORY, LogIndex(2))];
    assert_eq!(obsolete(DIRECTORY, &indices), Some(FileOp::Remove { paths }));
}

#[test]
fn a_checkpoint_that_is_cut_anywhere_is_rejected() {
    let whole = small();
    for len in 0..whole.len() {
        assert!(decode(Bytes::copy_from_slice(&whole[..len])).is_err(), "cut to {len} of {}", whole.len());
    }
    let mut longer = whole.clone();
    longer.push(0);
    assert!(decode(longer.into()).is_err());
    assert!(decode(whole.into()).is_ok());
}

#[test]
fn a_checkpoint_with_any_bit_flipped_is_rejected() {
    let whole = small();
    for bit in 0..whole.len() * 8 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(decode(bytes.into()).is_err(), "bit {bit}");
    }
}

#[test]
fn chunks_count_only_in_their_places() {
    let (one, two) = (Bytes::from_static(b"one"), Bytes::from_static(b"two"));
    let pieces = encode(&header(1), &[one, two]);
    let swapped = [0, 3, 4, 1, 2, 5].map(|at: usize| pieces[at].clone()).concat();
    assert!(decode(swapped.into()).is_err());
    let other = encode(&header(2), &[Bytes::from_static(b"one"), Bytes::from_static(b"two")]);
    let mixed = [&pieces[0], &other[1], &other[2], &pieces[3], &pieces[4], &pieces[5]].map(|piece| &piece[..]).concat();
    assert!(decode(mixed.into()).is_err());
}

proptest! {
    #[test]
    fn a_reader_of_arbitrary_bytes_never_panics(
        front: bool,
        bytes in vec(any::<u8>(), 0..300),
        splice in vec(any::<u8>(), 0..20),
        at: Index,
    ) {
        let mut all = if front { small() } else { bytes };
        let at = at.index(all.len() + 1);
        let end = (at + splice.len()).min(all.len());
        all[at..end].copy_from_slice(&splice[..end - at]);
        let changed = all != small();
        prop_assert_eq!(decode(all.into()).is_err(), changed);
    }
}
