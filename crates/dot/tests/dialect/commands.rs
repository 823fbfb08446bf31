//! Tools and the command backend: real processes with their output and exit status. No process remains.
#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]
#![expect(clippy::disallowed_methods, reason = "processes end in real time, for which these tests poll")]

use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::{Ran, compile, run_with};
use ferrata_core::runtime::{Outcome, RunHandle, Runtime};
use ferrata_core::state::Context;
use ferrata_core::store::MemoryStore;
use ferrata_dot::handler::{Codergen, CommandBackend, Registry, Tool};
use ferrata_testing::ManualClock;
use serde_json::json;

/// Runs one tool between start and exit.
async fn tool(attributes: &str) -> Ran {
    let text = format!(
        "digraph G {{ start exit a [shape=parallelogram, {attributes}] b [shape=diamond] start -> a -> exit \
         a -> b [condition=\"outcome=fail\"] b -> exit }}"
    );
    run_with(&text, Registry::default(), Context::new()).await
}

async fn backend(attributes: &str, backend: CommandBackend) -> Ran {
    let text = format!(
        "digraph G {{ start exit a [{attributes}] b [shape=diamond] start -> a -> exit \
         a -> b [condition=\"outcome=fail\"] b -> exit }}"
    );
    run_with(&text, Registry::default().with("codergen", Codergen::new(backend)), Context::new()).await
}

/// Starts a run in a process whose clock stands still until the test advances it, so that processes may take any time.
async fn start_at_rest(text: &str, registry: Registry) -> (ManualClock, RunHandle<Context>) {
    let clock = ManualClock::default();
    let store = MemoryStore::with_clock(std::sync::Arc::new(clock.clone()));
    let runtime = Runtime::builder(store).clock(std::sync::Arc::new(clock.clone())).build().await.unwrap();
    let run = runtime.start(&compile(text, registry), Context::new()).id("r").await.unwrap();
    (clock, run)
}

/// Waits until a run fails. Returns the failure message.
async fn failure(run: RunHandle<Context>) -> String {
    match run.wait().await.unwrap() {
        Outcome::Failed { failure, .. } => failure.message,
        other => panic!("the run did not fail: {other:?}"),
    }
}

/// Waits until a file has content, and returns the content.
async fn content(path: &Path) -> String {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match std::fs::read_to_string(path) {
            Ok(text) if text.ends_with('\n') => return text.trim().to_owned(),
            _ => assert!(Instant::now() < deadline, "{} is not written", path.display()),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until a process has ended, or is a zombie.
async fn gone(pid: &str) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        if stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z')) {
            return;
        }
        assert!(Instant::now() < deadline, "process {pid} still exists: {stat}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Guarantees: DOT-6.
#[tokio::test]
async fn a_tool_sets_its_output_and_status() {
    let ran = tool("tool_command=\"echo out; echo err >&2\"").await;
    assert_eq!(ran.path(), "start a exit");
    assert_eq!((ran.text("tool.output"), ran.text("tool.errors")), ("out\n".into(), "err\n".into()));
    assert_eq!(ran.context().get_value("tool.exit_code"), Some(&json!(0)));
}

/// Guarantees: DOT-5.
#[tokio::test]
async fn failing_tool_reports_its_last_line() {
    let ran = tool("tool_command=\"echo first >&2; echo broken >&2; exit 3\"").await;
    assert_eq!(ran.path(), "start a b exit");
    assert_eq!(ran.context().get_value("tool.exit_code"), Some(&json!(3)));
    let ran = run_with(
        "digraph G { start exit a [shape=parallelogram, tool_command=\"echo broken >&2; exit 3\"] start -> a -> exit }",
        Registry::default(),
        Context::new(),
    )
    .await;
    assert_eq!(ran.failure(), "the command ended with status 3: broken");
    let ran = run_with(
        "digraph G { start exit a [shape=parallelogram, tool_command=\"kill -9 $$\"] start -> a -> exit }",
        Registry::default(),
        Context::new(),
    )
    .await;
    assert_eq!(ran.failure(), "the command was ended by signal 9");
}

/// Guarantees: DOT-5.
#[tokio::test]
async fn status_75_asks_for_a_retry() {
    let directory = tempfile::tempdir().unwrap();
    let command = "echo x >> tries; test $FERRATA_ATTEMPT = 2 || exit 75; cat tries";
    let text = format!(
        "digraph G {{ start exit a [shape=parallelogram, retry_policy=none, max_retries=1, tool_command=\"{command}\"] \
         start -> a -> exit }}"
    );
    let registry = Registry::default().with("tool", Tool::default().with_directory(directory.path()));
    let ran = run_with(&text, registry, Context::new()).await;
    assert_eq!(ran.text("tool.output"), "x\nx\n");
}

#[tokio::test]
async fn a_tool_has_a_directory_and_an_environment() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("inner")).unwrap();
    let text = "digraph G { start exit a [shape=parallelogram, working_dir=inner, env.COLOR=red, \
                tool_command=\"pwd; echo $COLOR $FERRATA_RUN $FERRATA_NODE $FERRATA_VISIT $FERRATA_ATTEMPT; \
                test -n \\\"$FERRATA_IDEMPOTENCY_KEY\\\"\"] start -> a -> exit }";
    let registry = Registry::default().with("tool", Tool::default().with_directory(directory.path()));
    let ran = run_with(text, registry, Context::new()).await;
    let inner = directory.path().canonicalize().unwrap().join("inner");
    assert_eq!(ran.text("tool.output"), format!("{}\nred r a 1 1\n", inner.display()));
}

