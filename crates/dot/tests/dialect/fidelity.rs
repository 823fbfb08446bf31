//! Section 1.7: the context of a task, its session, and the behavior after the session is lost.
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::sync::{Arc, Mutex};

use crate::support::{compile, pipeline, registry, run_with};
use async_trait::async_trait;
use ferrata_core::RunKey;
use ferrata_core::ask::Answer as Reply;
use ferrata_core::runtime::{Outcome, Runtime};
use ferrata_core::state::Context;
use ferrata_core::store::MemoryStore;
use ferrata_dot::fidelity::Fidelity;
use ferrata_dot::handler::{Backend, BackendAnswer, Codergen, HandlerError, Registry, TaskRequest};
use ferrata_dot::lint::Linter;
use serde_json::json;

/// The input of a task.
#[derive(Clone, Debug, PartialEq)]
struct Heard {
    node: String,
    fidelity: Fidelity,
    thread: Option<String>,
    prompt: String,
    single: bool,
}

/// A backend that records its input. The node's `says` is the number of dots that it appends to its answer.
#[derive(Clone, Debug, Default)]
struct Ear(Arc<Mutex<Vec<Heard>>>);

#[async_trait]
impl Backend for Ear {
    async fn run(&self, request: TaskRequest<'_>) -> Result<BackendAnswer, HandlerError> {
        self.0.lock().unwrap().push(Heard {
            node: request.stage.node.id().to_owned(),
            fidelity: request.fidelity,
            thread: request.thread.map(str::to_owned),
            prompt: request.prompt.to_owned(),
            single: request.is_single_call(),
        });
        let letters = request.stage.node.attributes.text("says").parse().unwrap_or(0);
        Ok(BackendAnswer::text(format!("answer of {}{}", request.stage.node.id(), ".".repeat(letters))))
    }
}

impl Ear {
    fn registry(&self) -> Registry {
        registry().with("codergen", Codergen::new(self.clone()))
    }

    fn of(&self, node: &str) -> Heard {
        let heard = self.0.lock().unwrap();
        heard
            .iter()
            .rev()
            .find(|heard| heard.node == node)
            .unwrap_or_else(|| panic!("{node} got no input"))
            .clone()
    }
}

fn source(statements: &str) -> String {
    format!("digraph G {{ start [shape=Mdiamond] exit [shape=Msquare] {statements} }}")
}

async fn heard(statements: &str) -> Ear {
    let ear = Ear::default();
    let ran = run_with(&source(statements), ear.registry(), Context::new()).await;
    assert!(matches!(ran.outcome, Outcome::Completed(_)), "{:?}", ran.outcome);
    ear
}

/// Guarantees: DOT-11.
#[tokio::test]
async fn fidelity_precedence_is_edge_node_graph_compact() {
    let ear = heard(
        "default_fidelity=truncate a b [fidelity=\"summary:low\"] c [fidelity=full] start -> a -> b b -> c [fidelity=\"summary:high\"] c -> exit",
    )
    .await;
    assert_eq!(ear.of("a").fidelity, Fidelity::Truncate);
    assert_eq!(ear.of("b").fidelity, Fidelity::SummaryLow);
    assert_eq!(ear.of("c").fidelity, Fidelity::SummaryHigh);
    assert_eq!(heard("a start -> a -> exit").await.of("a").fidelity, Fidelity::Compact);
}

#[tokio::test]
async fn unknown_fidelity_warns_and_falls_back() {
    let text = source("default_fidelity=truncate a [fidelity=fool] start -> a -> exit");
    let found = Linter::default().lint(&pipeline(&text));
    assert!(found.iter().any(|found| found.rule == "fidelity_valid"), "{found:?}");
    let ear = Ear::default();
    run_with(&text, ear.registry(), Context::new()).await;
    assert_eq!(ear.of("a").fidelity, Fidelity::Truncate);
}

#[tokio::test]
async fn fork_edge_sets_fidelity_of_its_branch() {
    let ear = heard(
        "p [shape=component] f [shape=tripleoctagon] a b start -> p p -> a [fidelity=truncate] p -> b a -> f b -> f f -> exit",
    )
    .await;
    assert_eq!((ear.of("a").fidelity, ear.of("b").fidelity), (Fidelity::Truncate, Fidelity::Compact));
}

