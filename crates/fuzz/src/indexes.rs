//! The small files beside a log, behind their checksums: seals and starts that say anything. They only save reading; what is
//! read by them is what was written, or an error.

use lockgate_storage::segment::{Limit, Segments};
use lockgate_wire::Offset;

use crate::segments::{DIRECTORY, bases, config, inspect_all, reads_from};

/// The files whose content the bytes are.
const NAMES: [&str; 2] = ["00000000000000000000.index", "start"];

pub(crate) fn run(bytes: &[u8]) {
    let Some((which, content)) = bytes.split_first() else { return };
    // The second base has seals.
    let base = &bases()[1];
    let disk = base.disk.clone();
    let path = format!("{DIRECTORY}/{}", NAMES[usize::from(*which) % NAMES.len()]);
    disk.set_file(&path, [&crc32c::crc32c(content).to_le_bytes(), content].concat());
    inspect_all(&disk, &path);
    let Ok((segments, _)) = Segments::open(&disk, config(), Limit::None) else { return };
    for batch in &base.batches {
        reads_from(batch.base_offset, &disk, &segments, &base.batches);
    }
    reads_from(Offset(u64::MAX), &disk, &segments, &base.batches);
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let disk = &bases()[1].disk;
    let content = |name: &str| disk.file(&format!("{DIRECTORY}/{name}")).unwrap()[4..].to_vec();
    (0..).zip(NAMES).map(|(which, name)| [vec![which], content(name)].concat()).collect()
}