/// Guarantees: DOT-6.
#[tokio::test]
async fn output_is_bounded_and_the_command_goes_on() {
    let command = "head -c 300000000 /dev/zero | tr '\\\\0' x; echo; echo the end; echo done >&2";
    let registry = Registry::default().with("tool", Tool::default().with_output_limit(1000));
    let text = format!(
        "digraph G {{ start exit a [shape=parallelogram, tool_command=\"{command}\"] start -> a -> exit }}"
    );
    let ran = run_with(&text, registry, Context::new()).await;
    let output = ran.text("tool.output");
    assert!(output.len() < 1100, "{} bytes", output.len());
    assert!(output.starts_with("xxxx") && output.ends_with("\nthe end\n"), "{output}");
    assert!(output.contains("bytes left out"), "{output}");
    assert_eq!(ran.text("tool.errors"), "done\n");
}

/// Guarantees: DOT-5.
#[tokio::test]
async fn a_timeout_kills_the_whole_group() {
    let directory = tempfile::tempdir().unwrap();
    let command = "sleep 1000 & echo $! > child; echo $$ > leader; sleep 1000";
    let text = format!(
        "digraph G {{ start exit a [shape=parallelogram, timeout=10s, tool_command=\"{command}\"] start -> a -> exit }}"
    );
    let registry = Registry::default().with("tool", Tool::default().with_directory(directory.path()));
    let (clock, run) = start_at_rest(&text, registry).await;
    let leader = content(&directory.path().join("leader")).await;
    let child = content(&directory.path().join("child")).await;
    clock.advance(Duration::from_secs(10));
    assert_eq!(failure(run).await, "the node exceeded its timeout of 10s");
    gone(&leader).await;
    gone(&child).await;
}

#[tokio::test]
async fn a_cancelled_run_kills_the_whole_group() {
    let directory = tempfile::tempdir().unwrap();
    // The shell ignores SIGTERM.
    let command = "trap '' TERM; (trap '' TERM; sleep 1000) & echo $! > child; echo $$ > leader; sleep 1000; sleep 1000";
    let text = format!(
        "digraph G {{ start exit a [shape=parallelogram, tool_command=\"{command}\"] start -> a -> exit }}"
    );
    let registry = Registry::default().with("tool", Tool::default().with_directory(directory.path()));
    let runtime =
        Runtime::builder(MemoryStore::new()).cancel_grace(Duration::from_millis(100)).build().await.unwrap();
    let run = runtime.start(&compile(&text, registry), Context::new()).id("r").await.unwrap();
    let child = content(&directory.path().join("child")).await;
    let leader = content(&directory.path().join("leader")).await;
    run.cancel("enough").await.unwrap();
    assert!(matches!(run.wait().await.unwrap(), Outcome::Cancelled { .. }));
    gone(&leader).await;
    gone(&child).await;
}

