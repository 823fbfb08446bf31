//! The directory of a run: views of the log that are rebuilt after any loss.
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use ferrata_core::ask::Answer;
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{Outcome, RunHandle, Runtime};
use ferrata_core::state::Context;
use ferrata_core::store::{MemoryStore, Page};
use ferrata_dot::Pipeline;
use ferrata_dot::compile::Compiler;
use ferrata_dot::handler::{Codergen, CommandBackend, Registry};
use ferrata_dot::outcome::{StageOutcome, Status};
use ferrata_dot::run_dir::{Manifest, RunDirectory, Snapshot};
use ferrata_dot::transform::Transforms;
use serde_json::Value as Json;

const SOURCE: &str = r#"digraph Release {
    goal = "ship it"
    start [shape=Mdiamond]
    exit [shape=Msquare]
    plan [prompt="Plan to $goal", fidelity=full]
    flaky [shape=parallelogram, max_retries=1, tool_command="echo try $FERRATA_ATTEMPT; echo oops >&2; test $FERRATA_ATTEMPT = 2 || exit 75"]
    p [shape=component]
    a [shape=parallelogram, tool_command="echo from a"]
    b [shape=parallelogram, tool_command="echo from b"]
    f [shape=tripleoctagon]
    big [shape=parallelogram, goal_gate=true, retry_target=plan, tool_command="head -c 60000 /dev/zero | tr '\\0' x; head -c 60000 /dev/zero | tr '\\0' y >&2"]
    ask [shape=hexagon, label="Ship?"]
    start -> plan -> flaky -> p
    p -> a -> f
    p -> b -> f
    f -> big -> ask
    ask -> exit [label="[Y] Yes"]
    ask -> plan [label="[N] No"]
}
"#;

struct Ready {
    folder: tempfile::TempDir,
    pipeline: Arc<Pipeline>,
    runtime: Runtime,
    graph: ferrata_core::graph::Graph<Context>,
}

async fn ready(source: &str, backend: &str) -> Ready {
    let folder = tempfile::tempdir().unwrap();
    let mut pipeline = Pipeline::parse(source.as_bytes()).unwrap();
    Transforms::default().apply(&mut pipeline).unwrap();
    let pipeline = Arc::new(pipeline);
    let directory = RunDirectory::new(folder.path(), Arc::clone(&pipeline)).unwrap();
    let backend = CommandBackend::new(backend).with_run_directory(folder.path());
    let registry = directory.record(Registry::default().with("codergen", Codergen::new(backend)));
    let graph = Compiler::new(registry).compile(&pipeline).unwrap();
    let runtime = Runtime::builder(MemoryStore::new()).build().await.unwrap();
    Ready { folder, pipeline, runtime, graph }
}

impl Ready {
    fn directory(&self) -> RunDirectory {
        RunDirectory::new(self.folder.path(), Arc::clone(&self.pipeline)).unwrap()
    }

    async fn start(&self) -> RunHandle<Context> {
        let mut input = Context::new();
        input.set("who", "ana").unwrap();
        self.runtime.start(&self.graph, input).id("r1").label("team", "press").await.unwrap()
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(name))
            .unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    fn snapshot(&self) -> Snapshot {
        serde_json::from_str(&self.read("checkpoint.json")).unwrap()
    }
}

/// Every file below a directory with its content.
fn tree(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut left = vec![root.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                left.push(path);
            } else {
                let name = path.strip_prefix(root).unwrap().display().to_string();
                files.insert(name, std::fs::read(path).unwrap());
            }
        }
    }
    files
}

fn clear(root: &Path) {
    for entry in std::fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            std::fs::remove_dir_all(path).unwrap()
        } else {
            std::fs::remove_file(path).unwrap()
        }
    }
}

