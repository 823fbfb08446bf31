//! A text that a hook hides is in no response, wherever it comes from and wherever a response is cut.

use std::fmt;

use axum::Router;
use ferrata_core::RunKey;
use ferrata_core::ask::{Answer, Ask, Shape};
use ferrata_core::graph::{Graph, RetryPolicy};
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::state::{Context, Draft, Op, Patch, Update};
use ferrata_queue::{RuntimeQueueExt as _, StartQueueExt as _};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use super::queues::until;
use super::support::{World, act, get, read};

/// The text to hide. Its start remains visible if a text is cut within it.
const MARK: &str = "5ecre7-4111";
const BEGINNING: &str = "5ecr";

/// The lengths at which responses cut texts: a preview, a line, a text of its own, and a page of a long text.
const CUTS: [usize; RUNS.len()] = [300, 120, 200, 4_000, 0, 8_000];

/// An error with a cause.
#[derive(Debug)]
struct Because(String, Option<Box<Because>>);

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Because {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.1.as_deref().map(|cause| cause as _)
    }
}

fn of(s: &Context) -> String {
    s.get("text").ok().flatten().unwrap_or_default()
}

/// Records the text of its input as a note, as progress and as a question. Then fails with it, twice.
fn talk() -> Graph<Context> {
    Graph::<Context>::builder("talk")
        .node("say", async |cx: NodeContext, s: Draft<Context>| {
            let said = of(&s);
            cx.progress(json!({ "at": said, (said.clone()): 1 })).await?;
            Ok::<_, NodeError>(Update::from(Context::update().set("said", said.clone())).with_notes(said))
        })
        .gate(
            "ask",
            |s: &Context| Ask::<String>::new(of(s)).choices([of(s), "no".to_owned()]),
            |s, said| s.set("answer", said),
        )
        .node("fail", async |_cx: NodeContext, s: Draft<Context>| {
            let error = Because(of(&s), Some(Box::new(Because(of(&s), None))));
            Err::<(), _>(NodeError::from(error))
        })
        .retry(RetryPolicy::none().with_attempts(2))
        .entry("say")
        .edge("say", "ask")
        .edge("ask", "fail")
        .build()
        .unwrap()
}

/// The runs, each with its own text.
const RUNS: [&str; 6] = ["asks", "fails", "paused", "cancelled", "answers", "queued"];

/// A world in which every text field contains the text of its run.
async fn filled(texts: &[String; RUNS.len()]) -> World {
    let world = World::new();
    let driver = world.driver().await;
    let graph = talk();
    driver.serve(&graph).unwrap();
    let text = |id: &str| texts[RUNS.iter().position(|one| *one == id).unwrap()].as_str();
    // A short field gets the end of the text, which contains the mark.
    let short = |id: &str| text(id)[text(id).len().saturating_sub(40)..].to_owned();
    let queue = driver.queue("line").at_once(1).declare().await.unwrap().by(text("queued"));
    queue.pause(short("queued")).await.unwrap();
    let input = |id: &str| {
        let (text, mut state) = (text(id), Context::new());
        state.set("text", text).unwrap();
        state.set("number", 5_411_100_u64).unwrap();
        state.set("deep", json!([{ text: { "list": [text, 1, null] } }])).unwrap();
        state
    };
    for id in &RUNS[..5] {
        let start = driver.start(&graph, input(id)).id(*id);
        let start = start.label("id", short(id)).label("note", short(id)).user(short(id));
        start.await.unwrap().wait().await.unwrap();
    }
    let run = |id: &str| RunKey::try_from(id).unwrap();
    for id in ["fails", "answers"] {
        let answer = Answer::accept(text(id)).unwrap();
        driver.respond(&run(id), "ask", answer).by(text(id)).await.unwrap();
        let path = format!("/api/v1/runs/default/{id}");
        until(&world.router(), &path, |found| found["head"]["status"] == "failed").await;
    }
    driver.send(&run("asks"), text("asks")).by(text("asks")).await.unwrap();
    let patch = Patch::from_ops(&[Op::Set("edited".into(), text("asks").into())]).unwrap();
    driver.edit(&run("asks"), patch).by(text("asks")).await.unwrap();
    driver.go_to(&run("paused"), ["say"], text("paused")).by(text("paused")).await.unwrap();
    driver.pause(&run("paused"), text("paused")).by(text("paused")).await.unwrap();
    driver.cancel(&run("cancelled"), text("cancelled")).by(text("cancelled")).await.unwrap();
    let start = driver.start(&graph, input("queued")).id("queued").queue("line").key(short("queued"));
    _ = start.await.unwrap();
    world
}

/// Every path with data of these runs.
fn paths() -> Vec<String> {
    let mut all: Vec<String> =
        ["/runs", "/questions", "/fleet"].iter().map(|path| format!("/api/v1{path}")).collect();
    all.push(format!("/api/v1/briefs?{}", RUNS.map(|id| format!("run=default/{id}")).join("&")));
    for id in RUNS.iter().chain(&["queue:line"]) {
        for more in [
            "",
            "/records",
            "/state",
            "/state?path=/text&offset=5",
            "/state?path=/deep/0",
            "/diff?from=0",
            "/post-mortem",
        ] {
            all.push(format!("/api/v1/runs/default/{id}{more}"));
        }
    }
    // The stream of an ended run ends, so it can be read to its end.
    all.push("/api/v1/runs/default/fails/events?after=0".to_owned());
    all
}

async fn told(router: &Router) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for path in paths() {
        let text = get(router, &path).await.text;
        all.push((path, text));
    }
    all
}