#[tokio::test]
async fn a_cancelled_command_is_asked_to_end_first() {
    let directory = tempfile::tempdir().unwrap();
    let command = "trap 'echo tidy > tidied; exit 1' TERM; echo $$ > leader; while :; do sleep 0.01; done";
    let text = format!(
        "digraph G {{ start exit a [shape=parallelogram, tool_command=\"{command}\"] start -> a -> exit }}"
    );
    let registry = Registry::default().with("tool", Tool::default().with_directory(directory.path()));
    let runtime =
        Runtime::builder(MemoryStore::new()).cancel_grace(Duration::from_secs(60)).build().await.unwrap();
    let run = runtime.start(&compile(&text, registry), Context::new()).id("r").await.unwrap();
    let leader = content(&directory.path().join("leader")).await;
    run.cancel("enough").await.unwrap();
    // The exit status 1 comes from the signal, so the run is cancelled and does not fail.
    assert!(matches!(run.wait().await.unwrap(), Outcome::Cancelled { .. }));
    assert_eq!(content(&directory.path().join("tidied")).await, "tidy");
    gone(&leader).await;
}

#[tokio::test]
async fn command_of_released_run_runs_again() {
    let directory = tempfile::tempdir().unwrap();
    let command = "echo $FERRATA_ATTEMPT > leader; test -e tidied && exit 0; trap 'echo tidy > tidied; exit 1' TERM; while :; do sleep 0.01; done";
    let text = format!(
        "digraph G {{ start exit a [shape=parallelogram, tool_command=\"{command}\"] start -> a -> exit }}"
    );
    let store = MemoryStore::new();
    let graph =
        compile(&text, Registry::default().with("tool", Tool::default().with_directory(directory.path())));
    let first = Runtime::builder(store.clone()).build().await.unwrap();
    let run = first.start(&graph, Context::new()).id("r").await.unwrap();
    content(&directory.path().join("leader")).await;
    first.shutdown(Duration::from_secs(60)).await.unwrap();
    assert!(matches!(run.wait().await.unwrap(), Outcome::Released));
    let second = Runtime::builder(store).build().await.unwrap();
    let run = second.resume(&graph, "r").await.unwrap();
    assert!(run.wait().await.unwrap().completed().is_some());
    // The earlier attempt has no record, so this is the first attempt again.
    assert_eq!(content(&directory.path().join("leader")).await, "1");
}

#[tokio::test]
async fn background_processes_end_with_command() {
    let directory = tempfile::tempdir().unwrap();
    let registry = Registry::default().with("tool", Tool::default().with_directory(directory.path()));
    let text = "digraph G { start exit a [shape=parallelogram, tool_command=\"sleep 1000 & echo $! > child; echo out\"] \
                start -> a -> exit }";
    let begun = Instant::now();
    let ran = run_with(text, registry, Context::new()).await;
    assert_eq!(ran.text("tool.output"), "out\n");
    assert!(
        begun.elapsed() < Duration::from_secs(500),
        "the child holds the pipe open, but the tool must not wait for it"
    );
    gone(&content(&directory.path().join("child")).await).await;
}

#[tokio::test]
async fn unstartable_command_is_failure() {
    let ran = run_with(
        "digraph G { start exit a [shape=parallelogram, working_dir=\"/no/such/place\", tool_command=true] start -> a -> exit }",
        Registry::default(),
        Context::new(),
    )
    .await;
    assert!(ran.failure().starts_with("cannot start the command: "), "{}", ran.failure());
}

