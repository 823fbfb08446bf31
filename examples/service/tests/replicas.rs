//! Tests with two replicas on one store. One replica is killed or shut down, and the other completes every order. Each order is paid once.
#![expect(clippy::unwrap_used, reason = "all of it is a test")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use ferrata::{Clock, SystemClock};
use ferrata_test_servers::Service;
use ferrata_tests::Space;
use serde_json::{Value, json};

/// Maximum time to wait for an event on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// Time in milliseconds for which a replica without heartbeats counts as alive. The next constant is longer than a test waits.
const SHORT: &str = "1500";
const LONG: &str = "600000";

/// A replica. If it is still running at the end of the test, it is killed.
struct Replica {
    child: Child,
    address: String,
    said: BufReader<ChildStdout>,
    /// The key that requests contain.
    key: Option<&'static str>,
}

impl Replica {
    fn start(space: &Space, name: &str, heartbeat: &str) -> Self {
        Self::start_with(space, name, heartbeat, &[])
    }

    fn start_with(space: &Space, name: &str, heartbeat: &str, more: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_orders"));
        command.args(["--name", name, "--store", space.url(), "--heartbeat", heartbeat]);
        // The shutdown does not wait for nodes, because the other replica repeats their work.
        command.args(["--pace", "400", "--grace", "0"]).args(more);
        command.arg("--payments").arg(space.folder().join("payments"));
        let mut child = command.envs(space.environment()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        said.read_line(&mut line).unwrap();
        let address = line.trim().split("http://").nth(1).unwrap_or_else(|| panic!("{name} says {line:?}"));
        Self { child, address: address.to_owned(), said, key: None }
    }

    /// Sends a request.
    fn send(&self, method: &str, path: &str, body: &Value) -> TcpStream {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let key = self.key.map(|key| format!("authorization: Bearer {key}\r\n")).unwrap_or_default();
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-type: application/json\r\n\
             {key}content-length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        )
        .unwrap();
        stream
    }

