//! Notices of changed runs. Subscribers in this process get them at once; other processes get them by NOTIFY, at most about fifty times a second.
//!
//! NOTIFY is not part of the append. PostgreSQL lets transactions that notify commit only one after the other, so it could no longer group their
//! commits. A task sends the collected notices in a small transaction that does not wait for a disk.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ferrata_store::{
    Clock, Error, ErrorKind, Notice, Notices, RelayTexts, RunId, RunKey, SystemClock, TenantId, within,
};
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use tokio::sync::{Notify, broadcast, watch};

use crate::db::{PostgresDb, Sql, query};
use crate::error::{PostgresCallEffect, fault};
use crate::tasks::ExclusiveTask;

/// The maximum number of undelivered notices of a subscriber. A slower subscriber learns that it missed notices.
const CAPACITY: usize = 1_024;

/// How long notices are collected after a send. So there are at most fifty such transactions per second, for any number of changed runs.
const GATHER: Duration = Duration::from_millis(20);

/// The pauses before another attempt to listen, from the first failure on.
const RETRY: [Duration; 4] =
    [Duration::from_millis(100), Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(5)];

/// The longest time without a notice before the listener checks the server.
const SILENCE: Duration = Duration::from_secs(30);

/// The maximum size of one notice in bytes. The server accepts 7,999.
const MAX_PAYLOAD: usize = 7_900;

/// Sends the notices, one payload each, in a transaction whose commit does not wait for a disk.
pub(crate) const SQL: &str = "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, p.payload) \
    FROM unnest($2::text[]) AS p(payload)";

/// Sends one notice as a part of the current transaction.
pub(crate) const SQL_IN: &str = "SELECT pg_notify($1, $2)";

/// Forwards notices to subscribers in this process and in other processes.
#[derive(Debug)]
pub(crate) struct Hub {
    heard: Arc<NoticeSubscribers>,
    remote: Option<Arc<Remote>>,
    sender: ExclusiveTask,
    listener: ExclusiveTask,
}

/// The subscribers of incoming notices.
#[derive(Debug)]
struct NoticeSubscribers {
    runs: broadcast::Sender<Notice>,
    said: broadcast::Sender<Arc<str>>,
    /// Whether the server has confirmed that this process listens.
    listens: watch::Sender<bool>,
}

/// The settings for reaching other processes.
#[derive(Debug)]
struct Remote {
    db: PostgresDb,
    sql: Sql,
    channel: String,
    /// The channel for messages between processes.
    said_channel: String,
    /// The tag at the beginning of this process's own notices, which this process ignores.
    tag: String,
    listen: PgConnectOptions,
    changed: Mutex<HashSet<RunKey>>,
    wake: Notify,
}

impl Hub {
    /// Creates a hub. If `listen` is false, the hub serves only this process.
    pub(crate) fn new(
        db: PostgresDb,
        sql: Sql,
        [channel, said_channel]: [String; 2],
        tag: String,
        listen: Option<PgConnectOptions>,
    ) -> Self {
        let remote = listen.map(|listen| {
            let (changed, wake) = (Mutex::default(), Notify::new());
            Arc::new(Remote { db, sql, channel, said_channel, tag, listen, changed, wake })
        });
        let (runs, said) = (broadcast::Sender::new(CAPACITY), broadcast::Sender::new(CAPACITY));
        let heard = Arc::new(NoticeSubscribers { runs, said, listens: watch::Sender::new(false) });
        Self { heard, remote, sender: ExclusiveTask::default(), listener: ExclusiveTask::default() }
    }

    /// Returns whether notices are sent and received.
    pub(crate) fn is_open(&self) -> bool {
        self.remote.is_some()
    }

    /// Returns the payload of a notice for one run, without this process's tag, so that this process receives the notice, too.
    pub(crate) fn payload(&self, run: &RunKey) -> Option<String> {
        self.remote.as_ref().map(|_| format!("- {run}"))
    }