/// Guarantees: PIPELINE-10.
#[tokio::test]
async fn run_directory_views_match_log_and_are_recreated() {
    let ready = ready(SOURCE, "sed 's/^/did: /'; echo").await;
    let mut directory = ready.directory();
    directory.keep_source(SOURCE.as_bytes()).unwrap();
    let run = ready.start().await;
    let Outcome::Interrupted(questions) = run.wait().await.unwrap() else { panic!("the gate must ask") };
    directory.refresh(&ready.runtime, run.run()).await.unwrap();

    let waiting = ready.snapshot();
    assert_eq!((waiting.run_id.as_str(), waiting.pipeline_name.as_str()), ("r1", "Release"));
    assert_eq!(waiting.status, RunStatus::Interrupted);
    assert_eq!(waiting.current_node.as_deref(), Some("big"));
    assert_eq!(waiting.next_nodes, ["ask"]);
    assert_eq!(waiting.questions, [questions[0].id.as_str()]);
    assert_eq!(waiting.goal_gate_status["big"], "success");
    assert_eq!(waiting.context["who"], "ana");
    assert_eq!(waiting.context["graph.goal"], "ship it");
    assert_eq!(waiting.fidelity_state["default"], "compact");
    assert_eq!(waiting.fidelity_state["fidelity"]["mode"], "full");
    assert_eq!(waiting.fidelity_state["stage.plan"]["outcome"], "success");
    let history: Vec<String> =
        waiting.node_history.iter().map(|visited| format!("{}:{}", visited.node, visited.outcome)).collect();
    let [begin @ .., a, b, f, big] = history.as_slice() else { panic!("{history:?}") };
    assert_eq!(begin, ["start:success", "plan:success", "flaky:success", "p:success"]);
    let mut branches = [a.as_str(), b];
    branches.sort_unstable();
    assert_eq!(
        (branches, f.as_str(), big.as_str()),
        (["a:success", "b:success"], "f:success", "big:success")
    );
    assert_eq!(waiting.node_history[2].attempts, 2);

    assert_eq!(ready.read("pipeline.dot"), SOURCE);
    assert_eq!(ready.read("plan/1.1/prompt.md"), "Plan to ship it");
    assert_eq!(ready.read("plan/1.1/response.md"), "did: Plan to ship it\n");
    assert_eq!(ready.read("flaky/1.1/output.txt"), "try 1\n", "the output of an attempt that is retried");
    assert_eq!(ready.read("flaky/1.2/output.txt"), "try 2\n");
    assert_eq!(ready.read("flaky/1.2/errors.txt"), "oops\n");
    assert_eq!(ready.read("a/1.1/output.txt"), "from a\n", "the output of a branch's own attempt");
    assert_eq!(ready.read("b/1.1/output.txt"), "from b\n");
    let status = |path: &str| StageOutcome::from_json(ready.read(path).as_bytes()).unwrap();
    assert_eq!(status("flaky/1.1/status.json").status, Status::Retry);
    assert_eq!(status("flaky/1.2/status.json").status, Status::Success);
    assert_eq!(status("plan/1.1/status.json").context_updates["last_stage"], "plan");
    let manifest: Manifest = serde_json::from_str(&ready.read("manifest.json")).unwrap();
    assert_eq!((manifest.goal.as_str(), manifest.pipeline_name.as_str()), ("ship it", "Release"));

    // The run continues, first with the same view and then without one.
    ready.runtime.respond(run.run(), "ask", Answer::accept("Y").unwrap()).by("bob").await.unwrap();
    let run = ready.runtime.resume(&ready.graph, "r1").await.unwrap();
    assert!(matches!(run.wait().await.unwrap(), Outcome::Completed(_)));
    directory.refresh(&ready.runtime, run.run()).await.unwrap();
    assert_eq!(ready.snapshot().status, RunStatus::Completed);
    let head = ready.runtime.head(run.run()).await.unwrap().unwrap();
    assert_eq!(ready.snapshot().seq, head.seq.get());
    let mut complete = tree(ready.folder.path());
    clear(ready.folder.path());
    let mut again = ready.directory();
    again.keep_source(SOURCE.as_bytes()).unwrap();
    again.refresh(&ready.runtime, run.run()).await.unwrap();
    // The log contains the reason of a retry, not the output of the attempt.
    assert!(
        complete.remove("flaky/1.1/output.txt").is_some()
            && complete.remove("flaky/1.1/errors.txt").is_some()
    );
    // The working directory of an attempt is no view of the log.
    assert!(complete.remove("plan/1.1/stage/prompt.md").is_some());
    let rebuilt = tree(ready.folder.path());
    let names = |files: &BTreeMap<String, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&rebuilt), names(&complete));
    for (name, content) in &complete {
        assert!(rebuilt[name] == *content, "{name} differs");
    }
}

/// Guarantees: PIPELINE-10.
#[tokio::test]
async fn next_process_repairs_stale_or_damaged_views() {
    let ready = ready(SOURCE, "cat").await;
    let run = ready.start().await;
    run.wait().await.unwrap();
    ready.directory().refresh(&ready.runtime, run.run()).await.unwrap();
    let right = tree(ready.folder.path());
    let path = |name: &str| ready.folder.path().join(name);
    let events = ready.read("events.jsonl");
    std::fs::write(path("events.jsonl"), &events[..events.len() - 20]).unwrap();
    std::fs::write(path("checkpoint.json"), "{").unwrap();
    std::fs::write(path("plan/1.1/response.md"), "forged").unwrap();
    std::fs::remove_dir_all(path("b")).unwrap();
    ready.directory().refresh(&ready.runtime, run.run()).await.unwrap();
    assert!(tree(ready.folder.path()) == right);
}

