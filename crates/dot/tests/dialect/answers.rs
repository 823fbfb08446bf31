//! Answers of tasks: stored whole for every outcome, and included in later tasks.
#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{Ran, path_of, pipeline, run_with};
use ferrata_core::runtime::{Outcome, Runtime};
use ferrata_core::state::Context;
use ferrata_core::store::MemoryStore;
use ferrata_dot::compile::Compiler;
use ferrata_dot::handler::{Codergen, CommandBackend, Registry, Tool};
use ferrata_dot::run_dir::{RunDirectory, Snapshot};
use ferrata_testing::ManualClock;
use serde_json::Value as Json;

/// Runs statements between a start and an exit, with a run directory and `backend` as the command of tasks.
async fn run_in(folder: &Path, statements: &str, backend: &str) -> Ran {
    let source = format!("digraph G {{ start exit {statements} }}");
    let pipeline = Arc::new(pipeline(&source));
    let mut directory = RunDirectory::new(folder, Arc::clone(&pipeline)).unwrap();
    let backend = CommandBackend::new(backend).with_directory(folder).with_run_directory(folder);
    let tool = Tool::default().with_directory(folder).with_run_directory(folder);
    let registry = Registry::default().with("codergen", Codergen::new(backend)).with("tool", tool);
    let graph = Compiler::new(directory.record(registry)).compile(&pipeline).unwrap();
    let store = MemoryStore::new();
    let runtime = Runtime::builder(store.clone()).build().await.unwrap();
    let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
    let outcome = run.wait().await.unwrap();
    directory.refresh(&runtime, run.run()).await.unwrap();
    Ran { path: path_of(&store, run.run()).await, outcome }
}

