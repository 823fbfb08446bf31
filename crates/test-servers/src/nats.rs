//! A private NATS with JetStream, and a cluster of them.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::Signal;

use crate::error::Result;
use crate::folder::Folder;
use crate::port::BUS;
use crate::program::Program;
use crate::proxy::{Cut, Proxy};
use crate::running::Launch;
use crate::server::{Kind, Ready, STARTING, Server};

const KIND: Kind = Kind {
    name: "NATS",
    ready: Ready::Ports,
    starting: STARTING,
    stop: Signal::TERM,
    // It is not to write anything that is thrown away at once.
    quit: (Signal::KILL, "KILL"),
};

/// How a NATS is started. By default it takes messages of 8 MiB, so that one holds what a test writes at once.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NatsOptions {
    /// The most bytes of a message.
    pub max_payload: u64,
    /// The bytes that JetStream may use in files; no limit by default. At the limit it refuses messages.
    pub max_file_store: Option<u64>,
    /// Where it keeps its data, instead of in a temporary folder. Never removed.
    pub dir: Option<PathBuf>,
    /// More of its configuration, such as `authorization { token: secret }`.
    pub config: String,
}

impl Default for NatsOptions {
    fn default() -> Self {
        Self { max_payload: 8 << 20, max_file_store: None, dir: None, config: String::new() }
    }
}

impl NatsOptions {
    /// Sets the most bytes of a message.
    #[must_use]
    pub fn with_max_payload(mut self, bytes: u64) -> Self {
        self.max_payload = bytes;
        self
    }

    /// Sets the bytes that JetStream may use in files.
    #[must_use]
    pub fn with_max_file_store(mut self, bytes: u64) -> Self {
        self.max_file_store = Some(bytes);
        self
    }

    /// Keeps the data in `dir`.
    #[must_use]
    pub fn with_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = Some(dir.into());
        self
    }

    /// Adds to its configuration.
    #[must_use]
    pub fn with_config(mut self, config: impl AsRef<str>) -> Self {
        self.config.push_str(config.as_ref());
        self.config.push('\n');
        self
    }
}

/// The NATS of this machine, or Debian's, unpacked.
#[derive(Debug)]
pub struct Nats {
    server: Server,
}

impl Nats {
    /// Starts one.
    ///
    /// # Errors
    ///
    /// [`ServerError::Missing`](crate::ServerError::Missing), or why it did not start, with what it printed.
    #[expect(clippy::needless_pass_by_value, reason = "as the other servers take theirs")]
    pub fn start(options: NatsOptions) -> Result<Self> {
        Self::start_in(&options, None)
    }

    /// Starts one; of a cluster, as the one that follows those that are there.
    fn start_in(options: &NatsOptions, cluster: Option<&Routes>) -> Result<Self> {
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
            // A server without its configuration ends at once, and says so.
            let _ = std::fs::write(&config, text);
            Launch::new(&KIND, &nats, vec!["-c".into(), config.clone().into()], folder)
        })?;
        Ok(Self { server })
    }

    /// Returns its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.server.port())
    }
}

impl Deref for Nats {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

/// The ways between the servers of a cluster. The others reach the first through a proxy, and it reaches none of them by itself: so it can be cut off.
#[derive(Debug, Default)]
struct Routes {
    first: Mutex<Option<Proxy>>,
    others: Vec<SocketAddr>,
}

impl Routes {
    fn first(&self) -> MutexGuard<'_, Option<Proxy>> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the configuration of the server on this port.
    fn of(&self, port: u16) -> String {
        let own = SocketAddr::from((Ipv4Addr::LOCALHOST, port.saturating_add(BUS)));
        let is_first = self.others.is_empty();
        if is_first {
            // Without one, the others find the first where it listens, and cutting it off fails.
            *self.first() = Proxy::start(own).ok();
        }
        let first = self.first().as_ref().map(Proxy::address);
        // The first has itself alone: without any route there is no JetStream of several servers.
        let known =
            first.filter(|_| !is_first).into_iter().chain(self.others.iter().skip(1).copied()).chain([own]);
        let routes: Vec<String> = known.map(|address| format!("nats://{address}")).collect();
        // The others advertise a port on which no server listens: a connection that the first made by itself would pass no proxy.
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

/// Servers that keep streams together.
#[derive(Debug)]
pub struct NatsCluster {
    servers: Vec<Nats>,
    routes: Routes,
}

impl NatsCluster {
    /// Starts a cluster of so many servers. It may take some seconds more until it has chosen a leader.
    ///
    /// # Errors
    ///
    /// As for [`Nats::start`].
    pub fn start(servers: usize) -> Result<Self> {
        let (mut started, mut routes) = (Vec::new(), Routes::default());
        for _ in 0..servers {
            let server = Nats::start_in(&NatsOptions::default(), Some(&routes))?;
            routes.others.push(SocketAddr::from((Ipv4Addr::LOCALHOST, server.port().saturating_add(BUS))));
            started.push(server);
        }
        Ok(Self { servers: started, routes })
    }

    /// Cuts the first server off from the others: nothing passes between them any more. Its clients still reach it.
    pub fn cut_off_first(&self) {
        if let Some(first) = &*self.routes.first() {
            first.refuse();
            first.silence();
        }
    }

    /// Has the first server and the others reach each other again.
    ///
    /// # Errors
    ///
    /// As for [`Proxy::accept`].
    pub fn rejoin_first(&self) -> Result<()> {
        let first = self.routes.first();
        let Some(first) = &*first else { return Ok(()) };
        first.cut(Cut::Reset);
        first.accept()
    }

    /// Returns its servers.
    #[must_use]
    pub fn servers(&self) -> &[Nats] {
        &self.servers
    }

    /// Returns a URL that names all of them.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<String> =
            self.servers.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
        format!("nats://{}", hosts.join(","))
    }
}
