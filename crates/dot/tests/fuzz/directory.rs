//! Properties for any bytes in the files of a run directory. `fuzz/` includes this file.

use std::path::Path;

use ferrata_core::{Error, ErrorKind};
use ferrata_dot::Pipeline;
use ferrata_dot::compile::Compiler;
use ferrata_dot::run_dir::RunDirectory;

/// The pipeline of the directory: a fork, a gate, and a loop.
pub(crate) const PIPELINE: &str = r#"digraph P {
    start [shape=Mdiamond] exit [shape=Msquare] fork [shape=component] join [shape=tripleoctagon] ask [shape=hexagon]
    start -> a -> fork  fork -> b -> join  fork -> c -> join  join -> ask  ask -> exit [label="Yes"]  ask -> a [label="No"]
}"#;

/// A checkpoint of a run, one of another program, and a manifest.
#[allow(dead_code, reason = "fuzz/ has a corpus of its own")]
pub(crate) const FILES: [&str; 3] = [
    r#"{"schema":1,"run_id":"r-1","pipeline_name":"P","status":"in_progress","seq":7,"timestamp":"2026-01-01T00:00:00Z",
        "current_node":"a","next_nodes":["b","c"],"node_history":[{"node":"a","visit":1,"attempts":1,"outcome":"success"}],
        "goal_gate_status":{},"retry_counters":{"b":1},"fidelity_state":{},"questions":[],
        "context":{"outcome":"success","large":{"artifact":"artifacts/x","bytes":3},"n":1.5},"artifacts":[]}"#,
    r#"{"context":{"x":"y"},"current_node_id":"ask","completed_nodes":["start","a"]}"#,
    r#"{"schema":1,"run_id":"r-1","tenant":"default","pipeline_name":"P","goal":"","start_time":"2026-01-01T00:00:00Z",
        "graph":"0123456789abcdef","labels":{"k":"v"}}"#,
];

/// Reads a directory whose files contain these bytes. Returns how many of them are readable.
pub(crate) fn exercise(folder: &Path, bytes: &[u8]) -> usize {
    for name in ["manifest.json", "checkpoint.json"] {
        std::fs::write(folder.join(name), bytes).expect("the folder must be writable");
    }
    let pipeline = Pipeline::parse(PIPELINE.as_bytes()).expect("a pipeline");
    let manifest = RunDirectory::manifest(folder);
    let restored = RunDirectory::restore(folder, &pipeline, &Compiler::default());
    let told = |error: &Error| {
        assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Invalid), "{error:?}");
        assert!(
            error.kind() == ErrorKind::Invalid || error.message().contains("json"),
            "the file: {error:?}"
        );
    };
    if let Err(error) = &manifest {
        told(error);
    }
    match &restored {
        Err(error) => told(error),
        // A restored run starts at a node of the pipeline.
        Ok(Some(restored)) => {
            let node = restored.node.as_deref();
            assert!(node.is_none_or(|node| pipeline.node(node).is_some()), "{restored:?}");
        }
        Ok(None) => panic!("the file must exist"),
    }
    assert_eq!(
        RunDirectory::restore(folder, &pipeline, &Compiler::default()).ok(),
        restored.as_ref().ok().cloned()
    );
    usize::from(manifest.is_ok()) + usize::from(restored.is_ok())
}
