//! The directory of a run: its owner run, its permissions, and its content after a purge.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::json;

use crate::support::{Place, history};

/// A directory with a run that stopped after `a`, and a fork of it in the same store.
fn forked() -> Place {
    let place = Place::new();
    place.pipeline(
        "S",
        r#"a [tool_command="echo of a"] b [tool_command="echo b >> log"] c [shape=box, prompt="a secret plan"] start -> a -> b -> c -> exit"#,
    );
    let run = ["run", "S.dot", "--run-dir", "t", "--id", "orig", "--until", "a", "--backend", "echo answer"];
    place.call(&run).ends(0);
    place.call(&["fork", "t", "a@1", "--id", "child"]).ends(0);
    place
}

fn manifest(place: &Place) -> serde_json::Value {
    serde_json::from_str(&place.read("t/manifest.json")).unwrap()
}

/// If the run of a directory is damaged, `resume` of the directory does not continue its fork instead.
///
/// Guarantees: PIPELINE-12.
#[test]
fn directory_belongs_to_run_in_manifest() {
    let place = forked();
    let before = manifest(&place);
    let log = place.path("t/.ferrata/runs/default/orig.jsonl");
    let mut bytes = std::fs::read(&log).unwrap();
    let at = bytes.len() - 30;
    bytes[at] ^= 1;
    std::fs::write(&log, &bytes).unwrap();
    let said = place.call(&["resume", "t", "--backend", "x"]).ends(70);
    assert!(said.err.contains("orig") && said.err.contains("damaged"), "{}", said.err);
    assert_eq!(place.read("log"), "", "the fork must not run");
    // The same holds without a manifest, because the directory belongs to the source.
    std::fs::rename(place.path("t/manifest.json"), place.path("kept")).unwrap();
    let said = place.call(&["resume", "t", "--backend", "x"]).ends(2);
    assert!(said.err.contains("child") && said.err.contains("--id"), "{}", said.err);
    std::fs::rename(place.path("kept"), place.path("t/manifest.json")).unwrap();
    let said = place.call(&["resume", "t", "--id", "child", "--backend", "echo answer"]).ends(0);
    assert_eq!(said.json()["run"], "child");
    assert_eq!(place.read("log"), "b\n");
    assert_eq!(manifest(&place), before, "the files about the run itself must stay");
    // The fork starts after `a`.
    assert_eq!(history(&place.path("t/.runs/child")), ["b", "c", "exit"]);
    place.call(&["resume", "S.dot", "--id", "child"]).ends(2);
}

/// `resume` of a directory continues its own run, even if the store contains forks.
#[test]
fn directory_run_resumes_next_to_its_forks() {
    let place = forked();
    assert_eq!(place.call(&["resume", "t", "--backend", "echo answer"]).ends(0).json()["run"], "orig");
    assert_eq!(history(&place.path("t")), ["start", "a", "b", "c", "exit"]);
}

/// Files of a run are readable by their owner only.
///
/// Guarantees: PIPELINE-12, SECURITY-9.
#[test]
fn nobody_else_may_read_a_run() {
    let place = forked();
    let mode = |path: &Path| std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&place.path("t")), 0o700);
    for name in [
        "manifest.json",
        "checkpoint.json",
        "events.jsonl",
        "pipeline.dot",
        "a/1.1/output.txt",
        "a/1.1/status.json",
    ] {
        assert_eq!(mode(&place.path(&format!("t/{name}"))), 0o600, "{name}");
    }
}

