//! A buffer whose bytes start at a block boundary, as direct I/O wants them.
//!
//! No unsafe code: a vector is made one block too long, and the slice in use begins at its first aligned byte. The
//! vector's memory does not move, because it is never grown in place.

use bytes::Bytes;

/// Alignment of memory, offset and length for direct I/O: a block of the journal, at least a block of any device.
pub(super) const ALIGNMENT: usize = 4096;

#[derive(Default)]
pub(super) struct AlignedBuffer {
    memory: Vec<u8>,
    start: usize,
}

impl AlignedBuffer {
    /// The pieces one after another and zeros up to `len`, which is a multiple of [`ALIGNMENT`] and not below their sum.
    pub(super) fn fill(&mut self, pieces: &[Bytes], len: usize) -> &[u8] {
        assert!(len.is_multiple_of(ALIGNMENT), "{len} bytes are not whole blocks");
        if self.memory.len() < self.start + len || self.memory.is_empty() {
            self.memory = vec![0; len + ALIGNMENT];
            self.start = self.memory.as_ptr().addr().wrapping_neg() % ALIGNMENT;
        }
        let buffer = &mut self.memory[self.start..self.start + len];
        let mut rest = &mut *buffer;
        for piece in pieces {
            let (now, later) =
                rest.split_at_mut_checked(piece.len()).expect("a write is as long as its pieces and padding");
            now.copy_from_slice(piece);
            rest = later;
        }
        rest.fill(0);
        buffer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_aligned_and_padded_with_zeros_however_the_buffer_was_used_before() {
        let mut buffer = AlignedBuffer::default();
        for (pieces, len) in [(3, 4096), (5000, 8192), (1, 4096), (4096, 4096), (100_000, 102_400), (7, 4096)] {
            let pieces: Vec<Bytes> = vec![Bytes::from(vec![7; pieces / 2]), Bytes::from(vec![7; pieces - pieces / 2])];
            let filled = buffer.fill(&pieces, len);
            assert_eq!((filled.len(), filled.as_ptr().addr() % ALIGNMENT), (len, 0));
            let used: usize = pieces.iter().map(Bytes::len).sum();
            assert!(filled[..used].iter().all(|byte| *byte == 7) && filled[used..].iter().all(|byte| *byte == 0));
        }
    }
}
