//! A start on what a broker that was killed has left, with many partitions.

use super::super::{Budget, Extent, Row};
use super::SEGMENTS;
use crate::bench::baseline;
use crate::bench::machine;
use crate::bench::options::Load;
use crate::bench::produce;
use crate::failure::Failure;

/// How journal files end.
const JOURNALS: &str = "journal";
const RECORD_BYTES: u32 = 16 * 1024;

/// Everything that the start reads comes from the device, as does what it is compared with: the same files read plainly, which
/// are the journals and, as none is full, all segments.
pub(super) fn measure(extent: &Extent<'_>) -> Result<Vec<Row>, Failure> {
    machine::check_room(&std::env::temp_dir(), 4 * extent.restart_bytes)?;
    let load = Load {
        size: RECORD_BYTES,
        records: Some(extent.restart_bytes / u64::from(RECORD_BYTES)),
        seconds: None,
        in_flight: 256,
        warmup: 0,
        partitions: extent.many_partitions,
        ..extent.load()
    };
    let mut target = extent.target(&load, &[])?;
    produce::measure(&load, &target)?;
    let own = target.own.as_mut().expect("every row has its own broker");
    let failed = || Failure::io("reading the journals failed");
    let mut plain = [0.0; 2];
    let took = own.restart(|directory| {
        let endings = [JOURNALS, SEGMENTS];
        endings.iter().try_for_each(|ending| baseline::forget_files(directory, ending)).map_err(failed())?;
        for (took, ending) in plain.iter_mut().zip(endings) {
            *took = baseline::read_files(directory, ending).map_err(failed())?.took.as_secs_f64();
        }
        endings.iter().try_for_each(|ending| baseline::forget_files(directory, ending)).map_err(failed())
    })?;
    let (took, [journals, segments]) = (took.as_secs_f64(), plain);
    Ok(vec![Row {
        work: format!(
            "start after a kill, {} partitions, {} MiB published: seconds until ready beyond the plain reading",
            extent.many_partitions,
            extent.restart_bytes >> 20
        ),
        measured: format!("{took:.2} s"),
        against: format!(
            "plainly: the journals' files {journals:.2} s, segments, of which none is full, {segments:.2} s"
        ),
        ratio: took - journals - segments,
        budget: Budget::AtMost(2.0),
    }])
}
