//! The routes: they place, read, watch and approve orders, and report the health of the replica.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, Extension, Path, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router, middleware};
use ferrata::ask::Question;
use ferrata::runtime::{SseFrames, StalledRun, WatchCursor};
use ferrata::{Answer, Error, ErrorKind, Graph, Position, RunId, RunKey, RunStatus, Runtime};
use ferrata_inspector::{Inspector, Viewer};
use futures_util::stream;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::auth::{Caller, Keys, authenticate};
use crate::orders::Order;
use crate::page;

/// The id of an order's question: the gate at its first visit. With this id, a second answer is distinguished from an answer to no question.
const QUESTION: &str = "approve@1:gate";

/// Maximum size of a body in bytes. An order is small, so a larger body is not an order.
const MOST: usize = 16 * 1024;

/// The data that the routes share.
#[derive(Debug)]
pub(crate) struct App {
    /// The runtime, which drives the orders of this replica and reads those of others.
    pub(crate) runtime: Runtime,
    /// The graph of an order.
    pub(crate) graph: Graph<Order>,
    /// The name of the replica.
    pub(crate) name: String,
    /// Becomes true when the replica shuts down. Responses that last as long as their order end then, and do not delay the shutdown.
    pub(crate) ending: watch::Sender<bool>,
}

/// Creates the routes. Authentication protects all of them except `/health` and the page.
pub(crate) fn router(app: &Arc<App>, keys: &Arc<Keys>) -> Router {
    Router::new()
        .route("/orders", post(place))
        .route("/orders/{id}", get(read))
        .route("/orders/{id}/approve", post(approve))
        .route("/orders/{id}/events", get(events))
        .route("/stalled", get(stalled))
        .layer(DefaultBodyLimit::max(MOST))
        .layer(middleware::from_fn_with_state(Arc::clone(keys), authenticate))
        .route("/health", get(health))
        .merge(page::router())
        .with_state(Arc::clone(app))
        .nest("/ferrata", inspector(app, keys))
}

/// Shows the runs of the orders in a browser, for clients that have a key. The page asks for the key, and acts are recorded with the name of the key.
fn inspector(app: &App, keys: &Arc<Keys>) -> Router {
    let inspector = Inspector::new(app.runtime.clone()).graph(&app.graph).ending(app.ending.subscribe());
    // Without keys, the replica listens only for this machine, so only its usual names are allowed.
    let inspector = match **keys {
        Keys::Open => inspector,
        Keys::Of(_) => inspector.allow_any_host().allow_writes(),
    };
    let keys = Arc::clone(keys);
    let viewer = move |request: &Parts| {
        let sent = request.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        keys.caller(sent).map(|Caller(name)| Viewer::new().named(name))
    };
    inspector.access(viewer).into_router()
}

#[derive(Debug, Deserialize)]
struct Placed {
    id: String,
    item: String,
    eur: u32,
}

#[derive(Debug, Deserialize)]
struct Decision {
    approved: bool,
}

/// An order in the form that clients see.
#[derive(Debug, Serialize)]
struct View {
    id: String,
    status: RunStatus,
    questions: Vec<Question>,
    order: Order,
}

type Reply<T> = Result<(StatusCode, Json<T>), Refusal>;

/// Starts the run of the order. A client may place the same order again, at this replica or another, and it remains one order.
///
/// The response is sent when the start is durable. From then on the order is completed, whatever happens to this replica. A client that gets no
/// response places the order again. If the client hangs up, this future is dropped, but the runtime still carries out the start. So this function
/// does not need to spawn a task.
async fn place(
    State(app): State<Arc<App>>,
    Extension(Caller(caller)): Extension<Caller>,
    body: Result<Json<Placed>, JsonRejection>,
) -> Reply<View> {
    let Json(Placed { id, item, eur }) = body?;
    let order = Order { item, eur, ..Order::default() };
    let run = app.runtime.start(&app.graph, order).id(&id).user(caller).await?;
    Ok((StatusCode::ACCEPTED, Json(view(&app, run.run()).await?)))
}

async fn read(State(app): State<Arc<App>>, Path(id): Path<String>) -> Reply<View> {
    Ok((StatusCode::OK, Json(view(&app, &key(&id)?).await?)))
}

