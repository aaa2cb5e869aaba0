//! A file's bytes in pages, shared by reference where a whole page was written at once: zero-filling a journal file or
//! keeping a durable twin costs no copy.

use bytes::{Bytes, BytesMut};

const PAGE_BYTES: usize = 4096;
static ZEROS: [u8; PAGE_BYTES] = [0; PAGE_BYTES];

/// Bytes with a size. Beyond the size the last page holds zeros.
#[derive(Clone, Default, Debug)]
pub(super) struct Content {
    /// All of [`PAGE_BYTES`]; as many as the size needs.
    pages: Vec<Bytes>,
    size: u64,
}

impl Content {
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Cuts the bytes or fills up with zeros.
    pub(super) fn resize(&mut self, size: u64) {
        self.pages.resize((size as usize).div_ceil(PAGE_BYTES), Bytes::from_static(&ZEROS));
        let kept = size as usize % PAGE_BYTES;
        if size < self.size
            && kept > 0
            && let Some(last) = self.pages.last_mut()
        {
            let mut page = BytesMut::zeroed(PAGE_BYTES);
            page[..kept].copy_from_slice(&last[..kept]);
            *last = page.freeze();
        }
        self.size = size;
    }

    /// Writes bytes, growing if they go beyond the end.
    pub(super) fn write(&mut self, offset: u64, bytes: &Bytes) {
        if bytes.is_empty() {
            return;
        }
        let end = offset as usize + bytes.len();
        if end as u64 > self.size {
            self.resize(end as u64);
        }
        let mut at = offset as usize;
        while at < end {
            let (page, within) = (at / PAGE_BYTES, at % PAGE_BYTES);
            let len = (PAGE_BYTES - within).min(end - at);
            let from = at - offset as usize;
            if len == PAGE_BYTES {
                self.pages[page] = bytes.slice(from..from + len);
            } else {
                let mut changed = BytesMut::from(&self.pages[page][..]);
                changed[within..within + len].copy_from_slice(&bytes[from..from + len]);
                self.pages[page] = changed.freeze();
            }
            at += len;
        }
    }

    /// Up to `len` bytes from `offset`; fewer at the end.
    pub(super) fn read(&self, offset: u64, len: usize) -> Bytes {
        let start = offset.min(self.size) as usize;
        let end = start.saturating_add(len).min(self.size as usize);
        if start == end {
            return Bytes::new();
        }
        if start / PAGE_BYTES == (end - 1) / PAGE_BYTES {
            let within = start % PAGE_BYTES;
            return self.pages[start / PAGE_BYTES].slice(within..within + end - start);
        }
        let mut all = BytesMut::with_capacity(end - start);
        let mut at = start;
        while at < end {
            let within = at % PAGE_BYTES;
            let len = (PAGE_BYTES - within).min(end - at);
            all.extend_from_slice(&self.pages[at / PAGE_BYTES][within..within + len]);
            at += len;
        }
        all.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn pages_behave_like_one_vector_of_bytes() {
        let mut rng = Rng::new(3);
        let (mut content, mut model) = (Content::default(), Vec::new());
        for round in 0..400u32 {
            let offset = rng.below(20_000) as usize;
            if rng.per_mille(150) {
                content.resize(offset as u64);
                model.resize(offset, 0);
                continue;
            }
            let bytes = Bytes::from(vec![round as u8 | 1; rng.below(9000) as usize]);
            content.write(offset as u64, &bytes);
            if !bytes.is_empty() {
                model.resize(model.len().max(offset + bytes.len()), 0);
                model[offset..offset + bytes.len()].copy_from_slice(&bytes);
            }
            let (from, len) = (rng.below(22_000) as usize, rng.below(9000) as usize);
            let start = from.min(model.len());
            assert_eq!(content.read(from as u64, len), model[start..(start + len).min(model.len())]);
            assert_eq!(content.size(), model.len() as u64);
        }
    }
}
