//! The `identity` file: cluster, node, disk, shard count and journals, and the incarnation that grows at every start.
//!
//! Text, so that an operator can read it; with a checksum, so that nobody edits it without noticing; replaced as a whole.

use std::fmt;

use bytes::Bytes;
use lockgate_storage::disk::{Disk, DiskError, DiskResult, FileOp};
use lockgate_wire::{NodeId, Uid};
use rustix::rand::{GetRandomFlags, getrandom};

/// The file.
const FILE: &str = "identity";
/// The format that this build writes, and the only one it knows.
const FORMAT: u64 = 1;
/// What a device writes as a whole.
const SECTOR_BYTES: usize = 512;
/// Larger files are not ours.
const MAX_BYTES: usize = 4096;

/// Who a data directory belongs to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The cluster, made with the first node.
    pub cluster: Uid,
    /// The node's number.
    pub node: NodeId,
    /// The disk, made with the directory: a wiped node is another one under the same number.
    pub disk: Uid,
    /// Shards whose journals the directory holds.
    pub shards: u16,
    /// Which set of journals counts: one more with every change of the shard count.
    pub journals: u32,
    /// Starts so far, this one included.
    pub incarnation: u64,
}

/// Why an identity cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum IdentityError {
    /// The directory belongs to another node.
    WrongNode {
        /// In the file.
        found: NodeId,
        /// Configured.
        configured: NodeId,
    },
    /// A format of another build.
    UnknownFormat(u64),
    /// The file does not say what it should; the text says where.
    Damaged(String),
    /// The file could not be read or written.
    Disk(DiskError),
    /// The machine gave no random bits.
    NoEntropy(i32),
}

impl Identity {
    /// A new node's first identity.
    pub(super) fn new(node: NodeId, shards: u16) -> Result<Self, IdentityError> {
        Ok(Self { cluster: random_uid()?, node, disk: random_uid()?, shards, journals: 0, incarnation: 1 })
    }

    /// The identity for one more start, if it is this node's.
    pub(super) fn next_start(self, node: NodeId) -> Result<Self, IdentityError> {
        if self.node != node {
            return Err(IdentityError::WrongNode { found: self.node, configured: node });
        }
        let incarnation = self
            .incarnation
            .checked_add(1)
            .ok_or_else(|| IdentityError::Damaged("the incarnation is at its end".into()))?;
        Ok(Self { incarnation, ..self })
    }

    /// The identity with as many shards, and the next set of journals.
    pub(crate) fn with_shards(&self, shards: u16) -> Result<Self, IdentityError> {
        let journals = self.journals.checked_add(1);
        let journals =
            journals.ok_or_else(|| IdentityError::Damaged("its sets of journals are at their end".into()))?;
        Ok(Self { shards, journals, ..self.clone() })
    }

    /// The identity on the disk; `None` if there is none.
    pub fn read(disk: &dyn Disk) -> Result<Option<Self>, IdentityError> {
        let bytes = match disk.read(FILE, 0, MAX_BYTES) {
            Ok(bytes) => bytes,
            Err(error) if error.is_missing() => return Ok(None),
            Err(error) => return Err(IdentityError::Disk(error)),
        };
        Self::parse(&bytes).map(Some)
    }

    pub(super) fn write(&self, disk: &dyn Disk) -> Result<(), IdentityError> {
        let text = Bytes::from(self.to_text());
        let op = FileOp::Replace { path: FILE.into(), pieces: vec![text.clone()] };
        match op.execute(disk) {
            Err(error) if error.is_full() => self.overwrite(disk, text),
            other => other.map(drop),
        }
        .map_err(IdentityError::Disk)
    }

    /// On a full disk, into the room that the file has: it is within one sector, which a device writes as a whole, and
    /// a node that could not start would never make room.
    fn overwrite(&self, disk: &dyn Disk, text: Bytes) -> DiskResult<()> {
        debug_assert!(text.len() <= SECTOR_BYTES, "an identity of {} bytes", text.len());
        let bytes = text.len() as u64;
        disk.write(FILE, 0, &[text])?;
        disk.truncate(FILE, bytes)?;
        disk.sync(FILE)
    }