/// Answers the question of the order, whichever replica asked it. Any replica with capacity then continues the order.
async fn approve(
    State(app): State<Arc<App>>,
    Extension(Caller(caller)): Extension<Caller>,
    Path(id): Path<String>,
    body: Result<Json<Decision>, JsonRejection>,
) -> Reply<View> {
    let Json(Decision { approved }) = body?;
    let run = key(&id)?;
    app.runtime.respond(&run, QUESTION, Answer::accept(approved)?).by(caller).await?;
    Ok((StatusCode::ACCEPTED, Json(view(&app, &run).await?)))
}

/// Sends the events of the order, from its start or after the last event that the client has seen, whichever replica drives it. The response is an
/// event stream for the `EventSource` of a browser.
async fn events(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let seen = match headers.get("last-event-id").and_then(|id| id.to_str().ok()) {
        Some(id) => id.parse()?,
        None => WatchCursor::default(),
    };
    let frames = app.runtime.watch(&key(&id)?).after(seen).await?.sse();
    // The stream also ends when the replica shuts down. The client then connects again, to another replica.
    let stream = stream::unfold((frames, app.ending.subscribe()), async |(mut frames, mut ending)| {
        let frame = next_frame(&mut frames, &mut ending).await?;
        Some((Ok::<_, Infallible>(frame), (frames, ending)))
    });
    let kind = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    Ok((kind, Body::from_stream(stream)).into_response())
}

async fn next_frame(frames: &mut SseFrames, ending: &mut watch::Receiver<bool>) -> Option<String> {
    tokio::select! {
        // An error ends the stream. The client gets the error when it connects again.
        frame = frames.next() => frame.ok().flatten(),
        _ = ending.wait_for(|ending| *ending) => None,
    }
}

/// Reports whether the store answers. If it does not, a load balancer removes the replica. The route needs no key, so its response contains nothing
/// else.
async fn health(State(app): State<Arc<App>>) -> Reply<Value> {
    // There is no such order. Only the fact that the store answers matters.
    match app.runtime.head(&key("health")?).await {
        Ok(_) => Ok((StatusCode::OK, Json(json!({ "replica": app.name })))),
        Err(_) => {
            Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "UNAVAILABLE", "the store does not answer"))
        }
    }
}

/// Lists the orders that this replica could not claim.
async fn stalled(State(app): State<Arc<App>>) -> Reply<Vec<String>> {
    let line = |stalled: &StalledRun| format!("{}: {}", stalled.run.run, stalled.error);
    Ok((StatusCode::OK, Json(app.runtime.stalled().iter().map(line).collect())))
}

async fn view(app: &App, run: &RunKey) -> Result<View, Error> {
    let Some(head) = app.runtime.head(run).await? else {
        return Err(Error::new(ErrorKind::NotFound, "there is no such order; place it").with_run(run));
    };
    let order = app.runtime.state_at(&app.graph, run, Position::Latest).await?;
    let questions = app.runtime.questions(run).await?;
    Ok(View { id: run.run.to_string(), status: head.status, questions, order })
}

fn key(id: &str) -> Result<RunKey, Error> {
    Ok(RunKey::from(RunId::new(id)?))
}

/// The reason why a request was rejected.
pub(crate) struct Refusal {
    status: StatusCode,
    code: String,
    message: String,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, code: &str, message: &str) -> Self {
        Self { status, code: code.to_owned(), message: message.to_owned() }
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let status = match error.kind() {
            ErrorKind::NotFound => StatusCode::NOT_FOUND,
            ErrorKind::AlreadyExists | ErrorKind::Conflict | ErrorKind::WrongStatus => StatusCode::CONFLICT,
            ErrorKind::Invalid => StatusCode::BAD_REQUEST,
            ErrorKind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            // The client may send the same request again, because an order is placed once, however often it is sent.
            ErrorKind::Unavailable | ErrorKind::Indeterminate | ErrorKind::Closed => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self { status, code: error.kind().to_string(), message: error.to_string() }
    }
}

impl From<JsonRejection> for Refusal {
    fn from(rejection: JsonRejection) -> Self {
        Self { status: rejection.status(), code: "INVALID".into(), message: rejection.body_text() }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Self { status, code, message } = self;
        (status, Json(json!({ "code": code, "message": message }))).into_response()
    }
}
