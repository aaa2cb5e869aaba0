//! Seeded mutations: the same seed gives the same bytes, on every machine.

/// Longest result.
const MAX_BYTES: usize = 16 * 1024;
/// Values at which arithmetic turns over.
const EDGES: [u64; 8] = [0, 1, 0x7f, 0x80, 0x7fff_ffff, 0x8000_0000, u32::MAX as u64, u64::MAX];

/// A generator of pseudo-random numbers (splitmix64).
pub struct Random(pub u64);

impl Random {
    /// 0 to `end`, without `end`.
    pub fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % end.max(1) as u64) as usize
    }
}

/// One of the seeds, changed in some places.
pub fn mutated(seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut bytes = seeds[random.below(seeds.len())].clone();
    for _ in 0..1 + random.below(6) {
        let at = random.below(bytes.len() + 1);
        let end = (at + 1 + random.below(16)).min(bytes.len());
        match random.below(8) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            1 if at < bytes.len() => bytes[at] = random.below(256) as u8,
            2 if at < end => overwrite(&mut bytes[at..end], random),
            3 if at < end => drop(bytes.drain(at..end)),
            4 => {
                let some: Vec<u8> = (0..random.below(16)).map(|_| random.below(256) as u8).collect();
                bytes.splice(at..at, some);
            }
            5 if at < end => {
                let copy = bytes[at..end].to_vec();
                let to = random.below(bytes.len());
                bytes.splice(to..to, copy);
            }
            6 => {
                let other = &seeds[random.below(seeds.len())];
                bytes.truncate(at);
                bytes.extend_from_slice(&other[random.below(other.len() + 1)..]);
            }
            _ => bytes.truncate(at.max(bytes.len() / 2)),
        }
    }
    bytes.truncate(MAX_BYTES);
    bytes
}

/// A number at an edge, in either order of bytes.
fn overwrite(target: &mut [u8], random: &mut Random) {
    let number = EDGES[random.below(EDGES.len())];
    let width = target.len().min([1, 2, 4, 8][random.below(4)]);
    let bytes = if random.below(2) == 0 {
        number.to_le_bytes()
    } else {
        number.rotate_left(64 - 8 * width as u32).to_be_bytes()
    };
    target[..width].copy_from_slice(&bytes[..width]);
}