/// Guarantees: DOT-10.
#[tokio::test]
async fn backend_gets_prompt_and_answers_on_stdout() {
    let echo = CommandBackend::new("cat; echo; echo $FERRATA_LLM_MODEL/$FERRATA_REASONING_EFFORT");
    let ran = backend("prompt=\"do it\", llm_model=m", echo).await;
    assert_eq!(ran.path(), "start a exit");
    assert_eq!((ran.text("last_response"), ran.text("last_stage")), ("do it\nm/high\n".into(), "a".into()));
    let ran = backend("label=\"Do that\"", CommandBackend::new("cat")).await;
    assert_eq!(ran.text("last_response"), "Do that", "the label replaces a missing prompt");
}

#[tokio::test]
async fn context_truncates_last_response_keeps_node_response() {
    let ran = backend("prompt=x", CommandBackend::new("head -c 1000 /dev/zero | tr '\\0' y")).await;
    assert_eq!(ran.text("last_response").len(), 200);
    assert_eq!(ran.text("response.a").len(), 1000);
}

/// Guarantees: DOT-10.
#[tokio::test]
async fn backend_can_write_outcome_file() {
    for (name, status) in [("status.json", "outcome"), ("outcome.json", "status")] {
        let directory = tempfile::tempdir().unwrap();
        let line = format!(
            "cat > /dev/null; test -s $FERRATA_STAGE_DIR/prompt.md || exit 9; echo '{{\"{status}\": \"partial_success\", \
             \"context_updates\": {{\"color\": \"red\"}}, \"preferred_label\": null}}' > $FERRATA_STAGE_DIR/{name}; exit 1"
        );
        let ran = backend("prompt=x", CommandBackend::new(line).with_stage_directory(directory.path())).await;
        assert_eq!((ran.path(), ran.text("color")), ("start a exit".to_owned(), "red".to_owned()), "{name}");
    }
}