/// Guarantees: INSPECT-6.
#[test]
fn hidden_field_appears_in_no_answer() {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let places = prop::array::uniform6((0..MARK.len() + 4, 0..30_usize));
    let cases = std::env::var("FERRATA_INSPECTOR_HIDDEN").map_or(2, |cases| cases.parse().unwrap());
    let mut runner =
        TestRunner::new(ProptestConfig { cases, failure_persistence: None, ..Default::default() });
    runner
        .run(&places, |places| {
            let texts = std::array::from_fn(|at| {
                let (back, behind) = places[at];
                format!("{}{MARK}{}", "a".repeat(CUTS[at].saturating_sub(back)), "b".repeat(behind))
            });
            let (hidden, open) = tokio.block_on(async {
                let world = filled(&texts).await;
                let hides = |text: &str| text.contains(MARK).then(|| text.replace(MARK, "[hidden]"));
                let number = |text: &str| (text == "5411100").then(|| "[hidden]".to_owned());
                let router = world.inspector().redact_texts(hides).redact_texts(number).into_router();
                (told(&router).await, told(&world.router()).await)
            });
            for (path, answer) in hidden {
                prop_assert!(!answer.contains(BEGINNING), "{path}: {answer}");
                prop_assert!(!answer.contains("5411100"), "{path}: {answer}");
                prop_assert!(!answer.contains("INTERNAL"), "{path}: {answer}");
            }
            // Without the hook, most responses contain the mark.
            let seen = open.iter().filter(|(_, answer)| answer.contains(BEGINNING)).count();
            prop_assert!(seen * 3 > open.len() * 2, "only {seen} of {} responses contain it", open.len());
            Ok(())
        })
        .unwrap();
}

/// Guarantees: INSPECT-6.
#[tokio::test]
async fn hidden_field_is_not_written_back() {
    let world = filled(&std::array::from_fn(|_| MARK.to_owned())).await;
    let hides = |text: &str| text.contains(MARK).then(|| text.replace(MARK, "[hidden]"));
    let router = world.inspector().allow_writes().redact_texts(hides).into_router();
    let shown = read(&router, "/api/v1/runs/default/fails").await;
    assert_eq!((&shown["head"]["id"], &shown["head"]["labels"]["id"]), (&json!("fails"), &json!("[hidden]")));
    assert_eq!(shown["run"]["graph"]["nodes"][0]["name"], "say");
    let state = read(&router, "/api/v1/runs/default/fails/state?path=/deep/0/[hidden]/list/0").await;
    assert_eq!(
        state["state"]["value"], "[hidden]",
        "a field with a hidden name must be found by its visible name"
    );
    let before = world.writes();
    for hidden in ["[redacted]", "[hidden]"] {
        let patch = json!([{ "set": ["deep", [hidden]] }]);
        let edit = act(&router, "default/fails/acts/edit", json!({ "patch": patch })).await;
        let fork = act(&router, "default/fails/acts/fork", json!({ "at": "0", "patch": patch })).await;
        assert_eq!((edit.code().as_str(), fork.code().as_str()), ("INVALID", "INVALID"), "{hidden}");
    }
    assert_eq!(world.writes(), before);
    let other = json!({ "patch": [{ "set": ["deep", ["other"]] }] });
    assert_eq!(act(&router, "default/fails/acts/edit", other).await.status, axum::http::StatusCode::OK);
    // The hook also applies to error messages.
    let hides = |text: &str| text.contains("none-such").then(|| "[hidden]".to_owned());
    let router = world.inspector().redact_texts(hides).into_router();
    let refused = get(&router, "/api/v1/runs/default/none-such").await;
    assert_eq!((refused.status, refused.code().as_str()), (axum::http::StatusCode::NOT_FOUND, "NOT_FOUND"));
    assert_eq!(refused.json()["message"], "[hidden]");
}

/// With a hook, a question with a deeply nested shape is readable, and so is the inbox.
///
/// Guarantees: INSPECT-6.
#[tokio::test]
async fn deep_form_is_shown_next_to_hidden_field() {
    const SHOWN: &str = "[is-hidden]";
    let world = World::new();
    let driver = world.driver().await;
    let deep = || (0..48).fold(Shape::of::<String>(), |inner, _| Shape::list(inner.nullable()));
    let graph = Graph::<Context>::builder("deep")
        .gate("ask", move |_s: &Context| Ask::<Value>::shaped(MARK, deep()), |s, said| s.set("said", said))
        .entry("ask")
        .build()
        .unwrap();
    let mut state = Context::new();
    state.set("deep", (0..100).fold(json!(MARK), |inner, _| json!([inner]))).unwrap();
    driver.start(&graph, state).id("deep").await.unwrap().wait().await.unwrap();
    let hides = |text: &str| text.contains(MARK).then(|| text.replace(MARK, SHOWN));
    let router = world.inspector().redact_texts(hides).into_router();
    for path in ["questions", "runs/default/deep", "runs/default/deep/state"] {
        let open = get(&world.router(), &format!("/api/v1/{path}")).await;
        let hidden = get(&router, &format!("/api/v1/{path}")).await;
        assert_eq!(hidden.status, axum::http::StatusCode::OK, "{path}: {}", hidden.text);
        assert!(hidden.text.contains(SHOWN) && !hidden.text.contains(MARK), "{path}: {}", hidden.text);
        // A hook causes no additional cuts, and the responses are valid JSON.
        let whole = |mut answer: Value| {
            answer["now"] = Value::Null;
            answer.to_string()
        };
        let (open, hidden) = (whole(open.json()), whole(hidden.json()));
        assert_eq!(open.replace(MARK, SHOWN), hidden, "{path}");
    }
    let shown = read(&router, "/api/v1/questions").await["items"][0]["question"].clone();
    assert_eq!(shown["schema"], Value::Null, "the response must be JSON");
}
