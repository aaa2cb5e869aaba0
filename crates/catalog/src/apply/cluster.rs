//! The cluster itself: its identity and its nodes.

use std::sync::Arc;

use lockgate_wire::{Error, ErrorKind, NodeId, Uid, WallMs};

use crate::{Catalog, NodeView, Outcome};

impl Catalog {
    pub(crate) fn init_cluster(&mut self, cluster_id: Uid, node: NodeId, time: WallMs) -> Result<Outcome, Error> {
        if self.view.is_initialised() {
            let message = format!("the cluster is initialised already, as {}", self.view.cluster_id);
            return Err(Error::new(ErrorKind::InvalidRequest, message));
        }
        if cluster_id == Uid::default() {
            return Err(Error::new(
                ErrorKind::InvalidRequest,
                "a cluster id of all zeros is nobody's: draw a random one",
            ));
        }
        if node.0 == 0 {
            return Err(Error::new(ErrorKind::InvalidRequest, "node id 0 is nobody's: node ids start at 1"));
        }
        self.view.cluster_id = cluster_id;
        Arc::make_mut(&mut self.view.nodes).insert(node, NodeView { registered: time });
        Ok(Outcome::ClusterInitialised)
    }
}
