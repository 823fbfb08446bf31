//! A proxy that stands between a client and a server, and does to one request what a bad network does to any.

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

pub use self::fault::{Act, Fault, FiredFault, Place, Trigger};

use self::connection::Connection;
use self::plan::Plan;
use crate::error::{Result, ServerError};
use crate::port::{self, Port};

/// Forwards connections on a port of 127.0.0.1 to a server, and does what a test has armed.
///
/// # What a request is
///
/// The proxy reads no protocol. On each connection, the bytes of the client up to the server's answer are one request, and
/// those of the server up to the client's next are its reply. So a client that sends its second request before the first
/// is answered makes one of two; a test that counts has one request in flight on a connection. Requests are counted over all
/// connections, in the order in which they begin.
///
/// ```no_run
/// use std::time::Duration;
/// use ferrata_test_servers::{Act, Fault, Place, Proxy, Redis, RedisOptions, Trigger};
///
/// let redis = Redis::start(RedisOptions::default())?;
/// let proxy = Proxy::start(redis.address())?;
/// let url = proxy.url(&redis.url());
/// // … a client connects to `url` …
/// proxy.arm(Trigger::containing("EVALSHA"), Fault { place: Place::ReplyByte(0), act: Act::Reset });
/// // … it calls: the script ran, and the client never hears of it …
/// assert_eq!(proxy.wait(1, Duration::from_secs(5)).len(), 1);
/// # Ok::<(), ferrata_test_servers::ServerError>(())
/// ```
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    /// No other test listens there, also while it refuses.
    _port: Port,
    upstream: SocketAddr,
    plan: Arc<Plan>,
    connections: Connections,
    listening: Mutex<Option<Thread>>,
}

/// A thread that ends when it is told to.
#[derive(Debug)]
struct Thread {
    control: PipeWriter,
    handle: JoinHandle<()>,
}

type Connections = Arc<Mutex<Vec<Thread>>>;

/// What the control pipe of a connection says; its end says `CLOSE`.
const CLOSE: u8 = b'c';
const RESET: u8 = b'r';
const SILENCE: u8 = b's';

impl Proxy {
    /// Starts to listen on a free port, for connections to `upstream`. Nothing is armed.
    ///
    /// # Errors
    ///
    /// [`ServerError::Io`] if the system gives no port or no thread.
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

    /// Returns where it listens, also while it refuses.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns `url` of the server, through the proxy. Every mention of the server's address is replaced.
    #[must_use]
    pub fn url(&self, url: &str) -> String {
        url.replace(&self.upstream.to_string(), &self.address.to_string())
    }

    /// Arms `fault`: it happens once, to the first request from now on that `trigger` means.
    ///
    /// A direction of a connection has one fault at a time: a second for the same request replaces the first.
    pub fn arm(&self, trigger: Trigger, fault: Fault) {
        self.plan.arm(trigger, fault);
    }

    /// Takes back what has been armed and has not happened, and returns how much that is.
    pub fn disarm(&self) -> usize {
        self.plan.disarm()
    }

    /// Returns how many requests have begun: what a test counts first, to arm each of them in turn then.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.plan.requests()
    }

    /// Returns how many connections have been accepted.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.plan.connections()
    }

    /// Returns what has been done, in order.
    #[must_use]
    pub fn done(&self) -> Vec<FiredFault> {
        self.plan.wait(0, Duration::ZERO)
    }

    /// Waits until `count` faults have happened since the start, for at most `time`, and returns all that have.
    #[must_use]
    pub fn wait(&self, count: usize, time: Duration) -> Vec<FiredFault> {
        self.plan.wait(count, time)
    }

    /// Ends every connection. New ones are accepted.
    pub fn cut(&self, act: Cut) {
        let threads = std::mem::take(&mut *lock(&self.connections));
        for mut thread in threads {
            let word = match act {
                Cut::Close => CLOSE,
                Cut::Reset => RESET,
            };
            // A connection that is gone needs no telling.
            let _ = thread.control.write_all(&[word]);
            end(thread);
        }
    }

    /// Lets nothing more pass on the connections that there are, and closes none: as behind a device that fails over and forgets them.
    /// New ones are accepted.
    pub fn silence(&self) {
        for thread in &mut *lock(&self.connections) {
            // A connection that is gone is silent.
            let _ = thread.control.write_all(&[SILENCE]);
        }
    }

    /// Stops listening, so that the system refuses new connections. Those that are there stay.
    pub fn refuse(&self) {
        if let Some(thread) = lock(&self.listening).take() {
            end(thread);
        }
    }

    /// Listens again after [`refuse`](Self::refuse).
    ///
    /// # Errors
    ///
    /// [`ServerError::Io`] if the port was taken meanwhile.
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
        self.cut(Cut::Close);
    }
}

/// How a connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// In good order: the client reads the end.
    Close,
    /// By a reset: the client's next call fails.
    Reset,
}

/// Accepts until the control pipe ends.
fn listen(
    listener: &TcpListener,
    control: &PipeReader,
    upstream: SocketAddr,
    plan: &Arc<Plan>,
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
        // A server that is down: the client, whom the system has let in already, is cut off.
        let number = plan.connection();
        let Ok(connection) = Connection::open(client, upstream, number, Arc::clone(plan)) else { continue };
        // The lock first: a connection that runs and is not listed would miss a cut or a silence.
        let mut connections = lock(connections);
        let thread = spawn(move |control| connection.run(&control));
        connections.retain(|thread| !thread.handle.is_finished());
        // Without a thread the connection is dropped, as by a machine that has no more to give.
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
    // A panic of the thread was printed when it happened, and its sockets are closed.
    let _ = thread.handle.join();
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
