//! What record a line is.

use bytes::Bytes;
use lockgate_client::{Record, RecordHeader};
use lockgate_wire::batch::TIMESTAMP_MS_RANGE;
use serde_json::{Map, Value};

use crate::args::Format;
use crate::encoding::from_base64;

/// What a line may say. An offset, which `consume` prints, is the broker's to give: it is passed over.
const RECORD_NAMES: &[&str] =
    &["key", "key_base64", "value", "value_base64", "headers", "timestamp", "partition", "offset"];
/// What a header may say.
const HEADER_NAMES: &[&str] = &["name", "name_base64", "value", "value_base64"];

/// Makes records of lines, as the options say.
pub(super) struct Maker {
    format: Format,
    key: Option<Bytes>,
    separator: Option<String>,
    headers: Vec<RecordHeader>,
}

impl Maker {
    pub(super) fn new(
        format: Format,
        key: Option<&str>,
        separator: Option<char>,
        headers: &[(String, String)],
    ) -> Self {
        let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        let header = |(name, value): &(String, String)| RecordHeader { name: bytes(name), value: Some(bytes(value)) };
        Self {
            format,
            key: key.map(bytes),
            separator: separator.map(String::from),
            headers: headers.iter().map(header).collect(),
        }
    }

    /// The line's record, and the partition that it asks for. `Err` says what is wrong with the line.
    pub(super) fn record(&self, line: Bytes) -> Result<(Option<u32>, Record), String> {
        if self.format == Format::Json {
            return self.json(&line);
        }
        let (key, value) = match &self.separator {
            None => (self.key.clone(), line),
            Some(separator) => {
                let separator = separator.as_bytes();
                let at = line.windows(separator.len()).position(|bytes| bytes == separator);
                let at = at.ok_or("it has no key: the separator is not in it")?;
                (Some(line.slice(..at)), line.slice(at + separator.len()..))
            }
        };
        Ok((None, Record { key, value: Some(value), headers: self.headers.clone(), timestamp_ms: None }))
    }

    fn json(&self, line: &[u8]) -> Result<(Option<u32>, Record), String> {
        let object: Map<String, Value> =
            serde_json::from_slice(line).map_err(|error| format!("it is not a JSON object: {error}"))?;
        only_known(&object, RECORD_NAMES).map_err(|problem| format!("it has {problem}"))?;
        let key = bytes_of(&object, "key")?.or_else(|| self.key.clone());
        let mut headers = self.headers.clone();
        match object.get("headers") {
            None | Some(Value::Null) => {}
            Some(Value::Array(given)) => {
                for header in given {
                    headers.push(header_of(header)?);
                }
            }
            Some(_) => return Err("its headers are not a list of objects with name and value".into()),
        }
        let timestamp_ms = number_of(&object, "timestamp")?;
        if let Some(outside) = timestamp_ms.filter(|ms| !TIMESTAMP_MS_RANGE.contains(ms)) {
            let (first, last) = (TIMESTAMP_MS_RANGE.start(), TIMESTAMP_MS_RANGE.end());
            return Err(format!("its timestamp is {outside}, it must be from {first} to {last}"));
        }
        let partition = number_of(&object, "partition")?;
        let partition = partition.map(u32::try_from).transpose();
        let partition = partition.map_err(|_| "its partition is not a number from 0 on".to_owned())?;
        Ok((partition, Record { key, value: bytes_of(&object, "value")?, headers, timestamp_ms }))
    }
}

fn header_of(header: &Value) -> Result<RecordHeader, String> {
    let Value::Object(header) = header else { return Err("a header is not an object with name and value".into()) };
    only_known(header, HEADER_NAMES).map_err(|problem| format!("a header has {problem}"))?;
    let name = bytes_of(header, "name")?.ok_or("a header has no name")?;
    Ok(RecordHeader { name, value: bytes_of(header, "value")? })
}

/// A name that means nothing is a slip of the pen, and what was meant would be missing from the record.
fn only_known(object: &Map<String, Value>, known: &[&str]) -> Result<(), String> {
    match object.keys().find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => Err(format!("a field `{name}`, the fields are {}", known.join(", "))),
    }
}

