//! Compression of a batch's records, in the framings that Kafka's clients write and read.
//!
//! gzip is a gzip stream; lz4 and zstd are their frame formats; snappy is written in the block framing of the Java
//! library (a magic, then blocks of 32 KiB with their lengths) and read in that or raw. Decompression is bounded: it
//! stops at the first byte above the bound, and nothing announced by the input is allocated before it was compared.

use std::fmt;
use std::io::{self, Read, Write};
use std::str::FromStr;

use bytes::{Buf, Bytes};
use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;
use lz4_flex::frame::{BlockMode, BlockSize, FrameDecoder, FrameEncoder, FrameInfo};

use super::BatchError;
use crate::error::{Error, ErrorKind};

/// The most that a batch's records may take uncompressed, unless the reader asks for less.
pub const MAX_DECOMPRESSED_BYTES: usize = 64 * 1024 * 1024;
/// The largest zstd window that is read: what the format's own tools take, so that every producer's level is served.
/// The library reserves the window and touches only what it writes, which the bound stops.
pub const MAX_ZSTD_WINDOW_LOG: u32 = 27;
/// zstd's own default level.
const ZSTD_LEVEL: i32 = 3;
/// Begins snappy's block framing; two versions (u32, big endian) follow.
const SNAPPY_MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
/// Version, and least version that can read it: both 1.
const SNAPPY_VERSIONS: [u8; 8] = [0, 0, 0, 1, 0, 0, 0, 1];
/// Uncompressed bytes of a snappy block.
const SNAPPY_BLOCK_BYTES: usize = 32 * 1024;

/// How a batch's records are compressed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Codec {
    /// Not at all.
    #[default]
    None,
    /// gzip.
    Gzip,
    /// snappy.
    Snappy,
    /// lz4.
    Lz4,
    /// zstd.
    Zstd,
}

impl Codec {
    /// Every codec, by its number in the attributes.
    pub const ALL: [Codec; 5] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

    /// The name in settings and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    /// The number in the attributes.
    pub(super) fn bits(self) -> u8 {
        self as u8
    }

    /// The codec with this number in the attributes.
    pub(super) fn from_bits(bits: u8) -> Result<Self, BatchError> {
        Self::ALL.get(usize::from(bits)).copied().ok_or(BatchError::Codec(bits))
    }

    /// `data` compressed.
    pub fn compress(self, data: &[u8]) -> Vec<u8> {
        let compressed = match self {
            Self::None => Ok(data.to_vec()),
            Self::Gzip => gzip(data),
            Self::Snappy => snappy(data),
            Self::Lz4 => lz4(data),
            Self::Zstd => zstd::bulk::compress(data, ZSTD_LEVEL),
        };
        compressed.expect("compressing from memory into memory has no cause to fail")
    }

    /// `data` decompressed, if that is at most `max_bytes`.
    pub fn decompress(self, data: Bytes, max_bytes: usize) -> Result<Bytes, BatchError> {
        let decompressed = match self {
            Self::None if data.len() > max_bytes => return Err(BatchError::RecordsTooLarge { limit: max_bytes }),
            Self::None => return Ok(data),
            Self::Gzip => read_bounded(MultiGzDecoder::new(&data[..]), max_bytes),
            Self::Snappy => unsnappy(&data, max_bytes),
            Self::Lz4 => unlz4(&data, max_bytes),
            Self::Zstd => unzstd(&data, max_bytes),
        };
        decompressed.map(Bytes::from).map_err(|failure| match failure {
            Failure::TooLarge => BatchError::RecordsTooLarge { limit: max_bytes },
            Failure::Bad(reason) => BatchError::Decompress { codec: self, reason },
        })
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Codec {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|codec| codec.name() == name).ok_or_else(|| {
            let shown = crate::name::shown(name);
            Error::new(
                ErrorKind::InvalidSetting,
                format!("compression `{shown}` is none of none, gzip, snappy, lz4, zstd"),
            )
        })
    }
}