/// `purge` removes prompts, answers and outputs from the directory.
///
/// Guarantees: PIPELINE-14.
#[test]
fn purge_removes_own_files_and_spares_others() {
    let place = forked();
    place.call(&["resume", "t", "--backend", "echo the answer"]).ends(0);
    assert!(place.read("t/c/1.1/prompt.md").contains("secret"));
    place.write("t/notes.txt", "mine");
    place.write("t/a/mine", "mine");
    place.write("t/artifacts/mine", "mine");
    place.write(&format!("t/artifacts/{}", "0a".repeat(32)), "what a node left");
    place.call(&["purge", "child", "--store", "file:t/.ferrata", "--yes", "--force"]).ends(0);
    assert!(place.path("t/manifest.json").exists());
    place.call(&["purge", "t", "--yes"]).ends(0);
    let mut left = Vec::new();
    let mut open = vec![place.path("t")];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { open.push(path) } else { left.push(path) }
        }
    }
    left.sort();
    assert_eq!(left, [place.path("t/a/mine"), place.path("t/artifacts/mine"), place.path("t/notes.txt")]);
    // A run in the usual directory that is addressed by its id, and a directory with nothing else in it.
    place.pipeline("P", r#"a [tool_command="echo out"] start -> a -> exit"#);
    place.call(&["run", "P.dot", "--id", "p"]).ends(0);
    assert!(place.path(".ferrata/runs/p/a/1.1/output.txt").exists());
    place.call(&["purge", "p", "--yes"]).ends(0);
    assert!(!place.path(".ferrata/runs/p").exists());
    place.call(&["run", "P.dot", "--run-dir", "q"]).ends(0);
    place.call(&["purge", "q", "--yes"]).ends(0);
    assert!(!place.path("q").exists());
}

/// A purge keeps the store if it contains unreadable runs, which a listing omits.
///
/// Guarantees: CLI-20.
#[test]
fn directory_purge_spares_unreadable_log_of_another_run() {
    let place = forked();
    let log = place.path("t/.ferrata/runs/default/child.jsonl");
    let whole = std::fs::read(&log).unwrap();
    let mut damaged = whole.clone();
    let at = damaged.len() - 30;
    damaged[at] ^= 1;
    std::fs::write(&log, &damaged).unwrap();
    place.call(&["purge", "t", "--yes", "--force"]).ends(0);
    assert!(!place.path("t/.ferrata/runs/default/orig.jsonl").exists());
    assert!(std::fs::read(&log).is_ok_and(|left| left == damaged), "this run was not named");
    // Once the run is readable again, it continues.
    std::fs::write(&log, &whole).unwrap();
    place.call(&["resume", "t", "--id", "child", "--backend", "echo answer"]).ends(0);
}

/// If the run of a directory is gone, no other run whose id has this prefix is cancelled or purged.
///
/// Guarantees: CLI-7.
#[test]
fn directory_never_selects_run_by_id_prefix() {
    let place = forked();
    place.call(&["fork", "t", "a@1", "--id", "orig-2"]).ends(0);
    let store = ["--store", "file:t/.ferrata"];
    let kept = place.read("t/manifest.json");
    place.call(&[&["purge", "orig", "--yes", "--force"], &store[..]].concat()).ends(0);
    place.write("t/manifest.json", &kept);
    for line in [&["show", "t"][..], &["cancel", "t", "--yes"], &["purge", "t", "--yes", "--force"]] {
        let said = place.call(line).ends(4);
        assert!(said.err.contains("its full id is required here"), "{line:?}: {said:?}");
    }
    place.call(&[&["show", "orig-2"], &store[..]].concat()).ends(0);
    place.call(&["resume", "t", "--id", "orig-2", "--backend", "echo answer"]).ends(0);
}

