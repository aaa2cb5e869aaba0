use proptest::prelude::*;

use super::*;

#[test]
fn addresses_are_read_and_written() {
    for (text, host, port) in [
        ("127.0.0.1:7400", "127.0.0.1", 7400),
        ("broker-1.example:0", "broker-1.example", 0),
        ("localhost:65535", "localhost", 65535),
        ("[::1]:7400", "::1", 7400),
        ("[2001:db8::7]:1", "2001:db8::7", 1),
    ] {
        let address = HostPort::parse(text).unwrap();
        assert_eq!((address.host.as_str(), address.port), (host, port));
        assert_eq!(address.to_string(), text);
    }
}

#[test]
fn a_wrong_address_is_repeated_with_what_is_wrong() {
    let long = format!("{}:1", "x".repeat(254));
    for (text, problem) in [
        ("", "no `:port`"),
        ("localhost", "no `:port`"),
        (":7400", "no host"),
        ("localhost:", "no port"),
        ("localhost:65536", "no port from 0 to 65535"),
        ("localhost:-1", "no port"),
        ("localhost:+1", "no port"),
        ("localhost:12a", "no port"),
        ("::1:7400", "brackets"),
        ("[::1]", "no `]:port`"),
        ("[::1]7400", "no `]:port`"),
        ("[localhost]:7400", "no IPv6 address"),
        ("ho st:1", "' '"),
        ("a/b:1", "'/'"),
        (&long, "254 bytes, at most 253"),
    ] {
        let error = HostPort::parse(text).unwrap_err();
        assert_eq!(error.kind, ErrorKind::InvalidRequest);
        assert!(error.message.contains(problem), "{text}: {error}");
        assert!(error.message.contains(&shown(text)), "{text}: {error}");
    }
    assert!(HostPort::parse(&long[1..]).is_ok(), "the bound itself is taken");
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC{0,40}") {
        let _ = HostPort::parse(&text);
    }

    #[test]
    fn an_address_that_is_taken_is_written_as_it_was_read(text in "(\\[[0-9a-f:]{0,9}\\]|[a-c.:]{0,6}):0?[1-9][0-9]{0,5}") {
        if let Ok(address) = HostPort::parse(&text) {
            prop_assert_eq!(HostPort::parse(&address.to_string()).unwrap(), address);
        }
    }
}