/// Guarantees: DOT-11.
#[tokio::test]
async fn thread_key_precedence_ends_at_previous_node() {
    let full = "default_fidelity=full ";
    let thread = |ear: &Ear, node: &str| ear.of(node).thread.unwrap();
    let ear = heard(&format!(
        "{full} default_thread=all a [thread_id=mine] b start -> a [thread_id=edge] a -> b [thread_id=edge] b -> exit"
    ))
    .await;
    assert_eq!((&*thread(&ear, "a"), &*thread(&ear, "b")), ("mine", "edge"));
    let ear =
        heard(&format!("{full} default_thread=all subgraph s {{ label=\"Loop A\" a }} start -> a -> exit"))
            .await;
    assert_eq!(thread(&ear, "a"), "all");
    let ear = heard(&format!(
        "{full} subgraph s {{ label=\"Loop A\" subgraph t {{ label=\"Inner\" a }} b }} c start -> a -> b -> c -> exit"
    ))
    .await;
    assert_eq!([thread(&ear, "a"), thread(&ear, "b"), thread(&ear, "c")], ["inner", "loop-a", "b"]);
    assert_eq!(heard("a [thread_id=x] start -> a -> exit").await.of("a").thread, None);
}

#[tokio::test]
async fn full_tells_nothing_but_the_task() {
    let ear = heard("goal=ship default_fidelity=full a b [prompt=\"do b\"] start -> a -> b -> exit").await;
    assert_eq!(ear.of("b").prompt, "do b");
}

#[tokio::test]
async fn truncate_tells_the_goal_and_the_run() {
    let ear = heard("goal=ship a b [prompt=\"do b\", fidelity=truncate] start -> a -> b -> exit").await;
    assert_eq!(ear.of("b").prompt, "Goal: ship\nRun: r\nTask:\ndo b");
}

#[tokio::test]
async fn compact_fidelity_lists_finished_nodes_and_facts() {
    let ear = heard(
        "goal=ship t [shape=parallelogram, tool_command=\"printf built\"] a [label=\"a\"] b [prompt=\"do b\"] d [shape=diamond] \
         start -> t -> a -> d -> b -> exit",
    )
    .await;
    assert_eq!(
        ear.of("b").prompt,
        "Goal: ship\nSo far:\n- t: success (the command ended with status 0)\n- a: success (Stage completed: a)\n\
         Known:\n- tool.errors = \n- tool.exit_code = 0\n- tool.output = built\n`a` answered:\nanswer of a\nTask:\ndo b"
    );
    // No task precedes the first one.
    assert_eq!(heard("a [prompt=\"do a\"] start -> a -> exit").await.of("a").prompt, "do a");
}

/// Guarantees: DOT-11.
#[tokio::test]
async fn summaries_tell_answers_within_their_size() {
    let many: String = (0..60).map(|at| format!("n{at} [says=3000, label=\"n{at}\"] ")).collect();
    let path: Vec<_> = (0..60).map(|at| format!("n{at}")).collect();
    let mut sizes = Vec::new();
    for (mode, most) in [("summary:low", 2_400), ("summary:medium", 6_000), ("summary:high", 12_000)] {
        let text = format!(
            "{many} z [fidelity=\"{mode}\", prompt=\"do z\"] start -> {} -> z -> exit",
            path.join(" -> ")
        );
        let prompt = heard(&text).await.of("z").prompt;
        assert!(prompt.len() <= most + 200, "{mode}: {} bytes", prompt.len());
        assert!(prompt.contains("- n59: success") && prompt.contains("> answer of n59"), "{mode}: {prompt}");
        assert!(prompt.contains("nodes before these)"), "{mode}: {prompt}");
        sizes.push(prompt.len());
    }
    assert!(sizes.is_sorted() && sizes[0] < sizes[2] / 2, "{sizes:?}");
}

