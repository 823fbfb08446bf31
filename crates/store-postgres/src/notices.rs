//! Notices of changed runs: immediate within the process, and to other processes by NOTIFY, a few times a second at most.
//!
//! NOTIFY is not part of the append: PostgreSQL lets transactions that notify commit one after the other, which would undo
//! the grouping of commits. A task sends what has gathered in a small transaction that waits for no disk.

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

/// The number of notices that a slow subscriber may lag before it gets a notice of missed ones.
const CAPACITY: usize = 1_024;

/// The time that notices are collected after a send: at most fifty transactions per second, for any number of changed runs.
const GATHER: Duration = Duration::from_millis(20);

/// The pauses before listening again after a failure, from the first one on.
const RETRY: [Duration; 4] =
    [Duration::from_millis(100), Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(5)];

/// The silent time after which the listener checks the server.
const SILENCE: Duration = Duration::from_secs(30);

/// The most bytes of one notice; the server takes 7,999.
const MAX_PAYLOAD: usize = 7_900;

/// Sends the notices: each as a payload of its own, in a transaction whose commit waits for no disk.
pub(crate) const SQL: &str = "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, p.payload) \
    FROM unnest($2::text[]) AS p(payload)";

/// Sends one notice with the transaction it is in.
pub(crate) const SQL_IN: &str = "SELECT pg_notify($1, $2)";

/// Passes notices on, within the process and to others.
#[derive(Debug)]
pub(crate) struct Hub {
    heard: Arc<NoticeSubscribers>,
    remote: Option<Arc<Remote>>,
    sender: ExclusiveTask,
    listener: ExclusiveTask,
}

/// Subscribers of incoming notices.
#[derive(Debug)]
struct NoticeSubscribers {
    runs: broadcast::Sender<Notice>,
    said: broadcast::Sender<Arc<str>>,
    /// Whether the server knows that this process listens.
    listens: watch::Sender<bool>,
}

/// The state for reaching other processes.
#[derive(Debug)]
struct Remote {
    db: PostgresDb,
    sql: Sql,
    channel: String,
    /// The channel for messages between processes.
    said_channel: String,
    /// The prefix of this process's own notices, which it ignores.
    tag: String,
    listen: PgConnectOptions,
    changed: Mutex<HashSet<RunKey>>,
    wake: Notify,
}

impl Hub {
    /// Creates a hub; without `listen`, for this process only.
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

    /// Returns the notice of one run, which this process is to hear as well.
    pub(crate) fn payload(&self, run: &RunKey) -> Option<String> {
        self.remote.as_ref().map(|_| format!("- {run}"))
    }

    /// Notifies every subscriber of changed runs; those of this process get the head of each.
    pub(crate) fn notify(&self, notices: impl IntoIterator<Item = Notice> + Clone) {
        if self.heard.runs.receiver_count() > 0 {
            for notice in notices.clone() {
                // Fails when the last subscriber has just gone: then no receiver is left.
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

    /// Begins to listen, if no receiver does yet, and returns a further receiver.
    pub(crate) fn subscribe(&self) -> Option<Notices> {
        let remote = self.remote.as_ref()?;
        let receiver = self.heard.runs.subscribe();
        // Without a runtime no task listens, and a subscriber hears of this process alone; it polls for the rest.
        self.listener.ensure(|| listen(Arc::clone(remote), Arc::clone(&self.heard)));
        Some(Notices::new(receiver))
    }

    /// Sends texts to every process, this one included, in a transaction that waits for no disk.
    pub(crate) async fn publish_texts(&self, texts: Vec<String>) -> ferrata_store::Result<()> {
        let Some(remote) = &self.remote else { return Ok(()) };
        let notify = query(&remote.sql).bind(&remote.said_channel).bind(texts);
        remote.db.write(notify).await.map(drop).map_err(|failed| failed.into_error("store.say"))
    }

    /// Starts to listen, if no receiver does yet. Returns a receiver once the server has confirmed the subscription.
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

/// Sends the collected notices. Ends with the store.
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

/// Listens to other processes' notices, and restarts after a lost connection. Ends with the store.
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

/// Passes notices on until the connection is lost.
async fn forward_notices(remote: &Remote, to: &NoticeSubscribers, failures: &mut usize) -> sqlx::Error {
    // A pool of its own, so that listening never takes a connection from the calls.
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
            // A network that swallows what is sent tells neither side; so a listener that hears nothing for long asks.
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
    // The pool goes with its connection, without a farewell for which a dead one would have to be waited for.
    let heard: Result<(), sqlx::Error> = listening.await;
    heard.err().unwrap_or_else(|| std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into())
}

/// Writes keys into payloads: the tag and then keys, separated by spaces, which no key contains.
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

/// Reads the keys of a payload. Returns none for this process's own payloads and for unknown ones, because a notice is a hint.
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