fn read(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn checkpoint(folder: &Path) -> Snapshot {
    serde_json::from_str(&read(folder, "checkpoint.json")).unwrap()
}

/// A command that reports its tokens keeps its answer: in the context, in a file, and for the next task.
///
/// Guarantees: DOT-10.
#[tokio::test]
async fn status_file_keeps_answer() {
    let folder = tempfile::tempdir().unwrap();
    let backend = "cat > /dev/null; echo 'the plan is: 1, 2, 3'; \
                   printf '{\"outcome\":\"success\",\"usage\":{\"tokens\":18}}' > $FERRATA_STAGE_DIR/status.json";
    let ran = run_in(
        folder.path(),
        "plan code [prompt=\"Do what the plan says\"] start -> plan -> code -> exit",
        backend,
    )
    .await;
    assert_eq!(ran.text("response.plan"), "the plan is: 1, 2, 3\n");
    assert_eq!(
        (ran.text("last_response"), ran.text("usage.tokens")),
        ("the plan is: 1, 2, 3\n".into(), "36".into())
    );
    assert_eq!(read(folder.path(), "plan/1.1/response.md"), "the plan is: 1, 2, 3\n");
    let prompt = read(folder.path(), "code/1.1/prompt.md");
    assert!(prompt.contains("`plan` answered:\nthe plan is: 1, 2, 3\n"), "{prompt}");
}

/// A task that writes `fail` to its file and a text to its output: for every end of a task, its text is the reason and is stored, even for attempts
/// that are retried.
///
/// Guarantees: DOT-10.
#[tokio::test]
async fn failing_task_keeps_answer() {
    let status = |word: &str| format!("printf '{{\"outcome\":\"{word}\"}}' > $FERRATA_STAGE_DIR/status.json");
    for (backend, reason) in [
        (format!("echo '2 tests'; echo 'of 9 fail'; {}", status("fail")), "2 tests of 9 fail"),
        ("echo 'rate limit'; exit 1".to_owned(), "the backend ended with status 1: rate limit"),
        ("echo 'an answer'; echo broken >&2; exit 3".to_owned(), "the backend ended with status 3: broken"),
        (
            "echo 'an answer'; echo '{' > $FERRATA_STAGE_DIR/status.json".to_owned(),
            "status.json: the outcome is invalid",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let ran = run_in(folder.path(), "a start -> a -> exit", &backend).await;
        assert!(ran.failure().contains(reason), "{backend}: {}", ran.failure());
        let text = read(folder.path(), "a/1.1/response.md");
        assert!(!text.is_empty() && backend.contains(text.lines().next().unwrap()), "{backend}: {text}");
    }
    let folder = tempfile::tempdir().unwrap();
    let backend = format!(
        "echo \"try $FERRATA_ATTEMPT\"; echo \"of $FERRATA_NODE\" >&2; test $FERRATA_ATTEMPT = 2 || {{ {}; }}",
        status("retry")
    );
    let ran =
        run_in(folder.path(), "a [retry_policy=none, max_retries=1] start -> a -> exit", &backend).await;
    assert_eq!(ran.text("response.a"), "try 2\n");
    assert_eq!(read(folder.path(), "a/1.1/response.md"), "try 1\n");
    assert_eq!(
        read(folder.path(), "a/1.2/errors.txt"),
        "of a\n",
        "the standard error of a task must be in no context"
    );
    // The node after a failure edge finds the text.
    let folder = tempfile::tempdir().unwrap();
    let statements = "a b [shape=diamond] start -> a -> exit a -> b [condition=\"outcome=fail\"] b -> exit";
    let ran = run_in(folder.path(), statements, "echo why; exit 1").await;
    assert_eq!((ran.path().as_str(), ran.text("response.a").as_str()), ("start a b exit", "why\n"));
}

/// Prints more than a pipe holds. Once the file `ready` exists, the start of the output has been read.
const HALF: &str = "echo half; head -c 200000 /dev/zero | tr '\\0' x; touch ready; sleep 1000";

/// The output of an attempt that timed out is stored, and a tool does not keep the output of another tool.
///
/// Guarantees: DOT-10.
#[tokio::test]
async fn timeout_keeps_output() {
    let tool =
        format!("a [timeout=10s, shape=parallelogram, tool_command=\"{}\"]", HALF.replace('\\', "\\\\"));
    for (node, file, key) in
        [("a [timeout=10s]", "response.md", "response.a"), (&*tool, "output.txt", "tool.output")]
    {
        let folder = tempfile::tempdir().unwrap();
        let source = format!(
            "digraph G {{ start exit before [shape=parallelogram, tool_command=\"echo of before\"] {node} b [shape=diamond] \
             start -> before -> a -> exit a -> b [condition=\"outcome=fail\"] b -> exit }}"
        );
        let pipeline = Arc::new(pipeline(&source));
        let directory = RunDirectory::new(folder.path(), Arc::clone(&pipeline)).unwrap();
        let backend =
            CommandBackend::new(HALF).with_directory(folder.path()).with_run_directory(folder.path());
        let tool = Tool::default().with_directory(folder.path()).with_run_directory(folder.path());
        let registry = Registry::default().with("codergen", Codergen::new(backend)).with("tool", tool);
        let graph = Compiler::new(directory.record(registry)).compile(&pipeline).unwrap();
        let clock = ManualClock::default();
        let store = MemoryStore::with_clock(Arc::new(clock.clone()));
        let runtime = Runtime::builder(store).clock(Arc::new(clock.clone())).build().await.unwrap();
        let run = runtime.start(&graph, Context::new()).id("r").await.unwrap();
        until_there(&folder.path().join("ready")).await;
        clock.advance(Duration::from_secs(10));
        let Outcome::Completed(context) = run.wait().await.unwrap() else {
            panic!("an edge takes the failure")
        };
        let kept = context.get_value(key).and_then(Json::as_str).unwrap();
        assert!(kept.starts_with("half\nxxx") && kept.len() > 60_000, "{file}: {}", kept.len());
        assert_eq!(read(folder.path(), &format!("a/1.1/{file}")), kept);
        if key == "tool.output" {
            assert_eq!(context.get_value("tool.exit_code").filter(|code| !code.is_null()), None);
        }
    }
}

/// Waits until a file exists.
#[expect(clippy::disallowed_methods, reason = "processes end in real time, for which these tests poll")]
async fn until_there(path: &Path) {
    while !path.exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// An answer of more than 64 KiB is stored completely.
///
/// Guarantees: DOT-10.
#[tokio::test]
async fn long_answer_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let ran = run_in(
        folder.path(),
        "a b [prompt=\"Check ${response.a}\"] start -> a -> b -> exit",
        "test $FERRATA_NODE = b && exec wc -c; seq -f 'line %06.0f' 1 20000",
    )
    .await;
    let answer = ran.text("response.a");
    assert_eq!((answer.len(), answer.lines().count()), (240_000, 20_000));
    let status: Json = serde_json::from_str(&read(folder.path(), "a/1.1/status.json")).unwrap();
    let path = status["context_updates"]["response.a"]["artifact"].as_str().unwrap().to_owned();
    assert_eq!(read(folder.path(), &path), answer, "an answer above 100 kB must be an artifact");
    assert!(
        ran.text("response.b").trim().parse::<usize>().unwrap() > 240_000,
        "the next task must get the complete answer"
    );
}

/// Of an answer above 1 MiB, the context contains the start and a note. The complete answer is an artifact, which commands find by its name.
///
/// Guarantees: DOT-10.
#[tokio::test]
async fn huge_answer_is_cut_with_note() {
    let folder = tempfile::tempdir().unwrap();
    let statements = "a t [shape=parallelogram, tool_command=\"wc -c < $FERRATA_ARTIFACT_a_response_md\"] start -> a -> t -> exit";
    let ran = run_in(folder.path(), statements, "head -c 3000000 /dev/zero | tr '\\0' x").await;
    let answer = ran.text("response.a");
    assert!(
        answer.len() < (1 << 20) + 200 && answer.ends_with("has all ..]\n"),
        "{}",
        &answer[answer.len() - 100..]
    );
    assert_eq!(ran.text("tool.output").trim(), "3000000");
    let status: Json = serde_json::from_str(&read(folder.path(), "a/1.1/status.json")).unwrap();
    let notes = status["notes"].as_str().unwrap();
    assert!(notes.contains("the answer lacks 1951424 bytes; all of it is artifacts/"), "{notes}");
    assert!(
        checkpoint(folder.path())
            .artifacts
            .iter()
            .any(|one| one.name == "a.response.md" && one.bytes == 3_000_000)
    );
}

/// Of a long tool output, the context contains both ends. The complete output is an artifact, and a note names it.
///
/// Guarantees: DOT-6.
#[tokio::test]
async fn long_tool_output_is_kept_whole() {
    let folder = tempfile::tempdir().unwrap();
    let command = "seq 1 50000; seq 1 20000 >&2";
    let statements = format!("t [shape=parallelogram, tool_command=\"{command}\"] start -> t -> exit");
    let ran = run_in(folder.path(), &statements, "cat").await;
    let output = ran.text("tool.output");
    assert!(
        output.starts_with("1\n2\n") && output.ends_with("\n50000\n") && output.len() < 66_000,
        "{}",
        output.len()
    );
    let listed = checkpoint(folder.path()).artifacts;
    let whole = |name: &str| {
        let one = listed.iter().find(|one| one.name == name).unwrap_or_else(|| panic!("{name}: {listed:?}"));
        read(folder.path(), &one.path)
    };
    assert_eq!(whole("t.output.txt").lines().count(), 50_000);
    assert_eq!(whole("t.errors.txt").lines().last(), Some("20000"));
    let status: Json = serde_json::from_str(&read(folder.path(), "t/1.1/status.json")).unwrap();
    let notes = status["notes"].as_str().unwrap();
    assert!(notes.contains("`tool.output` lacks") && notes.contains("`tool.errors` lacks"), "{notes}");
    // Without a run directory for artifacts, the text says so.
    let registry = Registry::default().with("tool", Tool::default().with_output_limit(10));
    let text =
        "digraph G { start exit t [shape=parallelogram, tool_command=\"seq 1 100\"] start -> t -> exit }";
    let ran = run_with(text, registry, Context::new()).await;
    assert!(ran.text("tool.output").contains("bytes left out ..]"), "{}", ran.text("tool.output"));
}

/// If a tool leaves `fail` without a reason, the last printed line is the reason. An unreadable status file does not lose the output.
///
/// Guarantees: DOT-6.
#[tokio::test]
async fn tool_keeps_output_beside_status() {
    let folder = tempfile::tempdir().unwrap();
    let tool =
        |command: &str| format!("t [shape=parallelogram, tool_command=\"{command}\"] start -> t -> exit");
    let said = tool("echo 3 left; printf '{\\\"outcome\\\":\\\"fail\\\"}' > $FERRATA_STAGE_DIR/status.json");
    assert_eq!(run_in(folder.path(), &said, "cat").await.failure(), "3 left");
    let folder = tempfile::tempdir().unwrap();
    let broken =
        run_in(folder.path(), &tool("echo out; echo x > $FERRATA_STAGE_DIR/status.json"), "cat").await;
    assert!(broken.failure().starts_with("status.json: "), "{}", broken.failure());
    assert_eq!(read(folder.path(), "t/1.1/output.txt"), "out\n");
}

/// A judge that reports its tokens in a status file is used: its choice wins over the best score.
#[tokio::test]
async fn judge_with_status_file_is_heard() {
    let folder = tempfile::tempdir().unwrap();
    let statements = "f [shape=component] a b i [shape=tripleoctagon, prompt=\"Which is best?\"] \
                      start -> f f -> a -> i f -> b -> i i -> exit";
    let backend = "cat > /dev/null; echo '{\"outcome\":\"success\",\"usage\":{\"tokens\":5}}' > $FERRATA_STAGE_DIR/status.json; \
                   test $FERRATA_NODE = i && echo 'b is the best' || echo candidate";
    let ran = run_in(folder.path(), statements, backend).await;
    assert_eq!(
        (ran.text("parallel.fan_in.best_id"), ran.text("parallel.fan_in.chosen_by")),
        ("b".into(), "answer".into())
    );
    assert_eq!(read(folder.path(), "i/1.1/response.md"), "b is the best\n");
    assert!(read(folder.path(), "i/1.1/prompt.md").contains("Candidate b"));
}

/// By default a task gets all earlier answers, and a variable name may contain a dot.
///
/// Guarantees: DOT-11.
#[tokio::test]
async fn next_task_is_told_latest_answer() {
    let folder = tempfile::tempdir().unwrap();
    let statements = "plan code [prompt=\"Do: $response.plan|${response.plan}|{{ response.plan }}\"] \
                      t [shape=parallelogram, tool_command=\"echo 2 tests fail\"] fix [prompt=\"Fix it\"] \
                      start -> plan -> code -> t -> fix -> exit";
    run_in(folder.path(), statements, "cat > /dev/null; echo \"the answer of $FERRATA_NODE\"").await;
    let code = read(folder.path(), "code/1.1/prompt.md");
    assert!(code.contains("`plan` answered:\nthe answer of plan\nTask:\n"), "{code}");
    let plan = "the answer of plan\n";
    assert!(code.ends_with(&format!("Do: {plan}|{plan}|{plan}")), "{code}");
    let fix = read(folder.path(), "fix/1.1/prompt.md");
    assert!(fix.contains("`code` answered:\nthe answer of code\n`t` printed:\n2 tests fail\n"), "{fix}");
    assert!(!fix.contains("the answer of plan"), "the task must get only the last answer: {fix}");
}

/// After a join, the next task gets the answer of each branch.
///
/// Guarantees: DOT-11.
#[tokio::test]
async fn next_task_is_told_answers_of_branches() {
    let folder = tempfile::tempdir().unwrap();
    let statements = "f [shape=component] a b i [shape=tripleoctagon] z [prompt=\"Choose\"] start -> f f -> a -> i f -> b -> i i -> z -> exit";
    run_in(folder.path(), statements, "cat > /dev/null; echo \"the answer of $FERRATA_NODE\"").await;
    let prompt = read(folder.path(), "z/1.1/prompt.md");
    let told = "the branch of `a` came to this:\nthe answer of a\nthe branch of `b` came to this:\nthe answer of b\nTask:\n";
    assert!(prompt.contains(told), "{prompt}");
}

/// A long answer is shortened for the next task, with a note of the missing length.
///
/// Guarantees: DOT-11.
#[tokio::test]
async fn long_latest_answer_is_marked() {
    let folder = tempfile::tempdir().unwrap();
    let backend = "cat > /dev/null; head -c 50000 /dev/zero | tr '\\0' x";
    run_in(folder.path(), "a b [prompt=\"Go\"] start -> a -> b -> exit", backend).await;
    let prompt = read(folder.path(), "b/1.1/prompt.md");
    assert!(prompt.contains("x [.. 34000 more characters]\nTask:\nGo"), "{}", &prompt[prompt.len() - 100..]);
}

/// A prompt with a missing input fails before the task starts, with the name of the input.
///
/// Guarantees: DOT-13.
#[tokio::test]
async fn missing_input_fails_task() {
    let folder = tempfile::tempdir().unwrap();
    let ran =
        run_in(folder.path(), "a [prompt=\"for {{ inputs.customer }}\"] start -> a -> exit", "touch begun")
            .await;
    assert!(ran.failure().contains("pass `--input customer=..`"), "{}", ran.failure());
    assert!(!folder.path().join("begun").exists());
}

/// An agent's command that exits with 1, as for a rate limit, is retried up to `max_retries`. An outcome in its file is a result and is not retried.
///
/// Guarantees: DOT-10.
#[tokio::test]
async fn failing_backend_is_tried_again() {
    let attempts = async |attributes: &str, graph: &str, backend: &str| {
        let folder = tempfile::tempdir().unwrap();
        let statements = format!("{graph} a [{attributes}] start -> a -> exit");
        run_in(folder.path(), &statements, &format!("echo x >> tries; {backend}")).await;
        read(folder.path(), "tries").lines().count()
    };
    let exit = "echo 429 >&2; exit 1";
    assert_eq!(attempts("retry_policy=linear, max_retries=1", "", exit).await, 2);
    assert_eq!(attempts("label=a", "default_max_retries=1", exit).await, 2);
    assert_eq!(attempts("label=a", "", exit).await, 1);
    assert_eq!(attempts("max_retries=1, retry_on=retry", "", exit).await, 1);
    let fail = "echo '{\"outcome\":\"fail\"}' > $FERRATA_STAGE_DIR/status.json";
    assert_eq!(attempts("max_retries=1", "", fail).await, 1);
    assert_eq!(attempts("max_retries=1, retry_on=fail", "", fail).await, 2);
}
