//! A server that a test can kill, stop, restart and suspend.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal};

use crate::error::{LogEnd, Result, ServerError};
use crate::folder::Folder;
use crate::port::{ReservedPort, TRIES};
use crate::running::{ServerLaunch, ServerProcess};
use crate::{resp, wait};

/// How long a server may take until it answers. It usually takes a second, and longer on a busy machine.
pub(crate) const STARTING: Duration = Duration::from_secs(300);

/// How a server of some kind shows that it is ready. Another server on the same port cannot be mistaken for it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReadySignal {
    /// Postgres has written its file with its process id and its state.
    Postmaster,
    /// Redis answers `INFO server` with its process id.
    Redis,
    /// The file `pid` contains the server's process id. If another process has the port, the server ends before it writes the file.
    Pid,
    /// A file contains the server's process id and its ports. The server writes the file when it listens.
    Ports,
    /// The server answers a request while its process runs. If another process has the port, the server's process ends.
    Http,
}

/// The properties of a kind of server.
#[derive(Debug)]
pub(crate) struct ServerKind {
    pub(crate) name: &'static str,
    pub(crate) ready: ReadySignal,
    /// How long the server may take to become ready.
    pub(crate) starting: Duration,
    /// The signal that ends the server normally, with all data on disk.
    pub(crate) stop: Signal,
    /// The signal that ends the server quickly and leaves nothing in the system.
    pub(crate) quit: (Signal, &'static str),
}

/// A private server on a port of 127.0.0.1. When this value is dropped, the server ends and its temporary folder is removed.
///
/// Each call returns when its effect is complete. Any thread may make the calls.
#[derive(Debug)]
pub struct Server {
    kind: &'static ServerKind,
    port: ReservedPort,
    launch: ServerLaunch,
    running: Mutex<Option<ServerProcess>>,
    folder: Folder,
}

impl Server {
    /// Starts a server of `kind` in `folder`. `launch` returns the program for a port.
    pub(crate) fn start(
        kind: &'static ServerKind,
        folder: Folder,
        launch: impl Fn(u16, &Path) -> ServerLaunch,
    ) -> Result<Self> {
        let prepared = |port: &ReservedPort, folder: &Folder| {
            let mut launch = launch(port.number(), folder.path());
            launch.disposable = folder.disposable();
            launch
        };
        let port = ReservedPort::free();
        let launch = prepared(&port, &folder);
        let mut server = Self { kind, port, launch, running: Mutex::new(None), folder };
        for attempt in 1.. {
            match server.restart() {
                Err(error) if error.is_port_taken() && attempt < TRIES => {
                    server.port = ReservedPort::free();
                    server.launch = prepared(&server.port, &server.folder);
                }
                Err(error) => return Err(error),
                Ok(()) => break,
            }
        }
        Ok(server)
    }

    /// Returns the port of the server on 127.0.0.1. It stays the same while the server is down.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Returns the address of the server. It stays the same while the server is down.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port()))
    }

    /// Returns the folder of the server's data and log.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the file with all output of the server.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.launch.log
    }

    /// Kills the server and all its children at once, like `kill -9`. Data that the server has not passed to the system is lost.
    ///
    /// # Errors
    ///
    /// Returns [`ServerError::NotRunning`] if the server is down.
    pub fn kill(&self) -> Result<()> {
        self.take()?.kill();
        Ok(())
    }

    /// Ends the server normally. Its connections are cut.
    ///
    /// # Errors
    ///
    /// Returns [`ServerError::NotRunning`] if the server is down.
    pub fn stop(&self) -> Result<()> {
        self.take()?.stop(self.kind.stop);
        Ok(())
    }

    /// Starts the server on the same port with the same data. If the server still runs, stops it normally first.
    ///
    /// # Errors
    ///
    /// Returns [`ServerError::Failed`] if the server ends by itself or does not answer in time. The server is then down.
    pub fn restart(&self) -> Result<()> {
        let mut guard = self.lock();
        if let Some(mut running) = guard.take() {
            running.stop(self.kind.stop);
        }
        *guard = Some(self.launch()?);
        Ok(())
    }

    /// Suspends the server and its children. Connections stay open, but get no answers.
    ///
    /// # Errors
    ///
    /// Returns [`ServerError::NotRunning`] if the server is down.
    pub fn suspend(&self) -> Result<()> {
        self.with(ServerProcess::suspend)
    }

    /// Continues the server after [`suspend`](Self::suspend).
    ///
    /// # Errors
    ///
    /// Returns [`ServerError::NotRunning`] if the server is down.
    pub fn resume(&self) -> Result<()> {
        self.with(ServerProcess::resume)
    }

    fn launch(&self) -> Result<ServerProcess> {
        let mut running = self.launch.spawn()?;
        let pid = running.pid();
        let outcome = wait::until(self.kind.starting, || match running.exit_status() {
            Some(status) => Some(Err(format!("ended at its start ({status})"))),
            None => self.is_ready(pid).then_some(Ok(())),
        });
        let late = || Err(format!("was not ready after {} s", self.kind.starting.as_secs()));
        match outcome.unwrap_or_else(late) {
            Ok(()) => Ok(running),
            Err(what) => {
                drop(running);
                let log = LogEnd(&self.launch.log).to_string();
                Err(ServerError::Failed { name: self.kind.name.to_owned(), what, log })
            }
        }
    }

    fn is_ready(&self, pid: Pid) -> bool {
        let pid = pid.as_raw_nonzero().to_string();
        match self.kind.ready {
            ReadySignal::Postmaster => {
                let file: PathBuf = self.folder().join("data/postmaster.pid");
                let text = std::fs::read_to_string(file).unwrap_or_default();
                let mut lines = text.lines().map(str::trim);
                lines.next() == Some(pid.as_str()) && lines.nth(6) == Some("ready")
            }
            ReadySignal::Pid => {
                let text = std::fs::read_to_string(self.folder().join("pid")).unwrap_or_default();
                text.trim() == pid
            }
            ReadySignal::Ports => {
                let text = std::fs::read_to_string(self.folder().join(format!("nats-server_{pid}.ports")));
                text.is_ok_and(|text| text.contains(&format!(":{}\"", self.port())))
            }
            ReadySignal::Redis => resp::is_ready(self.port(), &pid),
            ReadySignal::Http => resp::answers_http(self.port()),
        }
    }

    fn with(&self, act: impl FnOnce(&mut ServerProcess)) -> Result<()> {
        act(self.lock().as_mut().ok_or_else(|| self.not_running())?);
        Ok(())
    }

    fn take(&self) -> Result<ServerProcess> {
        self.lock().take().ok_or_else(|| self.not_running())
    }

    fn not_running(&self) -> ServerError {
        ServerError::NotRunning { name: self.kind.name }
    }

    fn lock(&self) -> MutexGuard<'_, Option<ServerProcess>> {
        // If a test panics between two calls, the state is still consistent.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Ok(mut running) = self.take() {
            running.stop(self.kind.quit.0);
        }
    }
}
