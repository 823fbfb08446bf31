//! The way to the servers: one connection, requests whose fate is known or said to be in doubt, and the API of JetStream.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_nats::client::RequestErrorKind;
use async_nats::connection::State;
use async_nats::{Client, ConnectErrorKind, ConnectOptions, Event, HeaderMap, Message, Request};
use bytes::Bytes;
use ferrata_store::{Clock, within};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::{OnceCell, watch};

use crate::config::{Target, User};
use crate::error::StoreError;
use crate::message::Sent;

/// How long after a lost connection the first attempt at another is made, and what each further one waits longer.
const STEP_MS: u64 = 20;

/// The longest pause between two attempts.
const LONGEST_MS: u64 = 1_000;

/// How long a new connection is waited for before the next look.
const LOOK: Duration = Duration::from_millis(20);

/// Connects when it is first needed, and again whenever the connection was lost.
pub(crate) struct Link {
    target: Target,
    clock: Arc<dyn Clock>,
    client: OnceCell<Client>,
    /// How often a connection was lost.
    lost: Arc<watch::Sender<u64>>,
}

impl Link {
    pub(crate) fn new(target: Target, clock: Arc<dyn Clock>) -> Self {
        Self { target, clock, client: OnceCell::new(), lost: Arc::new(watch::Sender::new(0)) }
    }

    /// The servers, as they may be shown.
    pub(crate) fn servers(&self) -> &[String] {
        &self.target.servers
    }

    /// Returns the client once it is connected.
    pub(crate) async fn client(&self) -> Result<&Client, StoreError> {
        let connected = async {
            let client = self.client.get_or_try_init(|| Box::pin(self.connect())).await?;
            // Asked again and again: the client tells of a new connection before it has it.
            while client.connection_state() != State::Connected {
                self.clock.sleep(LOOK).await;
            }
            Ok(client)
        };
        let connected = within(&*self.clock, self.target.options.connect_timeout, connected).await;
        connected
            .unwrap_or_else(|| Err(StoreError::Unreachable { why: "no connection came in time".to_owned() }))
    }

