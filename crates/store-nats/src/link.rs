//! The connection to the servers. Sends requests and reports whether their outcome is known, and calls the API of JetStream.

use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use async_nats::client::RequestErrorKind;
use async_nats::connection::State;
use async_nats::{Client, ConnectErrorKind, ConnectOptions, Event, Message, Request};
use bytes::Bytes;
use ferrata_store::{Clock, within};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::OnceCell;
use tokio::sync::watch::{Receiver, Sender};

use crate::config::{ConnectionUser, NatsTarget};
use crate::error::NatsStoreError;
use crate::message::OutgoingMessage;

type Result<T> = std::result::Result<T, NatsStoreError>;

/// The delay before the first reconnect, the increase for each further reconnect, and the pause between two reads.
const STEP: Duration = Duration::from_millis(20);

/// The longest pause between two attempts.
const LONGEST: Duration = Duration::from_secs(1);

/// The connection of a store. It connects at the first use, and again after each lost connection.
pub(crate) struct NatsLink {
    target: NatsTarget,
    clock: Arc<dyn Clock>,
    slot: Mutex<Arc<ClientSlot>>,
    /// The number of lost connections.
    pub(crate) lost: Arc<Sender<u64>>,
}

/// The slot for a client, which is empty until the client has connected once.
#[derive(Default)]
struct ClientSlot {
    client: OnceCell<Arc<NatsConnection>>,
    /// The number of connections that the previous clients made.
    before: u64,
}

/// A client, whose tasks run on the runtime that created it.
pub(crate) struct NatsConnection {
    client: Client,
    before: u64,
    /// Held by the client's tasks, so that a dead runtime can be detected.
    tasks: Weak<()>,
}

impl NatsConnection {
    /// Returns the number of the current connection among all connections of the store.
    fn number(&self) -> u64 {
        self.before.saturating_add(self.client.statistics().connects.load(Ordering::Relaxed))
    }
}

impl Deref for NatsConnection {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl NatsLink {
    pub(crate) fn new(target: NatsTarget, clock: Arc<dyn Clock>) -> Self {
        Self { target, clock, slot: Mutex::default(), lost: Arc::new(Sender::new(0)) }
    }

    /// Returns the servers, in a form that may be displayed.
    pub(crate) fn servers(&self) -> &[String] {
        &self.target.servers
    }

    /// Returns the client once it is connected.
    pub(crate) async fn client(&self) -> Result<Arc<NatsConnection>> {
        let slot = self.slot();
        let connected = async {
            let client = slot.client.get_or_try_init(|| Box::pin(self.connect(slot.before))).await?;
            // Poll the state: the client reports a new connection before it has the connection.
            while client.connection_state() != State::Connected {
                self.clock.sleep(STEP).await;
            }
            Ok(Arc::clone(client))
        };
        let connected = within(&*self.clock, self.target.options.connect_timeout, connected).await;
        connected.unwrap_or_else(|| {
            Err(NatsStoreError::Unreachable { why: "the connection was not established in time".to_owned() })
        })
    }

    /// Returns the slot of the client. If the runtime of the client is gone, returns a new slot, because nothing can revive that client.
    fn slot(&self) -> Arc<ClientSlot> {
        // A panic leaves the slot valid. No caller holds the lock across an await.
        let mut slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = slot.client.get().filter(|client| client.tasks.strong_count() == 0);
        if let Some(before) = gone.map(|gone| gone.number()) {
            *slot = Arc::new(ClientSlot { before, ..ClientSlot::default() });
        }
        Arc::clone(&slot)
    }

    async fn connect(&self, before: u64) -> Result<Arc<NatsConnection>> {
        let NatsTarget { servers, user, options } = &self.target;
        let lost = Arc::clone(&self.lost);
        let held = Arc::new(());
        let tasks = Arc::downgrade(&held);
        let mut connect = ConnectOptions::new()
            .name("ferrata")
            // Disable echo, because the store notifies its own subscribers of its own changes.
            .no_echo()
            .connection_timeout(options.connect_timeout)
            .request_timeout(None)
            .max_reconnects(None)
            .reconnect_delay_callback(|n| {
                STEP.saturating_mul(u32::try_from(n).unwrap_or(u32::MAX)).min(LONGEST)
            })
            .event_callback(move |event| {
                let _held = &held;
                match &event {
                    Event::Disconnected | Event::Closed => lost.send_modify(|count| *count += 1),
                    Event::Connected => {}
                    other => tracing::warn!(event = %other, "NATS"),
                }
                std::future::ready(())
            });
        connect = match user {
            ConnectionUser::None => connect,
            ConnectionUser::Token(token) => connect.token(token.clone()),
            ConnectionUser::Named(name, password) => {
                connect.user_and_password(name.clone(), password.clone())
            }
        };
        if let Some(credentials) = &options.credentials {
            connect = connect.credentials(credentials).map_err(|_| NatsStoreError::Forbidden)?;
        }
        if let Some(file) = &options.root_certificates {
            connect = connect.add_root_certificates(file.clone());
        }
        let client = connect.connect(servers).await.map_err(|error| match error.kind() {
            ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
                NatsStoreError::Forbidden
            }
            kind => NatsStoreError::Unreachable { why: kind.to_string() },
        })?;
        Ok(Arc::new(NatsConnection { client, before, tasks }))
    }