    /// Sends a request. Returns the status and the body of the response.
    fn call(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let mut stream = self.send(method, path, body);
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        let (head, body) = reply.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap())
    }

    /// Connects to the events of an order, like a browser that has already seen some events.
    fn events(&self, id: &str, seen: Option<&str>) -> Frames {
        let seen = seen.map(|seen| format!("last-event-id: {seen}\r\n")).unwrap_or_default();
        let mut stream = TcpStream::connect(&self.address).unwrap();
        // In this version of HTTP, a response is not split into chunks.
        write!(stream, "GET /orders/{id}/events HTTP/1.0\r\nhost: {}\r\n{seen}\r\n", self.address).unwrap();
        let mut frames = Frames(BufReader::new(stream));
        let head = frames.paragraph();
        assert!(head.contains("200 OK") && head.contains("text/event-stream"), "{head}");
        frames
    }

    fn place(&self, id: &str, eur: u32) -> (u16, Value) {
        self.call("POST", "/orders", &json!({ "id": id, "item": "rope", "eur": eur }))
    }

    fn read(&self, id: &str) -> Value {
        let (status, order) = self.call("GET", &format!("/orders/{id}"), &Value::Null);
        assert_eq!(status, 200, "{order}");
        order
    }

    fn decide(&self, id: &str, approved: bool) -> (u16, Value) {
        self.call("POST", &format!("/orders/{id}/approve"), &json!({ "approved": approved }))
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// An event stream.
struct Frames(BufReader<TcpStream>);

impl Frames {
    /// Reads up to an empty line.
    fn paragraph(&mut self) -> String {
        let mut text = String::new();
        while self.0.read_line(&mut text).unwrap() > 2 && !text.ends_with("\n\n") {}
        text
    }

    /// Reads the next recorded frame. Returns its id and its text; `None` if the order has ended.
    fn next(&mut self) -> Option<(String, String)> {
        loop {
            let frame = self.paragraph();
            if frame.starts_with("event: end\n") {
                return None;
            }
            assert!(frame.ends_with("\n\n"), "the connection was closed: {frame:?}");
            if let Some(rest) = frame.strip_prefix("id: ") {
                return Some((rest.lines().next().unwrap().to_owned(), frame));
            }
        }
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until a condition holds.
async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let clock = SystemClock::new();
    let deadline = clock.monotonic() + PATIENCE;
    while !is_so() {
        assert!(clock.monotonic() < deadline, "{what} did not happen within {PATIENCE:?}");
        clock.sleep(Duration::from_millis(20)).await;
    }
}

/// Returns the payments by order: the amount of each payment, once for each time that it was made.
fn payments(space: &Space) -> BTreeMap<String, Vec<String>> {
    let mut paid: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in std::fs::read_dir(space.folder().join("payments")).into_iter().flatten() {
        let name = file.unwrap().file_name().into_string().unwrap();
        let mut parts = name.split('.').map(str::to_owned);
        paid.entry(parts.next().unwrap()).or_default().push(parts.next().unwrap());
    }
    paid
}

/// Waits until an order of this replica is paid but the payment is not recorded.
async fn is_paying(space: &Space, other: &Replica, ids: &[String]) {
    until("a payment that is not recorded", || {
        let paid = payments(space);
        let is_open = |id: &&String| other.read(id)["order"]["receipt"].is_null();
        ids.iter().filter(|id| paid.contains_key(*id)).any(|id| is_open(&id))
    })
    .await;
}

async fn all_are(replica: &Replica, ids: &[String], status: &str) {
    until(&format!("orders that are all {status}"), || {
        ids.iter().all(|id| replica.read(id)["status"] == status)
    })
    .await;
}

fn ids(what: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{what}-{n}")).collect()
}

/// Kills a replica that has orders in every stage.
async fn one_is_killed(service: Option<Service>) {
    Space::within(service, async |space| {
        let (mut ann, bob) = (Replica::start(space, "ann", SHORT), Replica::start(space, "bob", SHORT));
        let (cheap, dear, of_bob) = (ids("cheap", 4), ids("dear", 3), ids("bobs", 2));
        for (replica, ids, eur) in [(&ann, &dear, 500), (&ann, &cheap, 20), (&bob, &of_bob, 30)] {
            for id in ids {
                let (status, order) = replica.place(id, eur);
                assert_eq!((status, &order["id"]), (202, &json!(id)), "{order}");
            }
        }
        // An order that is placed again, at either replica, is the same order. With other content, it is rejected.
        assert_eq!(bob.place(&cheap[0], 20).0, 202);
        assert_eq!(bob.place(&cheap[0], 21).0, 409);
        assert_eq!(bob.call("GET", "/orders/none", &Value::Null).0, 404);
        assert_eq!(bob.call("POST", "/orders", &json!({ "id": "x" })).0, 422);
        assert_eq!(bob.place("no/id", 1).0, 400);
        assert_eq!(bob.call("GET", "/health", &Value::Null).0, 200);

        is_paying(space, &bob, &cheap).await;
        ann.kill();
        all_are(&bob, &cheap, "completed").await;
        all_are(&bob, &of_bob, "completed").await;
        // ann asked questions or was about to ask them. The answers that bob gives count.
        all_are(&bob, &dear, "interrupted").await;
        for (id, approved) in dear.iter().zip([true, true, false]) {
            assert_eq!(bob.decide(id, approved).0, 202);
        }
        assert_eq!(bob.decide(&dear[0], true).0, 409, "a question is answered once");
        all_are(&bob, &dear, "completed").await;

        let done: Vec<String> = cheap.iter().map(|id| bob.read(id)["order"]["done"].to_string()).collect();
        assert!(
            done.iter().any(|done| done.contains("ann") && done.contains("bob")),
            "begun and ended: {done:?}"
        );
        let once = |ids: &[String], eur: &str| -> Vec<_> {
            ids.iter().map(|id| (id.clone(), vec![eur.to_owned()])).collect()
        };
        let mut expected = once(&cheap, "20EUR");
        expected.extend(once(&of_bob, "30EUR").into_iter().chain(once(&dear[..2], "500EUR")));
        assert_eq!(
            payments(space),
            expected.into_iter().collect(),
            "each is paid once, and none that was refused"
        );
    })
    .await;
}

/// Shuts down a replica. The other replica does not wait for the end of its heartbeat, which is later than the end of the test.
async fn one_is_told_to_end(service: Option<Service>) {
    Space::within(service, async |space| {
        let (mut ann, bob) = (Replica::start(space, "ann", LONG), Replica::start(space, "bob", LONG));
        let orders = ids("order", 4);
        for id in &orders {
            assert_eq!(ann.place(id, 20).0, 202);
        }
        // Watch the order until the replica shuts down. The order asks a question, so the stream does not end by itself.
        assert_eq!(ann.place("dear", 500).0, 202);
        is_paying(space, &bob, &orders).await;
        let mut watched = ann.events("dear", None);
        watched.next().unwrap();
        let told = Command::new("kill").args(["-TERM", &ann.child.id().to_string()]).status().unwrap();
        assert!(told.success());
        let mut ended = None;
        until("the end of a replica that was told to end", || {
            ended = ann.child.try_wait().unwrap();
            ended.is_some()
        })
        .await;
        assert!(ended.unwrap().success(), "{ended:?}");
        let mut said = String::new();
        ann.said.read_to_string(&mut said).unwrap();
        assert_eq!(said, "ann has let go of its orders\n");
        let mut rest = String::new();
        watched.0.read_to_string(&mut rest).unwrap();
        assert!(!rest.contains("event: end"), "its client connects again: {rest}");
        all_are(&bob, &orders, "completed").await;
        let done: Vec<String> = orders.iter().map(|id| bob.read(id)["order"]["done"].to_string()).collect();
        assert!(
            done.iter().any(|done| done.contains("ann") && done.contains("bob")),
            "begun and ended: {done:?}"
        );
        let paid = payments(space);
        assert!(paid.len() == 4 && paid.values().all(|paid| paid.len() == 1), "{paid:?}");
    })
    .await;
}

/// Watches an order of one replica from both replicas, and disconnects after each event.
async fn one_is_watched(service: Option<Service>) {
    Space::within(service, async |space| {
        let (ann, bob) = (Replica::start(space, "ann", LONG), Replica::start(space, "bob", LONG));
        assert_eq!(ann.place("o", 20).0, 202);
        let (mut told, mut replicas) = (Vec::<(String, String)>::new(), [&ann, &bob].into_iter().cycle());
        while let Some(frame) =
            replicas.next().unwrap().events("o", told.last().map(|(id, _)| id.as_str())).next()
        {
            told.push(frame);
        }
        let mut whole = Vec::new();
        let mut frames = bob.events("o", None);
        while let Some(frame) = frames.next() {
            whole.push(frame);
        }
        assert_eq!(told, whole, "no gap and no double");
        let nodes: Vec<_> =
            whole.iter().filter(|(_, frame)| frame.contains("event: node_completed")).collect();
        assert_eq!(nodes.len(), 3, "{whole:?}");
        for (at, (id, _)) in whole.iter().enumerate() {
            let next = ann.events("o", Some(id)).next();
            assert_eq!(next.as_ref(), whole.get(at + 1), "behind {id}");
        }
        assert_eq!(ann.call("GET", "/orders/none/events", &Value::Null).0, 404);
        // An invalid cursor is rejected.
        let mut stream = TcpStream::connect(&ann.address).unwrap();
        write!(stream, "GET /orders/o/events HTTP/1.0\r\nlast-event-id: x\r\n\r\n").unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        assert!(reply.contains("400 Bad Request"), "{reply}");
    })
    .await;
}

/// Opens the page of an order like a browser that is disconnected after each part of the note and then connects to another replica.
async fn one_is_shown(service: Option<Service>) {
    Space::within(service, async |space| {
        let (ann, bob) = (Replica::start(space, "ann", LONG), Replica::start(space, "bob", LONG));
        assert_eq!(ann.place("o", 20).0, 202);
        for (path, kind, says) in [
            ("/?order=o", "text/html", "<script src=\"/page.js\">"),
            ("/page.js", "text/javascript", "new EventSource(`/orders/"),
        ] {
            let mut page = String::new();
            ann.send("GET", path, &Value::Null).read_to_string(&mut page).unwrap();
            assert!(page.contains("200 OK") && page.contains(kind) && page.contains(says), "{page}");
            let policy =
                "content-security-policy: default-src 'none'; script-src 'self'; connect-src 'self'; ";
            assert!(page.contains(policy) && !page.contains("unsafe"), "{page}");
        }
        let (mut note, mut pieces, mut seen) = (String::new(), 0, None);
        let mut replicas = [&ann, &bob].into_iter().cycle();
        'page: loop {
            let mut frames = replicas.next().unwrap().events("o", seen.as_deref());
            while let Some((id, frame)) = frames.next() {
                seen = Some(id);
                let data = frame.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
                let event: Value = serde_json::from_str(data).unwrap();
                if event["kind"] == "chunks" && event["event"]["stream"] == "note" {
                    let words: Vec<String> =
                        serde_json::from_value(event["event"]["chunks"].clone()).unwrap();
                    if event["event"]["first"] == 0 {
                        note.clear();
                    }
                    note.push_str(&words.concat());
                    pieces += 1;
                    continue 'page;
                }
            }
            break;
        }
        assert_eq!(json!(note), bob.read("o")["order"]["note"], "no gap and no double");
        assert!(pieces > 2, "the note came in {pieces} pieces");
    })
    .await;
}

#[tokio::test]
async fn page_shows_written_note_despite_disconnects_on_files() {
    one_is_shown(None).await;
}

#[tokio::test]
async fn page_shows_written_note_despite_disconnects_on_postgres() {
    one_is_shown(Some(Service::Postgres)).await;
}

/// Guarantees: EVENT-8.
#[tokio::test]
async fn order_watch_moves_between_replicas_on_files() {
    one_is_watched(None).await;
}

#[tokio::test]
async fn order_watch_moves_between_replicas_on_postgres() {
    one_is_watched(Some(Service::Postgres)).await;
}

#[tokio::test]
async fn replica_finishes_orders_of_killed_one_on_files() {
    one_is_killed(None).await;
}

#[tokio::test]
async fn replica_finishes_orders_of_killed_one_on_postgres() {
    one_is_killed(Some(Service::Postgres)).await;
}

#[tokio::test]
async fn stopping_replica_releases_orders_at_once_on_files() {
    one_is_told_to_end(None).await;
}

#[tokio::test]
async fn stopping_replica_releases_orders_at_once_on_postgres() {
    one_is_told_to_end(Some(Service::Postgres)).await;
}

/// A client hangs up while its order is being recorded. The order is then completed or was never placed.
#[tokio::test]
async fn abandoned_order_is_finished_or_never_placed() {
    Space::within(None, async |space| {
        let ann = Replica::start(space, "ann", LONG);
        let orders = ids("order", 12);
        for (id, wait) in orders.iter().zip([0, 0, 1, 1, 2, 2, 3, 4, 5, 6, 8, 10]) {
            let sent = ann.send("POST", "/orders", &json!({ "id": id, "item": "rope", "eur": 20 }));
            SystemClock::new().sleep(Duration::from_millis(wait)).await;
            drop(sent);
        }
        until("an end of each order that was placed", || {
            let status = |id: &String| ann.call("GET", &format!("/orders/{id}"), &Value::Null);
            orders.iter().map(status).all(|(status, order)| status == 404 || order["status"] == "completed")
        })
        .await;
        assert!(payments(space).values().all(|paid| paid.len() == 1), "{:?}", payments(space));
    })
    .await;
}

#[tokio::test]
async fn requests_need_key_and_bounded_body() {
    Space::within(None, async |space| {
        let file = space.folder().join("keys");
        std::fs::write(&file, "zoe a-key-that-is-long-enough\nbob another-key-of-this-kind\n").unwrap();
        let mut ann = Replica::start_with(space, "ann", LONG, &["--keys", file.to_str().unwrap()]);
        for key in [None, Some("a-key-that-is-long"), Some(""), Some("zoe a-key-that-is-long-enough")] {
            ann.key = key;
            let (status, refused) = ann.place("o-1", 500);
            assert_eq!((status, &refused["code"]), (401, &json!("UNAUTHORIZED")), "{key:?}");
            assert_eq!(ann.call("GET", "/orders/o-1", &Value::Null).0, 401);
            assert_eq!(ann.call("GET", "/stalled", &Value::Null).0, 401);
            assert_eq!(ann.call("GET", "/ferrata/api/v1/runs", &Value::Null).0, 401);
            // A load balancer has no key.
            assert_eq!(ann.call("GET", "/health", &Value::Null), (200, json!({ "replica": "ann" })));
        }
        ann.key = Some("a-key-that-is-long-enough");
        let (status, _) = ann.call("GET", "/orders/o-1", &Value::Null);
        assert_eq!(status, 404, "nobody without a key placed it");
        assert_eq!(ann.place("o-1", 500).0, 202);
        let long = json!({ "id": "o-2", "item": "x".repeat(20_000), "eur": 20 });
        assert_eq!(ann.call("POST", "/orders", &long).0, 413);
        until("a question", || ann.read("o-1")["status"] == "interrupted").await;
        ann.key = Some("another-key-of-this-kind");
        assert_eq!(ann.decide("o-1", true).0, 202);
        // The recorded author is the owner of the key, whatever the body says.
        ann.key = Some("a-key-that-is-long-enough");
        let (status, runs) = ann.call("GET", "/ferrata/api/v1/runs?workflow=order", &Value::Null);
        assert_eq!((status, &runs["items"][0]["id"]), (200, &json!("o-1")), "{runs}");
        let (status, late) = ann.decide("o-1", true);
        assert!(status == 409 && late["message"].as_str().unwrap().contains("bob"), "{late}");
    })
    .await;
}

#[test]
fn wrong_usage_and_store_errors_hide_secrets() {
    for (args, code, says) in [
        (&["--nmae", "x"][..], 2, "there is no option `--nmae`"),
        (&["--name"], 2, "`--name` needs a value"),
        (&["--store", "pigeon://me:secret@loft"], 1, "there is no store for `pigeon:` URLs"),
        (&["--listen", "0.0.0.0:0"], 1, "say with `--keys FILE` who may ask"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_orders")).args(args).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {errors}");
        assert!(errors.contains(says) && !errors.contains("secret"), "{args:?}: {errors}");
    }
}