    /// Notifies every subscriber of changed runs. Subscribers in this process also get the head of each run.
    pub(crate) fn notify(&self, notices: impl IntoIterator<Item = Notice> + Clone) {
        if self.heard.runs.receiver_count() > 0 {
            for notice in notices.clone() {
                // Fails if the last subscriber was just dropped: then no receiver is left.
                let _ = self.heard.runs.send(notice);
            }
        }
        let Some(remote) = &self.remote else { return };
        let mut changed = remote.changed.lock().unwrap_or_else(PoisonError::into_inner);
        let before = changed.len();
        changed.extend(notices.into_iter().map(|notice| notice.run));
        let is_more = changed.len() > before;
        drop(changed);
        if is_more {
            self.sender.ensure(|| send(Arc::clone(remote)));
            remote.wake.notify_one();
        }
    }

    /// Starts to listen, unless this hub listens already. Returns a new receiver.
    pub(crate) fn subscribe(&self) -> Option<Notices> {
        let remote = self.remote.as_ref()?;
        let receiver = self.heard.runs.subscribe();
        // Without a tokio runtime, no task listens. The subscriber then gets notices only from this process, and polls for other changes.
        self.listener.ensure(|| listen(Arc::clone(remote), Arc::clone(&self.heard)));
        Some(Notices::new(receiver))
    }

    /// Sends texts to every process, including this one, in a transaction that does not wait for a disk.
    pub(crate) async fn publish_texts(&self, texts: Vec<String>) -> ferrata_store::Result<()> {
        let Some(remote) = &self.remote else { return Ok(()) };
        let notify = query(&remote.sql).bind(&remote.said_channel).bind(texts);
        remote.db.write(notify).await.map(drop).map_err(|failed| failed.into_error("store.say"))
    }

    /// Starts to listen, unless this hub listens already. Returns a receiver once the server has confirmed the subscription.
    pub(crate) async fn subscribe_texts(&self) -> ferrata_store::Result<RelayTexts> {
        let receiver = self.heard.said.subscribe();
        let refuse = |message| Err(Error::new(ErrorKind::Unavailable, message).with_operation("store.hear"));
        let Some(remote) = &self.remote else { return refuse("notices are turned off") };
        if !self.listener.ensure(|| listen(Arc::clone(remote), Arc::clone(&self.heard))) {
            return refuse("no tokio runtime is active; call this within one");
        }
        let mut listens = self.heard.listens.subscribe();
        let patience = remote.db.options().acquire_timeout;
        match within(&SystemClock::new(), patience, listens.wait_for(|listens| *listens)).await {
            Some(Ok(_)) => Ok(RelayTexts::new(receiver)),
            _ => refuse("the connection for notices was not established in time; call again"),
        }
    }
}

/// Sends the collected notices. The task ends with the store.
async fn send(remote: Arc<Remote>) {
    let clock = SystemClock::new();
    loop {
        remote.wake.notified().await;
        let changed = std::mem::take(&mut *remote.changed.lock().unwrap_or_else(PoisonError::into_inner));
        let payloads = pack(&remote.tag, &changed);
        if !payloads.is_empty() {
            let notify = query(&remote.sql).bind(&remote.channel).bind(payloads);
            if let Err(failed) = remote.db.write(notify).await {
                // A notice is a hint: a process that misses it polls a little later.
                let error = failed.into_error("store.notify");
                tracing::debug!(%error, "could not notify other processes of changed runs");
            }
        }
        clock.sleep(GATHER).await;
    }
}

/// Listens to notices of other processes. Starts again after a lost connection. The task ends with the store.
async fn listen(remote: Arc<Remote>, to: Arc<NoticeSubscribers>) {
    let clock = SystemClock::new();
    let mut failures = 0;
    loop {
        let heard = forward_notices(&remote, &to, &mut failures).await;
        to.listens.send_replace(false);
        let error = fault(&heard, PostgresCallEffect::Read).into_error("store.subscribe");
        tracing::warn!(%error, "lost the notices of changed runs; reconnecting, and polling meanwhile");
        let pause = RETRY[failures.min(RETRY.len() - 1)];
        failures += 1;
        clock.sleep(pause).await;
    }
}