    /// Sends a request once and waits for its reply. If the caller names a connection (`on`), sends it only over that connection. If no reply
    /// comes, the server may still have executed the request.
    async fn request(&self, on: Option<u64>, subject: String, request: Request) -> Result<Message> {
        let client = self.client().await?;
        let mut lost = self.lost.subscribe();
        if on.is_some_and(|on| on != client.number()) {
            return Err(NatsStoreError::Busy {
                what: "the connection was lost and restored during the call",
            });
        }
        let (bytes, most) = (request.payload.as_ref().map_or(0, Bytes::len), client.max_payload());
        let reply = self.wait_bounded(&mut lost, client.send_request(subject, request)).await?;
        reply.map_err(|error| match error.kind() {
            RequestErrorKind::NoResponders => NatsStoreError::Absent,
            RequestErrorKind::MaxPayloadExceeded => NatsStoreError::TooLarge { bytes, most },
            RequestErrorKind::InvalidSubject => NatsStoreError::strange("a subject is invalid"),
            _ => NatsStoreError::lost("the connection was closed"),
        })
    }

    /// Waits for the server, until the connection is lost or the timeout passes.
    pub(crate) async fn wait_bounded<F: Future>(
        &self,
        lost: &mut Receiver<u64>,
        call: F,
    ) -> Result<F::Output> {
        tokio::select! {
            biased;
            done = within(&*self.clock, self.target.options.response_timeout, call) => {
                done.ok_or_else(|| NatsStoreError::lost("no answer arrived in time"))
            }
            _ = lost.changed() => Err(NatsStoreError::lost("the connection was lost")),
        }
    }

    /// Sends a message that needs no reply. The message may be lost.
    pub(crate) async fn send_unacknowledged(&self, subject: String, sent: OutgoingMessage) -> Result<()> {
        let client = self.client().await?;
        let told = client.publish_with_headers(subject, sent.headers, sent.payload);
        let told = self.wait_bounded(&mut self.lost.subscribe(), told).await?;
        told.map_err(|_| NatsStoreError::lost("the connection was closed"))
    }

    /// Waits until the server has read all earlier messages. Sends a request about a stream, which the server answers even if the stream does not
    /// exist.
    pub(crate) async fn sync_with_server(&self, stream: &str) -> Result<()> {
        match self.api::<Value>(&format!("STREAM.INFO.{stream}"), &Value::Null).await {
            Ok(_) | Err(NatsStoreError::Absent | NatsStoreError::Refused { .. }) => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    /// Sends a request to the API of JetStream.
    pub(crate) async fn api<T: DeserializeOwned>(&self, call: &str, body: &Value) -> Result<T> {
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let reply = self.request(None, format!("$JS.API.{call}"), Request::new().payload(body)).await?;
        answer(&reply.payload)
    }

    /// Returns the number of the current connection. Waits until there is one.
    pub(crate) async fn connection(&self) -> Result<u64> {
        self.client().await.map(|client| client.number())
    }

    /// Publishes a message. A message that is based on a read goes only over the connection of that read, because a restarted server may lack the
    /// message that was read.
    pub(crate) async fn publish(&self, on: Option<u64>, subject: &str, sent: OutgoingMessage) -> Result<u64> {
        let request = Request::new().headers(sent.headers).payload(sent.payload);
        let reply = self.request(on, subject.to_owned(), request).await?;
        answer::<StoredReply>(&reply.payload).map(|stored| stored.seq)
    }
}

#[derive(serde::Deserialize)]
struct StoredReply {
    seq: u64,
}

#[derive(serde::Deserialize)]
struct ApiRefusal {
    error: RefusedReply,
}

#[derive(serde::Deserialize)]
struct RefusedReply {
    code: u64,
    #[serde(default)]
    err_code: u64,
    #[serde(default)]
    description: String,
}

fn answer<T: DeserializeOwned>(reply: &[u8]) -> Result<T> {
    if let Ok(ApiRefusal { error: RefusedReply { code, err_code, description } }) =
        serde_json::from_slice(reply)
    {
        return Err(NatsStoreError::Refused { code: err_code, status: code, description });
    }
    // The answer is unreadable, so the outcome is unknown.
    serde_json::from_slice(reply).map_err(|_| NatsStoreError::lost("the answer is unreadable"))
}
