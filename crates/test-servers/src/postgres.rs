//! A private Postgres server.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::Signal;

use crate::error::{Result, ServerError};
use crate::folder::Folder;
use crate::program::{FoundProgram, Program};
use crate::running::{ServerLaunch, run_as};
use crate::server::{ReadySignal, STARTING, Server, ServerKind};
use crate::user::UnixUser;

const KIND: ServerKind = ServerKind {
    name: "Postgres",
    ready: ReadySignal::Postmaster,
    starting: STARTING,
    stop: Signal::INT,
    // With this signal, Postgres ends its children and frees its shared memory. After a kill, the memory would remain in the system.
    quit: (Signal::QUIT, "QUIT"),
};

/// Options of a Postgres server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PostgresServerOptions {
    /// Settings as in `postgresql.conf`, such as `("max_connections", "10")`. They override the settings of this crate.
    pub settings: Vec<(String, String)>,
    /// A folder for the server's data, instead of a temporary folder. A test can use a small file system, to fill it. The folder is never removed.
    pub dir: Option<PathBuf>,
    /// Whether the server syncs to disk. The default is true. Without syncs the start is faster; turn them off only for tests that do not test
    /// durability.
    pub fsync: bool,
}

impl Default for PostgresServerOptions {
    fn default() -> Self {
        Self { settings: Vec::new(), dir: None, fsync: true }
    }
}

impl PostgresServerOptions {
    /// Adds a setting.
    #[must_use]
    pub fn with_setting(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((name.into(), value.into()));
        self
    }

    /// Stores the data in `dir`.
    #[must_use]
    pub fn with_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = Some(dir.into());
        self
    }

    /// Sets whether the server syncs to disk.
    #[must_use]
    pub fn with_fsync(mut self, fsync: bool) -> Self {
        self.fsync = fsync;
        self
    }
}

/// A Postgres server with a new database cluster. It runs the newest version installed on this machine, or else the version unpacked from Debian's
/// packages. If the test runs as root, the server runs as the user `postgres`.
///
/// The superuser is `postgres`, without a password. Connections use only TCP. The encoding is UTF-8, and the locale is C.
#[derive(Debug)]
pub struct PostgresServer {
    server: Server,
}

impl PostgresServer {
    /// Starts a server.
    ///
    /// # Errors
    ///
    /// Returns [`ServerError::Missing`], or the reason why the start failed, with the server's output.
    pub fn start(options: PostgresServerOptions) -> Result<Self> {
        let user = UnixUser::instead_of_root();
        let [initdb, postgres] = ["initdb", "postgres"].map(|name| Program::Postgres.find(name));
        let (initdb, postgres) = (initdb?, postgres?);
        let folder = Folder::new(options.dir, user)?;
        if !folder.path().join("data/PG_VERSION").exists() {
            initialise(&initdb, folder.path(), user)?;
        }
        let mut settings = vec![
            ("listen_addresses".to_owned(), "127.0.0.1".to_owned()),
            // Use no socket: its path in a deep temporary folder would exceed the maximum length.
            ("unix_socket_directories".to_owned(), String::new()),
            // This is enough for all test programs of the workspace at the same time.
            ("max_connections".to_owned(), "300".to_owned()),
            ("fsync".to_owned(), if options.fsync { "on" } else { "off" }.to_owned()),
        ];
        settings.extend(options.settings);
        let server = Server::start(&KIND, folder, |port, folder| {
            let mut arguments =
                vec!["-D".into(), folder.join("data").into(), "-p".into(), port.to_string().into()];
            for (name, value) in &settings {
                arguments.extend(["-c".into(), format!("{name}={value}").into()]);
            }
            ServerLaunch::new(&KIND, &postgres, arguments, folder).with_user(user)
        })?;
        Ok(Self { server })
    }

    /// Returns the URL of the database `postgres`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.server.port())
    }
}

impl Deref for PostgresServer {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

/// Creates a new database cluster in `folder/data`.
fn initialise(initdb: &FoundProgram, folder: &Path, user: Option<UnixUser>) -> Result<()> {
    let mut command = initdb.command();
    command.arg("-D").arg(folder.join("data"));
    command.args(["-U", "postgres", "--auth=trust", "-E", "UTF8", "--locale=C", "--no-sync"]);
    command.current_dir(folder).stdin(Stdio::null());
    run_as(&mut command, user);
    let output = command.output().map_err(ServerError::io("start", &initdb.path))?;
    if output.status.success() {
        return Ok(());
    }
    let log = [output.stdout, output.stderr].concat();
    Err(ServerError::Failed {
        name: initdb.path.display().to_string(),
        what: format!("failed ({})", output.status),
        log: String::from_utf8_lossy(&log).into_owned(),
    })
}
