//! What administrators do to topics.

use std::collections::BTreeMap;

use lockgate_wire::{TopicId, proto};

use super::client::Client;
use crate::core::Resend;
use crate::error::ClientError;

/// Topics of one page of a listing.
const PAGE: u32 = 1_000;

/// Administration of topics. Made by [`Client::admin`]; cheap to make.
///
/// Changes are not sent again by themselves once an attempt was not answered: they end as
/// [`ClientError::OutcomeUnknown`] then. Cancel safety: a change whose future is dropped may still be applied.
#[derive(Clone)]
pub struct Admin {
    client: Client,
}

/// A topic to be made.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TopicSpec {
    /// `topic`, `namespace/topic` or `tenant/namespace/topic`.
    pub name: String,
    /// What it is. Default: a stream.
    pub kind: proto::TopicKind,
    /// How many partitions, 1 to 1024; 0 is 1.
    pub partitions: u32,
    /// How many replicas, 1 to 7; 0 is 3 or as many brokers as live.
    pub replication_factor: u32,
    /// Settings by name; those that are not named have their defaults.
    pub settings: BTreeMap<String, String>,
}

impl Admin {
    pub(super) fn new(client: Client) -> Self {
        Self { client }
    }

    /// Makes a topic; gives its id.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with the kind `topic_exists`, `invalid_name`, `invalid_setting` or `not_supported`;
    /// [`ClientError::Unavailable`], [`ClientError::OutcomeUnknown`].
    pub async fn create_topic(&self, spec: TopicSpec) -> Result<TopicId, ClientError> {
        let create = proto::CreateTopic {
            name: spec.name,
            kind: spec.kind as i32,
            partitions: spec.partitions,
            replication_factor: spec.replication_factor,
            settings: spec.settings,
        };
        let ok: proto::CreateTopicOk = self.client.call(&create, Resend::Never).await?;
        Ok(TopicId(ok.topic_id))
    }

    /// Removes a topic and its data.
    ///
    /// # Errors
    /// [`ClientError::NotFound`], [`ClientError::Unavailable`], [`ClientError::OutcomeUnknown`].
    pub async fn delete_topic(&self, name: &str) -> Result<(), ClientError> {
        let delete = proto::DeleteTopic { name: name.to_owned() };
        let _: proto::DeleteTopicOk = self.client.call(&delete, Resend::Never).await?;
        Ok(())
    }

    /// A topic's settings and partitions, as the broker tells them.
    ///
    /// # Errors
    /// [`ClientError::NotFound`], [`ClientError::Unavailable`].
    pub async fn describe_topic(&self, name: &str) -> Result<proto::DescribeTopicOk, ClientError> {
        self.client.call(&proto::DescribeTopic { name: name.to_owned() }, Resend::Safe).await
    }

    /// All topics, in the order of their names.
    ///
    /// # Errors
    /// [`ClientError::Unavailable`].
    pub async fn list_topics(&self) -> Result<Vec<proto::TopicSummary>, ClientError> {
        let mut topics: Vec<proto::TopicSummary> = Vec::new();
        loop {
            let after = topics.last().map(|topic| topic.name.clone()).unwrap_or_default();
            let asked = proto::ListTopics { after, limit: PAGE };
            let ok: proto::ListTopicsOk = self.client.call(&asked, Resend::Safe).await?;
            let more = ok.more && !ok.topics.is_empty();
            topics.extend(ok.topics);
            if !more {
                return Ok(topics);
            }
        }
    }

    /// Changes settings of a topic; an empty value is back to the default. With `if_version` only if the topic still is
    /// of that version. Gives the new version.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with the kind `invalid_setting` or `version_mismatch`; [`ClientError::NotFound`],
    /// [`ClientError::Unavailable`], [`ClientError::OutcomeUnknown`].
    pub async fn alter_topic(
        &self,
        name: &str,
        set: BTreeMap<String, String>,
        if_version: Option<u64>,
    ) -> Result<u64, ClientError> {
        let alter = proto::AlterTopic { name: name.to_owned(), set, if_version };
        let ok: proto::AlterTopicOk = self.client.call(&alter, Resend::Never).await?;
        Ok(ok.version)
    }
}
