//! A private Ceph object gateway: a distributed object store with all its components, on one machine and in memory.
//!
//! Ceph's packages cannot be installed next to packages of another Debian release, and their scripts need an init system. So the packages are
//! unpacked into a folder. The servers run with that folder as their root, in their own namespaces, so that mounts and processes end with them.

use std::cell::Cell;
use std::fs;
use std::ops::Deref;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Signal, geteuid};

use crate::debian::Packages;
use crate::error::{Result, ServerError};
use crate::folder::Folder;
use crate::once::{FilledFolder, run};
use crate::port::ReservedPort;
use crate::running::ServerLaunch;
use crate::server::{ReadySignal, Server, ServerKind};
use crate::service::Service;

const KIND: ServerKind = ServerKind {
    name: "radosgw",
    ready: ReadySignal::Http,
    starting: Duration::from_secs(300),
    stop: Signal::TERM,
    quit: (Signal::KILL, "KILL"),
};

/// The packages, from the first Debian release whose Ceph is recent enough. Ceph of the previous release refuses `If-Match`.
const PACKAGES: Packages = Packages {
    names: &["radosgw", "ceph-mon", "ceph-osd", "ceph-common", "bash", "coreutils"],
    suite: Some("sid"),
};

/// The script that runs inside the folder. It starts a monitor, an object server with its data in memory, and the gateway.
const SERVE: &str = include_str!("radosgw/serve.sh");

/// The script that prepares the namespace and then becomes the server.
const ENTER: &str = r#"mount --bind /dev "$1/dev" && mount -t proc proc "$1/proc" && mount --bind "$2" "$1/data" &&
exec chroot "$1" /bin/bash /data/serve.sh "$3" "$4""#;

/// A `radosgw` from Debian's unstable release. It has one user, `test`, whose secret is `test`. It needs root.
///
/// The first start downloads about 160 MB and unpacks them into the target folder. The data is in memory, so a restart begins without data.
#[derive(Debug)]
pub struct RadosgwServer {
    server: Server,
    root: PathBuf,
    /// The port of the monitor, to which the gateway connects.
    _monitor: Option<ReservedPort>,
}

impl RadosgwServer {
    /// Starts the gateway, which takes about 15 seconds. Installs it first if it is missing.
    ///
    /// # Errors
    ///
    /// Returns [`ServerError::Failed`] if the test does not run as root, if the packages cannot be loaded, or if the start failed, with the output.
    pub fn start() -> Result<Self> {
        if !geteuid().is_root() {
            return Err(failed(
                "needs root: it runs with a folder of its own as the root of the file system",
            ));
        }
        let unpacked = FilledFolder::new("radosgw").make(|folder| {
            PACKAGES.unpack(folder)?;
            ["root/data", "root/dev", "root/proc"].iter().try_for_each(|part| {
                let path = folder.join(part);
                fs::create_dir_all(&path).map_err(ServerError::io("make", path))
            })
        });
        let root = unpacked?.join("root");
        let folder = Folder::new(None, None)?;
        let data = folder.path().join("data");
        fs::create_dir_all(&data).map_err(ServerError::io("make", &data))?;
        let script = data.join("serve.sh");
        fs::write(&script, SERVE).map_err(ServerError::io("write", &script))?;
        let monitor = Cell::new(None);
        let server = Server::start(&KIND, folder, |port, folder| {
            let namespaces = ["--mount", "--pid", "--fork", "--kill-child", "/bin/sh", "-c", ENTER, "enter"];
            let mut arguments: Vec<_> = namespaces.map(Into::into).into();
            arguments.extend([root.clone().into_os_string(), folder.join("data").into_os_string()]);
            let other = ReservedPort::free();
            arguments.extend([port, other.number()].map(|port| port.to_string().into()));
            monitor.set(Some(other));
            ServerLaunch::new(&KIND, &PathBuf::from("/usr/bin/unshare").into(), arguments, folder)
        })?;
        Ok(Self { server, root, _monitor: monitor.into_inner() })
    }

    /// Returns the environment variables with the server's address and credentials, for a program that uses the server.
    #[must_use]
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let user = || "test".to_owned();
        vec![
            (Service::S3.variable(), self.url()),
            ("AWS_ACCESS_KEY_ID", user()),
            ("AWS_SECRET_ACCESS_KEY", user()),
        ]
    }

    /// Returns the endpoint for an S3 client.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.server.port())
    }

    /// Returns the version of the gateway. It can change, because the unstable release changes.
    ///
    /// # Errors
    ///
    /// Returns [`ServerError::Failed`] if the gateway reports no version.
    pub fn version(&self) -> Result<String> {
        let said = run(Command::new("chroot").arg(&self.root).args(["/usr/bin/radosgw", "--version"]))?;
        Ok(said.trim().to_owned())
    }
}

impl Deref for RadosgwServer {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

fn failed(what: &str) -> ServerError {
    ServerError::Failed { name: KIND.name.to_owned(), what: what.to_owned(), log: String::new() }
}
