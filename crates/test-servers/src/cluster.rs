//! A private Redis Cluster: several masters that share the slots, without replicas.

use std::time::Duration;

use crate::error::{Result, ServerError};
use crate::redis::{RedisServer, RedisServerOptions};
use crate::{resp, wait};

/// Number of slots of a cluster.
const SLOTS: usize = 16_384;

/// How long the nodes may take to join. They usually take a second.
const JOINING: Duration = Duration::from_secs(300);

/// A Redis Cluster. Each node is a separate [`RedisServer`] with an append-only file.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<RedisServer>,
}

impl RedisCluster {
    /// Starts a cluster of `masters` masters; Redis requires at least three.
    ///
    /// # Errors
    ///
    /// Returns [`ServerError::Missing`], or the reason why the start failed.
    pub fn start(masters: usize) -> Result<Self> {
        let options = RedisServerOptions::default().with_args([
            "--cluster-enabled",
            "yes",
            // With this timeout, the other nodes soon notice a node that a test kills, but not a node that a busy machine delays. A test that needs
            // a faster failover sets a lower value.
            "--cluster-node-timeout",
            "60000",
            "--cluster-announce-ip",
            "127.0.0.1",
        ]);
        let nodes = (0..masters).map(|_| RedisServer::start(options.clone())).collect::<Result<Vec<_>>>()?;
        let cluster = Self { nodes };
        cluster.join()?;
        Ok(cluster)
    }

    /// Returns the nodes.
    #[must_use]
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// Returns the URL of the first node, from which a client discovers the others.
    #[must_use]
    pub fn url(&self) -> String {
        self.nodes[0].url()
    }

    /// Assigns the slots, introduces the nodes to each other, and waits until each reports a healthy cluster.
    fn join(&self) -> Result<()> {
        let masters = self.nodes.len();
        for (index, node) in self.nodes.iter().enumerate() {
            let (first, next) = (SLOTS * index / masters, SLOTS * (index + 1) / masters);
            // Assign distinct epochs first, because equal epochs cause a conflict.
            ask(node, &["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()])?;
            ask(node, &["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &(next - 1).to_string()])?;
        }
        for node in &self.nodes[1..] {
            for other in &self.nodes {
                if other.port() != node.port() {
                    ask(node, &["CLUSTER", "MEET", "127.0.0.1", &other.port().to_string()])?;
                }
            }
        }
        let known = masters.to_string();
        let is_well = |node: &RedisServer| {
            let info = resp::call(node.port(), &["CLUSTER", "INFO"]).unwrap_or_default();
            let says = |name, value| resp::field(&info, name) == Some(value);
            says("cluster_state", "ok") && says("cluster_known_nodes", &known) && says("cluster_size", &known)
        };
        let well = wait::until(JOINING, || self.nodes.iter().all(is_well).then_some(()));
        well.ok_or_else(|| {
            failed(format!("did not come together in {} s", JOINING.as_secs()), &self.nodes[0])
        })
    }
}

fn ask(node: &RedisServer, command: &[&str]) -> Result<String> {
    resp::call(node.port(), command)
        .map_err(|error| failed(format!("refused `{}`: {error}", command.join(" ")), node))
}

fn failed(what: String, node: &RedisServer) -> ServerError {
    ServerError::Failed {
        name: "Redis Cluster".to_owned(),
        what,
        log: crate::error::LogEnd(node.log()).to_string(),
    }
}
