//! `lockgate config show`.

use serde_json::{Map, json};

use super::FileArgs;
use crate::args::Global;
use crate::failure::Failure;
use crate::output;

pub(crate) fn run(file: &FileArgs, global: &Global) -> Result<(), Failure> {
    let origins = file.load()?.origins;
    let text = || {
        let rows = origins.iter().map(|(name, value, place)| [name.to_string(), value.to_string(), place.to_string()]);
        output::table(["SETTING", "VALUE", "FROM"], rows)
    };
    let json = || {
        let settings = origins.iter().map(|(name, value, place)| {
            (name.to_string(), json!({ "value": value.to_string(), "from": place.to_string() }))
        });
        settings.collect::<Map<_, _>>().into()
    };
    output::print(global, text, json)
}
