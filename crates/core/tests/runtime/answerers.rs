//! Automatic answerers, and conversations that count the messages they received.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ferrata_core::ask::{
    AUTOMATIC, Answer, AnswerShape, Answerer, AnswererQuestion, Ask, AutomaticAnswerer, Shape, Shapes,
};
use ferrata_core::graph::{Graph, Route};
use ferrata_core::node::{Conversation, NodeContext};
use ferrata_core::runtime::{Outcome, Runtime};
use ferrata_core::state::{Context, IntoUpdate, Reducer};
use ferrata_core::store::MemoryStore;
use ferrata_core::{RunKey, SystemClock, within};

fn key() -> RunKey {
    RunKey::try_from("r").unwrap()
}

/// Never answers `slow`. Answers each other question with the number of its calls so far.
#[derive(Clone, Debug, Default)]
struct Desk {
    asked: Arc<AtomicU32>,
    dropped: Arc<AtomicU32>,
}

struct Dropped(Arc<AtomicU32>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl Answerer for Desk {
    async fn answer(&self, asking: &AnswererQuestion) -> Option<Answer> {
        let count = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        if asking.question.id.ends_with("slow") {
            let _dropped = Dropped(Arc::clone(&self.dropped));
            std::future::pending::<()>().await;
        }
        Answer::accept(count).ok()
    }

    fn name(&self) -> String {
        "desk".into()
    }
}

/// A person answers while the answerer is still working. The run must become idle afterwards, and the answerer's own answer must not count.
///
/// Guarantees: QUESTION-10.
#[tokio::test]
async fn answerer_is_dropped_after_another_answer() {
    let graph = Graph::<Context>::builder("slow")
        .node("a", async |cx, _s| {
            let answer: u32 = cx.ask("slow", "?").await?;
            let message: u32 = cx.receive().await?;
            Ok(Context::update().set("got", answer + message))
        })
        .entry("a")
        .build()
        .unwrap();
    let desk = Desk::default();
    let runtime = Runtime::builder(MemoryStore::new()).answerer(desk.clone()).build().await.unwrap();
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    while desk.asked.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    runtime.respond(&key(), "a", Answer::accept(40).unwrap()).by("ann").await.unwrap();
    let rests = within(&SystemClock::new(), Duration::from_secs(60), run.wait()).await;
    assert!(matches!(rests.unwrap().unwrap(), Outcome::AwaitingInput));
    assert_eq!(desk.dropped.load(Ordering::SeqCst), 1);
}

/// An even number. The declared shape allows any `u32`, and only `Deserialize` rejects odd ones.
#[derive(serde::Deserialize)]
#[serde(try_from = "u32")]
struct Even(u32);

impl TryFrom<u32> for Even {
    type Error = &'static str;

    fn try_from(number: u32) -> Result<Self, Self::Error> {
        if number.is_multiple_of(2) { Ok(Self(number)) } else { Err("odd") }
    }
}

impl AnswerShape for Even {
    fn shape(shapes: &mut Shapes) -> Shape {
        shapes.of::<u32>()
    }
}

/// If the automatic answer cannot be decoded, the question is asked again, and the answerer gets the new question, too.
#[tokio::test]
async fn repeated_question_goes_to_answerer_again() {
    let graph = Graph::<Context>::builder("even")
        .node("a", async |cx, _s| {
            let Even(number) = cx.ask("number", "?").await?;
            Ok(Context::update().set("got", number))
        })
        .entry("a")
        .build()
        .unwrap();
    let runtime = Runtime::builder(MemoryStore::new()).answerer(Desk::default()).build().await.unwrap();
    let state = runtime.start(&graph, Context::new()).await.unwrap().completed().await.unwrap();
    assert_eq!(state.get::<u32>("got").unwrap(), Some(2));
}

/// The answer "no". The declared shape allows any `bool`, and only `Deserialize` rejects `true`.
#[derive(serde::Deserialize)]
#[serde(try_from = "bool")]
struct No;

impl TryFrom<bool> for No {
    type Error = &'static str;

    fn try_from(yes: bool) -> Result<Self, Self::Error> {
        if yes { Err("it must be no") } else { Ok(Self) }
    }
}

impl AnswerShape for No {
    fn shape(shapes: &mut Shapes) -> Shape {
        shapes.of::<bool>()
    }
}

/// An answer that the node cannot decode leads to the same question again. The automatic answerer must not answer it a second time.
#[tokio::test]
async fn automatic_answerer_skips_repeated_question() {
    let graph = Graph::<Context>::builder("no")
        .node("a", async |cx, _s| {
            let No = cx.ask("no", "?").await?;
            Ok(Context::update().set("got", "no"))
        })
        .entry("a")
        .build()
        .unwrap();
    let runtime = Runtime::builder(MemoryStore::new()).answerer(AutomaticAnswerer).build().await.unwrap();
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    let rests = within(&SystemClock::new(), Duration::from_secs(20), run.wait()).await;
    let Outcome::Interrupted(questions) =
        rests.expect("the answerer keeps answering the same question").unwrap()
    else {
        panic!("the run did not stop at a question")
    };
    assert_eq!(questions[0].problem.as_deref(), Some("it must be no"));
}

#[tokio::test]
async fn automatic_answerer_picks_default_first_choice_or_true() {
    let graph = Graph::<Context>::builder("auto")
        .node("a", async |cx, _s| {
            let default = Ask::<u32>::new("?").deadline(Duration::from_secs(9)).or_default(7);
            let number: u32 = cx.ask_with("number", default).await?;
            let colour: String = cx.ask_with("colour", Ask::new("?").choices(["red", "green"])).await?;
            let sure: bool = cx.ask("sure", "?").await?;
            Ok(Context::update().set("got", format!("{number} {colour} {sure}")))
        })
        .entry("a")
        .build()
        .unwrap();
    let runtime = Runtime::builder(MemoryStore::new()).answerer(AutomaticAnswerer).build().await.unwrap();
    let state = runtime.start(&graph, Context::new()).await.unwrap().completed().await.unwrap();
    assert_eq!(state.get::<String>("got").unwrap().as_deref(), Some("7 red true"));
}

/// A conversation that is entered twice. It answers one question itself, and asks a person the other.
#[derive(Debug)]
struct Secretary;

#[async_trait]
impl Answerer for Secretary {
    async fn answer(&self, _asking: &AnswererQuestion) -> Option<Answer> {
        Answer::accept(1).ok()
    }

    fn name(&self) -> String {
        "ann".into()
    }

    fn author(&self, asking: &AnswererQuestion) -> String {
        if asking.question.id.ends_with("plain") { AUTOMATIC.into() } else { self.name() }
    }
}

/// `ask_signed` returns the author of the answer: `automatic`, or the name of a person.
#[tokio::test]
async fn node_is_told_who_answered() {
    let graph = Graph::<Context>::builder("who")
        .node("a", async |cx, _s| {
            let (_, plain) = cx.ask_signed("plain", Ask::<u32>::new("?")).await?;
            let (_, hard) = cx.ask_signed("hard", Ask::<u32>::new("?")).await?;
            Ok(Context::update().set("by", (plain, hard)))
        })
        .entry("a")
        .build()
        .unwrap();
    let runtime = Runtime::builder(MemoryStore::new()).answerer(Secretary).build().await.unwrap();
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    let state = run.wait().await.unwrap().completed().unwrap();
    let by = state.get_value("by").unwrap();
    assert_eq!((by[0].as_str(), by[1].as_str()), (Some("automatic"), Some("ann")), "{by}");
}

fn talks(turns: u32) -> Graph<Context> {
    let policy = Conversation::new().max_messages(turns).exit_on("/quit");
    Graph::<Context>::builder("talks")
        .channel("said", Reducer::Append)
        .conversation("talk", ["between"], policy, async |_cx, _s, text: String| {
            Ok(Context::update().append("said", [text]))
        })
        .node("between", async |_cx, _s| Ok(()))
        .node("end", async |_cx, _s| Ok(()))
        .entry("talk")
        .route("between", ["talk", "end"], |_s, cx| {
            Route::to(if cx.visit().get() == 1 { "talk" } else { "end" })
        })
        .build()
        .unwrap()
}

/// Runs a conversation with a limit of `turns` messages. Returns the messages that it received, and the number of unread ones.
async fn hears(turns: u32, sent: &[&str]) -> (Vec<String>, usize) {
    let store = MemoryStore::new();
    let runtime = Runtime::builder(store.clone()).build().await.unwrap();
    let graph = talks(turns);
    let mut run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    let mut outcome = run.wait().await.unwrap();
    for text in sent {
        if let Outcome::Completed(_) = outcome {
            break;
        }
        match *text {
            "go to talk" => runtime.go_to(&key(), "talk", "anew").await.unwrap(),
            text => runtime.send(&key(), text).await.unwrap(),
        }
        // Use another process, so that it counts received messages from the log.
        let next = Runtime::builder(store.clone()).build().await.unwrap();
        run = next.resume(&graph, "r").await.unwrap();
        outcome = run.wait().await.unwrap();
    }
    let Outcome::Completed(state) = outcome else { panic!("{outcome:?}") };
    (state.get("said").unwrap().unwrap_or_default(), runtime.inbox(&key()).await.unwrap().len())
}

/// The limit counts received messages over the whole run, not visits. Leaving by `/quit` and entering again does not change the count.
///
/// Guarantees: MESSAGE-8.
#[tokio::test]
async fn turns_count_messages_over_the_whole_run() {
    let said = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
    assert_eq!(hears(3, &["1", "/quit", "2", "3", "4"]).await, (said(&["1", "2", "3"]), 0));
    assert_eq!(hears(1, &["1", "2"]).await, (said(&["1"]), 0));
    assert_eq!(hears(0, &["1"]).await, (said(&[]), 0));
    assert_eq!(hears(2, &["/quit", "1", "2", "3"]).await, (said(&["1", "2"]), 0));
}

/// A visit that waits for a message when an operator moves the run does not count as a message.
///
/// Guarantees: MESSAGE-8.
#[tokio::test]
async fn max_messages_ignores_visits_left_by_goto() {
    let said = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
    assert_eq!(hears(2, &["1", "go to talk", "2", "3"]).await, (said(&["1", "2"]), 0));
    assert_eq!(hears(1, &["go to talk", "go to talk", "1", "2"]).await, (said(&["1"]), 0));
    assert_eq!(hears(2, &["/quit", "go to talk", "1", "2", "3"]).await, (said(&["1", "2"]), 0));
}

/// Only the policy ends a conversation. An output of `handle` that equals the name of an end does not end it.
///
/// Guarantees: MESSAGE-10.
#[tokio::test]
async fn no_output_of_a_conversation_ends_it() {
    let policy = Conversation::new().max_messages(3);
    let graph = Graph::<Context>::builder("echo")
        .channel("said", Reducer::Append)
        .conversation("talk", ["end"], policy, async |_cx, _s, text: String| {
            Ok(Context::update().append("said", [&text]).with_output(text))
        })
        .node("end", async |cx: NodeContext, _s| {
            Ok(Context::update().set("last", cx.inputs()[0].output::<String>()?))
        })
        .entry("talk")
        .build()
        .unwrap();
    let runtime = Runtime::builder(MemoryStore::new()).build().await.unwrap();
    let words = ["idle", "command", "turns"];
    let mut start = runtime.start(&graph, Context::new());
    for word in words {
        start = start.message(word);
    }
    let run = start.await.unwrap();
    let state = run.completed().await.unwrap();
    assert_eq!(state.get::<Vec<String>>("said").unwrap().unwrap(), words);
    assert_eq!(
        state.get::<String>("last").unwrap().as_deref(),
        Some("turns"),
        "the output must arrive unchanged"
    );
    assert!(runtime.verify(&graph, run.run()).await.unwrap().divergence.is_none());
}