/// Guarantees: PIPELINE-10.
#[tokio::test]
async fn events_file_has_one_line_per_record() {
    let ready = ready(SOURCE, "cat").await;
    let mut directory = ready.directory();
    let run = ready.start().await;
    // Refresh the view as often as possible while the run is active.
    let mut end = std::pin::pin!(run.wait());
    loop {
        tokio::select! {
            biased;
            ended = &mut end => break drop(ended.unwrap()),
            refreshed = directory.refresh(&ready.runtime, run.run()) => refreshed.unwrap(),
        }
        // A memory store is always ready, so yield to the run.
        tokio::task::yield_now().await;
    }
    directory.refresh(&ready.runtime, run.run()).await.unwrap();
    let lines = ready.read("events.jsonl");
    let events: Vec<Json> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let records = ready.runtime.history(run.run(), Page::first(Page::MAX)).await.unwrap().items;
    let told: std::collections::BTreeSet<u64> =
        events.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(told.len(), records.len(), "each record must have an event");
    assert!(events.is_sorted_by_key(|event| event["seq"].as_u64()));
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    let plain: Vec<&str> =
        kinds.iter().copied().filter(|kind| *kind != "node.started" && *kind != "edge.selected").collect();
    assert_eq!(plain[..4], ["run.started", "node.finished", "node.finished", "node.retrying"]);
    assert_eq!(kinds[kinds.len() - 2..], ["question.asked", "run.waiting"]);
    let retrying = events.iter().find(|event| event["type"] == "node.retrying").unwrap();
    assert_eq!((&retrying["node"], &retrying["attempt"]), (&Json::from("flaky"), &Json::from(1)));
    assert!(retrying["reason"].as_str().unwrap().contains("oops"), "{retrying}");
    // A view that was written step by step equals one that is written at once.
    std::fs::remove_file(ready.folder.path().join("events.jsonl")).unwrap();
    ready.directory().refresh(&ready.runtime, run.run()).await.unwrap();
    assert_eq!(ready.read("events.jsonl"), lines);
}

#[tokio::test]
async fn large_value_is_stored_once_by_hash() {
    let source = "digraph Big { start [shape=Mdiamond] exit [shape=Msquare] a b start -> a -> b -> exit }";
    let folder = tempfile::tempdir().unwrap();
    let pipeline = Arc::new(Pipeline::parse(source.as_bytes()).unwrap());
    let backend = CommandBackend::new("head -c 150000 /dev/zero | tr '\\0' z").with_output_limit(200_000);
    let registry = Registry::default().with("codergen", Codergen::new(backend));
    let graph = Compiler::new(registry).compile(&pipeline).unwrap();
    let runtime = Runtime::builder(MemoryStore::new()).build().await.unwrap();
    let run = runtime.start(&graph, Context::new()).id("r1").await.unwrap();
    assert!(matches!(run.wait().await.unwrap(), Outcome::Completed(_)));
    let mut directory = RunDirectory::new(folder.path(), pipeline).unwrap();
    directory.refresh(&runtime, run.run()).await.unwrap();
    let files = tree(folder.path());
    let large: Vec<&String> = files.keys().filter(|name| name.starts_with("artifacts/")).collect();
    let [only] = large.as_slice() else { panic!("{large:?}") };
    assert_eq!(files[*only], "z".repeat(150_000).into_bytes());
    assert!(only.ends_with(blake3::hash(&files[*only]).to_hex().as_str()), "{only}");
    let snapshot: Snapshot = serde_json::from_slice(&files["checkpoint.json"]).unwrap();
    assert_eq!(snapshot.context["response.a"]["artifact"], only.as_str());
    assert_eq!(snapshot.context["response.b"]["bytes"], 150_000);
    let listed: Vec<(&str, &str)> = snapshot
        .artifacts
        .iter()
        .filter(|file| file.name == "response.md")
        .map(|file| (&*file.node, &*file.path))
        .collect();
    assert_eq!(listed, [("a", only.as_str()), ("b", only.as_str())]);
    let small = files.iter().filter(|(name, _)| !name.starts_with("artifacts/"));
    assert!(small.clone().all(|(_, content)| content.len() < 20_000), "no other file may be large");
}

#[tokio::test]
async fn output_of_run_failing_command_is_preserved() {
    let source = "digraph Fails { start [shape=Mdiamond] exit [shape=Msquare] \
        t [shape=parallelogram, tool_command=\"echo here; echo why >&2; exit 3\"] start -> t -> exit }";
    let ready = ready(source, "cat").await;
    let run = ready.start().await;
    assert!(matches!(run.wait().await.unwrap(), Outcome::Failed { .. }));
    ready.directory().refresh(&ready.runtime, run.run()).await.unwrap();
    assert_eq!(
        (ready.read("t/1.1/output.txt"), ready.read("t/1.1/errors.txt")),
        ("here\n".into(), "why\n".into())
    );
    let outcome = StageOutcome::from_json(ready.read("t/1.1/status.json").as_bytes()).unwrap();
    assert_eq!(
        (outcome.status, &*outcome.failure_reason),
        (Status::Fail, "the command ended with status 3: why")
    );
    let snapshot = ready.snapshot();
    assert_eq!(snapshot.status, RunStatus::Failed);
    assert!(snapshot.failure_reason.unwrap().contains("why"));
}

