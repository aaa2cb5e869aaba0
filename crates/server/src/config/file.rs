//! `lockgate.toml` as a list of (name, text, line): syntax and shape only, meaning comes from the table.

use toml::de::{DeTable, DeValue};

use super::{ConfigError, Place};

/// One value of the file.
pub(crate) struct Item {
    pub(crate) name: String,
    pub(crate) text: String,
    pub(crate) line: usize,
}

/// All values of a file; what cannot be read is added to `errors`.
pub(crate) fn items(path: &str, text: &str, errors: &mut Vec<ConfigError>) -> Vec<Item> {
    let (document, syntax) = DeTable::parse_recoverable(text);
    let place = |offset: usize| Place::File { path: path.into(), line: line_of(text, offset) };
    for error in syntax {
        let offset = error.span().map_or(0, |span| span.start);
        errors.push(ConfigError {
            place: place(offset),
            setting: None,
            problem: error.message().trim().replace('\n', "; "),
        });
    }
    let mut found = Vec::new();
    collect("", document.get_ref(), &mut |name, value, offset| match scalar(value) {
        Ok(value) => found.push(Item { name, text: value, line: line_of(text, offset) }),
        Err(problem) => errors.push(ConfigError { place: place(offset), setting: Some(name), problem }),
    });
    found
}

fn collect(prefix: &str, table: &DeTable<'_>, visit: &mut dyn FnMut(String, &DeValue<'_>, usize)) {
    for (key, value) in table {
        let name = if prefix.is_empty() { key.get_ref().to_string() } else { format!("{prefix}.{}", key.get_ref()) };
        match value.get_ref() {
            DeValue::Table(inner) => collect(&name, inner, visit),
            other => visit(name, other, key.span().start),
        }
    }
}

/// A value as a user would write it in the environment.
fn scalar(value: &DeValue<'_>) -> Result<String, String> {
    match value {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Ok(number.as_str().to_owned()),
        DeValue::Array(entries) => {
            let texts = entries.iter().map(|entry| entry.get_ref().as_str().map(str::to_owned));
            texts
                .collect::<Option<Vec<_>>>()
                .map(|texts| texts.join(","))
                .ok_or_else(|| "a list holds texts only".into())
        }
        other => Err(format!("a {} is no value of any setting: write a text or a whole number", other.type_str())),
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    1 + text.as_bytes().iter().take(offset).filter(|byte| **byte == b'\n').count()
}
