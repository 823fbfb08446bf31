//! Runs whose records are encrypted.

use std::path::Path;

use crate::support::Place;

const PIPELINE: &str = r#"digraph p {
    start [shape=Mdiamond]; exit [shape=Msquare];
    hello [shape=parallelogram, tool_command="echo the patient is Ann"];
    start -> hello -> exit
}"#;

fn is_in_files(folder: &Path, text: &[u8]) -> bool {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).any(|path| match path.is_dir() {
        true => is_in_files(&path, text),
        false => std::fs::read(&path).unwrap().windows(text.len()).any(|part| part == text),
    })
}

#[test]
fn the_command_finds_runs_by_labels_that_are_encrypted() {
    let place = Place::new();
    let folder = place.folder.path();
    std::fs::write(folder.join("p.dot"), PIPELINE).unwrap();
    std::fs::write(folder.join("labels"), format!("{}\n", "ab".repeat(32))).unwrap();
    std::fs::write(folder.join("wrong"), "s3cret\n").unwrap();
    let url = place.url();
    let call = |key: &str, line: &[&str]| {
        place.call_with(line, "", &[("FERRATA_STORE", url.as_str()), ("FERRATA_LABEL_KEY", key)])
    };
    let ran = call("labels", &["run", "p.dot", "--id", "r", "--label", "patient=Ann Fowler"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(!is_in_files(&folder.join("runs"), b"Fowler"));
    let listed = |key: &str| call(key, &["ls", "--label", "patient=Ann Fowler", "-o", "ids"]);
    assert_eq!(listed("labels").out, "r\n");
    assert_eq!(listed("").out, "");
    assert!(call("labels", &["show", "r"]).out.contains("patient=Ann Fowler"));
    let unread = call("", &["show", "r"]);
    assert!(unread.code == 0 && unread.out.contains("patient=enc1:"), "{unread:?}");
    let wrong = listed("wrong");
    assert!(wrong.code != 0 && wrong.err.contains("FERRATA_LABEL_KEY"), "{wrong:?}");
    assert!(!wrong.err.contains("s3cret"), "{wrong:?}");
}

#[test]
fn the_command_reads_what_is_encrypted_with_its_keys() {
    let place = Place::new();
    let folder = place.folder.path();
    std::fs::write(folder.join("p.dot"), PIPELINE).unwrap();
    std::fs::write(folder.join("keys"), format!("a = {}\n", "ab".repeat(32))).unwrap();
    std::fs::write(folder.join("newer"), format!("b = {}\na = {}\n", "cd".repeat(32), "ab".repeat(32)))
        .unwrap();
    std::fs::write(folder.join("wrong"), "a = s3cret\n").unwrap();
    let url = place.url();
    let call = |keys: &str, line: &[&str]| {
        place.call_with(line, "", &[("FERRATA_STORE", url.as_str()), ("FERRATA_KEYS", keys)])
    };
    let ran = call("keys", &["run", "p.dot", "--id", "r"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(!is_in_files(&folder.join("runs"), b"the patient is Ann"));
    assert!(is_in_files(&folder.join("runs"), b"completed"), "the status can be read");
    for keys in ["keys", "newer"] {
        let state = call(keys, &["state", "r"]);
        assert!(state.code == 0 && state.out.contains("the patient is Ann"), "{state:?}");
        assert_eq!(call(keys, &["verify", "r"]).code, 0);
    }
    // Without the key: what is not encrypted is told, and of the rest which key is wanted.
    let listed = call("", &["ls"]);
    assert!(listed.code == 0 && listed.out.contains("completed"), "{listed:?}");
    let state = call("", &["state", "r"]);
    assert!(state.code == 70 && state.err.contains("key `a`") && !state.err.contains("Ann"), "{state:?}");
    for keys in ["wrong", "not-there"] {
        let said = call(keys, &["ls"]);
        assert!(
            said.code != 0 && said.err.contains("FERRATA_KEYS") && !said.err.contains("s3cret"),
            "{said:?}"
        );
    }
    // A service that forgot them is told what to do.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let error = runtime.block_on(async {
        let service = ferrata::Runtime::builder_with(ferrata::connect(&url).unwrap()).operator();
        let run = ferrata::RunKey::from(ferrata::RunId::new("r").unwrap());
        service.checkpoint(&run, ferrata::Position::Latest).await.unwrap_err()
    });
    assert_eq!(error.kind(), ferrata::ErrorKind::Unsupported);
    assert!(error.to_string().contains("EnvelopeStore"), "{error}");
}

#[test]
fn the_command_tells_which_keys_are_needed_without_any() {
    let place = Place::new();
    let folder = place.folder.path();
    std::fs::write(folder.join("p.dot"), PIPELINE).unwrap();
    let (old, new) = (format!("old = {}\n", "ab".repeat(32)), format!("new = {}\n", "cd".repeat(32)));
    std::fs::write(folder.join("old"), &old).unwrap();
    std::fs::write(folder.join("both"), format!("{new}{old}")).unwrap();
    std::fs::write(folder.join("new"), &new).unwrap();
    let url = place.url();
    let call = |keys: &str, line: &[&str]| {
        let said = place.call_with(line, "", &[("FERRATA_STORE", url.as_str()), ("FERRATA_KEYS", keys)]);
        assert_eq!(said.code, 0, "{line:?}: {said:?}");
        said.out
    };
    let keys = |line: &[&str]| -> serde_json::Value {
        serde_json::from_str(&call("", &[&["store", "keys", "-o", "json"], line].concat())).unwrap()
    };
    call("", &["run", "p.dot", "--id", "plain"]);
    call("old", &["run", "p.dot", "--id", "a"]);
    call("both", &["run", "p.dot", "--id", "b", "--tenant", "acme"]);
    let counted = keys(&[]);
    let found: Vec<_> =
        counted.as_array().unwrap().iter().map(|one| (&one["tenant"], &one["key"], &one["runs"])).collect();
    let expected = serde_json::json!([["acme", "new", 1], ["default", null, 1], ["default", "old", 1]]);
    assert_eq!(serde_json::json!(found), expected);
    let records = call("", &["history", "a", "-o", "ids"]).lines().count();
    assert_eq!(counted[2]["records"], records);
    assert_eq!(keys(&["--tenant", "acme"]).as_array().unwrap().len(), 1);
    let table = call("", &["store", "keys"]);
    assert!(table.contains("(not encrypted)") && table.lines().count() == 4, "{table}");
    // It is what an operator waits for: where the old key is not told any more, nothing needs it.
    call("", &["purge", "plain", "--yes"]);
    assert_eq!(call("", &["store", "keys", "-o", "ids"]), "acme/new\ndefault/old\n");
    call("both", &["prune", "a", "--keep-last", "1", "--yes"]);
    assert_eq!(call("", &["store", "keys", "-o", "ids"]), "acme/new\ndefault/new\n");
    assert!(call("new", &["state", "a"]).contains("the patient is Ann"));
}
