//! What must hold between settings, and what depends on more than a value's own bounds.

use lockgate_storage::journal::{BLOCK_BYTES, JournalConfig};

use super::value::size;
use super::{ConfigError, Place, Values};

/// Room for everything beside a batch in a frame or a journal write: `max_batch_bytes` + this ≤ either.
pub(crate) const BATCH_OVERHEAD_BYTES: u64 = 64 * 1024;
/// The batch size that every topic may have without being asked.
const DEFAULT_MAX_BATCH_BYTES: u64 = 1024 * 1024;
/// The first block of a journal file.
const JOURNAL_HEADER_BYTES: u64 = BLOCK_BYTES as u64;

pub(crate) fn check(values: &Values, errors: &mut Vec<ConfigError>) {
    for name in ["limits.frame_bytes", "journal.max_write_bytes"] {
        let needed = DEFAULT_MAX_BATCH_BYTES + BATCH_OVERHEAD_BYTES;
        let found = values.number(name);
        if found < needed {
            errors.push(error(
                values,
                &[name],
                format!(
                    "{} is too small: the default max_batch_bytes of a topic ({}) and {} beside it must fit, at least {needed}",
                    size(found),
                    size(DEFAULT_MAX_BATCH_BYTES),
                    size(BATCH_OVERHEAD_BYTES)
                ),
            ));
        }
    }
    let (file, write) = (values.number("journal.file_bytes"), values.number("journal.max_write_bytes"));
    if write + JOURNAL_HEADER_BYTES > file {
        errors.push(error(
            values,
            &["journal.max_write_bytes", "journal.file_bytes"],
            format!(
                "a write of {} and the {} header do not fit a file of {}",
                size(write),
                size(JOURNAL_HEADER_BYTES),
                size(file)
            ),
        ));
    }
    let (max, files_min) = (values.number("journal.max_bytes"), JournalConfig::FILES_MIN);
    if max < files_min * file {
        errors.push(error(
            values,
            &["journal.max_bytes", "journal.file_bytes"],
            format!(
                "a journal of {} cannot have {files_min} files of {}: two to be filled in turn and two in reserve",
                size(max),
                size(file)
            ),
        ));
    }
    let (unanswered, frame) = (values.number("limits.unanswered_bytes"), values.number("limits.frame_bytes"));
    if unanswered < frame {
        errors.push(error(
            values,
            &["limits.unanswered_bytes", "limits.frame_bytes"],
            format!(
                "a connection may hold {} in waiting requests, but one frame may have {}",
                size(unanswered),
                size(frame)
            ),
        ));
    }
    for name in ["listen", "admin.listen"] {
        let address = values.address(name);
        if !address.ip().is_loopback() {
            errors.push(error(
                values,
                &[name],
                format!(
                    "{address} can be reached from other machines, and this node has no credentials that would keep strangers out; \
                     bind a loopback address like 127.0.0.1:{}",
                    address.port()
                ),
            ));
        }
    }
    let (client, admin) = (values.address("listen"), values.address("admin.listen"));
    if client == admin && client.port() != 0 {
        errors.push(error(
            values,
            &["admin.listen", "listen"],
            format!("clients and admin cannot both listen on {client}"),
        ));
    }
}

/// An error at the first of the settings that somebody set.
fn error(values: &Values, names: &[&'static str], problem: String) -> ConfigError {
    let set = names.iter().copied().find(|name| *values.place(name) != Place::Default);
    let name = set.unwrap_or(names[0]);
    ConfigError { place: values.place(name).clone(), setting: Some(name.to_owned()), problem }
}
