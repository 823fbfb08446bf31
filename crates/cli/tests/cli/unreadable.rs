//! Unreadable runs: a list gives their number and the cause, and the exit code is not success.

use std::sync::Arc;

use ferrata::{EnvelopeOptions, EnvelopeStore, Keyring, RunKey, Runtime};

use crate::service::pay;
use crate::support::Place;

/// Creates runs that ask, in a store with encrypted records. The file `keys` contains the key.
async fn encrypted(place: &Place, runs: usize) {
    let keys = format!("a = {}\n", "ab".repeat(32));
    std::fs::write(place.folder.path().join("keys"), keys).unwrap();
    let options = EnvelopeOptions::default();
    let options = options.with_keys(Keyring::from_file(place.folder.path().join("keys")).unwrap());
    let store = Arc::new(EnvelopeStore::new(ferrata::connect(&place.url()).unwrap(), options));
    let runtime = Runtime::builder_with(store).build().await.unwrap();
    for number in 0..runs {
        let run = runtime.start(&pay(), ferrata::Context::new()).id(format!("pay-{number}")).await.unwrap();
        run.wait().await.unwrap();
    }
    runtime.shutdown(std::time::Duration::ZERO).await.unwrap();
}

/// Without the keys, `questions` reports unreadable runs and does not exit with 0.
///
/// Guarantees: CLI-8.
#[tokio::test(flavor = "multi_thread")]
async fn questions_without_keys_fail_with_remedy() {
    let place = Place::new();
    encrypted(&place, 3).await;
    let said = place.call(&["questions"]);
    assert_eq!(said.code, 70, "{said:?}");
    assert!(!said.err.contains("no open questions\n"), "{said:?}");
    for part in [
        "cannot read 3 runs; their questions are not listed",
        "pay-1: the record is encrypted with the key `a`",
        "next: export FERRATA_KEYS=FILE",
    ] {
        assert!(said.err.contains(part), "{part} is not in {said:?}");
    }
    let json = place.call(&["questions", "-o", "json"]);
    let error: serde_json::Value = serde_json::from_str(&json.err).unwrap();
    assert_eq!((json.code, json.out.trim(), &error["error"]["kind"]), (70, "[]", &"UNSUPPORTED".into()));
    // Each verb for one run names the remedy, too.
    for line in [&["show", "pay-1"][..], &["questions", "pay-1"], &["logs", "pay-1"], &["tree", "pay-1"]] {
        let said = place.call(line);
        assert!(said.code != 0 && said.err.contains("export FERRATA_KEYS=FILE"), "{line:?}: {said:?}");
    }
    // The list states why it cannot describe the run.
    let listed = place.ok(&["ls"]);
    assert_eq!(listed.matches("cannot be read: the record is encrypted").count(), 3, "{listed}");
    let store = place.url();
    let env = [("FERRATA_STORE", store.as_str()), ("FERRATA_KEYS", "keys")];
    let said = place.call_with(&["questions"], "", &env);
    assert_eq!((said.code, said.out.matches("Pay 120 EUR?").count()), (0, 3), "{said:?}");
}

/// A run with a damaged head appears in every list.
///
/// Guarantees: CLI-8.
#[tokio::test(flavor = "multi_thread")]
async fn damaged_run_fails_listing() {
    let place = Place::new();
    let runtime = Runtime::builder_with(place.open()).build().await.unwrap();
    for id in ["pay-1", "pay-2"] {
        let run = runtime.start(&pay(), ferrata::Context::new()).id(id).await.unwrap();
        run.wait().await.unwrap();
    }
    runtime.shutdown(std::time::Duration::ZERO).await.unwrap();
    let runs = place.folder.path().join("runs");
    let log = walk(&runs).into_iter().find(|path| path.to_string_lossy().contains("pay-2")).unwrap();
    let text = std::fs::read_to_string(&log).unwrap();
    std::fs::write(&log, text.replacen('{', "[", 1)).unwrap();
    let exact = RunKey::try_from("pay-2").unwrap();
    assert!(place.open().head(&exact).await.is_err(), "the head cannot be read");
    for verb in ["ls", "questions", "outbox"] {
        let said = place.call(&[verb]);
        assert!(said.code == 70 && said.err.contains("cannot read at least 1 run"), "{verb}: {said:?}");
        assert!(verb == "outbox" || said.out.contains("pay-1"), "{verb}: {said:?}");
    }
}

fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

/// `-w` is the short form of `--watch`.
#[test]
fn watch_has_short_form() {
    let place = Place::new();
    for verb in ["ls", "questions"] {
        let said = place.call(&[verb, "-w=1ms", "--store", "file:none"]);
        assert!(said.code == 4 && !said.err.contains("unexpected argument"), "{verb}: {said:?}");
        let help = place.ok(&[verb, "--help"]);
        assert!(help.contains("-w, --watch"), "{help}");
    }
}