/// The bytes under this name: text, or Base64 under `<name>_base64`. Other JSON values stand for their own text.
fn bytes_of(object: &Map<String, Value>, name: &str) -> Result<Option<Bytes>, String> {
    let encoded = format!("{name}_base64");
    match (object.get(name), object.get(&encoded)) {
        (None | Some(Value::Null), None) => Ok(None),
        (None | Some(Value::Null), Some(Value::String(text))) => match from_base64(text) {
            Some(bytes) => Ok(Some(bytes.into())),
            None => Err(format!("its {encoded} is not Base64")),
        },
        (_, Some(_)) => Err(format!("it has more than one of {name} and {encoded}, or no text in {encoded}")),
        (Some(Value::String(text)), None) => Ok(Some(Bytes::copy_from_slice(text.as_bytes()))),
        (Some(other), None) => Ok(Some(other.to_string().into())),
    }
}

fn number_of(object: &Map<String, Value>, name: &str) -> Result<Option<i64>, String> {
    match object.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value.as_i64().map(Some).ok_or_else(|| format!("its {name} is not a whole number")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn maker(format: Format, key: Option<&str>, separator: Option<char>) -> Maker {
        Maker::new(format, key, separator, &[("from".into(), "test".into())])
    }

    #[test]
    fn a_line_of_text_is_a_value_with_the_key_and_headers_asked_for() {
        let (partition, record) = maker(Format::Text, Some("k"), None).record(Bytes::from("a line")).unwrap();
        assert_eq!(partition, None);
        assert_eq!(record, Record::new("a line").with_key("k").with_header("from", "test"));
    }

    #[test]
    fn the_key_is_what_is_before_the_first_separator() {
        let maker = maker(Format::Text, None, Some('→'));
        let (_, record) = maker.record(Bytes::from("user→a→b")).unwrap();
        assert_eq!((record.key, record.value), (Some("user".into()), Some("a→b".into())));
        assert!(maker.record(Bytes::from("no key")).unwrap_err().contains("separator"));
    }

    #[test]
    fn a_json_line_says_everything_itself() {
        let line = r#"{"key":"k","value_base64":"AAE=","headers":[{"name":"h","value":null}],"timestamp":7,"partition":2,
            "offset":9}"#;
        let (partition, record) = maker(Format::Json, None, None).record(Bytes::from(line)).unwrap();
        assert_eq!((partition, record.timestamp_ms), (Some(2), Some(7)));
        assert_eq!((record.key, record.value), (Some("k".into()), Some(Bytes::from_static(&[0, 1]))));
        assert_eq!(record.headers.last(), Some(&RecordHeader { name: "h".into(), value: None }));
        let (_, record) = maker(Format::Json, Some("all"), None).record(Bytes::from(r#"{"value":{"a":1}}"#)).unwrap();
        assert_eq!((record.key, record.value), (Some("all".into()), Some(r#"{"a":1}"#.into())));
        let (_, record) = maker(Format::Json, None, None).record(Bytes::from("{}")).unwrap();
        assert_eq!(record.value, None, "no value is null, not empty");
    }

    #[test]
    fn a_json_line_that_is_wrong_says_where() {
        let cases = [
            ("[1]", "JSON object"),
            ("{", "JSON object"),
            (r#"{"value_base64":"?"}"#, "Base64"),
            (r#"{"value":"a","value_base64":"AAE="}"#, "more than one"),
            (r#"{"headers":{"a":"b"}}"#, "headers"),
            (r#"{"headers":[{"value":"b"}]}"#, "name"),
            (r#"{"partition":-1}"#, "partition"),
            (r#"{"timestamp":"now"}"#, "timestamp"),
            (r#"{"timestamp":-5}"#, "-5"),
            (r#"{"timestamp":9223372036854775807}"#, "from -1 to 9223372036854775806"),
            (r#"{"valu":"x"}"#, "`valu`"),
            (r#"{"headers":[{"name":"h","val":"b"}]}"#, "a header has a field `val`"),
        ];
        for (line, names) in cases {
            let problem = maker(Format::Json, None, None).record(Bytes::from(line)).unwrap_err();
            assert!(problem.contains(names), "{line}: {problem}");
        }
    }
}