/// Each attempt's directory contains its own output: the output of `a` is not in that of `b`, and the first plan is not in that of the second.
///
/// Guarantees: PIPELINE-11.
#[tokio::test]
async fn silent_attempt_shows_no_output_of_others() {
    let source = r#"digraph Silent { start [shape=Mdiamond] exit [shape=Msquare] node [shape=parallelogram]
        plan [shape=box, prompt="plan"] a [tool_command="echo from a; echo of a >&2"]
        b [tool_command="echo from b", tool_hooks.pre="false"] c [tool_command="echo from a; echo of a >&2"]
        start -> plan -> a -> b -> c -> plan plan -> exit [condition="outcome=fail"] }"#;
    let ready = ready(source, "test $FERRATA_VISIT = 1 || exit 1; echo the first").await;
    let run = ready.start().await;
    assert!(matches!(run.wait().await.unwrap(), Outcome::Completed(_)));
    ready.directory().refresh(&ready.runtime, run.run()).await.unwrap();
    let files = tree(ready.folder.path());
    for name in ["b/1.1/output.txt", "b/1.1/errors.txt", "plan/2.1/response.md"] {
        assert_eq!(files.get(name).map(|text| String::from_utf8_lossy(text)), None, "{name}");
    }
    // Another attempt's directory gets the output once that attempt has printed the same.
    for name in ["a/1.1/output.txt", "c/1.1/output.txt"] {
        assert_eq!(files[name], b"from a\n", "{name}");
    }
    assert_eq!(files["c/1.1/errors.txt"], b"of a\n");
    assert_eq!(files["plan/1.1/response.md"], b"the first\n");
}

/// The checkpoint contains start, end and replans of each node. The events contain starts, edges and branches.
///
/// Guarantees: PIPELINE-10.
#[tokio::test]
async fn views_tell_times_edges_and_branches() {
    let source = r#"digraph Times { start [shape=Mdiamond] exit [shape=Msquare] node [shape=parallelogram]
        a [tool_command="test $FERRATA_VISIT = 2"] p [shape=component] b [tool_command="exit 3"] c [tool_command=true] f [shape=tripleoctagon]
        start -> a -> p [label="on"] a -> start2 [condition="outcome=fail", replan=true] start2 [tool_command=true] start2 -> a
        p -> b -> f p -> c -> f -> exit }"#;
    let ready = ready(source, "cat").await;
    let run = ready.start().await;
    assert!(matches!(run.wait().await.unwrap(), Outcome::Completed(_)));
    ready.directory().refresh(&ready.runtime, run.run()).await.unwrap();
    let snapshot = ready.snapshot();
    assert!(snapshot.node_history.iter().all(|one| one.started <= one.ended && one.ended.ends_with('Z')));
    let failed = snapshot.node_history.iter().find(|one| one.node == "b").unwrap();
    assert_eq!(failed.reason, "the command ended with status 3");
    let replans: Vec<String> = snapshot
        .replans
        .iter()
        .map(|one| format!("{}@{} {}: {}", one.from, one.visit, one.to, one.reason))
        .collect();
    assert_eq!(replans, ["a@1 start2: `a`: the command ended with status 1"]);
    let events: Vec<Json> =
        ready.read("events.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |kind: &str| events.iter().filter(|event| event["type"] == kind).collect::<Vec<_>>();
    assert_eq!(of("node.started").len(), of("node.finished").len() + of("node.failed").len());
    let edges: Vec<String> = of("edge.selected")
        .iter()
        .map(|edge| {
            format!("{} {} {} {}", edge["from"], edge["to"], edge["reason"], edge["label"]).replace('"', "")
        })
        .collect();
    for edge in ["a start2 condition null", "start2 a weight null", "a p weight on", "f exit weight null"] {
        assert!(edges.iter().any(|found| found == edge), "{edge}: {edges:?}");
    }
    assert_eq!(of("parallel.started")[0]["branches"], serde_json::json!(["b", "c"]));
    let branches: Vec<String> = of("parallel.branch_finished")
        .iter()
        .map(|one| format!("{} {}", one["branch"], one["outcome"]).replace('"', ""))
        .collect();
    assert_eq!(branches, ["b fail", "c success"]);
    assert_eq!((of("parallel.finished").len(), &of("parallel.finished")[0]["node"]), (1, &Json::from("f")));
}
