//! A broker's counters, from its admin port.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::failure::Failure;

/// How long the admin port may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// All counters as of a moment.
pub(super) struct Metrics(String);

impl Metrics {
    pub(super) fn get(admin: SocketAddr) -> Result<Self, Failure> {
        let get = || -> io::Result<String> {
            let mut stream = TcpStream::connect_timeout(&admin, TIMEOUT)?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            write!(stream, "GET /metrics HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n")?;
            let mut text = String::new();
            stream.read_to_string(&mut text)?;
            Ok(text)
        };
        get().map(Self).map_err(Failure::io(format!("the metrics at http://{admin}/metrics cannot be read")))
    }

    /// The value of a metric, labels as they are printed; 0 where there is none.
    pub(super) fn value(&self, name: &str) -> f64 {
        let line = self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.split(' ').next()?.parse().ok()).unwrap_or(0.0)
    }
}
