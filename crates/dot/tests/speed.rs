//! Speed of parsing, linting and running. Run with `cargo test --release -p ferrata-dot --test speed -- --ignored --nocapture`.
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]
#![expect(clippy::disallowed_methods, reason = "this measures real time")]

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use ferrata_core::runtime::Runtime;
use ferrata_core::state::Context;
use ferrata_core::store::MemoryStore;
use ferrata_dot::Pipeline;
use ferrata_dot::compile::Compiler;
use ferrata_dot::lint::Linter;
use ferrata_dot::transform::Transforms;

/// A realistic pipeline: tasks with prompts, checks with two exits, classes and a stylesheet.
fn source(nodes: usize) -> String {
    let mut source = String::from(
        "digraph Big { graph [goal=\"ship\", model_stylesheet=\"* { llm_model: m } .hard { reasoning_effort: high }\"]\n\
         node [shape=box, timeout=\"900s\"]\nstart [shape=Mdiamond]\nexit [shape=Msquare]\nstart -> n0\n",
    );
    for at in 0..nodes {
        writeln!(source, "n{at} [label=\"Step {at}\", prompt=\"Work on part {at} of $goal\", class=\"hard,part\", max_retries=3]")
            .unwrap();
        let next = if at + 1 < nodes { format!("n{}", at + 1) } else { "exit".to_owned() };
        writeln!(
            source,
            "n{at} -> {next} [label=\"ok\", condition=\"outcome=success && context.ready!=no\"]"
        )
        .unwrap();
        writeln!(source, "n{at} -> n{} [condition=\"outcome=fail\", weight=2]", at / 2).unwrap();
    }
    source + "}\n"
}

#[test]
#[ignore = "measures; run it in release mode"]
fn ten_thousand_nodes_lint_within_100_ms() {
    let source = source(10_000);
    let mut times: Vec<Duration> = (0..9)
        .map(|_| {
            let begun = Instant::now();
            let mut pipeline = Pipeline::parse(source.as_bytes()).unwrap();
            let parsed = begun.elapsed();
            Transforms::default().apply(&mut pipeline).unwrap();
            let transformed = begun.elapsed();
            let found = Linter::default().lint(&pipeline);
            let taken = begun.elapsed();
            println!(
                "read {parsed:?}, transformed {:?}, linted {:?}",
                transformed - parsed,
                taken - transformed
            );
            assert_eq!(found, []);
            taken
        })
        .collect();
    times.sort();
    println!("{} bytes: fastest {:?}, median {:?}, slowest {:?}", source.len(), times[0], times[4], times[8]);
    // Use the fastest time, because the others include the load of the machine.
    assert!(times[0] < Duration::from_millis(100), "{times:?}");
}

#[tokio::test]
#[ignore = "measures; run it in release mode"]
async fn thousand_empty_nodes_run_within_one_second() {
    let mut source = String::from(
        "digraph Long { node [shape=diamond] start [shape=Mdiamond] exit [shape=Msquare] start -> n0\n",
    );
    for at in 0..1000 {
        let next = if at < 999 { format!("n{}", at + 1) } else { "exit".to_owned() };
        writeln!(source, "n{at} n{at} -> {next}").unwrap();
    }
    let pipeline = Pipeline::parse((source + "}").as_bytes()).unwrap();
    let begun = Instant::now();
    let graph = Compiler::default().compile(&pipeline).unwrap();
    let compiled = begun.elapsed();
    let runtime = Runtime::builder(MemoryStore::new()).build().await.unwrap();
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    assert!(run.wait().await.unwrap().completed().is_some());
    let taken = begun.elapsed();
    println!("compiled in {compiled:?}, ran in {:?}", taken - compiled);
    assert!(taken < Duration::from_secs(1), "{taken:?}");
}
