//! The admin thread: probes and metrics over HTTP, and the process's signals. The one place with an async runtime.
//! Nothing on the hot path waits for it; it reads what shards publish.

pub mod metrics;
mod process;
#[cfg(test)]
mod tests;

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::status::{NodeStatus, Phase};

/// Called with a signal's name.
pub(crate) type OnSignal = Box<dyn Fn(&'static str) + Send>;

/// The admin thread.
pub(crate) struct Admin {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Admin {
    /// Serves on `listener`, and tells SIGINT and SIGTERM if somebody wants to know. Handlers that cannot be installed
    /// are an error: a node that cannot be stopped in order must not start.
    pub(crate) fn start(
        listener: TcpListener,
        status: Arc<NodeStatus>,
        on_signal: Option<OnSignal>,
        on_failure: impl FnOnce(io::Error) + Send + 'static,
    ) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let guard = runtime.enter();
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let signals = match on_signal {
            Some(on_signal) => Some((signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?, on_signal)),
            None => None,
        };
        drop(guard);
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("admin".into()).spawn(move || {
            runtime.block_on(async {
                if let Some((mut interrupt, mut terminate, on_signal)) = signals {
                    tokio::spawn(async move {
                        loop {
                            tokio::select! {
                                _ = interrupt.recv() => on_signal("SIGINT"),
                                _ = terminate.recv() => on_signal("SIGTERM"),
                            }
                        }
                    });
                }
                tokio::select! {
                    result = axum::serve(listener, routes(status)).into_future() => {
                        if let Err(error) = result {
                            on_failure(error);
                        }
                    }
                    _ = stopped => {}
                }
            });
        })?;
        Ok(Self { stop, thread })
    }

    pub(crate) fn stop(self) {
        if self.stop.send(()).is_err() {
            tracing::debug!("the admin thread had ended before");
        }
        if self.thread.join().is_err() {
            tracing::error!("the admin thread panicked");
        }
    }
}

fn routes(status: Arc<NodeStatus>) -> Router {
    Router::new()
        .route("/v1/system/live", get(|| async { answer(StatusCode::OK, r#"{"live":true}"#.into()) }))
        .route("/v1/system/ready", get(ready))
        .route("/v1/system/starting", get(starting))
        .route("/metrics", get(metrics_text))
        .with_state(status)
}

fn answer(code: StatusCode, body: String) -> impl IntoResponse {
    (code, [(header::CONTENT_TYPE, "application/json")], body)
}

/// 200 when clients are served; else 503 with the reasons. Draining is answered before anything else is asked. What a node
/// that serves cannot do at the moment is named too; that alone takes no readers away from it.
async fn ready(State(status): State<Arc<NodeStatus>>) -> impl IntoResponse {
    let (code, reasons) = match status.phase() {
        Phase::Ready => (StatusCode::OK, Vec::new()),
        Phase::Draining => (StatusCode::SERVICE_UNAVAILABLE, vec!["draining".to_owned()]),
        Phase::Starting => (StatusCode::SERVICE_UNAVAILABLE, missing(&status)),
    };
    let impaired: Vec<String> =
        status.shards.iter().flat_map(|shard| shard.published.load().impairments.clone()).collect();
    let body = json!({ "ready": code == StatusCode::OK, "reasons": reasons, "impaired": impaired });
    answer(code, body.to_string())
}

/// What a start still waits for.
fn missing(status: &NodeStatus) -> Vec<String> {
    let open = status.shards.iter().enumerate().filter_map(|(number, shard)| {
        match (shard.recovered.load(Ordering::Acquire), shard.ready.load(Ordering::Acquire)) {
            (false, _) => Some(format!("shard {number} is recovering")),
            (true, false) => Some(format!("shard {number} opens its partitions")),
            (true, true) => None,
        }
    });
    let open: Vec<String> = open.collect();
    if open.is_empty() { vec!["the listener is about to open".into()] } else { open }
}

/// 200 once the start is over, however the node is now; 503 while it still recovers. A start-up probe waits for the 200
/// and leaves the process alone meanwhile.
async fn starting(State(status): State<Arc<NodeStatus>>) -> impl IntoResponse {
    let is_starting = status.phase() == Phase::Starting;
    let recovered = status.shards.iter().filter(|shard| shard.recovered.load(Ordering::Acquire)).count();
    let body = format!(r#"{{"starting":{is_starting},"shards":{},"recovered":{recovered}}}"#, status.shards.len());
    answer(if is_starting { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK }, body)
}

async fn metrics_text(State(status): State<Arc<NodeStatus>>) -> impl IntoResponse {
    match metrics::render(&status) {
        Ok(text) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            (StatusCode::OK, [(header::CONTENT_TYPE, kind)], text)
        }
        Err(error) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            [(header::CONTENT_TYPE, "text/plain")],
            format!("metrics could not be written: {error}"),
        ),
    }
}
