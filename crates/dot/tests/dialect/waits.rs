//! Nodes that wait for a person or for time, across the end of the process.
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::sync::Arc;
use std::time::Duration;

use crate::support::{compile, path_of, pipeline, registry, source};
use ferrata_core::ask::{Answer, AutomaticAnswerer, Question};
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{Outcome, Runtime};
use ferrata_core::state::Context;
use ferrata_core::store::MemoryStore;
use ferrata_core::{Clock, ErrorKind, RunKey, Timestamp};
use ferrata_dot::compile::Compiler;
use ferrata_testing::ManualClock;
use serde_json::{Value, json};

const HOUR: Duration = Duration::from_secs(3600);

/// A gate with two choices and a failure edge.
const GATE: &str = "gate [type=\"wait.human\", label=\"Ship it?\"] ship fix sorry start -> gate \
                    gate -> ship [label=\"[Y] Yes\"] gate -> fix [label=\"N) Not yet\", weight=5] \
                    gate -> sorry [condition=\"outcome=fail\"] ship -> exit fix -> exit sorry -> exit";

/// A store and a clock that outlive processes, and a pipeline's run on them.
struct World {
    store: MemoryStore,
    clock: Arc<ManualClock>,
    source: String,
}

impl World {
    fn new(statements: &str) -> Self {
        let clock = Arc::new(ManualClock::new(Timestamp::from_unix_ms(1_000_000)));
        let store = MemoryStore::with_clock(Arc::clone(&clock) as _);
        Self { store, clock, source: source(statements) }
    }

    /// Starts or continues the run in a new process, until it is idle.
    async fn process(&self) -> Outcome<Context> {
        let runtime = self.runtime().await;
        let graph = compile(&self.source, registry());
        let run = match runtime.head(&key()).await.unwrap() {
            None => runtime.start(&graph, Context::new()).id("r").await.unwrap(),
            Some(_) => runtime.resume(&graph, "r").await.unwrap(),
        };
        run.wait().await.unwrap()
    }

    async fn runtime(&self) -> Runtime {
        Runtime::builder(self.store.clone()).clock(Arc::clone(&self.clock) as _).build().await.unwrap()
    }

    /// Runs a new process until it asks, and returns the question.
    async fn asks(&self) -> Question {
        match self.process().await {
            Outcome::Interrupted(mut questions) if questions.len() == 1 => questions.remove(0),
            other => panic!("the run did not ask: {other:?}"),
        }
    }

    async fn answer(&self, answer: Answer) -> Result<(), ferrata_core::Error> {
        self.runtime().await.respond(&key(), "gate", answer).await
    }

    /// Runs a new process to the end, and returns the path.
    async fn ends(&self) -> (String, Context) {
        match self.process().await {
            Outcome::Completed(context) => (path_of(&self.store, &key()).await.join(" "), context),
            other => panic!("the run did not complete: {other:?}"),
        }
    }
}

fn key() -> RunKey {
    RunKey::try_from("r").unwrap()
}

