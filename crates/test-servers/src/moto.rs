//! A private moto: a mock of S3 in memory. It supports conditional writes, and processes one request at a time.

use std::ops::Deref;

use rustix::process::Signal;

use crate::error::{Result, ServerError};
use crate::folder::Folder;
use crate::python;
use crate::running::ServerLaunch;
use crate::server::{ReadySignal, STARTING, Server, ServerKind};

const KIND: ServerKind = ServerKind {
    name: "moto",
    ready: ReadySignal::Http,
    starting: STARTING,
    stop: Signal::TERM,
    quit: (Signal::KILL, "KILL"),
};

/// Code that Python runs before moto. It makes the server process requests one after another. `docker-compose.yml` uses the same file.
const ONE_AT_A_TIME: &str = include_str!("moto/sitecustomize.py");

/// A `moto_server`. It keeps all data in memory, so a restart begins without data. It accepts any credentials.
///
/// The environment variable `FERRATA_MOTO` names the program. Without the variable, the pinned version in `PATH` is used. If that is missing, `pip`
/// installs it once into the target folder, which takes a minute and needs a network.
#[derive(Debug)]
pub struct MotoServer {
    server: Server,
}

impl MotoServer {
    /// Starts a server.
    ///
    /// # Errors
    ///
    /// Returns [`ServerError::Missing`], or the reason why the start failed, with the server's output.
    pub fn start() -> Result<Self> {
        let moto = python::MotoProgram::find()?;
        let folder = Folder::new(None, None)?;
        let hook = folder.path().join("sitecustomize.py");
        std::fs::write(&hook, ONE_AT_A_TIME).map_err(ServerError::io("write", &hook))?;
        let server = Server::start(&KIND, folder, |port, folder| {
            let mut arguments = moto.arguments.clone();
            arguments.extend(["-H", "127.0.0.1", "-p", &port.to_string()].map(Into::into));
            let mut modules = folder.as_os_str().to_owned();
            if let Some(folder) = &moto.modules {
                modules.push(":");
                modules.push(folder);
            }
            ServerLaunch::new(&KIND, &moto.program, arguments, folder).with_variable("PYTHONPATH", modules)
        })?;
        Ok(Self { server })
    }

    /// Returns whether [`start`](Self::start) can start a server without an installation.
    #[must_use]
    pub fn is_at_hand() -> bool {
        python::MotoProgram::is_at_hand()
    }

    /// Returns the endpoint for an S3 client.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.server.port())
    }
}

impl Deref for MotoServer {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}
