//! The library as its users see it, against a small broker on loopback.

#![allow(clippy::unwrap_used, reason = "a test may panic anywhere")]

mod broker;
mod connecting;
mod producing;
mod reading;

use std::time::Duration;

use lockgate_client::{Client, ClientConfig, ClientError};

/// A bound for what must happen soon; generous for slow machines.
const SOON: Duration = Duration::from_secs(30);

async fn connect(broker: &broker::Broker) -> Client {
    Client::connect(ClientConfig::with_seeds(broker.seeds()).unwrap()).await.expect("the broker answers")
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, future).await.expect("it happens soon")
}

/// Waits until a condition holds.
async fn until(mut holds: impl FnMut() -> bool) {
    soon(async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}

fn kind<T>(result: Result<T, ClientError>) -> &'static str {
    result.map(|_| "ok").unwrap_or_else(|error| error.kind())
}
