//! Names that people give: resources (`tenant/namespace/topic`), cursors, client ids. One place for their rules.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, ErrorKind};

/// Tenant and namespace when none is written.
pub const DEFAULT_PART: &str = "default";
/// Longest part of a name, and longest cursor name.
pub const MAX_NAME_BYTES: usize = 249;
/// Longest full name: three parts and two slashes.
pub const MAX_TOPIC_NAME_BYTES: usize = 3 * MAX_NAME_BYTES + 2;
/// Longest client id or client name in Hello.
pub const MAX_CLIENT_ID_BYTES: usize = 249;
/// Names that begin so belong to the system.
pub const SYSTEM_PREFIX: &str = "__";
/// How much of a wrong text an error repeats.
const SHOWN_CHARS: usize = 80;

/// A topic's full name. Ordered as its text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicName {
    /// `tenant/namespace/topic`, always all three.
    full: Box<str>,
    /// Bytes of the tenant.
    tenant_len: u16,
    /// Bytes of the namespace.
    namespace_len: u16,
}

impl TopicName {
    /// Reads `topic`, `namespace/topic` or `tenant/namespace/topic`; what is not written is `default`.
    ///
    /// Each part is 1 to 249 characters of `a-z A-Z 0-9 . _ -`, and not `.` or `..`. Names of the system are read like
    /// others ([`is_system`](Self::is_system)): whether they may be created is not a question of their form.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut parts = text.split('/');
        let (tenant, namespace, topic) = match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(topic), None, ..) => (DEFAULT_PART, DEFAULT_PART, topic),
            (Some(namespace), Some(topic), None, _) => (DEFAULT_PART, namespace, topic),
            (Some(tenant), Some(namespace), Some(topic), None) => (tenant, namespace, topic),
            _ => return Err(refused("topic name", text, "has more than the three parts tenant/namespace/topic")),
        };
        for part in [tenant, namespace, topic] {
            check_part("topic name", text, part)?;
        }
        Ok(Self {
            full: format!("{tenant}/{namespace}/{topic}").into(),
            tenant_len: tenant.len() as u16,
            namespace_len: namespace.len() as u16,
        })
    }

    /// The full form, always with tenant and namespace.
    pub fn as_str(&self) -> &str {
        &self.full
    }

    /// The tenant.
    pub fn tenant(&self) -> &str {
        &self.full[..self.tenant_len.into()]
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        let start = usize::from(self.tenant_len) + 1;
        &self.full[start..start + usize::from(self.namespace_len)]
    }

    /// The topic without tenant and namespace.
    pub fn topic(&self) -> &str {
        &self.full[usize::from(self.tenant_len) + usize::from(self.namespace_len) + 2..]
    }

    /// The shortest form that [`parse`](Self::parse) reads as this name.
    pub fn short(&self) -> &str {
        match (self.tenant(), self.namespace()) {
            (DEFAULT_PART, DEFAULT_PART) => self.topic(),
            (DEFAULT_PART, _) => &self.full[usize::from(self.tenant_len) + 1..],
            _ => &self.full,
        }
    }

    /// Whether a part begins with `__`, so that the name belongs to the system.
    pub fn is_system(&self) -> bool {
        self.full.split('/').any(|part| part.starts_with(SYSTEM_PREFIX))
    }
}

impl fmt::Display for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.full)
    }
}

impl fmt::Debug for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.full)
    }
}

impl FromStr for TopicName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::parse(text)
    }
}

/// A cursor's name follows the rules of one part of a topic's name.
pub fn check_cursor_name(name: &str) -> Result<(), Error> {
    check_part("cursor name", name, name)
}

/// A client's id or name: any text of at most 249 bytes, as it is for logs alone.
pub fn check_client_id(id: &str) -> Result<(), Error> {
    if id.len() <= MAX_CLIENT_ID_BYTES {
        return Ok(());
    }
    let message =
        format!("client id `{}` has {} bytes, at most {MAX_CLIENT_ID_BYTES} are allowed", shown(id), id.len());
    Err(Error::new(ErrorKind::InvalidRequest, message).with_limit(MAX_CLIENT_ID_BYTES as u64))
}

/// One part of `whole`, which the error repeats.
fn check_part(what: &str, whole: &str, part: &str) -> Result<(), Error> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if part.is_empty() {
        return Err(refused(what, whole, "is empty or has an empty part"));
    }
    if part.len() > MAX_NAME_BYTES {
        let problem = format!("has a part of {} bytes, at most {MAX_NAME_BYTES} are allowed", part.len());
        return Err(refused(what, whole, &problem).with_limit(MAX_NAME_BYTES as u64));
    }
    if let Some(bad) = part.chars().find(|c| !allowed(*c)) {
        return Err(refused(what, whole, &format!("contains {bad:?}; a-z A-Z 0-9 . _ - are allowed")));
    }
    if part == "." || part == ".." {
        return Err(refused(what, whole, &format!("has the part `{part}`, which is not allowed")));
    }
    Ok(())
}

fn refused(what: &str, text: &str, problem: &str) -> Error {
    Error::new(ErrorKind::InvalidName, format!("{what} `{}` {problem}", shown(text)))
}

/// A text from outside as an error may repeat it: escaped and cut.
pub(crate) fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN_CHARS).flat_map(char::escape_debug).collect();
    if text.chars().nth(SHOWN_CHARS).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests;
