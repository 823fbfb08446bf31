//! `lint` and `graph` of files.

use crate::support::{Place, expect};

const GOOD: &str = "digraph Release {
  goal = \"ship it\"
  start [shape=Mdiamond]
  exit  [shape=Msquare]
  test  [shape=parallelogram, tool_command=\"true\"]
  fix   [shape=parallelogram, tool_command=\"true\", label=\"Mend \\\"it\\\"\"]
  start -> test
  test -> exit [condition=\"outcome=success\"]
  test -> fix  [condition=\"outcome=fail\"]
  fix -> test
}
";

#[test]
fn a_mistake_is_shown_at_its_place() {
    let place = Place::new();
    place.write("bad.dot", &GOOD.replace("fix -> test", "fix -> tset"));
    place.write("worse.dot", "digraph G { a -- b }");
    place.write("good.dot", GOOD);
    let mut told = String::new();
    for name in ["bad.dot", "worse.dot"] {
        let said = place.call(&["lint", name]);
        assert_eq!(said.code, 3, "{said:?}");
        told.push_str(&said.out);
        told.push_str(&said.err);
        let json = place.call(&["lint", name, "-o", "json"]);
        assert_eq!(json.code, 3);
        told.push_str(&json.out);
    }
    expect("lint.txt", &told);
    let good = place.call(&["lint", "good.dot"]);
    assert_eq!(good.code, 0, "{good:?}");
}

#[test]
fn what_is_no_pipeline_is_refused_quickly() {
    let place = Place::new();
    place.write("long.dot", &"x".repeat(10_000_000));
    place.write("empty.dot", "");
    std::fs::write(place.folder.path().join("binary.dot"), [0xff, 0, 0x1b, b'[', b'3', b'1', b'm', 0xfe])
        .unwrap();
    for name in ["long.dot", "empty.dot", "binary.dot"] {
        let said = place.call(&["lint", name]);
        assert_eq!(said.code, 3, "{name}");
        assert!(said.out.len() < 4_000 && !said.out.contains('\u{1b}'), "{name}: {}", said.out);
    }
    assert_eq!(place.call(&["lint", "nowhere.dot"]).code, 4);
}

#[test]
fn a_pipeline_is_drawn() {
    let place = Place::new();
    place.write("good.dot", GOOD);
    for (format, file) in
        [("dot", "graph.dot.txt"), ("mermaid", "graph.mermaid.txt"), ("svg", "graph.svg.txt")]
    {
        expect(file, &place.ok(&["graph", "good.dot", "--format", format]));
    }
    assert_eq!(place.call(&["graph", "nowhere.dot"]).code, 4);
}

/// The picture has the direction that the pipeline declares.
///
/// Guarantees: CLI-25.
#[test]
fn drawing_follows_pipeline_direction() {
    let place = Place::new();
    for rankdir in ["BT", "LR", "RL"] {
        let loops = "fix -> fix [label=\"once more\"] test -> exit [label=skip] exit [label=\"The end\"]";
        place.write(
            "way.dot",
            &GOOD.replace("fix -> test", &format!("fix -> test {loops} rankdir={rankdir}")),
        );
        let picture = place.ok(&["graph", "way.dot", "--format", "svg"]);
        expect(&format!("graph-{}.svg.txt", rankdir.to_lowercase()), &picture);
        let mermaid = place.ok(&["graph", "way.dot", "--format", "mermaid"]);
        assert!(mermaid.starts_with(&format!("flowchart {rankdir}\n")), "{mermaid}");
        let dot = place.ok(&["graph", "way.dot", "--format", "dot"]);
        assert!(dot.contains(&format!("\n  rankdir={rankdir}\n")), "{dot}");
    }
    // A direction that Graphviz does not know, either.
    place.write("way.dot", &GOOD.replace("fix -> test", "fix -> test rankdir=sideways"));
    place.write("down.dot", GOOD);
    let [way, down] = ["way.dot", "down.dot"].map(|file| place.ok(&["graph", file, "--format", "svg"]));
    assert_eq!(way, down);
}

/// The JSON of the graph contains all attributes, types and conditions.
#[test]
fn graph_json_has_attributes_types_and_conditions() {
    let place = Place::new();
    place.write(
        "all.dot",
        "digraph All { graph [goal=\"ship it\", max_cost=2.5] start [shape=Mdiamond] exit [shape=Msquare] node [timeout=5s] \
         t [shape=parallelogram, tool_command=\"make\", env.MODE=fast] start -> t t -> exit [condition=\"outcome=success\", weight=2] t -> exit }",
    );
    let told = place.json(&["graph", "all.dot"]);
    assert_eq!(told["attributes"], serde_json::json!({"goal": "ship it", "max_cost": "2.5"}));
    let node = &told["nodes"][2];
    assert_eq!((&node["id"], &node["kind"]), (&"t".into(), &"tool".into()), "{node}");
    let said = serde_json::json!({"shape": "parallelogram", "tool_command": "make", "env.MODE": "fast", "timeout": "5s"});
    assert_eq!(node["attributes"], said);
    let edge = &told["edges"][1];
    assert_eq!(
        (&edge["condition"], &edge["attributes"]["weight"]),
        (&"outcome=success".into(), &"2".into()),
        "{edge}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn drawn_run_has_colors_of_node_status() {
    let place = Place::new();
    let service = crate::service::some_runs(&place).await;
    service.runtime.shutdown(std::time::Duration::ZERO).await.unwrap();
    let mut told = String::new();
    for run in ["pay-1", "pay-3"] {
        told.push_str(&place.ok(&["graph", run, "--format", "mermaid"]));
    }
    expect("graph-runs.txt", &told);
}

#[test]
fn a_run_is_named_by_its_directory() {
    let place = Place::new();
    let asking = GOOD.replace("fix   [shape=parallelogram, tool_command=\"true\"", "fix   [shape=hexagon");
    let asking = asking.replace("tool_command=\"true\"", "tool_command=\"test -e mended\"");
    place.write("asks.dot", &asking);
    // No store is named, because the log is in the directory.
    let call = |line: &[&str]| place.call_with(line, "", &[]);
    let run = call(&["run", "asks.dot", "--run-dir", "runs/42", "--progress", "none"]);
    assert_eq!(run.code, 5, "{run:?}");
    let shown = call(&["show", "runs/42"]);
    assert!(shown.out.contains("? fix@1:"), "{shown:?}");
    assert!(shown.out.contains("--store file:runs/42"), "the next command must find the store: {shown:?}");
    let answered = call(&["answer", "runs/42", "test"]);
    assert_eq!(answered.code, 0, "{answered:?}");
    place.write("mended", "");
    let resumed = call(&["resume", "runs/42", "--progress", "none"]);
    assert_eq!(resumed.code, 0, "{resumed:?}");
    let verified = call(&["verify", "runs/42", "asks.dot"]);
    assert_eq!(verified.code, 0, "{verified:?}");
    // A changed pipeline is distinguished from a damaged log.
    place.write("other.dot", &asking.replace("fix -> test", "fix -> exit"));
    let other = call(&["verify", "runs/42", "other.dot"]);
    assert_eq!(other.code, 1, "{other:?}");
    assert!(other.err.contains("another path today"), "{other:?}");
    assert_eq!(call(&["ls"]).out, "", "the default store must be empty");
}
