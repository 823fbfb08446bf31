//! Direct messages between processes: notices of changed runs, and texts. No stream stores either.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::{HeaderMap, Message};
use ferrata_store::{
    Clock as _, Error, ErrorKind, HeadRef, Notice, Notices, RelayTexts, RunId, RunKey, SystemClock, TenantId,
    within,
};
use futures_util::{FutureExt as _, Stream, StreamExt as _};
use tokio::runtime::Handle;
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::task::{AbortHandle, unconstrained};

use crate::error::NatsStoreError;
use crate::layout::NatsNames;
use crate::link::NatsLink;

/// The header of a notice that says the head, as JSON.
const HEAD: &str = "Ferrata-Head";

/// The number of notices or texts that a slow subscriber may lag before it gets a notice of missed ones.
const BEHIND: usize = 1_024;

/// The pause before another attempt to listen.
const PAUSE: Duration = Duration::from_millis(200);

/// The time that a caller waits until this process listens.
const PATIENCE: Duration = Duration::from_secs(10);

/// The subscriptions of this process, from the first subscriber until the store is gone.
#[derive(Default)]
pub(crate) struct NatsListener(Mutex<Option<RunningListener>>);

struct RunningListener {
    heard: Arc<NatsSubscribers>,
    /// This store's own texts pass through the listening task, after the texts that the server sent before.
    own: mpsc::UnboundedSender<Arc<str>>,
    task: AbortHandle,
    /// Ends the task when it is dropped.
    _store: oneshot::Sender<()>,
}

struct NatsSubscribers {
    runs: broadcast::Sender<Notice>,
    said: broadcast::Sender<Arc<str>>,
    listens: watch::Sender<bool>,
}

impl NatsListener {
    /// Notifies the subscribers of this store of its own changes. The server does not, because the connection disables echo.
    pub(crate) fn notify_local(&self, notice: Notice) {
        if let Some(running) = &*self.running() {
            // The send fails if there is no subscriber.
            let _ = running.heard.runs.send(notice);
        }
    }

    /// As [`notify_local`](Self::notify_local), of a text.
    pub(crate) fn send_local_text(&self, text: &str) {
        if let Some(running) = &*self.running() {
            let _ = running.own.send(text.into());
        }
    }

    fn running(&self) -> MutexGuard<'_, Option<RunningListener>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn subscribe(&self, link: &Arc<NatsLink>, layout: &NatsNames) -> Option<Notices> {
        Some(Notices::new(self.listen(link, layout)?.runs.subscribe()))
    }

    /// Returns a receiver of messages, once the server has confirmed that this process listens.
    pub(crate) async fn subscribe_texts(
        &self,
        link: &Arc<NatsLink>,
        layout: &NatsNames,
    ) -> ferrata_store::Result<RelayTexts> {
        let refuse =
            |message: &str| Err(Error::new(ErrorKind::Unavailable, message).with_operation("store.hear"));
        let Some(heard) = self.listen(link, layout) else {
            return refuse("no tokio runtime is active; call this within one");
        };
        let (receiver, mut listens) = (heard.said.subscribe(), heard.listens.subscribe());
        let listening = async {
            drop(listens.wait_for(|listens| *listens).await);
            // After it lost a connection, the client listens again before it asks anything.
            link.sync_with_server(&layout.logs()).await
        };
        match within(&SystemClock::new(), PATIENCE, listening).await {
            Some(Ok(())) => Ok(RelayTexts::new(receiver)),
            _ => refuse("the connection for notices was not established in time; call again"),
        }
    }

    /// Begins to listen, unless that has begun.
    fn listen(&self, link: &Arc<NatsLink>, layout: &NatsNames) -> Option<Arc<NatsSubscribers>> {
        let mut running = self.running();
        if let Some(running) = running.as_ref().filter(|running| !running.task.is_finished()) {
            return Some(Arc::clone(&running.heard));
        }
        let runtime = Handle::try_current().ok()?;
        // The shutdown of a runtime ended its task; its subscribers continue with the next task.
        let heard = match running.take() {
            Some(ended) => ended.heard,
            None => {
                let (runs, said) = (broadcast::Sender::new(BEHIND), broadcast::Sender::new(BEHIND));
                Arc::new(NatsSubscribers { runs, said, listens: watch::Sender::new(false) })
            }
        };
        heard.listens.send_replace(false);
        let (own, owned) = mpsc::unbounded_channel();
        let (store, gone) = oneshot::channel();
        let task =
            runtime.spawn(run_listener(Arc::clone(link), layout.clone(), Arc::clone(&heard), owned, gone));
        *running = Some(RunningListener {
            heard: Arc::clone(&heard),
            own,
            task: task.abort_handle(),
            _store: store,
        });
        Some(heard)
    }
}

