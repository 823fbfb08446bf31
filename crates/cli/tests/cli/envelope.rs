//! Runs with encrypted records.

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

/// Guarantees: AT-REST-6.
#[test]
fn command_finds_runs_by_encrypted_labels() {
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
fn command_reads_encrypted_records_with_keys() {
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
    assert!(is_in_files(&folder.join("runs"), b"completed"), "the status must be readable");
    for keys in ["keys", "newer"] {
        let state = call(keys, &["state", "r"]);
        assert!(state.code == 0 && state.out.contains("the patient is Ann"), "{state:?}");
        assert_eq!(call(keys, &["verify", "r"]).code, 0);
    }
    // Without the key, unencrypted parts are shown, and the error names the missing key.
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
    // A service without the keys gets the remedy.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let error = runtime.block_on(async {
        let service = ferrata::Runtime::builder_with(ferrata::connect(&url).unwrap()).operator();
        let run = ferrata::RunKey::from(ferrata::RunId::new("r").unwrap());
        service.checkpoint(&run, ferrata::Position::Latest).await.unwrap_err()
    });
    assert_eq!(error.kind(), ferrata::ErrorKind::Unsupported);
    assert!(error.to_string().contains("EnvelopeStore"), "{error}");
}

/// Guarantees: CLI-23.
#[test]
fn command_lists_needed_keys_without_keys() {
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
    // An operator can remove the old key once it is not listed any more.
    call("", &["purge", "plain", "--yes"]);
    assert_eq!(call("", &["store", "keys", "-o", "ids"]), "acme/new\ndefault/old\n");
    call("both", &["prune", "a", "--keep-last", "1", "--yes"]);
    assert_eq!(call("", &["store", "keys", "-o", "ids"]), "acme/new\ndefault/new\n");
    assert!(call("new", &["state", "a"]).contains("the patient is Ann"));
}

/// Guarantees: AT-REST-11.
#[tokio::test]
async fn values_count_with_records_under_their_keys() {
    let place = Place::new();
    let folder = place.folder.path();
    std::fs::write(folder.join("p.dot"), PIPELINE).unwrap();
    place.ok(&["run", "p.dot", "--id", "plain"]);
    let (one, two) = (folder.join("blobs"), folder.join("more"));
    let key = |byte| ferrata::Key::from_bytes([byte; 32]);
    let keys = |name| ferrata::Keyring::new(name, &key(7)).unwrap();
    let at = |path: &std::path::Path| ferrata::blobs::Blobs::in_folder(path).unwrap();
    for text in ["a", "b"] {
        at(&one).with_keys(keys("old")).put(text).await.unwrap();
    }
    at(&two).with_keys(keys("old")).put("c").await.unwrap();
    at(&two).put("d").await.unwrap();
    at(&two).for_tenant(&"acme".parse().unwrap()).with_keys(keys("new")).put("e").await.unwrap();
    let (one, two) = (one.to_str().unwrap(), two.to_str().unwrap());
    let counted = |line: &[&str]| {
        let all = place.json(&[&["store", "keys"], line].concat());
        let shown = |one: &serde_json::Value| {
            let key = one["key"].as_str().unwrap_or("-");
            format!("{}/{key} {} {}", one["tenant"].as_str().unwrap(), one["runs"], one["values"])
        };
        all.as_array().unwrap().iter().map(shown).collect::<Vec<_>>()
    };
    assert_eq!(counted(&[]), ["default/- 1 null"]);
    assert_eq!(counted(&["--blobs", one]), ["default/- 1 0", "default/old 0 2"]);
    let both = ["acme/new 0 1", "default/- 1 1", "default/old 0 3"];
    assert_eq!(counted(&["--blobs", one, "--blobs", two]), both);
    assert_eq!(counted(&["--blobs", two, "--tenant", "acme"]), both[..1]);
    let table = place.ok(&["store", "keys", "--blobs", one]);
    assert!(table.contains("VALUES") && table.lines().count() == 3, "{table}");
    let missing = place.call(&["store", "keys", "--blobs", "not-there"]);
    assert!(missing.code == 4 && missing.err.contains("not-there"), "{missing:?}");
}

/// Guarantees: AT-REST-8.
#[test]
fn old_key_goes_after_rekey_history_stays() {
    let place = Place::new();
    let folder = place.folder.path();
    std::fs::write(folder.join("p.dot"), PIPELINE).unwrap();
    let (old, new) = (format!("old = {}\n", "ab".repeat(32)), format!("new = {}\n", "cd".repeat(32)));
    std::fs::write(folder.join("old"), &old).unwrap();
    std::fs::write(folder.join("both"), format!("{new}{old}")).unwrap();
    std::fs::write(folder.join("new"), &new).unwrap();
    let url = place.url();
    let call = |keys: &str, line: &[&str]| {
        place.call_with(line, "", &[("FERRATA_STORE", url.as_str()), ("FERRATA_KEYS", keys)])
    };
    let ok = |keys: &str, line: &[&str]| {
        let said = call(keys, line);
        assert_eq!(said.code, 0, "{line:?}: {said:?}");
        said.out
    };
    ok("", &["run", "p.dot", "--id", "plain"]);
    ok("old", &["run", "p.dot", "--id", "a"]);
    ok("old", &["run", "p.dot", "--id", "b", "--tenant", "acme"]);
    let values = folder.join("blobs");
    let ring = ferrata::Keyring::parse(&old).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let blobs = ferrata::blobs::Blobs::in_folder(&values).unwrap().with_keys(ring);
    let blob = runtime.block_on(blobs.put("the patient is Ann")).unwrap();
    let values = values.to_str().unwrap();
    let history = ok("both", &["history", "a", "-o", "ids"]);
    let keys = || ok("", &["store", "keys", "--blobs", values, "-o", "ids"]);
    let before = keys();
    assert_eq!(before, "acme/old\ndefault/\ndefault/old\n");

    let without = call("", &["store", "rekey", "--yes"]);
    assert!(without.code != 0 && without.err.contains("FERRATA_KEYS"), "{without:?}");
    // Unencrypted records are rejected by name, and the other records are reported.
    let rekey = ["store", "rekey", "--blobs", values, "-o", "json"];
    let said = call("both", &[&rekey[..], &["--accept-plain"]].concat());
    let value: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((said.code, &value["runs"], &value["rekeyed"]), (0, &3.into(), &1.into()), "{said:?}");
    assert!(said.err.contains("--yes"), "{said:?}");
    assert_eq!(keys(), before, "the call must change nothing");
    let said = call("both", &[&rekey[..], &["--yes"]].concat());
    assert!(said.code == 70 && said.err.contains("default/plain"), "{said:?}");
    assert_eq!(keys(), "acme/new\ndefault/\ndefault/new\n");
    ok("new", &[&rekey[..], &["--yes", "--accept-plain"]].concat());
    assert_eq!(keys(), "acme/new\ndefault/new\n");

    assert_eq!(ok("new", &["history", "a", "-o", "ids"]), history);
    for run in ["a", "acme/b", "plain"] {
        assert!(ok("new", &["state", run]).contains("the patient is Ann"), "{run}");
        ok("new", &["verify", run]);
    }
    let only = ferrata::blobs::Blobs::in_folder(values).unwrap();
    let only = only.with_keys(ferrata::Keyring::parse(&new).unwrap());
    assert_eq!(runtime.block_on(only.get(&blob)).unwrap(), "the patient is Ann");
    let lacking = call("old", &["store", "rekey", "--yes"]);
    assert!(lacking.code == 70 && lacking.err.contains("`new`"), "{lacking:?}");
}
