//! A private NATS server with JetStream, and a cluster of such servers.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::Signal;

use crate::error::Result;
use crate::folder::Folder;
use crate::port::BUS;
use crate::program::Program;
use crate::proxy::{ConnectionCut, Proxy};
use crate::running::ServerLaunch;
use crate::server::{ReadySignal, STARTING, Server, ServerKind};

const KIND: ServerKind = ServerKind {
    name: "NATS",
    ready: ReadySignal::Ports,
    starting: STARTING,
    stop: Signal::TERM,
    // Kill it, so that it does not write data that is deleted right afterward.
    quit: (Signal::KILL, "KILL"),
};

/// Options of a NATS server. By default it accepts messages of 8 MiB, so that one message can hold everything that a test writes at once.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NatsServerOptions {
    /// Maximum size of a message in bytes.
    pub max_payload: u64,
    /// Maximum size of JetStream's files in bytes. The default is unlimited. At the limit, the server refuses messages.
    pub max_file_store: Option<u64>,
    /// A folder for the server's data, instead of a temporary folder. The folder is never removed.
    pub dir: Option<PathBuf>,
    /// Additional text for the configuration file, such as `authorization { token: secret }`.
    pub config: String,
}

impl Default for NatsServerOptions {
    fn default() -> Self {
        Self { max_payload: 8 << 20, max_file_store: None, dir: None, config: String::new() }
    }
}

impl NatsServerOptions {
    /// Sets the maximum size of a message.
    #[must_use]
    pub fn with_max_payload(mut self, bytes: u64) -> Self {
        self.max_payload = bytes;
        self
    }

    /// Sets the maximum size of JetStream's files.
    #[must_use]
    pub fn with_max_file_store(mut self, bytes: u64) -> Self {
        self.max_file_store = Some(bytes);
        self
    }

    /// Stores the data in `dir`.
    #[must_use]
    pub fn with_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = Some(dir.into());
        self
    }

    /// Adds text to the configuration file.
    #[must_use]
    pub fn with_config(mut self, config: impl AsRef<str>) -> Self {
        self.config.push_str(config.as_ref());
        self.config.push('\n');
        self
    }
}

/// A NATS server. It runs the program installed on this machine, or else the program unpacked from Debian's packages.
#[derive(Debug)]
pub struct NatsServer {
    server: Server,
}

impl NatsServer {
    /// Starts a server.
    ///
    /// # Errors
    ///
    /// Returns [`ServerError::Missing`](crate::ServerError::Missing), or the reason why the start failed, with the server's output.
    #[expect(clippy::needless_pass_by_value, reason = "as the other servers take theirs")]
    pub fn start(options: NatsServerOptions) -> Result<Self> {
        Self::start_in(&options, None)
    }

    /// Starts a server. In a cluster, the new server is the next one after the existing servers.
    fn start_in(options: &NatsServerOptions, cluster: Option<&Routes>) -> Result<Self> {
        let nats = Program::Nats.find("nats-server")?;
        let folder = Folder::new(options.dir.clone(), None)?;
        let config = folder.path().join("nats.conf");
        let server = Server::start(&KIND, folder, |port, folder| {
            let store = folder.join("jetstream");
            let quota =
                options.max_file_store.map_or_else(String::new, |most| format!("max_file_store: {most}"));
            let mut text = format!(
                "listen: \"127.0.0.1:{port}\"\nports_file_dir: {folder:?}\nmax_payload: {}\njetstream {{ store_dir: {store:?}\n{quota} }}\n{}\n",
                options.max_payload, options.config
            );
            if let Some(routes) = cluster {
                text += &routes.of(port);
            }
            // If the write fails, the server ends at once and reports the missing configuration.
            let _ = std::fs::write(&config, text);
            ServerLaunch::new(&KIND, &nats, vec!["-c".into(), config.clone().into()], folder)
        })?;
        Ok(Self { server })
    }

    /// Returns the URL of the server.
    #[must_use]
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.server.port())
    }
}

impl Deref for NatsServer {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

/// The connections between the servers of a cluster. The other servers reach the first server through a proxy, and the first server connects to no
/// other server. So a test can cut the first server off.
#[derive(Debug, Default)]
struct Routes {
    first: Mutex<Option<Proxy>>,
    others: Vec<SocketAddr>,
}

impl Routes {
    fn first(&self) -> MutexGuard<'_, Option<Proxy>> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the configuration of the server with this port.
    fn of(&self, port: u16) -> String {
        let own = SocketAddr::from((Ipv4Addr::LOCALHOST, port.saturating_add(BUS)));
        let is_first = self.others.is_empty();
        if is_first {
            // If the proxy cannot start, the other servers use the first server's own address, and cutting it off fails.
            *self.first() = Proxy::start(own).ok();
        }
        let first = self.first().as_ref().map(Proxy::address);
        // The first server has only itself as a route: without any route, JetStream would not form a cluster.
        let known =
            first.filter(|_| !is_first).into_iter().chain(self.others.iter().skip(1).copied()).chain([own]);
        let routes: Vec<String> = known.map(|address| format!("nats://{address}")).collect();
        // The other servers advertise a port that refuses connections: a connection from the first server would bypass the proxy.
        let advertise = match first {
            Some(first) if is_first => first.to_string(),
            _ => format!("{}:1", Ipv4Addr::LOCALHOST),
        };
        format!(
            "server_name: \"n{port}\"\nping_interval: \"1s\"\ncluster {{ name: tests\nlisten: {:?}\nadvertise: {advertise:?}\nroutes: {routes:?} }}\n",
            own.to_string()
        )
    }
}

/// A cluster of NATS servers that replicate streams.
#[derive(Debug)]
pub struct NatsCluster {
    servers: Vec<NatsServer>,
    routes: Routes,
}

impl NatsCluster {
    /// Starts a cluster of `servers` servers. After that, the election of a leader may take several seconds.
    ///
    /// # Errors
    ///
    /// The errors of [`NatsServer::start`].
    pub fn start(servers: usize) -> Result<Self> {
        let (mut started, mut routes) = (Vec::new(), Routes::default());
        for _ in 0..servers {
            let server = NatsServer::start_in(&NatsServerOptions::default(), Some(&routes))?;
            routes.others.push(SocketAddr::from((Ipv4Addr::LOCALHOST, server.port().saturating_add(BUS))));
            started.push(server);
        }
        Ok(Self { servers: started, routes })
    }

    /// Cuts the first server off from the other servers: no data passes between them. Clients of the first server still reach it.
    pub fn cut_off_first(&self) {
        if let Some(first) = &*self.routes.first() {
            first.refuse();
            first.silence();
        }
    }

    /// Reconnects the first server with the others.
    ///
    /// # Errors
    ///
    /// The errors of [`Proxy::accept`].
    pub fn rejoin_first(&self) -> Result<()> {
        let first = self.routes.first();
        let Some(first) = &*first else { return Ok(()) };
        first.cut(ConnectionCut::Reset);
        first.accept()
    }

    /// Returns the servers of the cluster.
    #[must_use]
    pub fn servers(&self) -> &[NatsServer] {
        &self.servers
    }

    /// Returns a URL with all servers.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<String> =
            self.servers.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
        format!("nats://{}", hosts.join(","))
    }
}
