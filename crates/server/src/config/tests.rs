use super::*;

const MACHINE: Machine = Machine { cores: 4, memory_bytes: 8 << 30 };

fn sources(file: &str, environment: &[(&str, &str)], flags: &[(&'static str, &str)]) -> Sources {
    Sources {
        file: (!file.is_empty()).then(|| ("lockgate.toml".to_owned(), file.to_owned())),
        environment: environment.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
        flags: flags.iter().map(|(k, v)| (*k, v.to_string())).collect(),
        machine: MACHINE,
    }
}

fn refusals(file: &str, environment: &[(&str, &str)], flags: &[(&'static str, &str)]) -> Vec<String> {
    let errors = Config::load(&sources(file, environment, flags)).expect_err("must be refused");
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn every_default_is_one_of_its_allowed_values() {
    let config = Config::load(&sources("", &[], &[])).unwrap();
    assert_eq!(config.listen.to_string(), "127.0.0.1:7400");
    assert_eq!(config.admin_listen.to_string(), "127.0.0.1:7480");
    assert_eq!(config.shards, 4);
    assert_eq!(config.limits.publish_bytes_per_shard, 512 << 20);
    assert_eq!(config.drain_timeout_ms, 10_000);
    assert_eq!(config.origins.len(), SETTINGS.len());
}

#[test]
fn the_engines_defaults_are_the_tables_defaults() {
    let config = Config::load(&sources("", &[], &[])).unwrap();
    assert_eq!(config.limits, Limits::default());
    assert_eq!(config.journal, JournalSettings::default());
    assert_eq!(config.scrub, ScrubSettings::default());
}

#[test]
fn long_times_are_written_in_hours_and_days() {
    let every =
        |text: &str| Config::load(&sources("", &[("LOCKGATE_SCRUB_EVERY", text)], &[])).map(|c| c.scrub.every_ms);
    assert_eq!((every("12h"), every("2d")), (Ok(12 * 3_600_000), Ok(48 * 3_600_000)));
    let allowed = "a time from 1s to 365d with its unit, like 250ms, 10s or 5m";
    assert!(every("366d").unwrap_err()[0].problem.contains(allowed));
}

#[test]
fn one_core_still_gets_two_shards() {
    let machine = Machine { cores: 1, ..MACHINE };
    assert_eq!(Config::load(&Sources { machine, ..Sources::default() }).unwrap().shards, 2);
}

#[test]
fn flags_beat_the_environment_which_beats_the_file() {
    let file = "[shards]\ncount = 3\n[journal]\nfile_bytes = \"128 MiB\"\n";
    let config = Config::load(&sources(
        file,
        &[("LOCKGATE_SHARDS_COUNT", "5"), ("LOCKGATE_LISTEN", "127.0.0.1:1")],
        &[("listen", "localhost:2")],
    ))
    .unwrap();
    assert_eq!((config.shards, config.journal.file_bytes, config.listen.port()), (5, 128 << 20, 2));
    let origin = |name: &str| config.origins.iter().find(|(n, _, _)| *n == name).unwrap().2.to_string();
    assert_eq!(origin("listen"), "--listen");
    assert_eq!(origin("shards.count"), "LOCKGATE_SHARDS_COUNT");
    assert_eq!(origin("journal.file_bytes"), "lockgate.toml:4");
    assert_eq!(origin("node.id"), "default");
}

#[test]
fn all_errors_come_at_once_with_file_and_line_and_what_is_allowed() {
    let file = "listen = \"here\"\n\n[journal]\nfile_bytes = 5000\nmax_write_byte = 3\n[shards]\ncount = 0\n[log]\nlevel = true\n";
    assert_eq!(
        refusals(file, &[("LOCKGATE_NODE_ID", "0")], &[("shutdown.drain_timeout", "0s")]),
        [
            "lockgate.toml:1: listen: \"here\" is not allowed: an IP address and a port, like 127.0.0.1:7400 or [::1]:7400",
            "lockgate.toml:4: journal.file_bytes: \"5000\" is not allowed: bytes from 8MiB to 4GiB, a multiple of 4KiB, like 64KiB or 4MiB",
            "lockgate.toml:5: journal.max_write_byte: there is no such setting; did you mean journal.max_write_bytes?",
            "lockgate.toml:7: shards.count: \"0\" is not allowed: a whole number from 1 to 256",
            "lockgate.toml:9: log.level: a boolean is no value of any setting: write a text or a whole number",
            "LOCKGATE_NODE_ID: node.id: \"0\" is not allowed: a whole number from 1 to 4294967295",
            "shutdown.drain_timeout: shutdown.drain_timeout: \"0s\" is not allowed: a time from 1ms to 600s with its unit, like 250ms, 10s or 5m",
        ]
    );
}

#[test]
fn broken_toml_is_told_by_line() {
    let errors = refusals("[log]\nlevel = \n", &[], &[]);
    assert!(errors[0].starts_with("lockgate.toml:2: "), "{errors:?}");
}

#[test]
fn a_misspelt_variable_of_a_known_section_is_an_error_and_foreign_ones_are_not() {
    assert_eq!(
        refusals("", &[("LOCKGATE_JOURNAL_FILE_BYTE", "1")], &[]),
        ["LOCKGATE_JOURNAL_FILE_BYTE: there is no such setting; did you mean journal.file_bytes?"]
    );
    let foreign = [("LOCKGATE_SERVER", "x"), ("LOCKGATE_API_KEY", "x"), ("LOCKGATE_PORT_7400_TCP", "x"), ("PATH", "x")];
    assert!(Config::load(&sources("", &foreign, &[])).is_ok());
}

#[test]
fn a_bind_that_others_can_reach_is_refused_without_credentials() {
    let errors = refusals("", &[], &[("listen", "0.0.0.0:7400"), ("admin.listen", "[::]:7480")]);
    assert_eq!(errors.len(), 2);
    assert!(
        errors.iter().all(|error| error.contains("no credentials") && error.contains("bind a loopback address")),
        "{errors:?}"
    );
}

#[test]
fn relations_between_settings_are_checked_at_their_boundaries() {
    let exactly = 1024 * 1024 + 64 * 1024;
    assert!(Config::load(&sources("", &[("LOCKGATE_LIMITS_FRAME_BYTES", &exactly.to_string())], &[])).is_ok());
    assert_eq!(refusals("", &[("LOCKGATE_LIMITS_FRAME_BYTES", &(exactly - 1).to_string())], &[]).len(), 1);
    let (file, write) = ("8MiB".to_owned(), 8 * 1024 * 1024 - 4096);
    let with_write = |write: u64| {
        Config::load(&sources(
            "",
            &[("LOCKGATE_JOURNAL_FILE_BYTES", &file), ("LOCKGATE_JOURNAL_MAX_WRITE_BYTES", &write.to_string())],
            &[],
        ))
    };
    assert!(with_write(write).is_ok());
    assert_eq!(with_write(write + 4096).unwrap_err().len(), 1);
    assert!(Config::load(&sources("", &[("LOCKGATE_JOURNAL_MAX_BYTES", "256MiB")], &[])).is_ok());
    let three_files = refusals("", &[("LOCKGATE_JOURNAL_MAX_BYTES", "255MiB")], &[]);
    assert!(three_files.len() == 1 && three_files[0].contains("cannot have 4 files"), "{three_files:?}");
    assert_eq!(refusals("", &[("LOCKGATE_LIMITS_UNANSWERED_BYTES", "4MiB")], &[]).len(), 1);
    assert_eq!(refusals("", &[("LOCKGATE_ADMIN_LISTEN", "127.0.0.1:7400")], &[]).len(), 1);
}

#[test]
fn units_are_read_exactly() {
    let bytes = Kind::Bytes { min: 0, max: u64::MAX, multiple_of: 1 };
    for (text, expected) in [("1024", 1024), ("1KiB", 1024), ("2 MiB", 2 << 20), ("1GiB", 1 << 30), ("1_000B", 1000)] {
        assert_eq!(bytes.parse(text), Some(Value::Number(expected)), "{text}");
    }
    for text in ["", "KiB", "1KB", "1.5MiB", "-1", "1 TiB", "18446744073709551615KiB"] {
        assert_eq!(bytes.parse(text), None, "{text}");
    }
    let duration = Kind::Duration { min_ms: 0, max_ms: u64::MAX };
    for (text, expected) in [("250ms", 250), ("10s", 10_000), ("5m", 300_000)] {
        assert_eq!(duration.parse(text), Some(Value::Number(expected)), "{text}");
    }
    assert_eq!(duration.parse("10"), None);
    let hosts = Kind::Hosts { max: 2 };
    assert_eq!(hosts.parse("a:1, b.example:2"), Some(Value::Hosts(vec!["a:1".into(), "b.example:2".into()])));
    assert_eq!(hosts.parse(""), Some(Value::Hosts(Vec::new())));
    assert!(["a", "a:0", ":1", "a:1,b:2,c:3", "a b:1"].iter().all(|text| hosts.parse(text).is_none()));
}
