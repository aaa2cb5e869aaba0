//! Decompression: never above its bound, and what was compressed comes back.

use bytes::Bytes;
use lockgate_wire::batch::Codec;

const MAX_BYTES: usize = 64 * 1024;

pub(crate) fn run(bytes: &[u8]) {
    let Some((which, data)) = bytes.split_first() else { return };
    let codec = Codec::ALL[usize::from(*which) % Codec::ALL.len()];
    if let Ok(plain) = codec.decompress(Bytes::copy_from_slice(data), MAX_BYTES) {
        assert!(plain.len() <= MAX_BYTES, "{codec} gave {} bytes", plain.len());
    }
    let plain = &data[..data.len().min(MAX_BYTES)];
    let again = codec.decompress(codec.compress(plain).into(), plain.len()).unwrap();
    assert!(again == plain, "{codec} does not give back what it was given");
    if let Some(less) = plain.len().checked_sub(1) {
        assert!(codec.decompress(codec.compress(plain).into(), less).is_err(), "{codec} ignores its bound");
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let plain = b"abcabcabcabc-abcabcabcabc-".repeat(8);
    let compressed = |(n, codec): (usize, &Codec)| [vec![n as u8], codec.compress(&plain)].concat();
    let mut seeds: Vec<Vec<u8>> = Codec::ALL.iter().enumerate().map(compressed).collect();
    let raw_snappy = [&[2, 5, 16][..], b"hello"].concat();
    seeds.push(raw_snappy);
    seeds
}