/// Guarantees: DOT-10.
#[tokio::test]
async fn unreadable_outcome_is_failure() {
    for (content, part) in [
        ("{", "status.json: the outcome is invalid"),
        ("{}", "missing field `outcome`"),
        ("{\"outcome\": \"great\"}", "the outcome `great` does not exist"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let line = format!("echo '{content}' > $FERRATA_STAGE_DIR/status.json");
        let backend = CommandBackend::new(line).with_stage_directory(directory.path());
        let ran = run_with(
            "digraph G { start exit a [prompt=x] start -> a -> exit }",
            Registry::default().with("codergen", Codergen::new(backend)),
            Context::new(),
        )
        .await;
        assert!(ran.failure().contains(part), "{content}: {}", ran.failure());
    }
}

/// Runs a task whose `status.json` has this content.
async fn with_status(edges: &str, status: &str) -> crate::support::Ran {
    let directory = tempfile::tempdir().unwrap();
    let line = format!("echo '{{\"outcome\": \"{status}\"}}' > $FERRATA_STAGE_DIR/status.json");
    let backend = CommandBackend::new(line).with_stage_directory(directory.path());
    let tools = "node [shape=parallelogram, tool_command=true]";
    run_with(
        &format!("digraph G {{ start exit a [prompt=x] d [shape=diamond] {tools} b c start -> a {edges} }}"),
        Registry::default().with("codergen", Codergen::new(backend)),
        Context::new(),
    )
    .await
}

/// Guarantees: DIALECT-1.
#[tokio::test]
async fn foreign_status_name_is_accepted() {
    for (status, path) in
        [("Success", "start a d b exit"), ("succeeded", "start a d b exit"), ("FAILED", "start a d c exit")]
    {
        let edges = "a -> d d -> b [condition=\"outcome=success\"] d -> c [condition=\"outcome=failed\"] b -> exit c -> exit";
        assert_eq!(with_status(edges, status).await.path(), path, "{status}");
    }
}

/// A task may report a custom outcome.
///
/// Guarantees: DIALECT-1.
#[tokio::test]
async fn a_pipeline_may_have_outcomes_of_its_own() {
    for edges in [
        // Route by a condition, through a conditional node, and by a label.
        "a -> b [condition=\"outcome=has_dod\"] a -> c [condition=\"outcome=success\", weight=9] b -> exit c -> exit d -> exit a -> d",
        "a -> d d -> c d -> b [condition=\"outcome=has_dod\"] b -> exit c -> exit",
        "a -> c [weight=9] a -> b [label=\"[H] has_dod\"] b -> exit c -> exit d -> exit a -> d",
    ] {
        let ran = with_status(edges, "has_dod").await;
        assert!(ran.path().ends_with("b exit"), "{edges}: {}", ran.path());
    }
    // An outcome that no edge names is a mistake, and no success.
    let ran = with_status("a -> exit a -> b b -> c -> d -> exit", "sucess").await;
    assert!(ran.failure().contains("the outcome `sucess` does not exist"), "{}", ran.failure());
}

/// `prompt="@prompts/plan.md"` reads the file, and `$task` is replaced by the input.
///
/// Guarantees: DOT-13.
#[tokio::test]
async fn prompt_can_be_file_with_context_variables() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("prompts")).unwrap();
    std::fs::write(
        folder.path().join("prompts/plan.md"),
        "Plan $task to $goal by $n: $nothing costs $5, $task_2\n",
    )
    .unwrap();
    let source = "digraph G { goal=ship start exit a [prompt=\"@prompts/plan.md\"] start -> a -> exit }";
    let mut pipeline = ferrata_dot::Pipeline::parse(source.as_bytes()).unwrap();
    let transforms = ferrata_dot::transform::Transforms::in_directory(Some(folder.path().into()));
    transforms.apply(&mut pipeline).unwrap();
    let mut input = Context::new();
    for (key, value) in [("task", "the $goal"), ("unused", "x")] {
        input.set(key, value).unwrap();
    }
    input.set("n", 3).unwrap();
    let registry = Registry::default().with("codergen", Codergen::new(CommandBackend::new("cat")));
    let graph = ferrata_dot::compile::Compiler::new(registry).compile(&pipeline).unwrap();
    let runtime = ferrata_core::runtime::Runtime::builder(ferrata_core::store::MemoryStore::new())
        .build()
        .await
        .unwrap();
    let run = runtime.start(&graph, input).id("r").await.unwrap();
    let ended = run.wait().await.unwrap().completed().unwrap();
    let answer = ended.get::<String>("response.a").unwrap().unwrap();
    assert!(answer.ends_with("Plan the $goal to ship by 3: $nothing costs $5, $task_2\n"), "{answer}");
    for (prompt, why) in [
        ("@nowhere.md", "cannot read the prompt file"),
        ("@prompts", "cannot read the prompt file"),
        ("@someone look at this", ""),
    ] {
        let source = format!("digraph G {{ start exit a [prompt=\"{prompt}\"] start -> a -> exit }}");
        let mut pipeline = ferrata_dot::Pipeline::parse(source.as_bytes()).unwrap();
        let applied = transforms.apply(&mut pipeline);
        match why {
            "" => assert!(applied.is_ok()),
            why => assert!(applied.unwrap_err().to_string().contains(why), "{prompt}"),
        }
    }
}

/// Reading a pipe does not block the runtime beyond a timeout, and reading a device ends at a limit.
///
/// Guarantees: SECURITY-7.
#[tokio::test]
async fn outcome_that_is_not_file_fails_without_blocking() {
    for plant in ["mkfifo", "ln -s /dev/zero", "ln -s /etc/hostname", "mkdir"] {
        let directory = tempfile::tempdir().unwrap();
        let backend = CommandBackend::new(format!("{plant} $FERRATA_STAGE_DIR/status.json; echo done"));
        let backend = backend.with_stage_directory(directory.path());
        let pipeline = "digraph G { start exit a [prompt=x] start -> a -> exit }";
        let registry = Registry::default().with("codergen", Codergen::new(backend));
        let ran = tokio::time::timeout(Duration::from_secs(60), run_with(pipeline, registry, Context::new()));
        let failure = ran.await.expect("reading must not wait for the other end of a pipe").failure();
        assert!(failure.contains("status.json"), "{plant}: {failure}");
    }
}

