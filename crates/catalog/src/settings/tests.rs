use super::*;
use lockgate_wire::frame::{DEFAULT_MAX_FRAME_BYTES, HARD_MAX_FRAME_BYTES};

const KINDS: [TopicKind; 3] = [TopicKind::Stream, TopicKind::Queue, TopicKind::Cache];

fn map(settings: &[(&str, &str)]) -> BTreeMap<String, String> {
    settings.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

fn read(kind: TopicKind, settings: &[(&str, &str)]) -> Result<TopicConfig, Error> {
    parse(kind, &map(settings), &TopicLimits::WIDEST)
}

fn read_stream(settings: &[(&str, &str)]) -> Result<TopicConfig, Error> {
    read(TopicKind::Stream, settings)
}

fn value_of(kind: TopicKind, config: &TopicConfig, name: &str) -> (String, SettingOrigin) {
    let view = describe(kind, config).into_iter().find(|view| view.name == name).unwrap();
    (view.value, view.origin)
}

#[test]
fn the_defaults_are_those_that_the_design_promises() {
    let config = read_stream(&[]).unwrap();
    assert_eq!(config.fsync, Fsync::Always);
    assert_eq!(config.max_batch_bytes, 1024 * 1024);
    assert_eq!(config.retention_ms, Some(7 * 24 * 3600 * 1000));
    assert_eq!(config.retention_bytes, None);
    assert_eq!((config.segment_bytes, SEGMENT_BYTES_DEFAULT), (64 * 1024 * 1024, 64 * 1024 * 1024));
    assert_eq!(config.timestamps, Timestamps::Create);
    assert_eq!((config.lease_ms, config.max_attempts), (30_000, 20));
    assert_eq!((config.dead_letter, config.message_ttl_ms, config.ttl_ms), (None, None, None));
    assert_eq!((config.max_bytes, config.max_messages), (None, None));
    assert_eq!((config.overflow, config.eviction), (Overflow::Reject, Eviction::Reject));
}

#[test]
fn every_limit_is_taken_and_one_beyond_it_is_refused() {
    let cases: &[(TopicKind, &str, u64, u64)] = &[
        (TopicKind::Stream, "max_batch_bytes", 1024, 64 * 1024 * 1024 - 65_536),
        (TopicKind::Stream, "retention_ms", 1000, 36_500 * 86_400_000),
        (TopicKind::Stream, "retention_bytes", 1 << 20, 1 << 50),
        (TopicKind::Stream, "segment_bytes", 1 << 20, 1 << 30),
        (TopicKind::Queue, "lease_ms", 1000, 12 * 3_600_000),
        (TopicKind::Queue, "max_attempts", 0, 65_535),
        (TopicKind::Queue, "message_ttl_ms", 1000, 365 * 86_400_000),
        (TopicKind::Queue, "max_bytes", 1 << 20, 1 << 50),
        (TopicKind::Queue, "max_messages", 1, 1_000_000_000_000),
        (TopicKind::Cache, "ttl_ms", 1, 365 * 86_400_000),
    ];
    for &(kind, name, min, max) in cases {
        for good in [min, max] {
            let config = read(kind, &[(name, &good.to_string())]).unwrap();
            let (shown, origin) = value_of(kind, &config, name);
            assert_eq!(origin, SettingOrigin::Topic);
            assert_eq!(read(kind, &[(name, &shown)]).unwrap(), config, "{name} = {shown}");
        }
        let one_beyond = [min.checked_sub(1), Some(max + 1)];
        for bad in one_beyond.into_iter().flatten() {
            let error = read(kind, &[(name, &bad.to_string())]).unwrap_err();
            assert_eq!(error.kind, ErrorKind::InvalidSetting);
            assert!(error.message.contains(name) && error.message.contains(&bad.to_string()), "{error}");
        }
    }
    let checked: Vec<_> = cases.iter().map(|case| case.1).collect();
    let is_number =
        |setting: &&Setting| matches!(setting.field, field::Field::Number { .. } | field::Field::Optional { .. });
    for setting in SETTINGS.iter().filter(is_number) {
        assert!(checked.contains(&setting.name), "the bounds of {} are not in this test", setting.name);
    }
}

#[test]
fn fsync_is_read_in_all_its_forms_and_shown_in_one() {
    for (text, expected) in [
        ("always", Fsync::Always),
        ("interval(50ms)", Fsync::Interval { ms: 50 }),
        ("interval(50)", Fsync::Interval { ms: 50 }),
        ("interval:50", Fsync::Interval { ms: 50 }),
        ("interval:1m", Fsync::Interval { ms: 60_000 }),
        ("interval(1ms)", Fsync::Interval { ms: 1 }),
    ] {
        assert_eq!(read_stream(&[("fsync", text)]).unwrap().fsync, expected, "{text}");
    }
    for bad in
        ["never", "interval", "interval()", "interval(50ms", "interval(0)", "interval(60001)", "interval:61s", "Always"]
    {
        let error = read_stream(&[("fsync", bad)]).unwrap_err();
        assert!(error.message.contains("always, or interval(1ms) to interval(1m)"), "{error}");
    }
    let config = read_stream(&[("fsync", "interval:500")]).unwrap();
    assert_eq!(value_of(TopicKind::Stream, &config, "fsync").0, "interval(500ms)");
}

#[test]
fn a_bound_can_be_taken_away() {
    for none in ["none", "unlimited"] {
        let config = read_stream(&[("retention_ms", none)]).unwrap();
        assert_eq!(config.retention_ms, None);
        assert_eq!(value_of(TopicKind::Stream, &config, "retention_ms"), ("none".into(), SettingOrigin::Topic));
    }
    assert!(read_stream(&[("segment_bytes", "none")]).is_err());
}

#[test]
fn all_that_is_wrong_is_reported_at_once() {
    let bad = [
        ("fsync", "often"),
        ("retention_ms", "5 days"),
        ("segment_bytes", "1KiB"),
        ("lease_ms", "1s"),
        ("colour", "red"),
    ];
    let message = read_stream(&bad).unwrap_err().message;
    for part in [
        "fsync = \"often\"",
        "retention_ms = \"5 days\"",
        "1s to 36500d, or none",
        "segment_bytes = \"1KiB\": too small; allowed: 1MiB to 1GiB",
        "\"lease_ms\": a stream has no such setting",
        "\"colour\": a stream has no such setting; it has fsync, max_batch_bytes, retention_ms, retention_bytes, \
         segment_bytes, timestamps",
    ] {
        assert!(message.contains(part), "{part:?} is not in {message:?}");
    }
}

#[test]
fn a_batch_fits_into_the_frame_and_the_journal_write_of_its_broker() {
    let frame = u64::from(DEFAULT_MAX_FRAME_BYTES);
    for (max_frame_bytes, journal_max_write_bytes) in [(frame, 2 * frame), (2 * frame, frame)] {
        let limits = TopicLimits { max_frame_bytes, journal_max_write_bytes };
        let with = |bytes: u64| parse(TopicKind::Stream, &map(&[("max_batch_bytes", &bytes.to_string())]), &limits);
        assert_eq!(with(frame - 65_536).unwrap().max_batch_bytes, frame - 65_536);
        let error = with(frame - 65_535).unwrap_err();
        assert!(error.message.contains("at most 8128KiB") && error.message.contains("8MiB"), "{error}");
    }
    // A broker too small for the default says so, instead of taking a topic whose batches it cannot take.
    let small = TopicLimits { max_frame_bytes: 1024 * 1024, journal_max_write_bytes: frame };
    assert!(parse(TopicKind::Stream, &BTreeMap::new(), &small).unwrap_err().message.contains("max_batch_bytes = 1MiB"));
    assert!(TopicLimits { max_frame_bytes: 0, ..small }.max_batch_bytes() == 0);
    assert_eq!(TopicLimits::WIDEST.max_batch_bytes(), u64::from(HARD_MAX_FRAME_BYTES) - 65_536);
}

#[test]
fn an_empty_value_is_the_default_again_and_other_settings_stay() {
    let config = read_stream(&[("retention_ms", "1h"), ("segment_bytes", "2MiB")]).unwrap();
    let altered = alter(TopicKind::Stream, &config, &map(&[("retention_ms", "")]), &TopicLimits::WIDEST).unwrap();
    assert_eq!(altered, read_stream(&[("segment_bytes", "2MiB")]).unwrap());
    assert_eq!(value_of(TopicKind::Stream, &altered, "retention_ms"), ("7d".into(), SettingOrigin::Default));
    let error = alter(TopicKind::Stream, &config, &map(&[("colour", "")]), &TopicLimits::WIDEST).unwrap_err();
    assert_eq!(error.kind, ErrorKind::InvalidSetting);
}

#[test]
fn own_settings_make_the_same_config_again() {
    let own = [("dead_letter", "dead"), ("fsync", "interval:2000"), ("max_messages", "5"), ("overflow", "drop_oldest")];
    let config = read(TopicKind::Queue, &own).unwrap();
    let expected = [
        ("dead_letter", "default/default/dead"),
        ("fsync", "interval(2s)"),
        ("max_messages", "5"),
        ("overflow", "drop_oldest"),
    ];
    assert_eq!(config.own_settings(), map(&expected));
    assert_eq!(read(TopicKind::Queue, &expected).unwrap(), config);
}

#[test]
fn a_kind_has_its_own_settings_and_no_others() {
    let names = |kind| settings_of(kind).map(|setting| setting.name).collect::<Vec<_>>();
    assert_eq!(
        names(TopicKind::Cache),
        ["fsync", "max_batch_bytes", "max_bytes", "ttl_ms", "eviction"],
        "what a cache cannot honour it does not offer"
    );
    for kind in KINDS {
        for setting in SETTINGS {
            let taken = read(kind, &[(setting.name, setting.default)]).is_ok();
            assert_eq!(taken, setting.kinds.contains(&kind), "{} of a {}", setting.name, kind_word(kind));
        }
    }
}

#[test]
fn too_many_settings_and_too_long_values_are_refused_shortly() {
    let settings = |count: usize| (0..count).map(|n| (format!("s{n}"), String::new())).collect::<BTreeMap<_, _>>();
    let refuse = |count| parse(TopicKind::Stream, &settings(count), &TopicLimits::WIDEST).unwrap_err();
    assert_eq!(refuse(MAX_SETTINGS_PER_REQUEST).details.limit, None);
    assert_eq!(refuse(MAX_SETTINGS_PER_REQUEST + 1).details.limit, Some(MAX_SETTINGS_PER_REQUEST as u64));
    let long = "9".repeat(MAX_SETTING_VALUE_BYTES + 1);
    let error = read_stream(&[("retention_ms", &long), (&long, "1")]).unwrap_err();
    assert!(error.message.contains("1025 bytes long, at most 1024"), "{error}");
    assert!(error.message.len() < 700, "{}", error.message.len());
}

#[test]
fn the_durability_words_say_what_can_be_lost() {
    let always = read_stream(&[]).unwrap();
    let interval = read_stream(&[("fsync", "interval(50ms)")]).unwrap();
    let says = |config, replicas, words: &[&str]| {
        let sentence = durability_words(config, replicas);
        words.iter().for_each(|part| assert!(sentence.contains(part), "{part:?} is not in {sentence:?}"));
    };
    says(&always, 1, &["was synced", "not the loss of that disk"]);
    says(&always, 2, &["(2 of 2)", "does not survive the loss of one"]);
    says(&always, 3, &["(2 of 3)", "any one replica"]);
    says(&always, 5, &["(3 of 5)", "any 2 replicas"]);
    says(&interval, 1, &["within 50ms", "death of the process, not of the machine", "can lose acknowledged data"]);
    says(&interval, 3, &["(2 of 3)", "rejoins as one that knows nothing", "majority lost power together"]);
}

proptest::proptest! {
    #[test]
    fn what_is_taken_is_shown_and_read_back_the_same(
        kind in 0..3_usize,
        pick in 0..SETTINGS.len(),
        value in "(always|none|reject|append|interval[:(][0-9]{1,6}(ms|s)?\\)?|[0-9]{1,20}(ms|s|m|h|d|B|KiB|MiB)?|\\PC{0,20})",
    ) {
        let (kind, name) = (KINDS[kind], SETTINGS[pick].name);
        if let Ok(config) = read(kind, &[(name, &value)]) {
            let own = config.own_settings();
            proptest::prop_assert_eq!(own.is_empty(), value.is_empty());
            proptest::prop_assert_eq!(parse(kind, &own, &TopicLimits::WIDEST), Ok(config));
        }
    }
}
