//! Notices of changed runs, and messages between processes, through the server's pub/sub.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use ferrata_store::{
    Clock, Error, ErrorKind, HeadRef, IdSource as _, Notice, Notices, RandomIds, RelayTexts, RunKey,
    SystemClock, within,
};
use futures_util::StreamExt as _;
use tokio::runtime::Handle;
use tokio::sync::{broadcast, oneshot, watch};
use tokio::task::AbortHandle;

use crate::error::RedisStoreError;
use crate::layout::{RedisKeys, parse_name};
use crate::link::RedisLink;

/// The maximum number of undelivered notices of a subscriber. A slower subscriber learns that it missed notices.
const NOTICES: usize = 1_024;

/// How long a new subscriber waits for the connection.
const PATIENCE: Duration = Duration::from_secs(5);

/// The advice for a user without permission for a channel.
const REMEDY: &str = "docs/reference/store-redis.md lists the required permissions";

/// How long the listener may receive nothing before it checks the server.
const SILENCE: Duration = Duration::from_secs(30);

/// The pause before another attempt after a lost connection. Executors poll meanwhile.
const PAUSE: Duration = Duration::from_secs(1);

/// The only connection that receives notices. It opens when there is a subscriber.
#[derive(Debug)]
pub(crate) struct RedisListener {
    /// The last word of this store's own notices, which is no run's name. This process ignores such notices, because it has already notified its
    /// subscribers, with the head.
    tag: String,
    running: Mutex<Option<ListenerTask>>,
}

#[derive(Debug)]
struct ListenerTask {
    heard: Arc<RedisSubscribers>,
    task: AbortHandle,
    /// Dropped with the store, which ends the task.
    _store: oneshot::Sender<()>,
}

/// The subscribers of incoming notices.
#[derive(Debug)]
struct RedisSubscribers {
    runs: broadcast::Sender<Notice>,
    said: broadcast::Sender<Arc<str>>,
    /// Whether the server has confirmed that this process listens for messages.
    listens: watch::Sender<ListenState>,
}

/// The state of a process's subscription to messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListenState {
    /// There is no connection.
    No,
    Yes,
    /// The user has no permission.
    Forbidden,
}

impl RedisListener {
    pub(crate) fn new() -> Self {
        // A random tag is enough. If two stores had the same tag, they would not receive each other's notices, and would poll.
        let tag = RandomIds::new().next(SystemClock::new().now()).simple();
        Self { tag: format!("={tag}"), running: Mutex::default() }
    }

    /// Returns the last word of the notices of this store's own appends.
    pub(crate) fn mark(&self) -> Bytes {
        format!(" {}", self.tag).into()
    }

    /// Notifies the subscribers of this store that an append gave a run this head.
    pub(crate) fn notify_local(&self, run: &RunKey, head: HeadRef) {
        if let Some(running) = &*self.running() {
            // The send fails if there is no subscriber.
            let _ = running.heard.runs.send(Notice::new(run.clone()).with_head(head));
        }
    }

    /// Returns a receiver of notices. Returns `None` outside of a tokio runtime, where no task can listen.
    pub(crate) fn subscribe(&self, link: &Arc<RedisLink>, layout: &RedisKeys) -> Option<Notices> {
        Some(Notices::new(self.listen(link, layout)?.runs.subscribe()))
    }

    /// Returns a receiver of messages, once the server has confirmed that this process listens.
    pub(crate) async fn subscribe_texts(
        &self,
        link: &Arc<RedisLink>,
        layout: &RedisKeys,
    ) -> ferrata_store::Result<RelayTexts> {
        let refuse = |kind, message: &str| Err(Error::new(kind, message).with_operation("store.hear"));
        let Some(heard) = self.listen(link, layout) else {
            return refuse(ErrorKind::Unavailable, "no tokio runtime is active; call this within one");
        };
        let (receiver, mut listens) = (heard.said.subscribe(), heard.listens.subscribe());
        let known = listens.wait_for(|listens| *listens != ListenState::No);
        let listens = within(&SystemClock::new(), PATIENCE, known).await.and_then(Result::ok).map(|now| *now);
        match listens {
            Some(ListenState::Yes) => Ok(RelayTexts::new(receiver)),
            Some(ListenState::Forbidden) => {
                let channel = String::from_utf8_lossy(&layout.said_channel()).into_owned();
                refuse(
                    ErrorKind::Invalid,
                    &format!("NOPERM: the user may not use the channel `{channel}`; {REMEDY}"),
                )
            }
            _ => refuse(
                ErrorKind::Unavailable,
                "the connection for notices was not established in time; call again",
            ),
        }
    }

