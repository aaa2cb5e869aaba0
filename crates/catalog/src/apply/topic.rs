//! Topics: create, alter, delete. Nothing in a command is trusted: it may have been decided on an older view.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lockgate_wire::name::TopicName;
use lockgate_wire::{Error, ErrorKind, Generation, NodeId, PartitionId};

use crate::ids::Ids;
use crate::limits::{MAX_PARTITIONS, MAX_TOPICS};
use crate::settings::{self, TopicConfig, TopicLimits};
use crate::{Assignment, Catalog, ClusterView, Command, Outcome, ReplicaPlacement, TopicView, placement};

impl Catalog {
    /// Takes the whole command: it has as many parts as a topic.
    pub(crate) fn create_topic(&mut self, command: &Command) -> Result<Outcome, Error> {
        let Command::CreateTopic { name, kind, partitions, replication_factor, settings, placement, time } = command
        else {
            unreachable!("dispatched by its kind");
        };
        let name = TopicName::parse(name)?;
        if let Some(topic) = self.view.topic_by_name(name.as_str()) {
            let message = format!("topic {name} exists already (id {})", topic.id);
            return Err(Error::new(ErrorKind::TopicExists, message));
        }
        placement::check_counts(*partitions, *replication_factor)?;
        check_placement(&self.view, *partitions, *replication_factor, placement)?;
        let config = settings::parse(*kind, settings, &TopicLimits::WIDEST)?;
        check_dead_letter(&name, &config)?;
        check_room(&self.view, placement.len())?;

        let mut ids = self.ids;
        let id = ids.topic()?;
        let assigned = (0..).zip(placement).map(|(partition, nodes)| {
            let partition = PartitionId { topic: id, partition };
            assign(&mut ids, partition, nodes)
        });
        let partitions = assigned.collect::<Result<_, _>>()?;
        self.ids = ids;
        self.view.put_topic(TopicView {
            id,
            name: name.to_string(),
            kind: *kind,
            config,
            partitioning_version: 1,
            version: self.applied.0,
            replication_factor: *replication_factor,
            created: *time,
            partitions,
        });
        Ok(Outcome::TopicCreated { topic: id })
    }

    pub(crate) fn alter_topic(
        &mut self,
        name: &str,
        set: &BTreeMap<String, String>,
        if_version: Option<u64>,
    ) -> Result<Outcome, Error> {
        let name = TopicName::parse(name)?;
        let topic = find(&self.view, &name)?;
        if let Some(wanted) = if_version.filter(|&wanted| wanted != topic.version) {
            let message = format!("topic {name} has version {}, not {wanted}: read it again", topic.version);
            let mut error = Error::new(ErrorKind::VersionMismatch, message);
            error.details.version = Some(topic.version);
            return Err(error);
        }
        let config = settings::alter(topic.kind, &topic.config, set, &TopicLimits::WIDEST)?;
        check_dead_letter(&name, &config)?;
        let version = self.applied.0;
        let altered = TopicView { config, version, ..TopicView::clone(topic) };
        self.view.put_topic(altered);
        Ok(Outcome::TopicAltered { version })
    }

    pub(crate) fn delete_topic(&mut self, name: &str) -> Result<Outcome, Error> {
        let topic = find(&self.view, &TopicName::parse(name)?)?.id;
        self.view.delete_topic(topic);
        Ok(Outcome::TopicDeleted { topic })
    }
}

/// The topic of this name, or the error that there is none.
pub(crate) fn find<'a>(view: &'a ClusterView, name: &TopicName) -> Result<&'a Arc<TopicView>, Error> {
    view.topic_by_name(name.as_str())
        .ok_or_else(|| Error::new(ErrorKind::TopicNotFound, format!("there is no topic {name}")))
}

/// A new partition's first assignment.
fn assign(ids: &mut Ids, partition: PartitionId, nodes: &[NodeId]) -> Result<Arc<Assignment>, Error> {
    let group = ids.group()?;
    let replicas = nodes
        .iter()
        .map(|&node| Ok(ReplicaPlacement { node, replica: ids.replica()? }))
        .collect::<Result<Vec<_>, Error>>()?;
    let preferred_leader = nodes[0];
    Ok(Arc::new(Assignment { partition, group, generation: Generation(1), replicas, preferred_leader }))
}

/// The placement has what the command says, on nodes that are there.
fn check_placement(
    view: &ClusterView,
    partitions: u32,
    replication_factor: u32,
    placement: &[Vec<NodeId>],
) -> Result<(), Error> {
    let refuse = |message: String| Err(Error::new(ErrorKind::InvalidRequest, message));
    if placement.len() != partitions as usize {
        return refuse(format!("a placement of {} partitions for a topic of {partitions}", placement.len()));
    }
    for (partition, nodes) in placement.iter().enumerate() {
        if nodes.len() != replication_factor as usize {
            let placed = nodes.len();
            return refuse(format!(
                "partition {partition} is placed on {placed} nodes instead of {replication_factor}"
            ));
        }
        if let Some(node) = nodes.iter().find(|node| !view.nodes.contains_key(node)) {
            return refuse(format!("partition {partition} is placed on node {node}, which is not of this cluster"));
        }
        if nodes.iter().collect::<BTreeSet<_>>().len() != nodes.len() {
            return refuse(format!("partition {partition} is placed on one node twice"));
        }
    }
    Ok(())
}

fn check_room(view: &ClusterView, partitions: usize) -> Result<(), Error> {
    let reached =
        |message: String, limit: usize| Err(Error::new(ErrorKind::LimitReached, message).with_limit(limit as u64));
    if view.topics().len() >= MAX_TOPICS {
        return reached(format!("the cluster has {MAX_TOPICS} topics, as many as it may: delete some"), MAX_TOPICS);
    }
    let there = view.partition_count();
    if there + partitions > MAX_PARTITIONS {
        let message = format!(
            "{partitions} partitions more would be too many: the cluster has {there} of at most {MAX_PARTITIONS}"
        );
        return reached(message, MAX_PARTITIONS);
    }
    Ok(())
}

/// Dead messages stay within their tenant, and go elsewhere.
fn check_dead_letter(name: &TopicName, config: &TopicConfig) -> Result<(), Error> {
    let Some(target) = &config.dead_letter else { return Ok(()) };
    let target = TopicName::parse(target)?;
    let problem = if target == *name {
        "that is the topic itself"
    } else if target.tenant() != name.tenant() {
        "that is a topic of another tenant"
    } else {
        return Ok(());
    };
    let message = format!("dead_letter = {target}: {problem}; allowed: another topic of the same tenant, or none");
    Err(Error::new(ErrorKind::InvalidSetting, message))
}
