//! Live events of a run, as server-sent events.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Path;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use ferrata_core::runtime::{WatchCursor, WatchKind};
use futures_util::stream;
use tokio::sync::watch;

use super::run_poller::RunPoller;
use crate::app::ApiCall;
use crate::problem::Problem;

/// The events that contain output of nodes. A page requests them with `words`. These events are omitted if texts are hidden, because a hook needs
/// whole texts and the events contain parts of texts. For a run with secret channels, the viewer must be allowed to see secrets.
const PAYLOADS: [WatchKind; 4] =
    [WatchKind::Chunks, WatchKind::Chunk, WatchKind::Custom, WatchKind::Progress];

/// Answers `GET /api/v1/runs/{tenant}/{run}/events`: the events after the last record that the browser saw, or from now on.
pub(super) async fn follow(
    call: ApiCall,
    Path(name): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let params = call.params(&["after", "words"])?;
    let run = call.run(&name)?;
    let may_hear = params.parsed::<bool>("words")?.unwrap_or(false) && call.app.redaction.is_empty();
    let with_words =
        may_hear && (call.viewer.sees_secrets() || call.runtime().secrets(&run).await?.is_empty());
    let sent = headers.get("last-event-id").map(|id| id.to_str().unwrap_or("?"));
    let seen = match (sent, params.one("after")?) {
        (Some(id), _) | (None, Some(id)) => Some(id.parse::<WatchCursor>()?),
        (None, None) => None,
    };
    let kinds = WatchKind::ALL.iter().copied().filter(|kind| with_words || !PAYLOADS.contains(kind));
    let request = call.runtime().watch(&run).kinds(kinds);
    let request = match seen {
        Some(seen) => request.after(seen),
        None => request.from_now(),
    };
    let frames = request.await?.sse();
    let (quiet, ending) = (RunPoller::new(call.runtime(), run), call.app.ending.clone());
    let app = Arc::clone(&call.app);
    let stream =
        stream::unfold((frames, quiet, ending, app), async |(mut frames, mut quiet, mut ending, app)| {
            // The stream also ends when the server stops. The page then connects again.
            let frame = tokio::select! {
                // The page learns about an error when it connects again.
                frame = quiet.next(&mut frames) => frame?,
                () = ended(ending.as_mut()) => return None,
            };
            Some((Ok::<_, Infallible>(app.redaction.frame(frame)), (frames, quiet, ending, app)))
        });
    let kind = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    Ok((kind, Body::from_stream(stream)).into_response())
}

/// Waits until the server ends.
async fn ended(ending: Option<&mut watch::Receiver<bool>>) {
    let Some(ending) = ending else { return std::future::pending().await };
    if ending.wait_for(|ending| *ending).await.is_err() {
        // The sender no longer exists, so no end can be announced.
        std::future::pending().await
    }
}