    /// Starts to listen, unless the store listens already.
    fn listen(&self, link: &Arc<RedisLink>, layout: &RedisKeys) -> Option<Arc<RedisSubscribers>> {
        let mut running = self.running();
        if let Some(running) = running.as_ref().filter(|running| !running.task.is_finished()) {
            return Some(Arc::clone(&running.heard));
        }
        let runtime = Handle::try_current().ok()?;
        // When a runtime shuts down, its task ends. The subscribers continue with the next task.
        let heard = match running.take() {
            Some(ended) => ended.heard,
            None => {
                let (runs, said) = (broadcast::Sender::new(NOTICES), broadcast::Sender::new(NOTICES));
                Arc::new(RedisSubscribers { runs, said, listens: watch::Sender::new(ListenState::No) })
            }
        };
        heard.listens.send_replace(ListenState::No);
        let (store, gone) = oneshot::channel();
        let channels = [layout.channel(), layout.said_channel()];
        let task = runtime.spawn(run_listener(
            Arc::clone(link),
            channels,
            self.tag.clone(),
            Arc::clone(&heard),
            gone,
        ));
        *running = Some(ListenerTask { heard: Arc::clone(&heard), task: task.abort_handle(), _store: store });
        Some(heard)
    }

    fn running(&self) -> MutexGuard<'_, Option<ListenerTask>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Forwards notices. The task ends with the store.
async fn run_listener(
    link: Arc<RedisLink>,
    channels: [Bytes; 2],
    tag: String,
    to: Arc<RedisSubscribers>,
    gone: oneshot::Receiver<()>,
) {
    let clock = SystemClock::new();
    let listening = async {
        for attempt in 0.. {
            if let Err(fault) = listen(&link, &channels, &tag, &to, attempt).await {
                tracing::debug!(%fault, "cannot receive notices; reconnecting");
            }
            to.listens.send_replace(ListenState::No);
            clock.sleep(PAUSE).await;
        }
    };
    tokio::select! {
        () = listening => {}
        _ = gone => {}
    }
}

/// Listens on one connection until it ends.
async fn listen(
    link: &RedisLink,
    [channel, said]: &[Bytes; 2],
    tag: &str,
    to: &RedisSubscribers,
    attempt: usize,
) -> Result<(), RedisStoreError> {
    let node = link.listener(attempt).await?;
    let lost = |source| RedisStoreError::connecting(&node.name, source);
    let (mut heard, mut messages) = link.in_time(node.subscribe()).await?.split();
    link.in_time(async { heard.subscribe(&channel[..]).await.map_err(lost) }).await?;
    // The user may have permission for the other channel only.
    match link.in_time(async { Ok(heard.subscribe(&said[..]).await) }).await? {
        Ok(()) => drop(to.listens.send_replace(ListenState::Yes)),
        Err(source) if source.code() == Some("NOPERM") => {
            tracing::warn!(%source, "chunks of streams from other processes do not reach this one; {REMEDY}");
            to.listens.send_replace(ListenState::Forbidden);
        }
        Err(source) => return Err(lost(source)),
    }
    let clock = SystemClock::new();
    loop {
        // If a network drops packets, neither side learns of it. So a listener that receives nothing for a while subscribes again.
        let Some(message) = within(&clock, SILENCE, messages.next()).await else {
            link.in_time(async { heard.subscribe(&channel[..]).await.map_err(lost) }).await?;
            continue;
        };
        let Some(message) = message else { return Ok(()) };
        // A store sends only text.
        let Ok(text) = std::str::from_utf8(message.get_payload_bytes()) else { continue };
        if message.get_channel_name().as_bytes() == &said[..] {
            // The send fails if there is no listener.
            let _ = to.said.send(text.into());
            continue;
        }
        if text.rsplit(' ').next() == Some(tag) {
            continue;
        }
        for run in text.split(' ').filter_map(parse_name) {
            // The send fails if there is no subscriber.
            let _ = to.runs.send(Notice::new(run));
        }
    }
}
