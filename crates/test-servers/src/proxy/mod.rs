//! A proxy between a client and a server. It can cause faults of a bad network in chosen requests.

mod connection;
mod fault;
mod flow;
mod plan;

use std::io::{PipeReader, PipeWriter, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

pub use self::fault::{FaultEffect, FaultPosition, FaultTrigger, FiredFault, ProxyFault};

use self::connection::ProxyConnection;
use self::plan::ProxyPlan;
use crate::error::{Result, ServerError};
use crate::port::{self, ReservedPort};

/// Forwards connections from a port of 127.0.0.1 to a server, and causes the armed faults.
///
/// # What a request is
///
/// The proxy parses no protocol. On each connection, the client's bytes before the server's answer are one request. The server's bytes before the
/// client's next bytes are the reply. So two pipelined requests count as one: a test that counts requests must have only one request in progress
/// per connection. The proxy counts requests over all connections, in the order in which they begin.
///
/// ```no_run
/// use std::time::Duration;
/// use ferrata_test_servers::{
///     FaultEffect, FaultPosition, FaultTrigger, Proxy, ProxyFault, RedisServer, RedisServerOptions,
/// };
///
/// let redis = RedisServer::start(RedisServerOptions::default())?;
/// let proxy = Proxy::start(redis.address())?;
/// let url = proxy.url(&redis.url());
/// // … a client connects to `url` …
/// let fault = ProxyFault { place: FaultPosition::ReplyByte(0), act: FaultEffect::Reset };
/// proxy.arm(FaultTrigger::containing("EVALSHA"), fault);
/// // … it calls: the script ran, and the client never hears of it …
/// assert_eq!(proxy.wait(1, Duration::from_secs(5)).len(), 1);
/// # Ok::<(), ferrata_test_servers::ServerError>(())
/// ```
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    /// Reserves the port for this proxy, even while the proxy refuses connections.
    _port: ReservedPort,
    upstream: SocketAddr,
    plan: Arc<ProxyPlan>,
    connections: Connections,
    listening: Mutex<Option<Thread>>,
}

/// A thread that can be asked to end.
#[derive(Debug)]
struct Thread {
    control: PipeWriter,
    handle: JoinHandle<()>,
}

type Connections = Arc<Mutex<Vec<Thread>>>;

/// A message on the control pipe of a connection. The end of the pipe means `CLOSE`, too.
const CLOSE: u8 = b'c';
const RESET: u8 = b'r';
const SILENCE: u8 = b's';

impl Proxy {
    /// Starts to listen on a free port and to forward connections to `upstream`. No fault is armed.
    ///
    /// # Errors
    ///
    /// Returns [`ServerError::Io`] if the system has no free port or cannot start a thread.
    pub fn start(upstream: SocketAddr) -> Result<Self> {
        let failed = || ServerError::io("listen on", "a free port of 127.0.0.1");
        let (port, listener) = port::listen().map_err(failed())?;
        let proxy = Self {
            address: listener.local_addr().map_err(failed())?,
            _port: port,
            upstream,
            plan: Arc::default(),
            connections: Arc::default(),
            listening: Mutex::default(),
        };
        *lock(&proxy.listening) = Some(proxy.serve(listener)?);
        Ok(proxy)
    }

    /// Returns the address of the proxy. It stays the same while the proxy refuses connections.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns `url` with every occurrence of the server's address replaced by the address of the proxy.
    #[must_use]
    pub fn url(&self, url: &str) -> String {
        url.replace(&self.upstream.to_string(), &self.address.to_string())
    }

    /// Arms `fault`. It happens once, in the first later request that matches `trigger`.
    ///
    /// A direction of a connection has at most one fault at a time. If a second fault applies to the same request, it replaces the first.
    pub fn arm(&self, trigger: FaultTrigger, fault: ProxyFault) {
        self.plan.arm(trigger, fault);
    }

    /// Disarms the faults that have not happened yet. Returns their number.
    pub fn disarm(&self) -> usize {
        self.plan.disarm()
    }