/// A killed process leaves its heartbeat file. The purge of the last run removes this file with the folders of the store.
///
/// Guarantees: CLI-20.
#[test]
fn purge_of_last_run_removes_store_folders() {
    let place = Place::new();
    place.pipeline("P", r#"a [tool_command="echo out"] start -> a -> exit"#);
    place.call(&["run", "P.dot", "--run-dir", "q"]).ends(0);
    let dead = "q/.ferrata/executors/019a6f2e-0000-7000-8000-000000000000";
    place.write(dead, "");
    let held = std::fs::File::open(place.path(dead)).unwrap();
    held.lock().unwrap();
    place.call(&["purge", "q", "--yes"]).ends(0);
    assert!(
        place.path("q/.ferrata/ferrata.json").exists(),
        "a process is about to start a run in this directory"
    );
    drop(held);
    place.call(&["run", "P.dot", "--run-dir", "q"]).ends(0);
    place.call(&["purge", "q", "--yes"]).ends(0);
    assert!(!place.path("q").exists());
}

#[test]
fn prompt_files_and_variables_survive_resume() {
    let place = Place::new();
    place.write("pipelines/prompts/do.md", "Do $what with $care.\n");
    place.write(
        "pipelines/V.dot",
        r#"digraph V { start [shape=Mdiamond] exit [shape=Msquare] node [default_fidelity=full] a [prompt="@prompts/do.md"] b [prompt="@prompts/do.md"]
           start -> a -> b -> exit }"#,
    );
    let run = [
        "run",
        "pipelines/V.dot",
        "--run-dir",
        "d",
        "--var",
        "what=it",
        "--until",
        "a",
        "--backend",
        "cat > $FERRATA_NODE; echo done",
    ];
    place.call(&run).ends(0);
    assert!(place.read("a").ends_with("Do it with $care.\n"), "{}", place.read("a"));
    place.call(&["resume", "d", "--backend", "cat > $FERRATA_NODE; echo done"]).ends(0);
    assert!(place.read("b").ends_with("Do it with $care.\n"), "{}", place.read("b"));
    place.call(&["run", "pipelines/V.dot", "--var", "what"]).ends(2);
    std::fs::remove_file(place.path("pipelines/prompts/do.md")).unwrap();
    for line in [["run", "pipelines/V.dot"], ["lint", "pipelines/V.dot"]] {
        let said = place.call(&line).ends(3);
        assert!(format!("{}{}", said.out, said.err).contains("prompts/do.md"), "{said:?}");
    }
    // `lint` reports what `run` refuses.
    place.pipeline("T", "a [tool_command=\"\"] start -> a -> exit");
    let told = place.call(&["lint", "T.dot", "-o", "json"]).ends(3).json();
    assert_eq!((&told[0]["rule"], &told[0]["node"]), (&json!("runs"), &json!("a")));
}

/// After a damaged last record, the records before it stay readable, and the suggested commands work.
///
/// Guarantees: PIPELINE-13.
#[test]
fn records_before_damage_can_be_read_and_forked() {
    let place = forked();
    let sound = place.call(&["state", "t", "--at", "a@1"]).ends(0).out;
    let log = place.path("t/.ferrata/runs/default/orig.jsonl");
    let whole = std::fs::read(&log).unwrap();
    for end in [30, 200] {
        let mut bytes = whole.clone();
        let at = bytes.len() - end;
        bytes[at] ^= 1;
        std::fs::write(&log, &bytes).unwrap();
        let last = if end == 30 { "a@1" } else { "start@1" };
        let state = place.call(&["state", "t", "--at", last]).ends(0);
        assert!(state.err.contains("damaged at record"), "{}", state.err);
        assert!(end != 30 || state.out == sound, "{}", state.out);
        assert!(place.call(&["show", "t", "--at", last]).ends(0).out.contains("start@1"));
        assert!(place.call(&["history", "t"]).ends(0).out.contains("start@1"));
        assert!(place.call(&["logs", "t"]).ends(0).out.contains("`start@1`"));
        assert!(place.call(&["export", "t"]).ends(0).out.contains("\"seq\":1"));
        let id = format!("mended-{end}");
        place.call(&["fork", "t", last, "--id", &id, "--yes"]).ends(0);
        assert_eq!(std::fs::read(&log).unwrap(), bytes, "the log must not be repaired in place");
        place.call(&["resume", "t", "--id", &id, "--backend", "echo answer"]).ends(0);
        place.call(&["verify", "t"]).ends(70);
        place.call(&["cancel", "orig", "--store", "file:t/.ferrata", "--yes"]).ends(70);
    }
    assert_eq!(place.read("log"), "b\nb\n");
    // If no record is readable, it is an error.
    std::fs::write(&log, "x").unwrap();
    place.call(&["show", "t"]).ends(70);
}

