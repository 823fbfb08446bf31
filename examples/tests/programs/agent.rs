//! Tests the agent in a simulated world, as [the page on tests](../../../docs/guide/testing/README.md) describes it. Also tests the program, which is
//! killed.

#[path = "../../agent/graph.rs"]
mod graph;
#[path = "../../agent/model.rs"]
mod model;

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use ferrata::prelude::*;
use ferrata::runtime::RuntimeBuilder;
use ferrata::testing::{CrashTest, Fault, Process, ScriptedAnswers, World, assert_replays};
use ferrata::{Clock as _, RunKey, SystemClock};
use ferrata_tests::{Space, StoreKind};
use tempfile::TempDir;

use self::graph::{Agent, Outbox, PATIENCE, graph};
use self::model::Model;
use crate::support::{Chance, ended, program};

/// A run of an earlier version of the example. Do not change this file, even if the graph changes.
const KEPT: &str = include_str!("agent.jsonl");

/// The budget. A thought costs 2, so the agent asks for more money once.
const CENTS: u32 = 5;

fn input() -> Agent {
    Agent { task: "ropes".into(), cents: CENTS, ..Agent::default() }
}

fn yes() -> ScriptedAnswers {
    ScriptedAnswers::new()
        .answer("budget", Answer::accept(10_u32).unwrap())
        .answer("approve", Answer::accept(true).unwrap())
}

fn set(builder: RuntimeBuilder, outbox: &Path, script: ScriptedAnswers) -> RuntimeBuilder {
    builder.resource(Model { cents: 2 }).resource(Outbox(outbox.to_owned())).answerer(script)
}

async fn process(world: &World, outbox: &Path, script: &ScriptedAnswers) -> Process {
    world.process_with(|builder| set(builder, outbox, script.clone())).await.unwrap()
}

/// Returns the number of mails. The agent sends one mail for each key.
fn mails(outbox: &TempDir) -> usize {
    std::fs::read_dir(outbox.path()).unwrap().count()
}

#[tokio::test]
async fn approved_agent_sends_mail_and_spends_granted_budget() {
    let (world, outbox, script) = (World::new(), TempDir::new().unwrap(), yes());
    let process = process(&world, outbox.path(), &script).await;
    let run = process.start(&graph().unwrap(), input()).id("r").await.unwrap();
    let done = world.pass(run.completed()).await.unwrap();
    assert_eq!(done.answer.as_deref(), Some("2 searches; the mail: sent"));
    assert_eq!((done.spent, done.cents, mails(&outbox)), (8, 15, 1));
    assert!(script.is_over());
    if let Some(file) = std::env::var_os("FERRATA_KEEP") {
        std::fs::write(file, process.export(run.run()).await.unwrap()).unwrap();
    }
}

#[tokio::test]
async fn unapproved_mail_is_not_sent_after_deadline() {
    let (world, outbox) = (World::new(), TempDir::new().unwrap());
    let script = ScriptedAnswers::new().answer("budget", Answer::accept(10_u32).unwrap());
    let (process, graph) = (process(&world, outbox.path(), &script).await, graph().unwrap());
    // An idle run continues when its time comes, if a process serves its workflow.
    process.serve(&graph).unwrap();
    let run = process.start(&graph, input()).id("r").await.unwrap();
    world.pass_for(PATIENCE / 2).await;
    assert!(process.head(run.run()).await.unwrap().is_some_and(|head| !head.status.is_finished()));
    let done = world.pass(run.completed()).await.unwrap();
    assert_eq!(done.answer.as_deref(), Some("2 searches; the mail: a person refused it"));
    assert_eq!(mails(&outbox), 0);
}

#[tokio::test]
async fn without_more_money_it_stops() {
    let (world, outbox) = (World::new(), TempDir::new().unwrap());
    let script = ScriptedAnswers::new().answer("budget", Answer::accept(0_u32).unwrap());
    let process = process(&world, outbox.path(), &script).await;
    let run = process.start(&graph().unwrap(), input()).await.unwrap();
    let done = world.pass(run.completed()).await.unwrap();
    assert_eq!(done.answer.as_deref(), Some("stopped: 6 of 5 cents are spent"));
}

#[tokio::test]
async fn crash_at_any_write_sends_one_mail() {
    let outbox = TempDir::new().unwrap();
    let folder = outbox.path().to_owned();
    let crashes = CrashTest::new(&graph().unwrap(), input())
        .with_process(move |builder| set(builder, &folder, yes()))
        .run(async |case| {
            let Outcome::Completed(done) = &case.outcome else { panic!("{case:?}") };
            assert_eq!((done.spent, mails(&outbox)), (8, 1), "{case:?}");
            for mail in std::fs::read_dir(outbox.path()).unwrap() {
                std::fs::remove_file(mail.unwrap().path()).unwrap();
            }
        })
        .await;
    assert!(crashes > 16, "{crashes}");
}

