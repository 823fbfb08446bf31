//! Sentences about runs: at every record of many kinds of runs, the API of the page and the command agree with the folded state.

mod check;
mod runs;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use ferrata::runtime::Position;
use ferrata::{RunKey, Runtime, Seq};
use serde_json::{Value, json};

use self::check::{check_activations, check_line, check_nodes, check_plurals, check_reasons, events};
use self::runs::{Latest, fill};
use crate::browser::Server;
use crate::support::Place;

/// The API of a server's web page.
pub(crate) struct Page(String);

impl Page {
    /// Reads a path that must exist.
    fn read(&self, path: &str) -> Value {
        let (status, body) = self.get(path);
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    fn get(&self, path: &str) -> (u16, Value) {
        let (status, body) = self.text(path);
        (status, serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path}: {error}: {body}")))
    }

    fn text(&self, path: &str) -> (u16, String) {
        let address = self.0.trim_start_matches("http://").trim_end_matches('/');
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET /api/v1/{path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n")
            .unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        let (head, body) = reply.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|one| one["text"].as_str().unwrap()).collect()
}

/// Compares the page and the command with the state folded up to a record.
async fn compare_record(place: &Place, page: &Page, runtime: &Runtime, run: &RunKey, seq: u64) {
    let now = runtime.checkpoint(run, Position::Seq(Seq::new(seq))).await.unwrap();
    let shown = page.read(&format!("runs/default/{}?at={seq}", run.run));
    let about = format!("{} at record {seq}", run.run);
    assert_eq!(shown["run"]["at"]["status"], json!(now.status), "{about}");
    check_activations(&about, &now, &shown["run"]["open"]);
    check_nodes(&about, &now, &shown["run"]["graph"]["nodes"]);
    let people = place.ok(&["show", run.run.as_str(), "--at", &seq.to_string()]);
    let lines = |name: &str| -> Vec<String> {
        let named = people.lines().filter_map(|line| line.strip_prefix(&format!("{name:<10}")));
        named.map(str::to_owned).collect()
    };
    assert_eq!(lines("status"), [now.status.to_string()], "{about}: {people}");
    check_reasons(&about, &now, &lines("why"));
    let asked: Vec<&str> = now.questions.iter().map(|one| &*one.id).collect();
    let ids = shown["run"]["questions"].as_array().unwrap().iter();
    assert_eq!(ids.map(|one| one["id"].as_str().unwrap()).collect::<Vec<_>>(), asked, "{about}");
    let printed = people.lines().filter_map(|line| line.strip_prefix("? "));
    // A current question of a child has the path to the child.
    let own = printed.map(|line| line.split(' ').next().unwrap()).filter(|id| !id.contains('/'));
    assert_eq!(own.collect::<Vec<_>>(), asked, "{about}");
    for (question, shown) in now.questions.iter().zip(shown["run"]["questions"].as_array().unwrap()) {
        let prompt = question.prompt();
        assert!(people.contains(&prompt), "{about}: {prompt} is not in {people}");
        let text = question.text.as_deref().unwrap_or_default();
        assert_eq!(shown["text"].as_str().unwrap_or_default(), text, "{about}");
    }
    check_plurals(&people);
}

/// Compares the lines about a run's records with the records.
async fn compare_lines(place: &Place, page: &Page, runtime: &Runtime, run: &RunKey) {
    let of = |line: &Value| (line["seq"].as_u64().unwrap(), line["text"].as_str().unwrap().to_owned());
    let (lines, printed, report, post_mortem) = loop {
        let before = runtime.head(run).await.unwrap();
        let records = page.read(&format!("runs/default/{}/records?limit=2000", run.run));
        let printed = place.json(&["logs", run.run.as_str()]);
        let report = place.ok(&["show", run.run.as_str(), "--report"]);
        let (_, post_mortem) = page.text(&format!("runs/default/{}/post-mortem", run.run));
        // A run that waits for a child may get new records. The reads belong together only if its head is unchanged.
        if runtime.head(run).await.unwrap() == before {
            let lines: Vec<_> = records["items"].as_array().unwrap().iter().map(of).collect();
            break (lines, printed, report, post_mortem);
        }
    };
    assert_eq!(printed.as_array().unwrap().iter().map(of).collect::<Vec<_>>(), lines, "{run}");
    assert_eq!(report.trim(), post_mortem.trim(), "{run}");
    let events = events(&**runtime.store(), run).await;
    assert!(events.iter().all(|(seq, _)| lines.iter().any(|(of, _)| of == seq)), "a line for each record");
    for (seq, text) in &lines {
        let (_, event) = events.iter().find(|(of, _)| of == seq).unwrap();
        check_line(&format!("{} record {seq}", run.run), event, text);
        check_plurals(text);
        assert!(report.contains(&text.replace('|', "\\|")), "{run}: {text} is not in {report}");
    }
    check_plurals(&report);
}

/// Compares the reasons for a run's status, on every page and verb that shows them, with the expected reasons.
fn compare_latest(place: &Place, page: &Page, latest: &Latest, listed: &str) {
    let Latest { run, status, why } = latest;
    let shown = page.read(&format!("runs/default/{run}"));
    let printed = place.json(&["show", run]);
    assert_eq!(
        (&shown["head"]["status"], &printed["head"]["status"]),
        (&json!(status), &json!(status)),
        "{run}"
    );
    let told = texts(&shown["why"]);
    assert_eq!(told, texts(&printed["why"]), "the page and the command must agree about {run}");
    assert_eq!(told.len(), why.len(), "{run}: {told:?}");
    for (told, part) in told.iter().zip(why.iter()) {
        assert!(told.contains(part), "{run}: {part} is not in {told:?}");
    }
    let until = |list: &Value| -> Vec<Value> {
        list.as_array().unwrap().iter().map(|one| one.get("until").cloned().unwrap_or_default()).collect()
    };
    assert_eq!(until(&shown["why"]), until(&printed["why"]), "{run}");
    // Lists show the first reason that does not concern the owner.
    let briefs = page.read(&format!("briefs?run=default/{run}"));
    let brief = &briefs["items"][0]["brief"]["why"]["text"];
    let line = listed.lines().find(|line| line.split(' ').next() == Some(run)).unwrap();
    // The head of the run already names its owner.
    let of_head = |text: &&&str| text.contains("is running in process") || text.starts_with("has no process");
    let first = told.first().filter(|text| !of_head(text));
    assert_eq!(*brief, first.map_or(Value::Null, |text| json!(text)), "{run}");
    if let Some(first) = told.first().filter(|text| !text.contains("is running in process")) {
        let (start, _) = first.split_once('`').unwrap_or((first, ""));
        assert!(line.contains(start.trim()), "{run}: {start} is not in {line}");
    }
}

/// The texts of page and command agree with the log: answers, waits for children, and runs without a process.
///
/// Guarantees: INSPECT-18.
#[tokio::test(flavor = "multi_thread")]
async fn sentences_follow_the_log() {
    let place = Place::new();
    let filled = fill(&place).await;
    let (_server, url) = Server::start(&place, &place.url(), &[], "127.0.0.1:0");
    let page = Page(url);
    let listed =
        place.call_with(&["ls", "--all"], "", &[("FERRATA_STORE", &place.url()), ("COLUMNS", "400")]).out;
    for latest in &filled.latest {
        compare_latest(&place, &page, latest, &listed);
        let run = RunKey::try_from(latest.run).unwrap();
        let head = filled.operator.head(&run).await.unwrap().unwrap();
        for seq in head.first.get()..=head.seq.get() {
            compare_record(&place, &page, &filled.operator, &run, seq).await;
        }
        compare_lines(&place, &page, &filled.operator, &run).await;
    }
    // The inbox contains each open question once, and counts unreadable runs.
    let inbox = page.read("questions");
    let mut asked: Vec<String> = inbox["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            format!("{} {}", one["run"]["id"].as_str().unwrap(), one["question"]["id"].as_str().unwrap())
        })
        .collect();
    asked.sort();
    let printed = place.call(&["questions", "-o", "json"]);
    assert_eq!((printed.code, inbox["unreadable"]["count"].as_u64()), (70, Some(1)), "{printed:?}");
    let mut expected = filled.asked.clone();
    expected.sort();
    assert_eq!(asked, expected);
    // An unreadable run is listed with the reason, and without a status of its log.
    let (status, refused) = page.get("runs/default/sealed");
    let why = "the record is encrypted with the key `a`";
    assert!(status >= 400 && refused["message"].as_str().unwrap().contains(why), "{status}: {refused}");
    let shown = place.call(&["show", "sealed"]);
    assert!(shown.code == 70 && shown.err.contains(why), "{shown:?}");
    let line = listed.lines().find(|line| line.starts_with("sealed ")).unwrap();
    assert!(line.contains("cannot be read: the record is encrypted"), "{line}");
    filled.service.shutdown(std::time::Duration::ZERO).await.unwrap();
}
