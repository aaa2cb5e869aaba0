//! Configuration files: right, or every error with its place; never a panic.

use std::collections::BTreeMap;

use lockgate_server::config::{Machine, SETTINGS};
use lockgate_server::{Config, Sources};

pub(crate) fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes).into_owned();
    // The first line also as the value of some variable.
    let line = text.lines().next().unwrap_or_default().to_owned();
    let setting = &SETTINGS[bytes.first().map_or(0, |byte| usize::from(*byte)) % SETTINGS.len()];
    for environment in [BTreeMap::new(), BTreeMap::from([(setting.variable(), line)])] {
        let file = Some(("lockgate.toml".to_owned(), text.clone()));
        let sources = Sources { file, environment, flags: Vec::new(), machine: Machine::default() };
        match Config::load(&sources) {
            Ok(config) => assert_eq!(config.origins.len(), SETTINGS.len()),
            Err(errors) => assert!(!errors.is_empty() && errors.iter().all(|error| !error.problem.is_empty())),
        }
    }
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        "data_dir = \"data\"\nlisten = \"127.0.0.1:7400\"\n[journal]\nfile_bytes = \"64MiB\"\nmax_write_bytes = 4194304\n",
        "[sessions]\nheartbeat = \"5s\"\nhello_timeout = 100\n[limits]\nframe_bytes = \"8 MiB\"\n",
        "node.id = 4294967295\nshards.count = 2\nbroker.advertise = [\"a:1\", \"[::1]:2\"]\n",
        "log = { level = \"debug\", format = \"json\" }\n",
    ];
    texts.map(|text| text.as_bytes().to_vec()).into()
}