#[tokio::test]
async fn branch_sees_itself_and_nodes_before_fork() {
    let ear = heard(
        "before p [shape=component] f [shape=tripleoctagon] a a2 [prompt=\"do a2\"] b start -> before -> p p -> a -> a2 -> f p -> b -> f f -> exit",
    )
    .await;
    let prompt = ear.of("a2").prompt;
    assert!(prompt.contains("- before: success") && prompt.contains("- a: success"), "{prompt}");
    assert!(!prompt.contains("- b: "), "{prompt}");
}

/// Guarantees: DOT-21.
#[tokio::test]
async fn a_fresh_start_forgets_what_was_before_it() {
    let ear = heard(
        "a b [type=scripted, does=\"success/again:yes success\"] start -> a -> b b -> a [condition=\"again=yes\", loop_restart=true] b -> exit",
    )
    .await;
    assert!(!ear.of("a").prompt.contains("- b:"), "{}", ear.of("a").prompt);
}

#[tokio::test]
async fn a_pipeline_without_tasks_keeps_nothing_for_them() {
    let ran = crate::support::run("a b start -> a -> b -> exit").await;
    assert!(ran.context().keys().all(|key| !key.starts_with("internal.")), "{:?}", ran.context());
}

#[tokio::test]
async fn prompt_node_makes_one_backend_call() {
    let ear = heard("a b [shape=tab, prompt=\"do b\"] start -> a -> b -> exit").await;
    assert!(ear.of("b").single && !ear.of("a").single);
}

/// A run with a question between the tasks, so that a process can end there.
const ASKED: &str = "default_fidelity=full a [thread_id=t] g [shape=hexagon] b [thread_id=t, prompt=\"do b\"] c [thread_id=t] \
                     start -> a -> g -> b -> c -> exit";

/// Runs it with a backend for each process. A person answers in between.
async fn asked(text: &str, first: &Ear, second: &Ear, same_process: bool) -> Context {
    let (store, key) = (MemoryStore::new(), RunKey::try_from("r").unwrap());
    let runtime = Runtime::builder(store.clone()).build().await.unwrap();
    let graph = compile(&source(text), first.registry());
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    assert!(matches!(run.wait().await.unwrap(), Outcome::Interrupted(_)));
    runtime.respond(&key, "g", Reply::accept("b").unwrap()).await.unwrap();
    let (runtime, graph) = if same_process {
        (runtime, graph)
    } else {
        drop(runtime);
        let runtime = Runtime::builder(store.clone()).build().await.unwrap();
        (runtime, compile(&source(text), second.registry()))
    };
    let run = runtime.resume(&graph, "r").await.unwrap();
    run.wait().await.unwrap().completed().unwrap()
}

/// Guarantees: DOT-12.
#[tokio::test]
async fn first_task_after_resume_gets_summary_once() {
    let (first, second) = (Ear::default(), Ear::default());
    let context = asked(ASKED, &first, &second, false).await;
    assert_eq!(first.of("a").fidelity, Fidelity::Full);
    let b = second.of("b");
    assert_eq!((b.fidelity, b.thread.as_deref()), (Fidelity::SummaryHigh, Some("t")));
    assert!(b.prompt.contains("- a: success") && b.prompt.contains("> answer of a"), "{}", b.prompt);
    // The fidelity falls back once. From then on, the session belongs to this process.
    assert_eq!(second.of("c").fidelity, Fidelity::Full);
    assert_eq!(
        context.get_value("internal.fidelity").unwrap(),
        &json!({"mode": "full", "thread": "t", "by": "c:1"})
    );
}

#[tokio::test]
async fn run_idle_in_same_process_keeps_session() {
    let ear = Ear::default();
    asked(ASKED, &ear, &ear, true).await;
    assert_eq!(ear.of("b").fidelity, Fidelity::Full);
}

#[tokio::test]
async fn resume_degrades_only_after_full_fidelity_task() {
    let (first, second) = (Ear::default(), Ear::default());
    asked(&ASKED.replace("a [thread_id=t]", "a [fidelity=compact]"), &first, &second, false).await;
    assert_eq!(second.of("b").fidelity, Fidelity::Full);
    let (first, second) = (Ear::default(), Ear::default());
    asked(&ASKED.replace("b [thread_id=t", "b [fidelity=truncate"), &first, &second, false).await;
    assert_eq!(second.of("b").fidelity, Fidelity::Truncate);
}