    async fn connect(&self) -> Result<Client, StoreError> {
        let Target { servers, user, options } = &self.target;
        let lost = Arc::clone(&self.lost);
        let mut connect = ConnectOptions::new()
            .name("ferrata")
            // What a store does itself it tells its subscribers itself.
            .no_echo()
            .connection_timeout(options.connect_timeout)
            .request_timeout(None)
            .max_reconnects(None)
            .reconnect_delay_callback(|attempt| {
                let ms = STEP_MS.saturating_mul(u64::try_from(attempt).unwrap_or(u64::MAX));
                Duration::from_millis(ms.min(LONGEST_MS))
            })
            .event_callback(move |event| {
                match &event {
                    Event::Disconnected | Event::Closed => lost.send_modify(|count| *count += 1),
                    Event::Connected => {}
                    other => tracing::warn!(event = %other, "NATS"),
                }
                std::future::ready(())
            });
        connect = match user {
            User::None => connect,
            User::Token(token) => connect.token(token.clone()),
            User::Named(name, password) => connect.user_and_password(name.clone(), password.clone()),
        };
        if let Some(credentials) = &options.credentials {
            connect = connect.credentials(credentials).map_err(|_| StoreError::Forbidden)?;
        }
        if let Some(file) = &options.root_certificates {
            connect = connect.add_root_certificates(file.clone());
        }
        connect.connect(servers).await.map_err(|error| match error.kind() {
            ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
                StoreError::Forbidden
            }
            kind => StoreError::Unreachable { why: kind.to_string() },
        })
    }

    /// Sends a request once, and waits for its reply. Without one it may have been carried out.
    pub(crate) async fn request(
        &self,
        subject: String,
        headers: Option<HeaderMap>,
        payload: Bytes,
    ) -> Result<Message, StoreError> {
        self.send(self.client().await?, subject, headers, payload).await
    }

    async fn send(
        &self,
        client: &Client,
        subject: String,
        headers: Option<HeaderMap>,
        payload: Bytes,
    ) -> Result<Message, StoreError> {
        let mut lost = self.losses();
        let bytes = payload.len();
        let mut request = Request::new().payload(payload);
        if let Some(headers) = headers {
            request = request.headers(headers);
        }
        let reply = self.bounded(&mut lost, client.send_request(subject, request)).await?;
        reply.map_err(|error| match error.kind() {
            RequestErrorKind::NoResponders => StoreError::Absent,
            RequestErrorKind::MaxPayloadExceeded => {
                StoreError::TooLarge { bytes, most: client.max_payload() }
            }
            RequestErrorKind::InvalidSubject => StoreError::strange("a subject is none"),
            _ => StoreError::lost("the connection was closed"),
        })
    }

    /// Tells, from now on, when a connection is lost.
    pub(crate) fn losses(&self) -> watch::Receiver<u64> {
        self.lost.subscribe()
    }

    /// Waits for what the server is to take or to answer, until the connection is lost or it is too late.
    pub(crate) async fn bounded<T>(
        &self,
        lost: &mut watch::Receiver<u64>,
        call: impl Future<Output = T>,
    ) -> Result<T, StoreError> {
        tokio::select! {
            biased;
            done = within(&*self.clock, self.target.options.response_timeout, call) => {
                done.ok_or_else(|| StoreError::lost("no answer came in time"))
            }
            _ = lost.changed() => Err(StoreError::lost("the connection was lost")),
        }
    }

    /// Sends what needs no reply; it may be lost.
    pub(crate) async fn tell(
        &self,
        subject: String,
        headers: HeaderMap,
        payload: Bytes,
    ) -> Result<(), StoreError> {
        let client = self.client().await?;
        let told = client.publish_with_headers(subject, headers, payload);
        let told = self.bounded(&mut self.losses(), told).await?;
        told.map_err(|_| StoreError::lost("the connection was closed"))
    }

    /// Waits until the server has read all that was sent before: it answers what is asked of a stream, also of one that is not there.
    pub(crate) async fn settle(&self, stream: &str) -> Result<(), StoreError> {
        match self.api::<Value>(&format!("STREAM.INFO.{stream}"), &Value::Null).await {
            Ok(_) | Err(StoreError::Absent | StoreError::Refused { .. }) => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    /// Makes a call of the API of JetStream.
    pub(crate) async fn api<T: DeserializeOwned>(&self, call: &str, body: &Value) -> Result<T, StoreError> {
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let reply = self.request(format!("$JS.API.{call}"), None, body).await?;
        answer(&reply.payload)
    }

    /// Returns which connection this process has, once it has one.
    pub(crate) async fn connection(&self) -> Result<u64, StoreError> {
        self.client().await.map(number)
    }

    /// Stores a message that follows from what was read on a connection, unless that was lost: the server may have come back without it.
    pub(crate) async fn publish_on(
        &self,
        connection: u64,
        subject: &str,
        sent: Sent,
    ) -> Result<u64, StoreError> {
        let client = self.client().await?;
        if number(client) != connection {
            return Err(StoreError::Busy { what: "the connection was lost and made anew meanwhile" });
        }
        let reply = self.send(client, subject.to_owned(), Some(sent.headers), sent.payload).await?;
        answer::<Stored>(&reply.payload).map(|stored| stored.seq)
    }

    /// Stores a message; returns its place in the stream.
    pub(crate) async fn publish(
        &self,
        subject: String,
        headers: HeaderMap,
        payload: Bytes,
    ) -> Result<u64, StoreError> {
        let reply = self.request(subject, Some(headers), payload).await?;
        answer::<Stored>(&reply.payload).map(|stored| stored.seq)
    }
}

/// Counts the connections of a client.
fn number(client: &Client) -> u64 {
    client.statistics().connects.load(Ordering::Relaxed)
}

#[derive(serde::Deserialize)]
struct Stored {
    seq: u64,
}

#[derive(serde::Deserialize)]
struct Refusal {
    error: Refused,
}

#[derive(serde::Deserialize)]
struct Refused {
    code: u64,
    #[serde(default)]
    err_code: u64,
    #[serde(default)]
    description: String,
}

fn answer<T: DeserializeOwned>(reply: &[u8]) -> Result<T, StoreError> {
    if let Ok(Refusal { error: Refused { code, err_code, description } }) = serde_json::from_slice(reply) {
        return Err(StoreError::Refused { code: err_code, status: code, description });
    }
    // It was done, or not: that cannot be read from the answer.
    serde_json::from_slice(reply).map_err(|_| StoreError::lost("an answer that cannot be read came"))
}