/// A file that a node leaves is an artifact, known to later nodes and in the checkpoint.
///
/// Guarantees: PIPELINE-16.
#[test]
fn node_files_are_stored_and_visible_to_successors() {
    let place = Place::new();
    place.write("outside", "secret");
    place.pipeline(
        "Files",
        r#"a [tool_command="d=$FERRATA_STAGE_DIR/artifacts; mkdir $d; echo first > $d/report.md; echo no > $d/.hidden; ln -s $PWD/outside $d/link; mkfifo $d/pipe"]
           t [shape=box, prompt=x] b [tool_command="cat $FERRATA_ARTIFACT_report_md > seen; env | grep -c FERRATA_ARTIFACT_ >> seen"] start -> a -> t -> b -> exit"#,
    );
    let backend = "mkdir $FERRATA_STAGE_DIR/artifacts; cp $FERRATA_ARTIFACT_report_md $FERRATA_STAGE_DIR/artifacts/copy.txt; echo answer";
    place.call(&["run", "Files.dot", "--run-dir", "d", "--backend", backend]).ends(0);
    assert_eq!(place.read("seen"), "first\n2\n");
    let told: serde_json::Value = serde_json::from_str(&place.read("d/checkpoint.json")).unwrap();
    let listed = told["artifacts"].as_array().unwrap().iter();
    let left: Vec<&serde_json::Value> =
        listed.filter(|one| one["path"].as_str().unwrap().starts_with("artifacts/")).collect();
    let names: Vec<_> = left.iter().map(|one| (&one["node"], &one["name"], &one["bytes"])).collect();
    assert_eq!(
        names,
        [(&json!("a"), &json!("report.md"), &json!(6)), (&json!("t"), &json!("copy.txt"), &json!(6))]
    );
    assert_eq!(left[0]["path"], left[1]["path"], "equal contents must be stored once");
    assert_eq!(place.read(&format!("d/{}", left[0]["path"].as_str().unwrap())), "first\n");
    let status = place.read("d/a/1.1/status.json");
    assert!(
        status.contains("not stored as artifacts: `.hidden`, `link`: ") && status.contains("`pipe`: "),
        "{status}"
    );
    // The log contains the artifacts as well, so that the command shows their paths.
    let shown = place.call(&["show", "d"]).ends(0).out;
    let path = left[0]["path"].as_str().unwrap();
    assert!(shown.contains("ARTIFACT") && shown.contains(path), "{shown}");
    let noted = place.call(&["show", "d", "-o", "json"]).ends(0).json()["checkpoint"]["artifacts"].take();
    let hash = format!("blake3:{}", path.rsplit('/').next().unwrap());
    assert_eq!(noted["t"], json!([{"name": "copy.txt", "reference": path, "bytes": 6, "hash": hash}]));
    place.call(&["purge", "d", "--yes"]).ends(0);
    assert!(!place.path("d").exists());
}

/// In a fork, paths of the source's artifacts are valid.
///
/// Guarantees: PIPELINE-16.
#[test]
fn fork_finds_node_files_of_source_run() {
    let place = Place::new();
    place.pipeline(
        "Left",
        r#"a [tool_command="d=$FERRATA_STAGE_DIR/artifacts; mkdir $d; echo first > $d/report.md"]
           b [tool_command="cat $FERRATA_ARTIFACT_report_md >> seen"] start -> a -> b -> exit"#,
    );
    place.call(&["run", "Left.dot", "--run-dir", "t", "--id", "orig", "--until", "a"]).ends(0);
    place.call(&["fork", "t", "a@1", "--id", "child"]).ends(0);
    place.call(&["fork", "child", "--id", "grandchild", "--store", "file:t/.ferrata"]).ends(0);
    place.call(&["resume", "t", "--id", "grandchild"]).ends(0);
    place.call(&["resume", "t", "--id", "child"]).ends(0);
    assert_eq!(place.read("seen"), "first\nfirst\n");
    // The fork has its own copies, so the source may be purged.
    let mut kept = std::fs::read_dir(place.path("t/.runs/child/artifacts")).unwrap();
    assert_eq!(std::fs::read_to_string(kept.next().unwrap().unwrap().path()).unwrap(), "first\n");
}

/// Incomplete files of a killed attempt are not artifacts of the next attempt.
///
/// Guarantees: PIPELINE-16.
#[test]
fn interrupted_attempt_files_are_not_attributed_to_next() {
    let place = Place::new();
    place.pipeline(
        "Cut",
        r#"a [tool_command=true] b [tool_command="d=$FERRATA_STAGE_DIR/artifacts; mkdir $d; echo whole > $d/whole"]
           c [tool_command="env | grep -o FERRATA_ARTIFACT_[a-z]* > seen"] start -> a -> b -> c -> exit"#,
    );
    place.call(&["run", "Cut.dot", "--run-dir", "d", "--until", "a"]).ends(0);
    place.write("d/b/1.1/stage/artifacts/part", "cut o");
    place.call(&["resume", "d"]).ends(0);
    assert_eq!(place.read("seen"), "FERRATA_ARTIFACT_whole\n");
}
