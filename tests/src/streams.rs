//! The streams of a NATS store, changed and removed directly by a test.
#![expect(clippy::unwrap_used, reason = "a test that cannot change or remove its space has failed")]

use async_nats::{Client, HeaderMap};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ferrata_core::RunKey;
use serde_json::{Value, json};

/// Calls JetStream.
async fn call(client: &Client, name: &str, body: &Value) -> Value {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let reply = client.request(format!("$JS.API.{name}"), body.into()).await.unwrap();
    serde_json::from_slice(&reply.payload).unwrap()
}

/// Removes the streams of a namespace, if there are any.
pub(crate) async fn remove(server: &str, namespace: &str) {
    let client = async_nats::connect(server).await.unwrap();
    for kind in ["LOGS", "BEATS"] {
        call(&client, &format!("STREAM.DELETE.FERRATA-{kind}-{namespace}"), &Value::Null).await;
    }
}

/// Changes the last byte of a run's last message.
pub(crate) async fn damage_last(server: &str, namespace: &str, run: &RunKey) {
    let client = async_nats::connect(server).await.unwrap();
    let stream = format!("FERRATA-LOGS-{namespace}");
    let info = call(&client, &format!("STREAM.INFO.{stream}"), &Value::Null).await;
    let all = info["config"]["subjects"][0].as_str().unwrap().trim_end_matches('>').to_owned();
    let [tenant, id] = [run.tenant.as_str(), run.run.as_str()].map(|id| id.replace('.', "~"));
    let subject = format!("{all}{tenant}.{id}");
    let ask = json!({ "last_by_subj": subject });
    let found = call(&client, &format!("STREAM.MSG.GET.{stream}"), &ask).await;
    let message = &found["message"];
    let bytes = |name: &str| STANDARD.decode(message[name].as_str().unwrap()).unwrap();
    let (said, mut body) = (String::from_utf8(bytes("hdrs")).unwrap(), bytes("data"));
    *body.last_mut().unwrap() ^= 1;
    let mut headers = HeaderMap::new();
    headers.insert("Ferrata", said.lines().find_map(|line| line.strip_prefix("Ferrata: ")).unwrap());
    call(&client, &format!("STREAM.MSG.DELETE.{stream}"), &json!({ "seq": message["seq"] })).await;
    let stored = client.request_with_headers(subject, headers, body.into()).await.unwrap();
    assert!(serde_json::from_slice::<Value>(&stored.payload).unwrap()["error"].is_null());
}

/// Adds all messages of the streams of a namespace, with their subjects and headers.
pub(crate) async fn everything(server: &str, namespace: &str, all: &mut Vec<u8>) {
    let client = async_nats::connect(server).await.unwrap();
    for kind in ["LOGS", "BEATS"] {
        let stream = format!("FERRATA-{kind}-{namespace}");
        let info = call(&client, &format!("STREAM.INFO.{stream}"), &Value::Null).await;
        all.extend(info.to_string().into_bytes());
        let (first, last) = (info["state"]["first_seq"].as_u64(), info["state"]["last_seq"].as_u64());
        for seq in first.unwrap_or(1)..=last.unwrap_or(0) {
            let ask = json!({ "seq": seq });
            let found = call(&client, &format!("STREAM.MSG.GET.{stream}"), &ask).await;
            let message = &found["message"];
            all.extend(message["subject"].as_str().unwrap_or_default().as_bytes());
            for part in ["hdrs", "data"] {
                all.extend(STANDARD.decode(message[part].as_str().unwrap_or_default()).unwrap());
            }
        }
    }
}
