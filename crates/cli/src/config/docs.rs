//! `lockgate config docs`.

use lockgate_server::config::{Applies, Preset, SETTINGS, Setting};

use crate::failure::Failure;
use crate::output;

pub(crate) fn run() -> Result<(), Failure> {
    let rows: Vec<String> = SETTINGS.iter().map(row).collect();
    let head = "| setting | default | allowed | change takes effect | flag | meaning |\n|---|---|---|---|---|---|";
    output::line(format!("{head}\n{}", rows.join("\n")))
}

fn row(setting: &Setting) -> String {
    let preset = match setting.preset {
        Preset::Text("") => "none".into(),
        Preset::Text(text) => format!("`{text}`"),
        Preset::Cores => "the number of cores, at least 2".into(),
        Preset::QuarterOfMemory => "a quarter of the memory".into(),
    };
    let applies = match setting.applies {
        Applies::Restart => "restart",
        Applies::Runtime => "at once",
    };
    let flag = setting.flag.map(|flag| format!("`{flag}`")).unwrap_or_default();
    let allowed = setting.kind.allowed();
    format!("| `{}` | {preset} | {allowed} | {applies} | {flag} | {} |", setting.name, setting.help)
}
