//! The way to the servers: one, or the nodes of a cluster. Calls go where their keys are.

mod call;
mod node;
mod slots;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use ferrata_core::{Clock, Error, ErrorKind, Result};
use futures_util::future::join_all;
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, TlsCertificates, Value};

pub(crate) use self::call::{Call, Script};
pub(crate) use self::node::{Node, Wait};
pub(crate) use self::slots::slot;
use self::slots::{Address, SlotMap};
use crate::config::{RedisOptions, Target, address};
use crate::error::Fault;

/// How often a call follows a cluster from node to node, and may be sent again after refusals that came before it was run.
///
/// One redirection is usual while slots move, two when the map was old as well; more says that the cluster is at odds.
const REDIRECTIONS: usize = 5;

/// The connections of one store.
pub(crate) struct Link {
    template: ConnectionInfo,
    seeds: Vec<Address>,
    is_cluster: bool,
    root_certificates: Option<Vec<u8>>,
    config: AsyncConnectionConfig,
    clock: Arc<dyn Clock>,
    nodes: Mutex<HashMap<Address, Arc<Node>>>,
    slots: RwLock<Arc<SlotMap>>,
    // Held while the map is read anew, so that calls that come meanwhile share the answer.
    refreshing: tokio::sync::Mutex<()>,
}

