//! Helpers: a separate namespace per test, a plain connection to the server's messages, and damage.
#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]
#![allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_nats::{Client, HeaderMap};
use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ferrata_store::{CheckpointStore, RunKey};
use ferrata_store_conformance::{Damage, Space, StoreFactory};
use ferrata_store_nats::{NatsOptions, NatsStore};
use ferrata_test_servers::{Service, service_url};
use serde_json::{Value, json};

static COUNTER: AtomicU32 = AtomicU32::new(0);

/// Creates spaces on the server that all tests share.
pub struct Servers;

/// A namespace on a server.
pub struct Place {
    pub server: String,
    pub namespace: String,
}

/// A stored message.
pub struct Raw {
    pub at: u64,
    pub said: Value,
    pub payload: Vec<u8>,
}

impl Place {
    pub fn shared() -> Self {
        Self::at(&service_url(Service::Nats))
    }

    pub fn at(server: &str) -> Self {
        let namespace = format!("test-{}-{}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed));
        Self { server: server.to_owned(), namespace }
    }

    pub fn options(&self) -> NatsOptions {
        NatsOptions::default().with_namespace(&self.namespace)
    }

    pub fn store(&self) -> NatsStore {
        self.store_with(self.options())
    }

    pub fn store_with(&self, options: NatsOptions) -> NatsStore {
        NatsStore::from_url(&self.server, options).unwrap()
    }

    pub fn logs(&self) -> String {
        format!("FERRATA-LOGS-{}", self.namespace)
    }

    pub fn beats(&self) -> String {
        format!("FERRATA-BEATS-{}", self.namespace)
    }

    pub async fn client(&self) -> Client {
        let servers: Vec<String> = self
            .server
            .trim_start_matches("nats://")
            .split(',')
            .map(|host| format!("nats://{host}"))
            .collect();
        async_nats::connect(servers).await.unwrap()
    }

    /// The subject of a run's log.
    pub async fn subject(&self, client: &Client, run: &RunKey) -> String {
        let info = api(client, &format!("STREAM.INFO.{}", self.logs()), &Value::Null).await;
        let all = info["config"]["subjects"][0].as_str().unwrap().trim_end_matches('>').to_owned();
        let [tenant, id] = [run.tenant.as_str(), run.run.as_str()].map(|id| id.replace('.', "~"));
        format!("{all}{tenant}.{id}")
    }

    /// All messages of a run.
    pub async fn messages(&self, client: &Client, subject: &str) -> Vec<Raw> {
        let mut found = Vec::new();
        let mut next = 1;
        loop {
            let ask = json!({ "seq": next, "next_by_subj": subject });
            let got = api(client, &format!("STREAM.MSG.GET.{}", self.logs()), &ask).await;
            let Some(message) = got.get("message") else { return found };
            let bytes = |name: &str| STANDARD.decode(message[name].as_str().unwrap_or_default()).unwrap();
            let headers = String::from_utf8(bytes("hdrs")).unwrap();
            let said = headers.lines().find_map(|line| line.strip_prefix("Ferrata: ")).unwrap();
            let at = message["seq"].as_u64().unwrap();
            found.push(Raw { at, said: serde_json::from_str(said).unwrap(), payload: bytes("data") });
            next = at + 1;
        }
    }

    /// Rewrites the messages of a run with `change`, and removes messages without records.
    async fn rewrite(&self, run: &RunKey, change: impl Fn(&mut Vec<(Vec<u8>, Vec<u8>)>)) {
        let client = self.client().await;
        let subject = self.subject(&client, run).await;
        let messages = self.messages(&client, &subject).await;
        let purged =
            api(&client, &format!("STREAM.PURGE.{}", self.logs()), &json!({ "filter": subject })).await;
        assert_eq!(purged["success"], true, "{purged}");
        for Raw { mut said, payload, .. } in messages {
            let mut rest = &payload[..];
            let mut records = Vec::new();
            for text in said["records"].as_array().unwrap() {
                let header = URL_SAFE_NO_PAD.decode(text.as_str().unwrap()).unwrap();
                let length = length_of(&header).min(rest.len());
                let (body, after) = rest.split_at(length);
                rest = after;
                records.push((header, body.to_vec()));
            }
            change(&mut records);
            if records.is_empty() {
                continue;
            }
            let texts: Vec<String> =
                records.iter().map(|(header, _)| URL_SAFE_NO_PAD.encode(header)).collect();
            said["records"] = json!(texts);
            let payload: Vec<u8> = records.into_iter().flat_map(|(_, body)| body).collect();
            let mut headers = HeaderMap::new();
            headers.insert("Ferrata", said.to_string());
            let stored = client.request_with_headers(subject.clone(), headers, payload.into()).await.unwrap();
            assert!(serde_json::from_slice::<Value>(&stored.payload).unwrap()["error"].is_null());
        }
    }

    pub async fn remove(&self) {
        let client = self.client().await;
        for stream in [self.logs(), self.beats()] {
            api(&client, &format!("STREAM.DELETE.{stream}"), &Value::Null).await;
        }
    }
}

pub async fn api(client: &Client, call: &str, body: &Value) -> Value {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let reply = client.request(format!("$JS.API.{call}"), body.into()).await.unwrap();
    serde_json::from_slice(&reply.payload).unwrap()
}

/// The sequence number in a header: a varint after the 16 bytes of the id.
fn seq_of(header: &[u8]) -> u64 {
    varint(&mut &header[16..])
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut number = 0;
    for shift in (0..).step_by(7) {
        let byte = bytes[0];
        *bytes = &bytes[1..];
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    number
}

/// The length of the body in a header. It follows the number, format and base, kind, status and bits, epoch, and time.
fn length_of(header: &[u8]) -> usize {
    let mut rest = &header[16..];
    for _ in 0..3 {
        varint(&mut rest);
    }
    rest = &rest[3..];
    for _ in 0..2 {
        varint(&mut rest);
    }
    usize::try_from(varint(&mut rest)).unwrap()
}

#[async_trait]
impl StoreFactory for Servers {
    async fn fresh(&self) -> Box<dyn Space> {
        Box::new(Place::shared())
    }
}

#[async_trait]
impl Space for Place {
    async fn open(&self) -> Arc<dyn CheckpointStore> {
        Arc::new(self.store())
    }

    async fn damage(&self, run: &RunKey, damage: Damage) -> bool {
        match damage {
            Damage::Body(seq) => {
                self.rewrite(run, |records| {
                    for (_, body) in records.iter_mut().filter(|(header, _)| seq_of(header) == seq.get()) {
                        body[0] ^= 1;
                    }
                })
                .await;
            }
            Damage::Gone(seq) => {
                self.rewrite(run, |records| records.retain(|(header, _)| seq_of(header) != seq.get())).await;
            }
            // The server writes a message completely or not at all. This state follows from a damaged and repaired file.
            Damage::Torn => {
                let client = self.client().await;
                let subject = self.subject(&client, run).await;
                let last = self.messages(&client, &subject).await.pop().unwrap().said;
                let last = last["records"].as_array().unwrap().last().unwrap().as_str().unwrap().to_owned();
                let last = seq_of(&URL_SAFE_NO_PAD.decode(last).unwrap());
                self.rewrite(run, |records| {
                    for (_, body) in records.iter_mut().filter(|(header, _)| seq_of(header) == last) {
                        body.truncate(body.len() / 2);
                    }
                })
                .await;
            }
            Damage::NewerFormat(seq) => {
                self.rewrite(run, |records| {
                    for (header, _) in records.iter_mut().filter(|(header, _)| seq_of(header) == seq.get()) {
                        assert!(header[16] < 0x80, "a short log");
                        header[17] += 1;
                    }
                })
                .await;
            }
            _ => return false,
        }
        true
    }

    async fn remove(&self) {
        Self::remove(self).await;
    }
}
