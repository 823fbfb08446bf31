//! Tests the chain whose process is killed. Work that the dead process has recorded is not repeated.

use std::path::Path;
use std::process::Command;

use ferrata::store::{Page, RunQuery};
use ferrata_tests::{Space, StoreKind};

use crate::support::{ended, program};

/// Runs the program, which kills its own child process, and compares its output with the log.
pub(crate) async fn is_killed_on(kind: impl Into<StoreKind>) {
    Space::within(kind, async |space| {
        let mut command = Command::new(program("crash_and_resume"));
        command.args(["--store", space.url()]).envs(space.environment()).current_dir(space.folder());
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        let process = |what: &str| -> Vec<&str> {
            let lines = said.lines().filter(|line| line.starts_with("process ") && line.ends_with(what));
            lines.map(|line| line.split([' ', ':']).nth(1).unwrap()).collect()
        };
        let (killed, other) = (process(": `fetch`"), process(": `check`"));
        assert_eq!((killed.len(), other.len()), (1, 1), "{said}");
        assert_ne!(killed, other, "{said}");
        assert!(said.contains("the child ended with signal: 9 (SIGKILL)"), "{said}");
        assert_eq!(process(": stops in `check` and waits for its end"), killed, "{said}");
        let by = [&killed, &killed, &other, &other, &other];
        for (node, by) in ["fetch", "parse", "check", "store", "notify"].iter().zip(by) {
            assert_eq!(&process(&format!(": `{node}`")), by, "{said}");
            assert!(said.contains(&format!("\n  `{node}` by process {}\n", by[0])), "{said}");
        }

        let store = space.open();
        let runs = store.runs(&RunQuery::default(), Page::default()).await.unwrap().items;
        assert_eq!(runs.len(), 1, "{runs:?}");
        let log = ended(&*store, runs[0].run.run.as_str()).await;
        assert!(log.len() == 5 && log.values().all(|times| *times == 1), "{log:?}");
    })
    .await;
}

#[tokio::test]
async fn chain_continues_after_last_recorded_node_on_files() {
    is_killed_on(StoreKind::Files).await;
}

#[test]
fn wrong_usage_has_its_own_exit_code() {
    for args in [&["--store"][..], &["here"], &["--stroe", "file:x"], &["--store", "file:x", "y"]] {
        let output = Command::new(program("crash_and_resume"))
            .args(args)
            .current_dir(Path::new("/"))
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("usage: crash_and_resume"), "{args:?}");
    }
}