impl Link {
    /// Prepares the way; nothing is sent.
    pub(crate) fn new(target: Target, clock: Arc<dyn Clock>) -> Result<Self> {
        let Target { seeds, is_cluster, options } = target;
        let RedisOptions { connect_timeout, response_timeout, root_certificates, .. } = options;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(connect_timeout))
            .set_response_timeout(Some(response_timeout));
        let Some(template) = seeds.first().cloned() else {
            return Err(Error::new(ErrorKind::Invalid, "the store's URL names no host"));
        };
        if matches!(template.addr(), ConnectionAddr::TcpTls { .. }) {
            // The driver asks for the provider of the process and panics if there are several and none was chosen. It is an
            // error if somebody else was faster, and then there is one.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let link = Self {
            seeds: seeds.iter().map(address).collect(),
            template,
            is_cluster,
            root_certificates,
            config,
            clock,
            nodes: Mutex::default(),
            slots: RwLock::default(),
            refreshing: tokio::sync::Mutex::default(),
        };
        // A certificate that cannot be read is found here and not at the first call.
        link.node(&link.seeds[0]).map_err(|fault| {
            Error::new(ErrorKind::Invalid, "the root certificates are no PEM of certificates")
                .with_source(fault)
        })?;
        Ok(link)
    }

    pub(crate) fn is_cluster(&self) -> bool {
        self.is_cluster
    }

    /// The servers that the URL names, as they may be shown.
    pub(crate) fn seeds(&self) -> &[Address] {
        &self.seeds
    }

    fn node(&self, address: &Address) -> Result<Arc<Node>, Fault> {
        // A map of connections is whole after a panic, whoever had it.
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(node) = nodes.get(address) {
            return Ok(Arc::clone(node));
        }
        let (host, port) = address.clone();
        let at = match self.template.addr() {
            ConnectionAddr::TcpTls { tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: tls_params.clone() }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        let info = self.template.clone().set_addr(at);
        let client = match &self.root_certificates {
            Some(root) if matches!(info.addr(), ConnectionAddr::TcpTls { .. }) => Client::build_with_tls(
                info,
                TlsCertificates { client_tls: None, root_cert: Some(root.clone()) },
            ),
            _ => Client::open(info),
        };
        let name = format!("the Redis server {}:{}", address.0, address.1);
        let client = client.map_err(|source| Fault::Unreachable { server: name, source })?;
        let node = Arc::new(Node::new(address.clone(), client, self.config.clone(), Arc::clone(&self.clock)));
        nodes.insert(address.clone(), Arc::clone(&node));
        Ok(node)
    }

    /// Sends one call.
    pub(crate) async fn call(&self, call: Call) -> Result<Value, Fault> {
        let result = self.many(vec![call], None).await.pop();
        result.unwrap_or_else(|| Err(Fault::strange("no reply")))
    }

    /// Sends calls, those of each server in one go and to all servers at once; returns their replies in order.
    pub(crate) async fn many(&self, calls: Vec<Call>, wait: Option<Wait>) -> Vec<Result<Value, Fault>> {
        if calls.is_empty() {
            return Vec::new();
        }
        if !self.is_cluster {
            return match self.node(&self.seeds[0]) {
                Ok(node) => node.run(&calls, wait).await,
                Err(fault) => vec![Err(fault); calls.len()],
            };
        }
        let mut results: Vec<Option<Result<Value, Fault>>> = vec![None; calls.len()];
        let mut by_node: HashMap<Address, (Arc<Node>, Vec<usize>)> = HashMap::new();
        for (at, call) in calls.iter().enumerate() {
            match self.node_of(call.slot()).await {
                Ok(node) => {
                    let (_, list) = by_node.entry(node.address.clone()).or_insert_with(|| (node, Vec::new()));
                    list.push(at);
                }
                Err(fault) => results[at] = Some(Err(fault)),
            }
        }
        let sent = by_node.into_values().map(|(node, list)| {
            let calls: Vec<Call> = list.iter().map(|at| calls[*at].clone()).collect();
            async move { (node.run(&calls, wait).await, node, list) }
        });
        for (replies, node, list) in join_all(sent).await {
            for (at, reply) in list.into_iter().zip(replies) {
                results[at] = Some(self.follow(&calls[at], reply, &node, wait).await);
            }
        }
        let missing = || Err(Fault::strange("no reply"));
        results.into_iter().map(|result| result.unwrap_or_else(missing)).collect()
    }

    /// Sends a call again that a node refused because the keys are elsewhere. Every refusal followed here came before the
    /// call was run.
    async fn follow(
        &self,
        call: &Call,
        mut reply: Result<Value, Fault>,
        node: &Arc<Node>,
        wait: Option<Wait>,
    ) -> Result<Value, Fault> {
        let mut asked = Arc::clone(node);
        for _ in 0..REDIRECTIONS {
            let Err(fault) = &reply else { return reply };
            let (next, is_ask) = match fault {
                Fault::Refused { code, detail, .. } if code == "MOVED" || code == "ASK" => {
                    let is_ask = code == "ASK";
                    let Some(address) = detail.as_deref().and_then(|d| redirection(d, &asked.address)) else {
                        return reply;
                    };
                    if !is_ask {
                        // Best effort: the redirection itself says where to go now.
                        let _ = self.refresh().await;
                    }
                    (self.node(&address)?, is_ask)
                }
                // The node became a replica, or is gone: somebody else may have its slots now.
                Fault::Refused { code, .. } if code == "READONLY" => match self.elsewhere(call, &asked).await
                {
                    Some(next) => (next, false),
                    None => return reply,
                },
                Fault::Unreachable { .. } => match self.elsewhere(call, &asked).await {
                    Some(next) => (next, false),
                    None => return reply,
                },
                _ => return reply,
            };
            reply = if is_ask {
                next.run_asking(call, wait).await
            } else {
                let mut results = next.run(std::slice::from_ref(call), wait).await;
                results.pop().unwrap_or_else(|| Err(Fault::strange("no reply")))
            };
            asked = next;
        }
        match reply {
            // Not a cluster under a plain URL, but one at odds with itself.
            Err(Fault::Refused { server, code, detail }) if code == "MOVED" => {
                Err(Fault::Refused { server, code: "ASK".to_owned(), detail })
            }
            reply => reply,
        }
    }

    async fn elsewhere(&self, call: &Call, than: &Node) -> Option<Arc<Node>> {
        self.refresh().await.ok()?;
        self.node_of(call.slot()).await.ok().filter(|node| node.address != than.address)
    }

    async fn node_of(&self, slot: u16) -> Result<Arc<Node>, Fault> {
        let known = self.map().server(slot).cloned();
        let address = match known {
            Some(address) => address,
            None => {
                self.refresh().await?;
                self.map().server(slot).cloned().ok_or_else(|| Fault::Refused {
                    server: "the cluster".to_owned(),
                    code: "CLUSTERDOWN".to_owned(),
                    detail: Some(format!("nobody serves slot {slot}")),
                })?
            }
        };
        self.node(&address)
    }

    fn map(&self) -> Arc<SlotMap> {
        Arc::clone(&self.slots.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads anew which server has which slots, from the first that answers.
    async fn refresh(&self) -> Result<(), Fault> {
        let before = self.map();
        let _refreshing = self.refreshing.lock().await;
        if !Arc::ptr_eq(&before, &self.map()) {
            // Somebody else has just done it.
            return Ok(());
        }
        let mut failed = None;
        for address in before.servers().iter().chain(&self.seeds) {
            let node = self.node(address)?;
            match node.ask(redis::cmd("CLUSTER").arg("SLOTS").to_owned()).await {
                Ok(reply) => match SlotMap::read(&reply, address) {
                    Some(map) => {
                        *self.slots.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(map);
                        return Ok(());
                    }
                    None => failed = Some(Fault::strange("the reply to CLUSTER SLOTS cannot be read")),
                },
                Err(fault) => failed = Some(fault),
            }
        }
        Err(failed.unwrap_or_else(|| Fault::strange("the cluster has no servers")))
    }

    /// Returns every server that holds keys.
    pub(crate) async fn primaries(&self) -> Result<Vec<Arc<Node>>, Fault> {
        if !self.is_cluster {
            return Ok(vec![self.node(&self.seeds[0])?]);
        }
        self.refresh().await?;
        self.map().servers().iter().map(|address| self.node(address)).collect()
    }

    /// Returns a server to hear notices from: in a cluster every node passes on what any of them is told.
    pub(crate) async fn listener(&self, attempt: usize) -> Result<Arc<Node>, Fault> {
        let primaries = self.primaries().await?;
        let node = primaries.get(attempt % primaries.len().max(1));
        node.cloned().ok_or_else(|| Fault::strange("the cluster has no servers"))
    }
}

/// Reads `3999 127.0.0.1:6381`; a server that does not know the other's host leaves it out.
fn redirection(detail: &str, asked: &Address) -> Option<Address> {
    let (host, port) = detail.split_whitespace().nth(1)?.rsplit_once(':')?;
    let host = if host.is_empty() { &asked.0 } else { host };
    Some((host.to_owned(), port.parse().ok()?))
}
