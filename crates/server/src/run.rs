//! A node from start to stop.
//!
//! Start: hold the addresses, lock the data directory, check the identity, answer probes, recover all shards in
//! parallel, run them, and only then let clients in. Stop: no new client, every shard stops in order, and one that does
//! not is named. Whatever fails takes the node down the same way, and every failure is reported.

mod error;
mod moving;
mod supervise;
#[cfg(test)]
mod tests;
mod untold;

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, bounded};
use lockgate_wire::ShardId;
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::admin::{Admin, OnSignal};
use crate::clock::Clock;
use crate::config::Config;
use crate::data_dir::{DataDir, random};
use crate::driver::Driver;
use crate::driver::epoll::EpollDriver;
use crate::listen::{AcceptLimits, Acceptor, Bound};
use crate::shard_loop::inbox::{InboxSender, inbox};
use crate::shard_loop::journal_thread::{WriteMode, probe};
use crate::shard_loop::{self, ShardSetup};
use crate::status::{NodeStatus, Phase};
pub use error::{Failure, ServerError};
use supervise::{Event, Node};

/// Room for signals and a client's wishes, beside what each shard may say.
const SPARE_EVENTS: usize = 16;

/// Descriptors of a shard for its poll, its waker, its journals and files on their way from one name to another.
const DESCRIPTORS_PER_SHARD: usize = 16;
/// Descriptors of everything else: listeners, the lock, the admin's connections.
const OTHER_DESCRIPTORS: usize = 128;

/// Where a node that has started can be reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Addresses {
    /// Clients.
    pub client: SocketAddr,
    /// Probes and metrics.
    pub admin: SocketAddr,
}

/// A node in this process.
pub struct Server {
    addresses: Addresses,
    events: Sender<Event>,
    supervisor: Option<JoinHandle<Result<(), ServerError>>>,
}

/// Runs a node until it is told to stop by a signal. `on_ready` is called once clients can connect.
pub fn run(config: Config, on_ready: impl FnOnce(Addresses)) -> Result<(), ServerError> {
    crate::log::start(&config);
    match Server::start_with(config, true) {
        Ok(server) => {
            on_ready(server.addresses);
            server.wait()
        }
        Err(ServerError::StoppedWhileStarting) => Ok(()),
        Err(error) => Err(error),
    }
}

impl Server {
    /// Starts a node and returns once clients can connect. It takes no signals.
    pub fn start(config: Config) -> Result<Server, ServerError> {
        Self::start_with(config, false)
    }

    fn start_with(config: Config, with_signals: bool) -> Result<Server, ServerError> {
        let (events, received) = bounded(SPARE_EVENTS + 4 * usize::from(config.shards));
        let (mut node, client) = launch(&config, with_signals, &events, received)?;
        if let Err(failures) = node.wait_until_ready() {
            return match node.stop(failures) {
                Ok(()) => Err(ServerError::StoppedWhileStarting),
                Err(error) => Err(error),
            };
        }
        let addresses = Addresses { client: client.address, admin: node.admin_address };
        if let Err(failure) = open_to_clients(&mut node, client, &config, &events) {
            return Err(node.stop(vec![failure]).err().unwrap_or(ServerError::StoppedWhileStarting));
        }
        tracing::info!(clients = %addresses.client, admin = %addresses.admin, "ready");
        let supervisor = std::thread::Builder::new().name("supervisor".into()).spawn(move || node.supervise());
        Ok(Server { addresses, events, supervisor: Some(supervisor.map_err(ServerError::Thread)?) })
    }

    /// Where clients connect.
    pub fn client_address(&self) -> SocketAddr {
        self.addresses.client
    }

    /// Where probes and metrics are served.
    pub fn admin_address(&self) -> SocketAddr {
        self.addresses.admin
    }

    /// Stops in order and waits for the end.
    pub fn stop(self) -> Result<(), ServerError> {
        self.ask_to_stop();
        self.wait()
    }

    /// Waits until the node has ended.
    pub fn wait(mut self) -> Result<(), ServerError> {
        self.join()
    }

    fn ask_to_stop(&self) {
        // A full queue holds something that stops the node already; a closed one means that it has ended.
        drop(self.events.try_send(Event::StopWanted));
    }

