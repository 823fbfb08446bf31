//! Direct messages between processes: notices of changed runs, and texts. No stream stores them.

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

/// The header of a notice that contains the head, as JSON.
const HEAD: &str = "Ferrata-Head";

/// The maximum number of undelivered notices or texts of a subscriber. A slower subscriber learns that it missed some.
const BEHIND: usize = 1_024;

/// The pause before another attempt to listen.
const PAUSE: Duration = Duration::from_millis(200);

/// How long a caller waits until this process listens.
const PATIENCE: Duration = Duration::from_secs(10);

/// The subscriptions of this process. They exist from the first subscriber until the store is dropped.
#[derive(Default)]
pub(crate) struct NatsListener(Mutex<Option<RunningListener>>);

struct RunningListener {
    heard: Arc<NatsSubscribers>,
    /// Sends this store's own texts to the listening task, so that they come after the texts that the server sent before.
    own: mpsc::UnboundedSender<Arc<str>>,
    task: AbortHandle,
    /// Dropping it ends the task.
    _store: oneshot::Sender<()>,
}

struct NatsSubscribers {
    runs: broadcast::Sender<Notice>,
    said: broadcast::Sender<Arc<str>>,
    listens: watch::Sender<bool>,
}

impl NatsListener {
    /// Notifies the subscribers of this store of its own changes. The server does not send these notices back, because echo is disabled.
    pub(crate) fn notify_local(&self, notice: Notice) {
        if let Some(running) = &*self.running() {
            // The send fails if there is no subscriber.
            let _ = running.heard.runs.send(notice);
        }
    }

    /// Like [`notify_local`](Self::notify_local), for a text.
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
            // After a lost connection, the client subscribes again before it sends any request.
            link.sync_with_server(&layout.logs()).await
        };
        match within(&SystemClock::new(), PATIENCE, listening).await {
            Some(Ok(())) => Ok(RelayTexts::new(receiver)),
            _ => refuse("the connection for notices was not established in time; call again"),
        }
    }

    /// Starts to listen, unless the store listens already.
    fn listen(&self, link: &Arc<NatsLink>, layout: &NatsNames) -> Option<Arc<NatsSubscribers>> {
        let mut running = self.running();
        if let Some(running) = running.as_ref().filter(|running| !running.task.is_finished()) {
            return Some(Arc::clone(&running.heard));
        }
        let runtime = Handle::try_current().ok()?;
        // When a runtime shuts down, its task ends. The subscribers continue with the next task.
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

/// Forwards incoming messages. The task ends with the store.
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

/// Listens until the connection is closed permanently. After a lost connection, the client itself subscribes again.
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

/// Forwards the server's notices of runs until the connection is closed.
async fn forward_notices(heard: &mut (impl Stream<Item = Message> + Unpin), to: &broadcast::Sender<Notice>) {
    while let Some(notice) = heard.next().await {
        // The send fails if there is no subscriber.
        let _ = read(&notice).map(|notice| to.send(notice));
    }
}

/// Forwards texts of other processes until the connection is closed, and this process's own texts.
async fn forward_texts(
    heard: &mut (impl Stream<Item = Message> + Unpin),
    own: &mut mpsc::UnboundedReceiver<Arc<str>>,
    to: &broadcast::Sender<Arc<str>>,
) {
    let pass = |text: Message| {
        // A store sends only text.
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
                // By now, earlier messages of the server are in the queue, but they may not have been there at the last poll.
                while let Some(Some(before)) = unconstrained(heard.next()).now_or_never() {
                    pass(before);
                }
                let _ = to.send(text);
            }
        }
    }
}

/// Returns the headers of a notice.
pub(crate) fn headers(head: Option<HeadRef>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Some(text) = head.and_then(|head| serde_json::to_string(&head).ok()) {
        headers.insert(HEAD, text);
    }
    headers
}

/// Parses a notice. Other versions may omit the head.
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

    /// A notice of the server arrived after the last poll, but before a notice of this process. Subscribers get the notice of the server first.
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
