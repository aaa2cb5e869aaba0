//! How a record is written.

use std::io::{self, Write};
use std::str;

use bytes::Bytes;
use lockgate_client::{ReceivedRecord, RecordHeader};

use crate::args::Format;
use crate::encoding::to_base64;

/// Writes one record.
pub(super) fn write(out: &mut impl Write, format: Format, record: &ReceivedRecord) -> io::Result<()> {
    let value = record.value.as_deref().unwrap_or_default();
    match format {
        Format::Raw => out.write_all(value),
        Format::Text => {
            out.write_all(value)?;
            out.write_all(b"\n")
        }
        Format::Json => {
            json(out, record)?;
            out.write_all(b"\n")
        }
    }
}

/// One object, its members in this order.
fn json(out: &mut impl Write, record: &ReceivedRecord) -> io::Result<()> {
    let ReceivedRecord { partition, offset, timestamp_ms, .. } = record;
    write!(out, r#"{{"partition":{partition},"offset":{offset},"timestamp":{timestamp_ms},"#)?;
    member(out, "key", record.key.as_ref())?;
    out.write_all(br#","headers":["#)?;
    for (n, RecordHeader { name, value }) in record.headers.iter().enumerate() {
        out.write_all(if n == 0 { b"{" } else { b",{" })?;
        member(out, "name", Some(name))?;
        out.write_all(b",")?;
        member(out, "value", value.as_ref())?;
        out.write_all(b"}")?;
    }
    out.write_all(b"],")?;
    member(out, "value", record.value.as_ref())?;
    out.write_all(b"}")
}

/// `"name":"text"`, or `"name_base64":"…"` for bytes that are no text.
fn member(out: &mut impl Write, name: &str, bytes: Option<&Bytes>) -> io::Result<()> {
    match bytes.map(|bytes| str::from_utf8(bytes).map_err(|_| bytes)) {
        None => write!(out, r#""{name}":null"#),
        Some(Ok(text)) => {
            write!(out, r#""{name}":"#)?;
            Ok(serde_json::to_writer(out, text)?)
        }
        Some(Err(bytes)) => write!(out, r#""{name}_base64":"{}""#, to_base64(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use lockgate_wire::Offset;

    use super::*;

    fn record(value: Option<&'static [u8]>) -> ReceivedRecord {
        ReceivedRecord {
            partition: 1,
            offset: Offset(5),
            timestamp_ms: 77,
            append_time_ms: 78,
            key: Some("k\"".into()),
            value: value.map(Bytes::from_static),
            headers: vec![
                RecordHeader { name: "a".into(), value: Some(Bytes::from_static(&[255])) },
                RecordHeader { name: "a".into(), value: None },
            ],
        }
    }

    fn written(format: Format, value: Option<&'static [u8]>) -> String {
        let mut out = Vec::new();
        write(&mut out, format, &record(value)).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn text_ends_a_value_with_a_line_end_and_raw_adds_nothing() {
        assert_eq!(written(Format::Text, Some(b"v")), "v\n");
        assert_eq!(written(Format::Raw, Some(b"v\n")), "v\n");
        assert_eq!(written(Format::Text, None), "\n");
    }

    #[test]
    fn json_keeps_the_order_of_headers_and_says_what_is_no_text() {
        let expected = concat!(
            r#"{"partition":1,"offset":5,"timestamp":77,"key":"k\"","headers":[{"name":"a","value_base64":"/w=="},"#,
            r#"{"name":"a","value":null}],"value":"v"}"#,
            "\n"
        );
        assert_eq!(written(Format::Json, Some(b"v")), expected);
        assert!(written(Format::Json, None).ends_with("\"value\":null}\n"));
        assert!(written(Format::Json, Some(&[0xff, 0])).ends_with("\"value_base64\":\"/wA=\"}\n"));
    }
}