    fn join(&mut self) -> Result<(), ServerError> {
        let Some(supervisor) = self.supervisor.take() else { return Ok(()) };
        supervisor.join().unwrap_or_else(|panic| {
            Err(ServerError::Failed(vec![Failure { who: "supervisor".into(), what: panic_text(&*panic) }]))
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.supervisor.is_some() {
            self.ask_to_stop();
            if let Err(error) = self.join() {
                tracing::error!("{error}");
            }
        }
    }
}

/// Everything up to running shards. What was started before a failure ends with its values.
fn launch(
    config: &Config,
    with_signals: bool,
    events: &Sender<Event>,
    received: Receiver<Event>,
) -> Result<(Node, Bound), ServerError> {
    // First, so that an address in use leaves no new data directory behind.
    let bind = |what, address| Bound::new(address).map_err(|error| ServerError::Bind { what, address, error });
    let client = bind("clients", config.listen)?;
    let admin = bind("admin", config.admin_listen)?;
    let admin_address = admin.address;
    let listener =
        admin.listen().map_err(|error| ServerError::Bind { what: "admin", address: admin_address, error })?;

    let mut data = DataDir::open(&config.data_dir, config.node, config.shards).map_err(ServerError::DataDir)?;
    let identity = &data.identity;
    tracing::info!(
        node = identity.node.0, cluster = %identity.cluster, disk = %identity.disk, incarnation = identity.incarnation,
        shards = identity.shards, new = data.is_new, "data directory {}", config.data_dir.display()
    );
    let synced_mode = probe(&data.disk).map_err(ServerError::Disk)?;
    tracing::info!("synced journals are written by {synced_mode}");

    let status = Arc::new(NodeStatus::new(config.shards));
    let told = events.clone();
    let on_signal: Option<OnSignal> =
        with_signals.then(|| -> OnSignal { Box::new(move |name| drop(told.try_send(Event::Signal(name)))) });
    let told = events.clone();
    let on_failure = move |error: std::io::Error| {
        drop(told.send(Event::Failed(Failure { who: "admin".into(), what: error.to_string() })))
    };
    // It answers probes from here on: what follows may take long.
    let admin = Admin::start(listener, status.clone(), on_signal, on_failure).map_err(ServerError::Admin)?;
    let moved = moving::follow_shard_count(&mut data, config);
    let (setups, inboxes) = match moved.and_then(|()| set_up(&data, synced_mode, &status, config, events)) {
        Ok(ready) => ready,
        Err(error) => {
            admin.stop();
            return Err(error);
        }
    };
    let mut node = Node::new(data, config.drain_timeout_ms, status, inboxes, admin, admin_address, received);
    for setup in setups {
        let id = setup.id;
        match spawn_shard(setup, events.clone()) {
            Ok(thread) => node.add_shard(thread),
            Err(error) => {
                let failure =
                    Failure { who: format!("shard {id}"), what: format!("its thread could not be started: {error}") };
                return Err(node.stop(vec![failure]).err().unwrap_or(ServerError::StoppedWhileStarting));
            }
        }
    }
    Ok((node, client))
}

/// What each shard's thread starts with, and the shards' inboxes.
fn set_up(
    data: &DataDir,
    synced_mode: WriteMode,
    status: &Arc<NodeStatus>,
    config: &Config,
    events: &Sender<Event>,
) -> Result<(Vec<ShardSetup>, Arc<[InboxSender]>), ServerError> {
    let drivers: Vec<EpollDriver> =
        (0..config.shards).map(|_| EpollDriver::new()).collect::<Result<_, _>>().map_err(ServerError::Thread)?;
    let (inboxes, receivers): (Vec<InboxSender>, Vec<_>) =
        drivers.iter().map(|driver| inbox(driver.wake_handle())).unzip();
    let inboxes: Arc<[InboxSender]> = inboxes.into();
    let node = Arc::new(config.for_node(&data.identity));
    let clock = Clock::start();
    let mut setups = Vec::new();
    for ((id, driver), inbox) in (0..config.shards).map(ShardId).zip(drivers).zip(receivers) {
        let seed = u64::from_le_bytes(random().map_err(|errno| ServerError::Entropy { errno })?);
        let (told, ready_status) = (events.clone(), status.clone());
        let on_ready = Box::new(move || {
            ready_status.shard(id).ready.store(true, Ordering::Release);
            // The supervisor is gone only when the node has ended.
            drop(told.send(Event::ShardReady(id)));
        });
        setups.push(ShardSetup {
            id,
            node: node.clone(),
            disk: data.disk.clone(),
            synced_mode,
            clock,
            seed,
            driver,
            inbox,
            inboxes: inboxes.clone(),
            status: status.clone(),
            on_ready,
        });
    }
    Ok((setups, inboxes))
}

fn spawn_shard(setup: ShardSetup, events: Sender<Event>) -> std::io::Result<JoinHandle<()>> {
    let shard = setup.id;
    std::thread::Builder::new().name(format!("shard-{shard}")).spawn(move || {
        let failure = match catch_unwind(AssertUnwindSafe(|| shard_loop::run(setup))) {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(panic) => Some(format!("it panicked: {}", panic_text(&*panic))),
        };
        // The supervisor is gone only when it has waited long enough for this shard.
        drop(events.send(Event::ShardEnded { shard, failure }));
    })
}

fn open_to_clients(node: &mut Node, client: Bound, config: &Config, events: &Sender<Event>) -> Result<(), Failure> {
    let told = events.clone();
    let on_failure = move |error: std::io::Error| {
        drop(told.send(Event::Failed(Failure { who: "acceptor".into(), what: error.to_string() })))
    };
    let limits = AcceptLimits {
        per_shard: config.limits.connections_per_shard as usize,
        node: descriptors_for_connections(node.max_open_files, config.shards),
    };
    let address = client.address;
    let acceptor = client
        .listen()
        .and_then(|listener| Acceptor::start(listener, node.inboxes.clone(), node.status.clone(), limits, on_failure));
    let failed = |error| Failure { who: "listener".into(), what: format!("{address}: {error}") };
    node.acceptor = Some(acceptor.map_err(failed)?);
    node.status.enter(Phase::Ready);
    Ok(())
}

/// Takes as many descriptors as the machine lets this process have, and leaves connections those that files do not need:
/// a journal that cannot open its next file fails for good, a client that is turned away comes back.
fn descriptors_for_connections(max_open_files: usize, shards: u16) -> usize {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::warn!("the limit of open files could not be raised: {error}");
            limit = getrlimit(Resource::Nofile);
        }
    }
    let all = limit.current.map_or(usize::MAX, |all| usize::try_from(all).unwrap_or(usize::MAX));
    let files = max_open_files + OTHER_DESCRIPTORS + DESCRIPTORS_PER_SHARD * usize::from(shards);
    all - files.min(all / 2)
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a message".into())
}