fn text(context: &Context, key: &str) -> String {
    context.get_value(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Guarantees: DOT-14.
#[tokio::test]
async fn choices_are_the_edges_with_their_accelerators() {
    let world = World::new(
        "gate [type=\"wait.human\"] a b c start -> gate gate -> a [label=\"[Y] Yes\"] gate -> b [label=\"N - No\"] gate -> c a -> exit b -> exit c -> exit",
    );
    let question = world.asks().await;
    let payload: Value = serde_json::from_str(&question.text.unwrap()).unwrap();
    let options = json!([
        {"key": "Y", "label": "[Y] Yes", "to": "a"}, {"key": "N", "label": "N - No", "to": "b"}, {"key": "C", "label": "c", "to": "c"}
    ]);
    assert_eq!(payload, json!({"text": "gate", "stage": "gate", "options": options}));
}

/// Guarantees: DOT-14.
#[tokio::test]
async fn answer_matches_key_label_or_target() {
    for (answer, path, selected) in [
        ("Y", "start gate ship exit", "Y"),
        ("y", "start gate ship exit", "Y"),
        ("Yes", "start gate ship exit", "Y"),
        ("[Y] Yes", "start gate ship exit", "Y"),
        ("ship", "start gate ship exit", "Y"),
        ("n", "start gate fix exit", "N"),
        ("Not yet", "start gate fix exit", "N"),
    ] {
        let world = World::new(GATE);
        let question = world.asks().await;
        assert!(question.text.unwrap().contains("Ship it?"));
        world.answer(Answer::accept(answer).unwrap()).await.unwrap();
        let (went, context) = world.ends().await;
        assert_eq!((&*went, &*text(&context, "human.gate.selected")), (path, selected), "{answer}");
    }
}

#[tokio::test]
async fn human_answer_suggests_target_without_preferred_label() {
    let world = World::new(
        "gate [type=\"wait.human\"] a b start -> gate gate -> a [label=Go] gate -> b [label=Go] a -> exit b -> exit",
    );
    world.asks().await;
    world.answer(Answer::accept("b").unwrap()).await.unwrap();
    let (path, context) = world.ends().await;
    assert_eq!(path, "start gate b exit", "two edges have the label");
    assert_eq!(text(&context, "human.gate.label"), "Go");
}

/// Guarantees: DOT-14.
#[tokio::test]
async fn an_answer_that_means_nothing_is_refused() {
    let world = World::new(GATE);
    world.asks().await;
    for wrong in [Answer::accept("maybe").unwrap(), Answer::accept(1).unwrap()] {
        assert_eq!(world.answer(wrong).await.unwrap_err().kind(), ErrorKind::Invalid);
    }
    assert_eq!(world.runtime().await.head(&key()).await.unwrap().unwrap().status, RunStatus::Interrupted);
}

#[tokio::test]
async fn a_rejection_fails_the_gate() {
    let world = World::new(GATE);
    world.asks().await;
    world.answer(Answer::reject("not today")).await.unwrap();
    assert_eq!(world.ends().await.0, "start gate sorry exit");
}

/// Guarantees: DOT-14.
#[tokio::test]
async fn after_the_timeout_the_default_is_taken() {
    for default in ["fix", "N", "Not yet"] {
        let world = World::new(&format!("node [timeout=1h, human.default_choice=\"{default}\"] {GATE}"));
        let question = world.asks().await;
        assert_eq!(question.default.as_deref(), Some("\"N) Not yet\""));
        assert_eq!(question.deadline, Some(world.clock.now().plus(HOUR)));
        world.clock.advance(HOUR);
        assert_eq!(world.ends().await.0, "start gate fix exit", "{default}");
    }
}

#[tokio::test]
async fn timeout_without_default_asks_again() {
    let world = World::new(&GATE.replace("gate [", "gate [timeout=1h, max_retries=1, "));
    let first = world.asks().await;
    world.clock.advance(HOUR);
    let second = world.asks().await;
    assert_ne!(first.id, second.id);
    assert_eq!(second.deadline, Some(world.clock.now().plus(HOUR)));
    world.answer(Answer::accept("Y").unwrap()).await.unwrap();
    assert_eq!(world.ends().await.0, "start gate ship exit");
}

#[tokio::test]
async fn a_gate_that_nobody_ever_answers_fails() {
    let world = World::new(&GATE.replace("gate [", "gate [timeout=1h, "));
    world.asks().await;
    world.clock.advance(HOUR);
    assert_eq!(world.ends().await.0, "start gate sorry exit");
}

#[tokio::test]
async fn a_gate_without_a_choice_fails() {
    let world =
        World::new("gate [type=\"wait.human\"] start -> gate gate -> exit [condition=\"outcome=success\"]");
    let Outcome::Failed { failure, .. } = world.process().await else { panic!("not failed") };
    assert_eq!(failure.message, "the gate has no edge to choose");
}

#[tokio::test]
async fn an_answerer_may_stand_in_for_people() {
    let world = World::new(GATE);
    let runtime = Runtime::builder(world.store.clone()).answerer(AutomaticAnswerer).build().await.unwrap();
    let graph = compile(&world.source, registry());
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    assert!(run.wait().await.unwrap().completed().is_some());
    assert_eq!(path_of(&world.store, &key()).await.join(" "), "start gate ship exit", "the first choice");
}

#[tokio::test]
async fn a_gate_in_a_loop_asks_each_time() {
    let world = World::new(
        "work gate [type=\"wait.human\"] start -> work -> gate gate -> work [label=Again] gate -> exit [label=Done]",
    );
    for answer in ["Again", "A", "Done"] {
        world.asks().await;
        world.answer(Answer::accept(answer).unwrap()).await.unwrap();
    }
    assert_eq!(world.ends().await.0, "start work gate work gate work gate exit");
}

#[tokio::test]
async fn wait_duration_survives_restart() {
    let world = World::new("nap [type=wait, duration=2h] a start -> nap -> a -> exit");
    let until = world.clock.now().plus(2 * HOUR);
    let Outcome::Sleeping { until: wakes } = world.process().await else { panic!("not sleeping") };
    assert_eq!(wakes, until);
    world.clock.advance(HOUR);
    assert!(matches!(world.process().await, Outcome::Sleeping { until: wakes } if wakes == until));
    world.clock.advance(HOUR);
    assert_eq!(world.ends().await.0, "start nap a exit");
}

#[test]
fn waits_that_cannot_work_are_refused() {
    for (statements, part) in [
        ("a [type=wait] start -> a -> exit", "node a: the wait has no duration"),
        (
            "a [type=\"wait.human\", human.default_choice=nobody] start -> a -> exit",
            "node a: `human.default_choice` is `nobody`, which matches no edge",
        ),
        (
            "a [type=\"wait.human\"] start -> a a -> exit [freeform=true] a -> a [freeform=true]",
            "edge a -> a: the node has a second `freeform` edge",
        ),
    ] {
        let error = Compiler::new(registry()).compile(&pipeline(&source(statements))).unwrap_err();
        assert!(error.message().contains(part), "{error}");
    }
}

/// Guarantees: DOT-14.
#[tokio::test]
async fn a_freeform_edge_takes_what_a_person_writes() {
    const TEXT: &str = "gate [type=\"wait.human\"] ship fix start -> gate gate -> ship [label=\"[Y] Yes\"] gate -> fix [label=\"Say more\", freeform=true] ship -> exit fix -> exit";
    let world = World::new(TEXT);
    let question: Value = serde_json::from_str(&world.asks().await.text.unwrap()).unwrap();
    assert_eq!(question["freeform"], json!({"label": "Say more", "to": "fix"}));
    assert_eq!(question["options"].as_array().unwrap().len(), 1);
    world.answer(Answer::accept("make it blue").unwrap()).await.unwrap();
    let (path, context) = world.ends().await;
    assert_eq!(path, "start gate fix exit");
    assert_eq!(text(&context, "human.gate.text"), "make it blue");
    // A text that equals a choice selects it.
    let world = World::new(TEXT);
    world.asks().await;
    world.answer(Answer::accept("Yes").unwrap()).await.unwrap();
    let (path, context) = world.ends().await;
    assert_eq!(path, "start gate ship exit");
    assert!(!context.contains_key("human.gate.text"));
}
