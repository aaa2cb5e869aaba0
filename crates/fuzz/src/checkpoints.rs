//! Checkpoints: what decodes is, byte for byte, what its parts encode to.

use bytes::Bytes;
use lockgate_storage::checkpoint::{self, CheckpointHeader};
use lockgate_wire::{GroupId, LogIndex, Offset, ReplicaId, Term};

pub(crate) fn run(bytes: &[u8]) {
    check(bytes);
    // Behind the header's checksum is where the rest is parsed.
    if let Some(header) = bytes.get(..60) {
        let crc = crc32c::crc32c(header).to_le_bytes();
        check(&[header, &crc, bytes.get(64..).unwrap_or_default()].concat());
    }
}

fn check(bytes: &[u8]) {
    if let Ok((header, chunks)) = checkpoint::decode(Bytes::copy_from_slice(bytes)) {
        assert!(checkpoint::encode(&header, &chunks).concat() == bytes, "two files for one checkpoint");
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let header = CheckpointHeader {
        group: GroupId(1),
        replica: ReplicaId(2),
        index: LogIndex(3),
        term: Term(4),
        next_offset: Offset(5),
    };
    let chunks = [Bytes::new(), Bytes::from_static(b"a chunk"), Bytes::from(vec![1; 600])];
    (0..=3).map(|count| checkpoint::encode(&header, &chunks[..count]).concat()).collect()
}