    /// Returns the number of requests so far. A test can count the requests first, and then arm a fault for each of them in turn.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.plan.requests()
    }

    /// Returns the number of accepted connections.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.plan.connections()
    }

    /// Returns the faults that have happened so far, in order.
    #[must_use]
    pub fn done(&self) -> Vec<FiredFault> {
        self.plan.wait(0, Duration::ZERO)
    }

    /// Waits until `count` faults have happened since the start, for at most `time`. Returns all faults that have happened.
    #[must_use]
    pub fn wait(&self, count: usize, time: Duration) -> Vec<FiredFault> {
        self.plan.wait(count, time)
    }

    /// Ends all connections. The proxy still accepts new connections.
    pub fn cut(&self, act: ConnectionCut) {
        let threads = std::mem::take(&mut *lock(&self.connections));
        for mut thread in threads {
            let word = match act {
                ConnectionCut::Close => CLOSE,
                ConnectionCut::Reset => RESET,
            };
            // Fails if the connection is already gone.
            let _ = thread.control.write_all(&[word]);
            end(thread);
        }
    }

    /// Stops all data on the existing connections without closing them, like a network device that fails over and forgets its connections. The
    /// proxy still accepts new connections.
    pub fn silence(&self) {
        for thread in &mut *lock(&self.connections) {
            // Fails if the connection is already gone.
            let _ = thread.control.write_all(&[SILENCE]);
        }
    }

    /// Stops listening, so that the system refuses new connections. Existing connections continue.
    pub fn refuse(&self) {
        if let Some(thread) = lock(&self.listening).take() {
            end(thread);
        }
    }

    /// Listens again after [`refuse`](Self::refuse).
    ///
    /// # Errors
    ///
    /// Returns [`ServerError::Io`] if another process took the port meanwhile.
    pub fn accept(&self) -> Result<()> {
        let mut listening = lock(&self.listening);
        if listening.is_none() {
            let listener = TcpListener::bind(self.address);
            let listener = listener.map_err(ServerError::io("listen on", self.address.to_string()))?;
            *listening = Some(self.serve(listener)?);
        }
        Ok(())
    }

    fn serve(&self, listener: TcpListener) -> Result<Thread> {
        listener.set_nonblocking(true).map_err(ServerError::io("listen on", self.address.to_string()))?;
        let (plan, connections, upstream) =
            (Arc::clone(&self.plan), Arc::clone(&self.connections), self.upstream);
        spawn(move |control| listen(&listener, &control, upstream, &plan, &connections))
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.refuse();
        self.cut(ConnectionCut::Close);
    }
}

/// The way in which a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionCut {
    /// The connection is closed normally. The client reads the end of the stream.
    Close,
    /// The connection is reset. The client's next call fails.
    Reset,
}

/// Accepts connections until the control pipe ends.
fn listen(
    listener: &TcpListener,
    control: &PipeReader,
    upstream: SocketAddr,
    plan: &Arc<ProxyPlan>,
    connections: &Connections,
) {
    loop {
        let mut waited = [PollFd::new(control, PollFlags::IN), PollFd::new(listener, PollFlags::IN)];
        if poll(&mut waited, None).is_err() {
            continue;
        }
        if !waited[0].revents().is_empty() {
            return;
        }
        let Ok((client, _)) = listener.accept() else { continue };
        // The server is down. The system has already accepted the client, so cut the client off.
        let number = plan.connection();
        let Ok(connection) = ProxyConnection::open(client, upstream, number, Arc::clone(plan)) else {
            continue;
        };
        // Take the lock first: if a connection runs before it is listed, it would miss a cut or a silence.
        let mut connections = lock(connections);
        let thread = spawn(move |control| connection.run(&control));
        connections.retain(|thread| !thread.handle.is_finished());
        // If no thread can be started, the connection is dropped, as on a machine without free resources.
        connections.extend(thread);
    }
}

fn spawn(work: impl FnOnce(PipeReader) + Send + 'static) -> Result<Thread> {
    let failed = || ServerError::io("start a thread of", "the proxy");
    let (reader, control) = std::io::pipe().map_err(failed())?;
    let named = std::thread::Builder::new().name("fault proxy".to_owned());
    let handle = named.spawn(move || work(reader)).map_err(failed())?;
    Ok(Thread { control, handle })
}

fn end(thread: Thread) {
    drop(thread.control);
    // A panic of the thread was already printed, and its sockets are closed.
    let _ = thread.handle.join();
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