    fn to_text(&self) -> String {
        let Self { cluster, node, disk, shards, journals, incarnation } = self;
        let text = format!(
            "# Whose data this is. Made by the node itself; an edited file is refused.\n\
             format = {FORMAT}\ncluster = {cluster}\nnode = {node}\ndisk = {disk}\nshards = {shards}\njournals = {journals}\n\
             incarnation = {incarnation}\n"
        );
        format!("{text}crc32c = {:08x}\n", crc32c::crc32c(text.as_bytes()))
    }

    fn parse(bytes: &[u8]) -> Result<Self, IdentityError> {
        let damaged = |what: &str| IdentityError::Damaged(what.to_owned());
        let text = std::str::from_utf8(bytes).map_err(|_| damaged("it is not text"))?;
        let value = |key: &str| {
            let found = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "));
            found.ok_or_else(|| IdentityError::Damaged(format!("{key} is missing")))
        };
        let number = |key: &str| {
            let text = value(key)?;
            text.parse::<u64>().map_err(|_| IdentityError::Damaged(format!("{key} = {text:?} is not a number")))
        };
        // The format comes first: another one may be checked in another way.
        let format = number("format")?;
        if format != FORMAT {
            return Err(IdentityError::UnknownFormat(format));
        }
        let checked =
            text.find("crc32c = ").and_then(|at| text.get(..at)).ok_or_else(|| damaged("crc32c is missing"))?;
        if value("crc32c")? != format!("{:08x}", crc32c::crc32c(checked.as_bytes())) {
            return Err(damaged("its checksum does not match"));
        }
        let uid = |key: &str| {
            parse_uid(value(key)?).ok_or_else(|| IdentityError::Damaged(format!("{key} is not 32 hexadecimal digits")))
        };
        // Written before there could be another set than the first.
        let journals = if value("journals").is_ok() { number("journals")? } else { 0 };
        let out_of_range = |key: &str| IdentityError::Damaged(format!("{key} is out of its range"));
        Ok(Self {
            cluster: uid("cluster")?,
            node: NodeId(u32::try_from(number("node")?).map_err(|_| out_of_range("node"))?),
            disk: uid("disk")?,
            shards: u16::try_from(number("shards")?).map_err(|_| out_of_range("shards"))?,
            journals: u32::try_from(journals).map_err(|_| out_of_range("journals"))?,
            incarnation: number("incarnation")?,
        })
    }
}

fn parse_uid(text: &str) -> Option<Uid> {
    if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    u128::from_str_radix(text, 16).ok().map(|bits| Uid(bits.to_be_bytes()))
}

fn random_uid() -> Result<Uid, IdentityError> {
    random().map(Uid).map_err(IdentityError::NoEntropy)
}

/// Random bytes from the machine, or its error number.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], i32> {
    let mut bytes = [0; N];
    // Requests this small are filled whole or not at all.
    getrandom(&mut bytes, GetRandomFlags::empty()).map_err(|error| error.raw_os_error())?;
    Ok(bytes)
}

impl fmt::Display for IdentityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongNode { found, configured } => write!(
                f,
                "it belongs to node {found}, but node.id is {configured}; set node.id = {found}, or name the directory of node {configured}"
            ),
            Self::UnknownFormat(format) => {
                write!(
                    f,
                    "its identity has format {format}, this build knows {FORMAT}; use the build that wrote it, or a newer one"
                )
            }
            Self::Damaged(what) => write!(f, "its identity file is damaged: {what}; bring it back from a copy"),
            Self::Disk(error) => write!(f, "its identity file: {error}"),
            Self::NoEntropy(errno) => write!(f, "the machine gave no random bits (errno {errno})"),
        }
    }
}
impl std::error::Error for IdentityError {}