/// Files of an earlier command in the attempt's directory are neither followed nor read.
///
/// Guarantees: SECURITY-7.
#[tokio::test]
async fn links_in_attempt_directory_are_replaced() {
    let (directory, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let target = outside.path().join("target");
    std::fs::write(&target, "{\"outcome\": \"fail\"}").unwrap();
    let stage = directory.path().join("default/r/a/1.1");
    std::fs::create_dir_all(&stage).unwrap();
    for name in ["status.json", "prompt.md"] {
        std::os::unix::fs::symlink(&target, stage.join(name)).unwrap();
    }
    let command = CommandBackend::new("cat $FERRATA_STAGE_DIR/prompt.md");
    let ran = backend("prompt=hello", command.with_stage_directory(directory.path())).await;
    assert_eq!(ran.path(), "start a exit");
    assert!(ran.text("last_response").contains("hello"));
    assert_eq!(std::fs::read_to_string(&target).unwrap(), "{\"outcome\": \"fail\"}");
}

#[tokio::test]
async fn stale_outcome_of_interrupted_attempt_is_ignored() {
    let directory = tempfile::tempdir().unwrap();
    let stage = directory.path().join("default/r/a/1.1");
    std::fs::create_dir_all(&stage).unwrap();
    std::fs::write(stage.join("status.json"), "{\"outcome\": \"fail\"}").unwrap();
    let ran = backend(
        "prompt=x",
        CommandBackend::new("echo $FERRATA_STAGE_DIR").with_stage_directory(directory.path()),
    )
    .await;
    assert_eq!(ran.text("last_response").trim(), stage.to_string_lossy());
    assert_eq!(ran.path(), "start a exit");
}

#[tokio::test]
async fn auto_status_makes_a_success_of_silence() {
    let silent = || CommandBackend::new("true");
    assert_eq!(
        backend("prompt=x", silent()).await.path(),
        "start a b exit",
        "a silent failure must count as a failure"
    );
    let ran = backend("prompt=x, auto_status=true", silent()).await;
    assert_eq!(ran.path(), "start a exit");
    let failing = CommandBackend::new("exit 1");
    assert_eq!(
        backend("prompt=x, auto_status=true", failing).await.path(),
        "start a b exit",
        "a status must count as a result"
    );
}

/// Guarantees: DOT-10.
#[tokio::test]
async fn without_a_backend_an_answer_is_simulated() {
    let ran = run_with(
        "digraph G { start exit a [prompt=x] start -> a -> exit }",
        Registry::default(),
        Context::new(),
    )
    .await;
    assert_eq!(ran.text("last_response"), "[Simulated] Response for stage: a");
}

#[tokio::test]
async fn a_prompt_that_nobody_reads_does_no_harm() {
    let prompt = "x".repeat(900_000);
    let ran = backend(&format!("prompt=\"{prompt}\""), CommandBackend::new("echo fine")).await;
    assert_eq!(ran.text("last_response"), "fine\n");
}

/// Runs a tool with hooks that write down their input. Returns the run and the inputs.
async fn hooked(hooks: &str, command: &str) -> (Ran, String, String) {
    let directory = tempfile::tempdir().unwrap();
    let text = format!(
        "digraph G {{ {hooks} start exit a [shape=parallelogram, tool_command=\"{command}\"] b [shape=diamond] start -> a -> exit \
         a -> b [condition=\"outcome=skipped\"] b -> exit }}"
    );
    let registry = Registry::default().with("tool", Tool::default().with_directory(directory.path()));
    let ran = run_with(&text, registry, Context::new()).await;
    let file = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap_or_default();
    (ran, file("pre"), file("post"))
}

const HOOKS: &str = "tool_hooks.pre=\"cat > pre\" tool_hooks.post=\"cat > post\"";

/// Guarantees: DOT-9.
#[tokio::test]
async fn tool_hooks_run_before_and_after_with_call() {
    let (ran, pre, post) = hooked(HOOKS, "echo out; exit 3").await;
    assert!(matches!(ran.outcome, Outcome::Failed { .. }), "{:?}", ran.outcome);
    let pre: serde_json::Value = serde_json::from_str(&pre).unwrap();
    assert_eq!(pre, json!({"hook": "pre", "tool": "shell", "node": "a", "command": "echo out; exit 3"}));
    let post: serde_json::Value = serde_json::from_str(&post).unwrap();
    assert_eq!((&post["exit_code"], &post["output"]), (&json!(3), &json!("out\n")));
}

/// Guarantees: DOT-9.
#[tokio::test]
async fn a_hook_that_says_no_skips_the_tool() {
    let hooks = "tool_hooks.pre=\"echo not today >&2; exit 1\" tool_hooks.post=\"cat > post\"";
    let (ran, _, post) = hooked(hooks, "echo ran > pre").await;
    assert_eq!(ran.path(), "start a b exit");
    assert_eq!(post, "");
    assert!(!ran.context().contains_key("tool.output"));
}

/// Guarantees: DOT-9.
#[tokio::test]
async fn failing_after_hook_preserves_outcome() {
    let (ran, ..) = hooked("tool_hooks.post=\"exit 1\"", "true").await;
    assert_eq!(ran.path(), "start a exit");
    // A hook that cannot be started does not fail the tool either: the command has removed the hook's working directory.
    let (ran, ..) = hooked("tool_hooks.post=\"true\"", "rmdir $PWD").await;
    assert_eq!((ran.path().as_str(), &*ran.text("tool.exit_code")), ("start a exit", "0"));
}

#[tokio::test]
async fn node_hooks_override_graph_hooks() {
    let text = "digraph G { tool_hooks.pre=\"exit 1\" start exit a [shape=parallelogram, tool_command=\"echo a\", tool_hooks.pre=\"true\"] \
                start -> a -> exit }";
    let ran = run_with(text, Registry::default(), Context::new()).await;
    assert_eq!(ran.text("tool.output"), "a\n");
}

#[tokio::test]
async fn backend_receives_hooks_fidelity_and_thread() {
    let ran = backend(
        "tool_hooks.pre=\"check\", fidelity=full, thread_id=t",
        CommandBackend::new(
            "echo $FERRATA_TOOL_HOOK_PRE $FERRATA_FIDELITY $FERRATA_THREAD $FERRATA_NODE_TYPE",
        ),
    )
    .await;
    assert_eq!(ran.text("response.a"), "check full t codergen\n");
}

#[tokio::test]
async fn silent_tool_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let start = async |command: &str| {
        let text = format!(
            "digraph G {{ stall_timeout=10s start exit a [shape=parallelogram, tool_command=\"{command}\"] start -> a -> exit }}"
        );
        let tool = Tool::default().with_directory(directory.path());
        start_at_rest(&text, Registry::default().with("tool", tool)).await
    };
    let (clock, run) = start("echo $$ > leader; sleep 1000").await;
    let leader = content(&path("leader")).await;
    clock.advance(Duration::from_secs(10));
    assert_eq!(failure(run).await, "the node showed no activity within the stall timeout of 10s");
    gone(&leader).await;
    // A command that prints now and then continues, however long it takes.
    let line = "echo $i; echo printed > at$i; until test -e go$i; do sleep 0.01; done";
    let (clock, run) = start(&format!("for i in 1 2 3 4 5; do {line}; done")).await;
    for i in 1..=5 {
        content(&path(&format!("at{i}"))).await;
        // Give the driver time to read the output that is in the pipe.
        tokio::time::sleep(Duration::from_millis(5)).await;
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        clock.advance(Duration::from_secs(6));
        std::fs::write(path(&format!("go{i}")), "").unwrap();
    }
    let context = run.wait().await.unwrap().completed().unwrap();
    assert_eq!(context.get_value("tool.output"), Some(&json!("1\n2\n3\n4\n5\n")));
}