/// Why decompression stopped.
enum Failure {
    TooLarge,
    Bad(String),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Bad(error.to_string())
    }
}

impl From<snap::Error> for Failure {
    fn from(error: snap::Error) -> Self {
        Self::Bad(error.to_string())
    }
}

/// Everything that `reader` gives, if that is at most `max_bytes`. The buffer grows with what was read, never ahead.
fn read_bounded(reader: impl Read, max_bytes: usize) -> Result<Vec<u8>, Failure> {
    let mut out = Vec::new();
    reader.take(max_bytes as u64 + 1).read_to_end(&mut out)?;
    if out.len() > max_bytes { Err(Failure::TooLarge) } else { Ok(out) }
}

fn gzip(data: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(data)?;
    encoder.finish()
}

/// 64 KiB blocks that do not depend on each other: the Java client reads no others.
fn lz4(data: &[u8]) -> io::Result<Vec<u8>> {
    let info = FrameInfo::new().block_size(BlockSize::Max64KB).block_mode(BlockMode::Independent);
    let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(data)?;
    encoder.finish().map_err(io::Error::other)
}

/// A frame without its end mark is taken: what it lacks shows when its records are counted.
fn unlz4(data: &[u8], max_bytes: usize) -> Result<Vec<u8>, Failure> {
    let mut decoder = FrameDecoder::new(data);
    let out = read_bounded(&mut decoder, max_bytes)?;
    match decoder.into_inner().len() {
        0 => Ok(out),
        left => Err(Failure::Bad(format!("{left} bytes follow the frame"))),
    }
}

fn unzstd(data: &[u8], max_bytes: usize) -> Result<Vec<u8>, Failure> {
    let mut decoder = zstd::stream::read::Decoder::with_buffer(data)?;
    decoder.window_log_max(MAX_ZSTD_WINDOW_LOG)?;
    read_bounded(decoder, max_bytes)
}

fn snappy(data: &[u8]) -> io::Result<Vec<u8>> {
    let mut out = [SNAPPY_MAGIC, SNAPPY_VERSIONS].concat();
    let mut encoder = snap::raw::Encoder::new();
    for block in data.chunks(SNAPPY_BLOCK_BYTES) {
        let compressed = encoder.compress_vec(block)?;
        out.extend_from_slice(&(compressed.len() as u32).to_be_bytes());
        out.extend_from_slice(&compressed);
    }
    Ok(out)
}

fn unsnappy(data: &[u8], max_bytes: usize) -> Result<Vec<u8>, Failure> {
    let mut out = Vec::new();
    let Some(framed) = data.strip_prefix(&SNAPPY_MAGIC) else {
        unsnappy_block(data, max_bytes, &mut out)?;
        return Ok(out);
    };
    let mut blocks =
        framed.get(SNAPPY_VERSIONS.len()..).ok_or_else(|| Failure::Bad("the framing is cut off".into()))?;
    while !blocks.is_empty() {
        let cut_off = || Failure::Bad("a block is cut off".into());
        let length = blocks.try_get_u32().map_err(|_| cut_off())? as usize;
        let block = blocks.get(..length).ok_or_else(cut_off)?;
        blocks.advance(length);
        unsnappy_block(block, max_bytes, &mut out)?;
    }
    Ok(out)
}

/// Appends a raw block, whose own announcement of its size is compared with the bound before it is believed.
fn unsnappy_block(block: &[u8], max_bytes: usize, out: &mut Vec<u8>) -> Result<(), Failure> {
    let start = out.len();
    let length = snap::raw::decompress_len(block)?;
    if length > max_bytes - start {
        return Err(Failure::TooLarge);
    }
    out.resize(start + length, 0);
    let written = snap::raw::Decoder::new().decompress(block, &mut out[start..])?;
    out.truncate(start + written);
    Ok(())
}
