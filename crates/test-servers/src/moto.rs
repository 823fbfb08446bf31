//! A private moto: a mock of S3 that honours conditional writes, in memory.

use std::ops::Deref;

use rustix::process::Signal;

use crate::error::Result;
use crate::folder::Folder;
use crate::running::Launch;
use crate::server::{Kind, Ready, Server};
use crate::venv;

const KIND: Kind =
    Kind { name: "moto", ready: Ready::Http, stop: Signal::TERM, quit: (Signal::KILL, "KILL") };

/// A `moto_server`. It keeps everything in memory: a restart begins empty. Any credentials are good.
///
/// It is the program that the variable `FERRATA_MOTO` names, or the pinned version found in `PATH`, or one that is
/// installed by `pip` once, into the target folder: that takes a minute and needs a network.
#[derive(Debug)]
pub struct Moto {
    server: Server,
}

impl Moto {
    /// Starts one.
    ///
    /// # Errors
    ///
    /// [`ServerError::Missing`](crate::ServerError::Missing), or why it did not start, with what it printed.
    pub fn start() -> Result<Self> {
        let (program, first) = venv::command()?;
        let server = Server::start(&KIND, Folder::new(None, None)?, |port, folder| {
            let mut arguments = first.clone();
            arguments.extend(["-H", "127.0.0.1", "-p", &port.to_string()].map(Into::into));
            Launch::new(&KIND, program.clone(), arguments, folder)
        })?;
        Ok(Self { server })
    }

    /// Returns the endpoint, as an S3 client takes it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.server.port())
    }
}

impl Deref for Moto {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}
