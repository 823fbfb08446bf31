//! A private PgBouncer in front of a Postgres server.

use std::fs;
use std::ops::Deref;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use crate::error::{Result, ServerError};
use crate::folder::Folder;
use crate::program::Program;
use crate::running::ServerLaunch;
use crate::server::{ReadySignal, STARTING, Server, ServerKind};
use crate::user::UnixUser;

const KIND: ServerKind = ServerKind {
    name: "PgBouncer",
    ready: ReadySignal::Pid,
    starting: STARTING,
    stop: Signal::INT,
    quit: (Signal::KILL, "KILL"),
};

/// A PgBouncer in front of a Postgres server. It runs the program installed on this machine, or else the program unpacked from Debian's packages.
/// PgBouncer shares few connections by transaction.
#[derive(Debug)]
pub struct PgBouncer {
    server: Server,
    upstream: Upstream,
    keeps_statements: bool,
}

/// The first version that supports prepared statements of clients.
const FIRST_THAT_KEEPS: (u32, u32) = (1, 21);

impl PgBouncer {
    /// Starts a PgBouncer in front of the server in `url`. It has `connections` connections to the server, and lends one of them to a client for
    /// each transaction.
    ///
    /// # Errors
    ///
    /// Returns [`ServerError::Missing`], or [`ServerError::Failed`] for a URL without a port, or the reason why the start failed, with the
    /// program's output.
    pub fn before(url: &str, connections: u16) -> Result<Self> {
        let upstream = Upstream::of(url).ok_or_else(|| ServerError::Failed {
            name: KIND.name.to_owned(),
            what: "needs a URL with a host, a port and a database".to_owned(),
            log: String::new(),
        })?;
        let program = Program::PgBouncer.find("pgbouncer")?;
        let keeps_statements =
            version(&mut program.command()).is_some_and(|version| version >= FIRST_THAT_KEEPS);
        // PgBouncer refuses to run as root.
        let user = UnixUser::instead_of_root();
        let folder = Folder::new(None, user)?;
        let settings = folder.path().join("pgbouncer.ini");
        let server = Server::start(&KIND, folder, |port, folder| {
            // If the write fails, the program does not find the file, and reports it.
            let _ = fs::write(&settings, upstream.settings(port, connections, keeps_statements, folder));
            ServerLaunch::new(&KIND, &program, vec![settings.clone().into()], folder).with_user(user)
        })?;
        Ok(Self { server, upstream, keeps_statements })
    }

    /// Returns whether this PgBouncer supports prepared statements of its clients. Versions from 1.21 on do.
    #[must_use]
    pub fn keeps_statements(&self) -> bool {
        self.keeps_statements
    }

    /// Returns the URL of the server's database through this PgBouncer, without a password.
    #[must_use]
    pub fn url(&self) -> String {
        let Upstream { user, database, .. } = &self.upstream;
        format!("postgres://{user}@127.0.0.1:{}/{database}", self.server.port())
    }
}

impl Deref for PgBouncer {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

/// Parses the version of a program that prints `PgBouncer 1.24.1`.
fn version(program: &mut Command) -> Option<(u32, u32)> {
    let said = program.arg("--version").output().ok()?.stdout;
    let said = String::from_utf8_lossy(&said);
    let mut numbers = said.lines().next()?.split_whitespace().last()?.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// The server in a URL.
#[derive(Debug, PartialEq, Eq)]
struct Upstream {
    user: String,
    password: Option<String>,
    host: String,
    port: u16,
    database: String,
}

impl Upstream {
    fn of(url: &str) -> Option<Self> {
        let (_, rest) = url.split_once("://")?;
        let (authority, database) = rest.split('?').next()?.split_once('/')?;
        let (login, place) = authority.rsplit_once('@').unwrap_or(("postgres", authority));
        let (user, password) = match login.split_once(':') {
            Some((user, password)) => (user, Some(password.to_owned())),
            None => (login, None),
        };
        let (host, port) = place.rsplit_once(':')?;
        Some(Self {
            user: user.to_owned(),
            password,
            host: host.to_owned(),
            port: port.parse().ok()?,
            database: database.to_owned(),
        })
    }

    /// Returns the text of `pgbouncer.ini`.
    fn settings(&self, port: u16, connections: u16, keeps_statements: bool, folder: &Path) -> String {
        let Self { user, password, host, port: upstream, database } = self;
        let password =
            password.iter().map(|password| format!(" password='{}'", password.replace('\'', "''")));
        let password: String = password.collect();
        let folder = folder.display();
        // The number is smaller than the number of a store's statements, so that some are prepared again. Versions before 1.21 refuse the setting.
        let kept = if keeps_statements { "max_prepared_statements = 8\n" } else { "" };
        // Each client logs in as the user of the database. When the driver connects, it sets `extra_float_digits`.
        format!(
            "[databases]\n{database} = host={host} port={upstream} dbname={database} user={user}{password}\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n\
             pool_mode = transaction\ndefault_pool_size = {connections}\nmax_client_conn = 200\n\
             ignore_startup_parameters = extra_float_digits\npidfile = {folder}/pid\n{kept}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_server() {
        let upstream = Upstream::of("postgres://me:p@'x@db.example:7000/name?x=y").unwrap();
        assert_eq!((upstream.user.as_str(), upstream.password.as_deref()), ("me", Some("p@'x")));
        assert_eq!((upstream.host.as_str(), upstream.port), ("db.example", 7000));
        let settings = upstream.settings(1, 2, false, Path::new("/f"));
        assert!(
            settings.contains("\nname = host=db.example port=7000 dbname=name user=me password='p@''x'\n")
        );
        assert_eq!(Upstream::of("postgres://h:1/d").unwrap().user, "postgres");
        assert_eq!(Upstream::of("postgres://h/d"), None);
        assert_eq!(Upstream::of("postgres://h:1"), None);
    }
}
