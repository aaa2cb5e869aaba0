//! Where a benchmark runs: a broker, a topic, and what must be cleaned up after it.

use lockgate_client::{Client, ClientConfig, HostPort, Topic, TopicSpec};
use tokio::runtime::Builder;
use tokio::runtime::Runtime;

use super::options::Load;
use super::own::OwnServer;
use crate::args::Global;
use crate::connect::client_config;
use crate::failure::Failure;

/// See the module.
pub(super) struct Target {
    pub(super) config: ClientConfig,
    pub(super) topic: Topic,
    /// The topic was made for this.
    made: bool,
    pub(super) own: Option<OwnServer>,
}

impl Target {
    /// Finds or starts the broker, finds or makes the topic.
    pub(super) fn prepare(load: &Load, global: &Global) -> Result<Self, Failure> {
        Self::prepare_with(load, global, &[])
    }

    /// The same with settings of a broker of its own, as environment variables.
    pub(super) fn prepare_with(load: &Load, global: &Global, settings: &[(&str, &str)]) -> Result<Self, Failure> {
        load.check()?;
        let own = if load.own { Some(OwnServer::start(settings)?) } else { None };
        let mut config = client_config(global);
        if let Some(own) = &own {
            config.seeds = vec![HostPort::parse(&own.client).map_err(|error| Failure::Usage(error.to_string()))?];
        }
        let name = load.topic.clone().unwrap_or_else(|| format!("bench-{}", std::process::id()));
        let made = load.topic.is_none();
        let topic = runtime()?.block_on(async {
            let client = Client::connect(config.clone()).await?;
            if made {
                let settings = [
                    ("fsync".to_owned(), load.fsync.clone()),
                    ("max_batch_bytes".to_owned(), load.max_batch_bytes().to_string()),
                ];
                let more = load.settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
                let spec = TopicSpec {
                    name: name.clone(),
                    partitions: load.partitions,
                    settings: settings.into_iter().chain(more).collect(),
                    ..TopicSpec::default()
                };
                client.admin().create_topic(spec).await?;
            }
            client.topology(&name).await
        })?;
        Ok(Self { config, topic, made, own })
    }

    /// Removes the topic if it was made for this.
    pub(super) fn clean_up(self) -> Result<(), Failure> {
        if !self.made || self.own.is_some() {
            return Ok(());
        }
        runtime()?.block_on(async {
            let client = Client::connect(self.config.clone()).await?;
            Ok(client.admin().delete_topic(&self.topic.name).await?)
        })
    }
}

/// One thread for everything: what generates load must not wake other threads to do it.
pub(super) fn runtime() -> Result<Runtime, Failure> {
    Builder::new_current_thread().enable_all().build().map_err(Failure::io("the runtime cannot be set up"))
}
