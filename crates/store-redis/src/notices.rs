//! Notices of changed runs, by the server's pub/sub.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ferrata_store::{Clock, Notices, RunKey, SystemClock};
use futures_util::StreamExt as _;
use tokio::runtime::Handle;
use tokio::sync::{broadcast, oneshot};

use crate::error::StoreError;
use crate::layout::{Layout, parse_name};
use crate::link::Link;

/// How many notices a slow subscriber may be behind before it is told that it missed some.
const NOTICES: usize = 1_024;

/// How long to wait before the next attempt after the connection was lost. Executors look by themselves meanwhile.
const PAUSE: Duration = Duration::from_secs(1);

/// The one connection that hears notices, once there is a subscriber.
#[derive(Debug, Default)]
pub(crate) struct Hearing(Mutex<Option<Running>>);

#[derive(Debug)]
struct Running {
    notices: broadcast::Sender<RunKey>,
    /// Dropped with the store, which ends the task.
    _store: oneshot::Sender<()>,
}

impl Hearing {
    /// Returns a receiver of notices; `None` outside of a tokio runtime, where no task could listen.
    pub(crate) fn subscribe(&self, link: &Arc<Link>, layout: &Layout) -> Option<Notices> {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = running.as_ref() {
            return Some(Notices::new(running.notices.subscribe()));
        }
        let runtime = Handle::try_current().ok()?;
        let (notices, receiver) = broadcast::channel(NOTICES);
        let (store, gone) = oneshot::channel();
        let channel = layout.channel();
        runtime.spawn(hear(Arc::clone(link), channel, notices.clone(), gone));
        *running = Some(Running { notices, _store: store });
        Some(Notices::new(receiver))
    }
}

/// Passes on notices until the store is gone.
async fn hear(
    link: Arc<Link>,
    channel: bytes::Bytes,
    notices: broadcast::Sender<RunKey>,
    gone: oneshot::Receiver<()>,
) {
    let clock = SystemClock::new();
    let listening = async {
        for attempt in 0.. {
            if let Err(fault) = listen(&link, &channel, &notices, attempt).await {
                tracing::debug!(%fault, "cannot hear notices; trying again");
            }
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
    link: &Link,
    channel: &[u8],
    notices: &broadcast::Sender<RunKey>,
    attempt: usize,
) -> Result<(), StoreError> {
    let node = link.listener(attempt).await?;
    let mut heard = node.subscribe().await?;
    heard.subscribe(channel).await.map_err(|source| StoreError::connecting(&node.name, source))?;
    let mut messages = heard.into_on_message();
    while let Some(message) = messages.next().await {
        let text = std::str::from_utf8(message.get_payload_bytes()).unwrap_or_default();
        for run in text.split(' ').filter_map(parse_name) {
            // Fails while there is no subscriber: then there is none to be told.
            let _ = notices.send(run);
        }
    }
    Ok(())
}
