//! The connections to one server, or to the nodes of a cluster. Each call goes to the server that has its key.

mod call;
mod cluster;
mod node;
mod slots;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use ferrata_store::{Clock, Error, ErrorKind, Result, SystemClock, within};
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, TlsCertificates, Value};

pub(crate) use self::call::{RedisCall, Script};
pub(crate) use self::node::{RedisNode, ReplicaWait};
pub(crate) use self::slots::slot;
use self::slots::{Address, SlotMap};
use crate::config::{RedisOptions, RedisTarget, address};
use crate::error::RedisStoreError;

/// The connections of one store.
pub(crate) struct RedisLink {
    template: ConnectionInfo,
    seeds: Vec<Address>,
    is_cluster: bool,
    root_certificates: Option<Vec<u8>>,
    config: AsyncConnectionConfig,
    connect_timeout: Duration,
    clock: Arc<dyn Clock>,
    nodes: Mutex<HashMap<Address, Arc<RedisNode>>>,
    slots: RwLock<Arc<SlotMap>>,
    // Set once it is known that one server has all keys.
    together: OnceLock<()>,
    // Locked during a refresh of the map, so that concurrent calls share the result.
    refreshing: tokio::sync::Mutex<()>,
}

impl RedisLink {
    /// Prepares the connections. Sends nothing.
    pub(crate) fn new(target: RedisTarget, clock: Arc<dyn Clock>) -> Result<Self> {
        let RedisTarget { seeds, is_cluster, options } = target;
        let RedisOptions { connect_timeout, response_timeout, root_certificates, .. } = options;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(connect_timeout))
            .set_response_timeout(Some(response_timeout));
        let Some(template) = seeds.first().cloned() else {
            return Err(Error::new(ErrorKind::Invalid, "the store's URL names no host"));
        };
        if matches!(template.addr(), ConnectionAddr::TcpTls { .. }) {
            // The driver uses the process's default provider, and panics if several providers exist and none was chosen. An error here only means
            // that another call has just installed one.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let link = Self {
            seeds: seeds.iter().map(address).collect(),
            template,
            is_cluster,
            root_certificates,
            config,
            connect_timeout,
            clock,
            nodes: Mutex::default(),
            slots: RwLock::default(),
            together: OnceLock::new(),
            refreshing: tokio::sync::Mutex::default(),
        };
        // Check the certificate here, so that a wrong one fails now and not at the first call.
        link.node(&link.seeds[0]).map_err(|fault| {
            Error::new(ErrorKind::Invalid, "the root certificates are not in PEM format").with_source(fault)
        })?;
        Ok(link)
    }

    pub(crate) fn is_cluster(&self) -> bool {
        self.is_cluster
    }

    /// Returns whether one script may use keys of several runs, because one server has all keys.
    ///
    /// A plain URL does not prove it: a proxy may distribute the keys over several servers.
    pub(crate) fn is_together(&self) -> bool {
        self.together.get().is_some()
    }

    /// Records that one server has all keys.
    pub(crate) fn record_single_server(&self) {
        let _ = self.together.set(());
    }

    /// Returns the servers that the URL names, in a form that may be displayed.
    pub(crate) fn seeds(&self) -> &[Address] {
        &self.seeds
    }

    fn node(&self, address: &Address) -> Result<Arc<RedisNode>, RedisStoreError> {
        // A panic leaves the map of connections valid.
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
        let client = client.map_err(|source| RedisStoreError::Unreachable { server: name, source })?;
        let node = Arc::new(RedisNode::new(address, client, self.config.clone(), Arc::clone(&self.clock)));
        nodes.insert(address.clone(), Arc::clone(&node));
        Ok(node)
    }

    /// Sends one call.
    pub(crate) async fn call(&self, call: RedisCall) -> Result<Value, RedisStoreError> {
        let result = self.many(vec![call], None).await.pop();
        result.unwrap_or_else(|| Err(RedisStoreError::strange("no reply")))
    }

    /// Sends calls and returns their replies in order. The calls for a server go together, and all servers get theirs at the same time.
    pub(crate) async fn many(
        &self,
        calls: Vec<RedisCall>,
        wait: Option<ReplicaWait>,
    ) -> Vec<Result<Value, RedisStoreError>> {
        if calls.is_empty() {
            return Vec::new();
        }
        if !self.is_cluster {
            return match self.node(&self.seeds[0]) {
                Ok(node) => node.run(&calls, self.is_together(), wait).await,
                Err(fault) => vec![Err(fault); calls.len()],
            };
        }
        self.many_in_cluster(&calls, wait).await
    }

    /// Sends calls to one server as if it had all keys, to find out whether it does.
    pub(crate) async fn many_as_one(&self, calls: &[RedisCall]) -> Vec<Result<Value, RedisStoreError>> {
        match self.node(&self.seeds[0]) {
            Ok(node) => node.run(calls, true, None).await,
            Err(fault) => vec![Err(fault); calls.len()],
        }
    }

    /// Returns every server that holds keys.
    pub(crate) async fn primaries(&self) -> Result<Vec<Arc<RedisNode>>, RedisStoreError> {
        if !self.is_cluster {
            return Ok(vec![self.node(&self.seeds[0])?]);
        }
        self.refresh(&[]).await?;
        self.map().servers().iter().map(|address| self.node(address)).collect()
    }

    /// Runs one step of the subscription, with the timeout for a connection.
    pub(crate) async fn in_time<T>(
        &self,
        step: impl Future<Output = Result<T, RedisStoreError>>,
    ) -> Result<T, RedisStoreError> {
        let late = || RedisStoreError::strange("the server does not answer the connection for notices");
        within(&SystemClock::new(), self.connect_timeout, step).await.unwrap_or_else(|| Err(late()))
    }

    /// Publishes texts on a channel. In a cluster, the server forwards them to the other servers.
    pub(crate) async fn publish_texts(
        &self,
        channel: &[u8],
        texts: &[String],
    ) -> Result<(), RedisStoreError> {
        let known = self.map().servers().first().filter(|_| self.is_cluster).cloned();
        let node = match known {
            Some(address) => self.node(&address)?,
            None => self.listener(0).await?,
        };
        let publish = |text| {
            let mut publish = redis::cmd("PUBLISH");
            publish.arg(channel).arg(text);
            publish
        };
        let replies = node.send(texts.iter().map(publish).collect()).await?;
        replies.into_iter().try_for_each(|reply| node.result(reply).map(drop))
    }

    /// Returns a server for a subscription: in a cluster every node forwards the messages of all nodes.
    pub(crate) async fn listener(&self, attempt: usize) -> Result<Arc<RedisNode>, RedisStoreError> {
        let primaries = self.primaries().await?;
        let node = primaries.get(attempt % primaries.len().max(1));
        node.cloned().ok_or_else(|| RedisStoreError::strange("the cluster has no servers"))
    }
}