#[tokio::test]
async fn brief_store_failure_goes_unnoticed() {
    for (n, fault) in [(0, Fault::Before), (1, Fault::After), (3, Fault::Before), (5, Fault::After)] {
        let (world, outbox, script) = (World::new(), TempDir::new().unwrap(), yes());
        let process = process(&world, outbox.path(), &script).await;
        process.fail_write(n, fault);
        let run = world.pass(process.start(&graph().unwrap(), input())).await.unwrap();
        let done = world.pass(run.completed()).await.unwrap();
        assert_eq!((done.spent, mails(&outbox)), (8, 1), "at write {n}");
    }
}

#[tokio::test]
async fn current_graph_continues_older_run() {
    assert_replays(KEPT, &graph().unwrap()).await;
}

fn agent(space: &Space, args: &[&str]) -> Command {
    let mut command = Command::new(program("agent"));
    command.args(args).args(["--store", space.url(), "--outbox", "mails"]);
    command.envs(space.environment()).current_dir(space.folder());
    command
}

fn said(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    format!("{}{errors}", String::from_utf8_lossy(&output.stdout))
}

/// Starts the program and kills it after a moment, three times. Then waits until it asks a question or ends.
async fn killed(space: &Space, args: &[&str], chance: &mut Chance) -> Output {
    for _ in 0..3 {
        let mut child = agent(space, args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        SystemClock::new().sleep(Duration::from_millis(5 + chance.below(60))).await;
        child.kill().unwrap();
        child.wait().unwrap();
    }
    agent(space, args).output().unwrap()
}

#[tokio::test]
async fn killed_agent_asks_again_and_sends_once() {
    Space::within(StoreKind::Files, async |space| {
        let mut chance = Chance::seeded();
        let output = killed(space, &["ropes"], &mut chance).await;
        assert_eq!(output.status.code(), Some(3), "{}", said(&output));
        assert!(said(&output).contains("6 of 5 cents are spent. How many more?"), "{}", said(&output));
        let output = killed(space, &["--answer", "10"], &mut chance).await;
        assert!(
            said(&output).contains("Send `Two ropes, please.` to dealer@example.org?"),
            "{}",
            said(&output)
        );
        let refused = agent(space, &["--answer", "maybe"]).output().unwrap();
        assert_eq!(refused.status.code(), Some(1), "{}", said(&refused));
        let output = killed(space, &["--answer", "yes"], &mut chance).await;
        assert!(output.status.success(), "{}", said(&output));
        let output = killed(space, &[], &mut chance).await;
        assert!(
            said(&output).contains("2 searches; the mail: sent\n8 of 15 cents are spent\n"),
            "{}",
            said(&output)
        );
        assert_eq!(std::fs::read_dir(space.folder().join("mails")).unwrap().count(), 1);
        let log = ended(&*space.open(), "agent").await;
        assert!(log.values().all(|times| *times == 1), "{log:?}");
    })
    .await;
}

/// A killed process had recorded its answer. The same command then continues, without an error.
#[tokio::test]
async fn recorded_answer_is_not_requested_again() {
    Space::within(StoreKind::Files, async |space| {
        let (operator, key) =
            (Runtime::builder_with(space.open()).operator(), RunKey::try_from("agent").unwrap());
        let asked = agent(space, &["ropes"]).output().unwrap();
        assert_eq!(asked.status.code(), Some(3), "{}", said(&asked));
        for (typed, answer) in
            [("10", Answer::accept(10_u32).unwrap()), ("yes", Answer::accept(true).unwrap())]
        {
            let question = operator.questions(&key).await.unwrap().remove(0);
            operator.respond(&key, &question.id, answer).await.unwrap();
            let output = agent(space, &["--answer", typed]).output().unwrap();
            assert!(
                said(&output).contains(&format!("no question takes the answer `{typed}`")),
                "{}",
                said(&output)
            );
            let code = if typed == "10" { 3 } else { 0 };
            assert_eq!(output.status.code(), Some(code), "{}", said(&output));
        }
        // The answer does not answer a later question.
        let output = agent(space, &["--answer", "10"]).output().unwrap();
        assert!(said(&output).contains("8 of 15 cents are spent"), "{}", said(&output));
        assert_eq!(std::fs::read_dir(space.folder().join("mails")).unwrap().count(), 1);
    })
    .await;
}
