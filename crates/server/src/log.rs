//! Log lines to standard error, as text for people or as JSON for machines.

use tracing::level_filters::LevelFilter;

use crate::config::Config;

/// Sends the process's log lines where the configuration wants them. The first caller in a process wins.
pub fn start(config: &Config) {
    let level = match config.log_level {
        "error" => LevelFilter::ERROR,
        "warn" => LevelFilter::WARN,
        "debug" => LevelFilter::DEBUG,
        _ => LevelFilter::INFO,
    };
    let lines = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(false);
    let started =
        if config.log_format == "json" { lines.json().flatten_event(true).try_init() } else { lines.try_init() };
    if started.is_err() {
        tracing::debug!("another part of this process has set up its log lines already");
    }
}