/// Forwards incoming messages. Ends with the store.
async fn run_listener(
    link: Arc<NatsLink>,
    layout: NatsNames,
    to: Arc<NatsSubscribers>,
    mut own: mpsc::UnboundedReceiver<Arc<str>>,
    gone: oneshot::Receiver<()>,
) {
    let clock = SystemClock::new();
    let listening = async {
        loop {
            if let Err(fault) = listen(&link, &layout, &to, &mut own).await {
                tracing::debug!(%fault, "cannot receive notices; reconnecting");
            }
            to.listens.send_replace(false);
            clock.sleep(PAUSE).await;
        }
    };
    tokio::select! {
        () = listening => {}
        _ = gone => {}
    }
}

/// Listens until the connection is closed permanently; the client subscribes again by itself after a lost connection.
async fn listen(
    link: &NatsLink,
    layout: &NatsNames,
    to: &NatsSubscribers,
    own: &mut mpsc::UnboundedReceiver<Arc<str>>,
) -> Result<(), NatsStoreError> {
    let client = link.client().await?;
    let closed = |_| NatsStoreError::lost("the connection was closed");
    let mut runs = client.subscribe(layout.notices()).await.map_err(closed)?;
    let mut said = client.subscribe(layout.texts_subject()).await.map_err(closed)?;
    link.sync_with_server(&layout.logs()).await?;
    to.listens.send_replace(true);
    tokio::select! {
        () = forward_notices(&mut runs, &to.runs) => {}
        () = forward_texts(&mut said, own, &to.said) => {}
    }
    Ok(())
}

/// Passes on what the server tells of runs, until the connection is closed.
async fn forward_notices(heard: &mut (impl Stream<Item = Message> + Unpin), to: &broadcast::Sender<Notice>) {
    while let Some(notice) = heard.next().await {
        // The send fails if there is no subscriber.
        let _ = read(&notice).map(|notice| to.send(notice));
    }
}

/// Passes on what others say, until the connection is closed, and what this process says itself.
async fn forward_texts(
    heard: &mut (impl Stream<Item = Message> + Unpin),
    own: &mut mpsc::UnboundedReceiver<Arc<str>>,
    to: &broadcast::Sender<Arc<str>>,
) {
    let pass = |text: Message| {
        // A message that is no text is not from a store.
        std::str::from_utf8(&text.payload).map_or((), |text| drop(to.send(text.into())))
    };
    loop {
        tokio::select! {
            biased;
            text = heard.next() => {
                let Some(text) = text else { return };
                pass(text);
            }
            Some(text) = own.recv() => {
                // Earlier messages of the server are queued by now, but may not have been at the last poll.
                while let Some(Some(before)) = unconstrained(heard.next()).now_or_never() {
                    pass(before);
                }
                let _ = to.send(text);
            }
        }
    }
}

/// Writes the headers of a notice.
pub(crate) fn headers(head: Option<HeadRef>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Some(text) = head.and_then(|head| serde_json::to_string(&head).ok()) {
        headers.insert(HEAD, text);
    }
    headers
}

/// Reads a notice; those of other versions may say nothing of the head.
fn read(message: &Message) -> Option<Notice> {
    let (tenant, run) = std::str::from_utf8(&message.payload).ok()?.split_once('/')?;
    let notice = Notice::new(RunKey::new(TenantId::new(tenant).ok()?, RunId::new(run).ok()?));
    let head = message.headers.as_ref().and_then(|headers| headers.get(HEAD));
    Some(match head.and_then(|text| serde_json::from_str(text.as_str()).ok()) {
        Some(head) => notice.with_head(head),
        None => notice,
    })
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use futures_util::stream;

    use super::*;

    fn message(text: &'static str) -> Message {
        Message {
            subject: "said".into(),
            reply: None,
            payload: text.into(),
            headers: None,
            status: None,
            description: None,
            length: text.len(),
        }
    }

    /// It came after this process had polled, and before this process's own text: subscribers get it first.
    #[tokio::test]
    async fn earlier_remote_notices_precede_local_ones() {
        let mut looks = 0;
        let mut heard = stream::poll_fn(|task| {
            looks += 1;
            task.waker().wake_by_ref();
            match looks {
                1 => Poll::Pending,
                2 => Poll::Ready(Some(message("before"))),
                3 => Poll::Pending,
                _ => Poll::Ready(None),
            }
        });
        let (own, mut owned) = mpsc::unbounded_channel();
        let (to, mut told) = broadcast::channel(4);
        own.send("own".into()).unwrap();
        forward_texts(&mut heard, &mut owned, &to).await;
        let all: Vec<_> = std::iter::from_fn(|| told.try_recv().ok()).collect();
        assert_eq!(all.iter().map(|text| &**text).collect::<Vec<_>>(), ["before", "own"]);
    }
}
