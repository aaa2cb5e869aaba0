//! Where a listener is: a host and a port, as people write them and as the protocol carries them.

use core::net::Ipv6Addr;
use std::fmt;
use std::str::FromStr;

use crate::error::{Error, ErrorKind};
use crate::name::shown;

/// Longest host: what DNS allows.
pub const MAX_HOST_BYTES: usize = 253;

/// A host and a port. The host is a name, an IPv4 address or an IPv6 address; nothing is resolved here.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HostPort {
    /// Without brackets.
    pub host: String,
    /// 0 to 65535; 0 asks the system for a free port and is meaningful only to listen on.
    pub port: u16,
}

impl HostPort {
    /// Reads `host:port` or `[ipv6]:port`.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, port) =
                    rest.split_once("]:").ok_or_else(|| refused(text, "has no `]:port` after its `[`"))?;
                host.parse::<Ipv6Addr>().map_err(|_| refused(text, "has no IPv6 address between its brackets"))?;
                (host, port)
            }
            None => {
                let (host, port) = text.rsplit_once(':').ok_or_else(|| refused(text, "has no `:port`"))?;
                check_host(text, host)?;
                (host, port)
            }
        };
        // Digits only: the number parser would take a sign.
        let port =
            Some(port).filter(|port| port.bytes().all(|b| b.is_ascii_digit())).and_then(|port| port.parse().ok());
        let port = port.ok_or_else(|| refused(text, "has no port from 0 to 65535 after its last `:`"))?;
        Ok(Self { host: host.to_owned(), port })
    }
}

fn check_host(text: &str, host: &str) -> Result<(), Error> {
    if host.is_empty() {
        return Err(refused(text, "has no host before its `:`"));
    }
    if host.len() > MAX_HOST_BYTES {
        return Err(refused(
            text,
            &format!("has a host of {} bytes, at most {MAX_HOST_BYTES} are allowed", host.len()),
        ));
    }
    if host.contains(':') {
        return Err(refused(text, "has more than one `:`; an IPv6 address stands in brackets, like [::1]:7400"));
    }
    match host.chars().find(|c| !c.is_ascii_alphanumeric() && !matches!(c, '.' | '-' | '_')) {
        Some(bad) => {
            Err(refused(text, &format!("has a host with {bad:?}; names and addresses have a-z A-Z 0-9 . - _")))
        }
        None => Ok(()),
    }
}

fn refused(text: &str, problem: &str) -> Error {
    Error::new(
        ErrorKind::InvalidRequest,
        format!("address `{}` {problem}; expected host:port, like 127.0.0.1:7400", shown(text)),
    )
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl FromStr for HostPort {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests;
