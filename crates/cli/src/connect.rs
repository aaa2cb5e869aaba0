//! The way to a broker: the runtime that the client library runs in, and the client that the global options describe.

use std::time::Duration;

use lockgate_client::{Client, ClientConfig};
use tokio::runtime::{Builder, Runtime};

use crate::args::Global;
use crate::failure::Failure;

/// When nobody answers, a command ends within two seconds; half a second of that is for everything else.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(1_500);

/// One worker beside the main thread: the connection lives on while a command waits for its output to be read.
pub(crate) fn runtime() -> Result<Runtime, Failure> {
    let built = Builder::new_multi_thread().worker_threads(1).enable_all().build();
    built.map_err(Failure::io("the runtime cannot be set up"))
}

/// A client of the brokers that the command line names.
pub(crate) async fn connect(global: &Global) -> Result<Client, Failure> {
    Ok(Client::connect(client_config(global)).await?)
}

/// The client's configuration that the command line asks for.
pub(crate) fn client_config(global: &Global) -> ClientConfig {
    ClientConfig {
        seeds: global.server.clone(),
        client_id: format!("lockgate-cli-{}", std::process::id()),
        connect_timeout: CONNECT_TIMEOUT,
        ..ClientConfig::default()
    }
}
