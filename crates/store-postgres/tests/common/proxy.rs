//! A proxy that counts the requests of a client and can cut the connection before, during or after any of them.
//!
//! A request ends with `Sync` or is a simple `Query`, which costs a round trip. A `Sync` alone is counted separately: the driver sends it in the
//! background to check a connection.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// Where the connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The request does not reach the server.
    Before,
    /// Half of the request does.
    During,
    /// The server has done what was asked; its reply is lost.
    After,
}

#[derive(Debug, Default)]
struct State {
    requests: AtomicU64,
    /// How often the driver asked whether a connection is there.
    questions: AtomicU64,
    cut: Mutex<Option<(u64, Cut)>>,
    has_cut: AtomicBool,
}

/// A proxy before a server; it ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Proxy {
    state: Arc<State>,
    port: u16,
    _tasks: JoinSet<()>,
}

impl Proxy {
    /// Starts a proxy before the server of a URL.
    pub(crate) async fn before(url: &str) -> Self {
        let options: sqlx::postgres::PgConnectOptions = url.parse().unwrap();
        let server = (options.get_host().to_owned(), options.get_port());
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State::default());
        let mut tasks = JoinSet::new();
        let shared = Arc::clone(&state);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect((server.0.as_str(), server.1)).await else { continue };
                let _ = (client.set_nodelay(true), server.set_nodelay(true));
                connections.spawn(pass(client, server, Arc::clone(&shared)));
            }
        });
        Self { state, port, _tasks: tasks }
    }

    /// Returns the URL of the server as seen through the proxy.
    pub(crate) fn url(&self, of: &str) -> String {
        let options: sqlx::postgres::PgConnectOptions = of.parse().unwrap();
        let authority = of.split_once("://").unwrap().1.split(['/', '?']).next().unwrap();
        // As it is written: a server may want the password.
        let user = authority.rsplit_once('@').map_or(options.get_username(), |(user, _)| user);
        let database = options.get_database().unwrap_or("postgres");
        format!("postgres://{user}@127.0.0.1:{}/{database}?sslmode=disable", self.port)
    }

    /// Returns how many requests there were, and counts from zero again.
    pub(crate) fn take_requests(&self) -> u64 {
        self.state.requests.swap(0, Ordering::SeqCst)
    }

    /// Returns how often the driver asked, beside the requests, whether a connection is there.
    pub(crate) fn questions(&self) -> u64 {
        self.state.questions.load(Ordering::SeqCst)
    }

    /// Cuts the connection at the request with this number from now on.
    pub(crate) fn cut_at(&self, request: u64, cut: Cut) {
        *self.state.cut.lock().unwrap() = Some((request, cut));
        self.state.has_cut.store(false, Ordering::SeqCst);
        self.state.requests.store(0, Ordering::SeqCst);
    }

    /// Tells whether the request to cut at has come.
    pub(crate) fn has_cut(&self) -> bool {
        self.state.has_cut.load(Ordering::SeqCst)
    }
}

/// Passes one connection on, until an end closes it or it is cut.
async fn pass(client: TcpStream, server: TcpStream, state: Arc<State>) {
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let of_server =
        Replies { is_mute: AtomicBool::new(false), owed: AtomicU64::new(1), all_came: Notify::new() };
    tokio::select! {
        () = requests(from_client, to_server, &state, &of_server) => {}
        () = replies(from_server, to_client, &of_server) => {}
    }
}

/// What is known of the replies of one connection.
struct Replies {
    /// Whether they are kept from the client.
    is_mute: AtomicBool,
    /// How many `ReadyForQuery` are still to come: one for the start, and one for each `Sync` and `Query`.
    owed: AtomicU64,
    all_came: Notify,
}

/// Reads one message; the first one of a connection has no type.
async fn message(from: &mut OwnedReadHalf, has_type: bool) -> Option<Vec<u8>> {
    let mut head = vec![0; if has_type { 5 } else { 4 }];
    from.read_exact(&mut head).await.ok()?;
    let length: [u8; 4] = head[head.len() - 4..].try_into().ok()?;
    let body = usize::try_from(u32::from_be_bytes(length)).ok()?.checked_sub(4)?;
    let start = head.len();
    head.resize(start + body, 0);
    from.read_exact(&mut head[start..]).await.ok()?;
    Some(head)
}

async fn requests(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, state: &State, replies: &Replies) {
    let mut is_first = true;
    let mut request = Vec::new();
    let mut asks = false;
    while let Some(message) = message(&mut from, !is_first).await {
        let kind = message[0];
        request.extend(message);
        asks |= matches!(kind, b'P' | b'B' | b'Q') && !is_first;
        let is_whole = is_first || matches!(kind, b'S' | b'Q' | b'X' | b'p');
        let is_answered = !is_first && matches!(kind, b'S' | b'Q');
        is_first = false;
        if !is_whole {
            continue;
        }
        replies.owed.fetch_add(u64::from(is_answered), Ordering::SeqCst);
        if std::mem::take(&mut asks) {
            let number = state.requests.fetch_add(1, Ordering::SeqCst);
            let cut = state.cut.lock().unwrap().take_if(|(at, _)| *at == number);
            if let Some((_, cut)) = cut {
                state.has_cut.store(true, Ordering::SeqCst);
                let sent = match cut {
                    Cut::Before => 0,
                    Cut::During => request.len() / 2,
                    Cut::After => request.len(),
                };
                replies.is_mute.store(cut == Cut::After, Ordering::SeqCst);
                let _ = to.write_all(&request[..sent]).await;
                if cut == Cut::After {
                    replies.all_came.notified().await;
                }
                return;
            }
        } else if is_answered {
            state.questions.fetch_add(1, Ordering::SeqCst);
        }
        if to.write_all(&request).await.is_err() {
            return;
        }
        request.clear();
    }
}

async fn replies(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, state: &Replies) {
    while let Some(message) = message(&mut from, true).await {
        let is_last = message[0] == b'Z' && state.owed.fetch_sub(1, Ordering::SeqCst) == 1;
        if !state.is_mute.load(Ordering::SeqCst) {
            if to.write_all(&message).await.is_err() {
                return;
            }
        } else if is_last {
            state.all_came.notify_one();
        }
    }
}
