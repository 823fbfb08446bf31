//! A private Redis server.

use std::cell::Cell;
use std::ffi::OsString;
use std::ops::Deref;
use std::path::PathBuf;

use rustix::process::Signal;

use crate::error::Result;
use crate::folder::Folder;
use crate::port::ReservedPort;
use crate::program::Program;
use crate::running::ServerLaunch;
use crate::server::{ReadySignal, STARTING, Server, ServerKind};

const KIND: ServerKind = ServerKind {
    name: "Redis",
    ready: ReadySignal::Redis,
    starting: STARTING,
    stop: Signal::TERM,
    // Kill it, so that it does not write data that is deleted right afterward.
    quit: (Signal::KILL, "KILL"),
};

/// The time at which a command in the append-only file is durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AppendFsync {
    /// Before the server acknowledges the command.
    Always,
    /// Within a second after the command.
    #[default]
    EverySecond,
    /// When the system flushes the file.
    No,
}

impl AppendFsync {
    fn word(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::EverySecond => "everysec",
            Self::No => "no",
        }
    }
}

/// Options of a Redis server. By default it appends every command to a file, which it syncs every second.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RedisServerOptions {
    /// Whether the server appends commands to a file. If not, a restart begins without data.
    pub appendonly: bool,
    /// When the server syncs that file.
    pub appendfsync: AppendFsync,
    /// Maximum size of the data in bytes. The default is unlimited. At the limit, the server refuses writes and evicts nothing.
    pub maxmemory: Option<u64>,
    /// A folder for the server's data, instead of a temporary folder. The folder is never removed.
    pub dir: Option<PathBuf>,
    /// Whether the server accepts TLS connections on a second port. The arguments must name its key and certificate.
    pub tls_port: bool,
    /// Additional arguments, such as `["--requirepass", "secret"]`. They override the arguments of this crate.
    pub args: Vec<String>,
}

impl Default for RedisServerOptions {
    fn default() -> Self {
        Self {
            appendonly: true,
            appendfsync: AppendFsync::default(),
            maxmemory: None,
            dir: None,
            tls_port: false,
            args: Vec::new(),
        }
    }
}

impl RedisServerOptions {
    /// Sets whether the server appends commands to a file.
    #[must_use]
    pub fn with_appendonly(mut self, appendonly: bool) -> Self {
        self.appendonly = appendonly;
        self
    }

    /// Sets when the server syncs that file.
    #[must_use]
    pub fn with_appendfsync(mut self, appendfsync: AppendFsync) -> Self {
        self.appendfsync = appendfsync;
        self
    }

    /// Sets the maximum size of the data in bytes.
    #[must_use]
    pub fn with_maxmemory(mut self, bytes: u64) -> Self {
        self.maxmemory = Some(bytes);
        self
    }

    /// Stores the data in `dir`.
    #[must_use]
    pub fn with_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = Some(dir.into());
        self
    }

    /// Makes the server accept TLS connections on a second port.
    #[must_use]
    pub fn with_tls_port(mut self) -> Self {
        self.tls_port = true;
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn with_args<S: Into<String>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }
}

/// A Redis or Valkey server. It runs the program installed on this machine, or else the program unpacked from Debian's packages.
#[derive(Debug)]
pub struct RedisServer {
    server: Server,
    tls_port: Option<ReservedPort>,
}

impl RedisServer {
    /// Starts a server.
    ///
    /// # Errors
    ///
    /// Returns [`ServerError::Missing`](crate::ServerError::Missing), or the reason why the start failed, with the server's output.
    pub fn start(options: RedisServerOptions) -> Result<Self> {
        let redis = Program::Redis.find("redis-server")?;
        let folder = Folder::new(options.dir, None)?;
        let tls_port = Cell::new(None);
        let server = Server::start(&KIND, folder, |port, folder| {
            let words = [
                ("--port", port.to_string()),
                ("--bind", "127.0.0.1".to_owned()),
                ("--appendonly", if options.appendonly { "yes" } else { "no" }.to_owned()),
                ("--appendfsync", options.appendfsync.word().to_owned()),
                ("--maxmemory", options.maxmemory.unwrap_or(0).to_string()),
                ("--maxmemory-policy", "noeviction".to_owned()),
                ("--save", String::new()),
            ];
            let mut arguments: Vec<OsString> = vec!["--dir".into(), folder.into()];
            arguments.extend(words.into_iter().flat_map(|(name, value)| [name.into(), value.into()]));
            if options.tls_port {
                // Each attempt uses a new TLS port, as it uses a new first port.
                let port = ReservedPort::free();
                arguments.extend(["--tls-port".into(), port.number().to_string().into()]);
                tls_port.set(Some(port));
            }
            arguments.extend(options.args.iter().map(OsString::from));
            ServerLaunch::new(&KIND, &redis, arguments, folder)
        })?;
        Ok(Self { server, tls_port: tls_port.into_inner() })
    }

    /// Returns the URL of the server with TLS, if the server accepts TLS connections.
    #[must_use]
    pub fn tls_url(&self) -> Option<String> {
        self.tls_port.as_ref().map(|port| format!("rediss://127.0.0.1:{}", port.number()))
    }

    /// Returns the URL of the server.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.server.port())
    }
}

impl Deref for RedisServer {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}
