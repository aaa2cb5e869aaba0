//! `lockgate config check`.

use serde_json::json;

use super::FileArgs;
use crate::args::Global;
use crate::failure::Failure;
use crate::output;

pub(crate) fn run(file: &FileArgs, global: &Global) -> Result<(), Failure> {
    file.load()?;
    output::confirm(global, || "the configuration is right".into(), || json!({ "ok": true }))
}
