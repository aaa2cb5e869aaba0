//! Bytes as a list of things that happen to the files of a disk: decoders behind checksums are not reached by chance, but
//! by good files that go bad.

use lockgate_storage::disk::memory::MemoryDisk;

/// Bytes of one happening: what, which file, where (two), how much (two).
const STEP_BYTES: usize = 6;
/// Happenings beyond these are ignored.
const STEPS_MAX: usize = 16;
/// Places are multiples of this in half of the cases.
const SECTOR_BYTES: usize = 512;

/// Lets happen what the bytes say.
pub(crate) fn apply(disk: &MemoryDisk, bytes: &[u8]) {
    for step in bytes.chunks_exact(STEP_BYTES).take(STEPS_MAX) {
        let paths = disk.paths();
        if paths.is_empty() {
            return;
        }
        let path = &paths[usize::from(step[1]) % paths.len()];
        let other = &paths[usize::from(step[5]) % paths.len()];
        let mut file = disk.file(path).unwrap();
        let (at, len) = (number(step[2], step[3]), number(step[4], step[5]));
        let at = if step[0] & 0x80 == 0 { at * SECTOR_BYTES } else { at } % file.len().max(1);
        let end = (at + 1 + len).min(file.len());
        match step[0] & 0x7f {
            0..32 if !file.is_empty() => file[at] ^= 1 << (step[4] % 8),
            32..56 if !file.is_empty() => file[at..end].fill(0),
            56..72 if !file.is_empty() => file[at..end].fill(step[5]),
            72..84 => file.truncate(at),
            84..90 => file.resize(file.len() + len % 10_000, 0),
            90..104 => {
                // A block that was written elsewhere.
                let from = disk.file(other).unwrap();
                let block = from.chunks(4096).nth(usize::from(step[4])).unwrap_or_default();
                let end = (at + block.len()).min(file.len());
                file[at..end].copy_from_slice(&block[..end - at]);
            }
            104..112 => file = disk.file(other).unwrap(),
            112..120 => {
                lockgate_storage::disk::Disk::remove(disk, path).unwrap();
                continue;
            }
            _ => {}
        }
        disk.set_file(path, file);
    }
}

fn number(high: u8, low: u8) -> usize {
    usize::from(u16::from_be_bytes([high, low]))
}

/// Nothing, and one of each; the first byte chooses among the files to begin with.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let steps = [0, 0x80, 32, 56, 72, 84, 90, 104, 112];
    let happens =
        |base: u8| std::iter::once(vec![base]).chain(steps.iter().map(move |step| vec![base, *step, 1, 0, 9, 0, 3]));
    (0..3).flat_map(happens).collect()
}