/// Forwards notices until the connection is lost.
async fn forward_notices(remote: &Remote, to: &NoticeSubscribers, failures: &mut usize) -> sqlx::Error {
    // Listening has its own pool, so that it never takes a connection from the calls.
    let pool: PgPool = PgPoolOptions::new()
        .max_connections(1)
        .max_lifetime(None)
        .idle_timeout(None)
        .connect_lazy_with(remote.listen.clone());
    let listening = async {
        let mut listener = PgListener::connect_with(&pool).await?;
        listener.eager_reconnect(false);
        listener.listen_all([&*remote.channel, &*remote.said_channel]).await?;
        *failures = 0;
        to.listens.send_replace(true);
        loop {
            // If a network drops packets, neither side learns of it. So a listener that receives nothing for a while checks the connection.
            let Some(heard) = within(&SystemClock::new(), SILENCE, listener.try_recv()).await else {
                let asked = sqlx::query("SELECT 1").execute(&mut listener);
                remote.db.in_time(1, asked).await?;
                continue;
            };
            let Some(notice) = heard? else { return Ok(()) };
            if notice.channel() == remote.said_channel {
                // The send fails if the last listener is gone.
                let _ = to.said.send(notice.payload().into());
                continue;
            }
            for run in unpack(&remote.tag, notice.payload()) {
                // The send fails if the last subscriber is gone.
                let _ = to.runs.send(Notice::new(run));
            }
        }
    };
    // The pool is dropped with its connection and not closed: closing would wait for a connection that may be dead.
    let heard: Result<(), sqlx::Error> = listening.await;
    heard.err().unwrap_or_else(|| std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into())
}

/// Encodes runs as payloads: the tag, then the keys, separated by spaces. No key contains a space.
fn pack(tag: &str, runs: &HashSet<RunKey>) -> Vec<String> {
    let mut payloads: Vec<String> = Vec::new();
    for run in runs {
        let key = run.to_string();
        match payloads.last_mut() {
            Some(payload) if payload.len() + 1 + key.len() <= MAX_PAYLOAD => {
                payload.push(' ');
                payload.push_str(&key);
            }
            _ => payloads.push(format!("{tag} {key}")),
        }
    }
    payloads
}

/// Decodes the keys of a payload. Returns no keys for this process's own payloads and for unknown payloads; that is safe because a notice is only a
/// hint.
fn unpack(tag: &str, payload: &str) -> Vec<RunKey> {
    let mut words = payload.split(' ');
    if words.next() == Some(tag) {
        return Vec::new();
    }
    let read = |word: &str| {
        let (tenant, run) = word.split_once('/')?;
        Some(RunKey::new(TenantId::new(tenant).ok()?, RunId::new(run).ok()?))
    };
    words.filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(run: &str) -> RunKey {
        RunKey::from(RunId::new(run).unwrap())
    }

    #[test]
    fn what_is_packed_is_unpacked_by_others_alone() {
        let runs: HashSet<_> = (0..500).map(|n| key(&format!("{n}-{}", "x".repeat(100)))).collect();
        let payloads = pack("me", &runs);
        assert!(payloads.len() > 1 && payloads.iter().all(|payload| payload.len() <= MAX_PAYLOAD));
        let heard: HashSet<_> = payloads.iter().flat_map(|payload| unpack("other", payload)).collect();
        assert_eq!(heard, runs);
        assert!(payloads.iter().all(|payload| unpack("me", payload).is_empty()));
    }

    #[test]
    fn what_is_not_understood_is_passed_over() {
        assert_eq!(
            unpack("me", "x  / a/b /c d/ é/f g/h"),
            [("a", "b"), ("g", "h")].map(|(tenant, run)| {
                RunKey::new(TenantId::new(tenant).unwrap(), RunId::new(run).unwrap())
            })
        );
    }
}
