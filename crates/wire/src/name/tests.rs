use proptest::prelude::*;

use super::*;

fn name(text: &str) -> TopicName {
    TopicName::parse(text).unwrap()
}

fn refusal(text: &str) -> String {
    let error = TopicName::parse(text).unwrap_err();
    assert_eq!(error.kind, ErrorKind::InvalidName);
    error.message
}

#[test]
fn what_is_not_written_is_default() {
    for (text, full, short) in [
        ("orders", "default/default/orders", "orders"),
        ("shop/orders", "default/shop/orders", "shop/orders"),
        ("acme/shop/orders", "acme/shop/orders", "acme/shop/orders"),
        ("acme/default/orders", "acme/default/orders", "acme/default/orders"),
        ("default/shop/orders", "default/shop/orders", "shop/orders"),
        ("default/default/default", "default/default/default", "default"),
    ] {
        let name = name(text);
        assert_eq!((name.to_string().as_str(), name.as_str(), name.short()), (full, full, short));
        assert_eq!(TopicName::parse(name.short()).unwrap(), name);
    }
    let full = name("acme/shop/orders");
    assert_eq!((full.tenant(), full.namespace(), full.topic()), ("acme", "shop", "orders"));
}

#[test]
fn the_longest_part_has_249_bytes() {
    let (longest, too_long) = ("x".repeat(249), "x".repeat(250));
    let full = name(&format!("{longest}/{longest}/{longest}"));
    assert_eq!(full.as_str().len(), MAX_TOPIC_NAME_BYTES);
    assert_eq!(full.topic(), longest);
    for text in [too_long.clone(), format!("a/{too_long}"), format!("{too_long}/a/b")] {
        let message = refusal(&text);
        assert!(message.contains("250") && message.contains("249"), "{message}");
    }
}

#[test]
fn names_are_made_of_letters_digits_dots_underscores_and_dashes() {
    for good in ["a", "Z", "0", "a.b", "...", "-", "_", "a-b_c.d", ".hidden"] {
        assert_eq!(name(good).topic(), good);
    }
    for (bad, said) in [("a b", "' '"), ("ä", "'ä'"), ("a\0b", "\\0"), ("a:b", "':'"), ("a\\b", "'\\\\'"), ("*", "'*'")]
    {
        let message = refusal(bad);
        assert!(message.contains(said), "{message}");
    }
}

#[test]
fn empty_and_dotted_parts_are_refused() {
    for bad in ["", "/", "a/", "/a", "a//b", "//", ".", "..", "a/..", "./b", "a/b/."] {
        assert!(refusal(bad).contains('`'), "{bad}");
    }
    assert!(refusal("a/b/c/d").contains("three parts"));
}

#[test]
fn a_long_wrong_name_is_not_repeated_whole() {
    let message = refusal(&"é".repeat(100_000));
    assert!(message.len() < 400, "{} bytes", message.len());
}

#[test]
fn names_with_two_underscores_belong_to_the_system() {
    for system in ["__groups", "__tenant/a/b", "__ns/t"] {
        assert!(name(system).is_system(), "{system}");
    }
    for own in ["_groups", "a__b", "orders__"] {
        assert!(!name(own).is_system(), "{own}");
    }
}

#[test]
fn cursor_names_follow_the_rules_of_a_part() {
    assert!(check_cursor_name("billing.v2").is_ok());
    assert!(check_cursor_name(&"x".repeat(249)).is_ok());
    for bad in ["", "a/b", "..", "a b", &"x".repeat(250)] {
        let error = check_cursor_name(bad).unwrap_err();
        assert_eq!(error.kind, ErrorKind::InvalidName);
        assert!(error.message.starts_with("cursor name"), "{error}");
    }
}

#[test]
fn a_client_id_is_any_text_up_to_249_bytes() {
    assert!(check_client_id("").is_ok());
    assert!(check_client_id(&"é".repeat(124)).is_ok());
    let error = check_client_id(&"é".repeat(125)).unwrap_err();
    assert_eq!((error.kind, error.details.limit), (ErrorKind::InvalidRequest, Some(249)));
    assert!(error.message.contains("250"), "{error}");
}

proptest! {
    #[test]
    fn no_text_makes_the_parsers_panic(text in "\\PC{0,300}") {
        let _ = (TopicName::parse(&text), check_cursor_name(&text), check_client_id(&text));
    }

    #[test]
    fn a_name_that_is_taken_is_taken_again(text in "[a-c._/-]{0,12}") {
        if let Ok(name) = TopicName::parse(&text) {
            prop_assert_eq!(&TopicName::parse(name.as_str()).unwrap(), &name);
            prop_assert_eq!(&TopicName::parse(name.short()).unwrap(), &name);
            prop_assert!(name.short().len() <= text.len());
        }
    }
}
