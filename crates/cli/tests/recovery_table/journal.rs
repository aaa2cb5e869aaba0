//! A journal file on disk: where its writes are, as `storage inspect` tells it, and ways to damage it.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use serde_json::Value;

use crate::node::Node;
use crate::support::shown;

/// What a disk writes as a whole.
pub(crate) const SECTOR_BYTES: u64 = 512;

/// See the module.
pub(crate) struct JournalFile {
    pub(crate) path: PathBuf,
    /// The file's name, for messages.
    pub(crate) name: String,
    items: Vec<Value>,
}

impl JournalFile {
    pub(crate) fn read(node: &Node, path: &str) -> Self {
        let output = node.tool(&["inspect", "--force-read", "--json", path]);
        assert!(output.status.success(), "{}", shown(&output));
        let lines = String::from_utf8(output.stdout).unwrap();
        let items = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        Self { path: node.data().join(path), name: path.rsplit('/').next().unwrap().to_owned(), items }
    }

    /// Its writes in order, marks included.
    pub(crate) fn writes(&self) -> impl DoubleEndedIterator<Item = &Value> {
        self.items.iter().filter(|item| ["write", "mark", "end"].iter().any(|what| item["what"] == *what))
    }

    /// The place and size of its writes with entries of logs, in order.
    pub(crate) fn entries(&self) -> Vec<(u64, u64)> {
        let has_entry =
            |write: &&Value| write["records"].as_array().unwrap().iter().any(|record| record["kind"] == "entry");
        self.writes().filter(has_entry).map(place).collect()
    }

    /// The places of its writes with entries of partitions, in order.
    pub(crate) fn entries_of_partitions(&self) -> Vec<u64> {
        let has_entry = |write: &&Value| {
            let mut records = write["records"].as_array().unwrap().iter();
            records.any(|record| record["kind"] == "entry" && record["group"] != 0)
        };
        self.writes().filter(has_entry).map(|write| place(write).0).collect()
    }

    /// The place and size of its last write with an entry, once everything behind it is void: as a crash leaves it that
    /// comes before anything more is written.
    pub(crate) fn last_entry_alone(&self) -> (u64, u64) {
        let (offset, bytes) = *self.entries().last().unwrap();
        let end = offset + bytes;
        let rest = self.writes().last().map(|last| place(last).0 + place(last).1).unwrap().saturating_sub(end);
        self.overwrite(end, &vec![0; rest as usize]);
        (offset, bytes)
    }

    pub(crate) fn bytes(&self, offset: u64, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        File::open(&self.path).unwrap().read_exact_at(&mut bytes, offset).unwrap();
        bytes
    }

    pub(crate) fn overwrite(&self, offset: u64, bytes: &[u8]) {
        fs::OpenOptions::new().write(true).open(&self.path).unwrap().write_all_at(bytes, offset).unwrap();
    }

    /// Turns one bit.
    pub(crate) fn flip(&self, offset: u64) {
        let byte = self.bytes(offset, 1)[0];
        self.overwrite(offset, &[byte ^ 0x10]);
    }

    /// Changes the header, with a checksum that fits again.
    pub(crate) fn forge_header(&self, change: impl FnOnce(&mut [u8])) {
        let mut sector = self.bytes(0, SECTOR_BYTES);
        let crc_at = SECTOR_BYTES as usize - 4;
        change(&mut sector);
        let crc = crc32c::crc32c(&sector[..crc_at]);
        sector[crc_at..].copy_from_slice(&crc.to_le_bytes());
        self.overwrite(0, &sector);
    }

    /// `cut N bytes at offset M` of recovery's report on this file.
    pub(crate) fn cut_at(&self, offset: u64) -> [String; 2] {
        [format!("{}: cut ", self.name), format!("bytes at offset {offset}")]
    }
}

/// Where a write begins, and its size with padding.
pub(crate) fn place(write: &Value) -> (u64, u64) {
    (write["offset"].as_u64().unwrap(), write["bytes"].as_u64().unwrap())
}
