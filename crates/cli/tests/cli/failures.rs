//! Failures of the command: exit codes and messages, without secrets.

use crate::service::{pay, some_runs};
use crate::support::{Place, expect};

/// Guarantees: CLI-2.
#[tokio::test(flavor = "multi_thread")]
async fn each_failure_has_exit_code_and_next_command() {
    let place = Place::new();
    let _service = some_runs(&place).await;
    let garbage = place.write("garbage.jsonl", "no run\n");
    let garbage = garbage.to_str().unwrap();
    let lines: &[(&str, i32, &[&str])] = &[
        ("no-such-run", 4, &["show", "nobody"]),
        ("no-such-place", 4, &["state", "pay-2", "--at", "999"]),
        ("no-such-pointer", 4, &["state", "pay-2", "/nothing"]),
        ("no-pointer", 4, &["state", "pay-2", "amount"]),
        ("ambiguous", 2, &["show", "pay"]),
        ("no-id", 2, &["show", "../x"]),
        ("wrong-status", 8, &["unpause", "pay-2"]),
        ("no-question", 4, &["answer", "pay-2", "yes"]),
        ("no-such-question", 4, &["answer", "pay-1", "nobody", "yes"]),
        ("not-finished", 8, &["purge", "pay-1", "--yes"]),
        ("no-policy", 2, &["prune", "pay-2"]),
        ("import-garbage", 2, &["import", garbage]),
        ("no-file", 4, &["import", "nowhere.jsonl"]),
        ("no-change", 2, &["edit", "pay-1"]),
        ("unknown-node", 4, &["fork", "pay-2", "--start-at", "nowhere"]),
    ];
    let mut told = String::new();
    for (name, code, line) in lines {
        let said = place.call(line);
        assert_eq!(said.code, *code, "{name}: {said:?}");
        assert_eq!(said.out, "", "{name}: only data may be on stdout");
        let last = said.err.lines().last().unwrap_or_default();
        assert!(last.starts_with("next: "), "{name} does not suggest a command: {said:?}");
        told.push_str(&format!("$ ferrata {}\n{}({code})\n\n", line.join(" "), said.err));
    }
    expect("failures.txt", &place.normal(&told));
}

/// Guarantees: CLI-2.
#[tokio::test(flavor = "multi_thread")]
async fn failure_is_json_object_on_request() {
    let place = Place::new();
    let _service = some_runs(&place).await;
    let said = place.call(&["show", "nobody", "-o", "json"]);
    let value: serde_json::Value = serde_json::from_str(&said.err).unwrap();
    expect("failure.json", &format!("{value:#}\n"));
    assert_eq!((said.code, said.out.as_str()), (4, ""));
}

/// Guarantees: CLI-5, SECURITY-10.
#[test]
fn unreachable_store_is_named_without_password() {
    let place = Place::new();
    for (code, url) in [
        (70, "postgres://me:s3cret@127.0.0.1:1/app?acquire_timeout_ms=250"),
        (2, "postgres://me:a?s3cret@127.0.0.1:1/app"),
        (70, "redis://:s3cret@127.0.0.1:1"),
        (70, "nats://s3cret@127.0.0.1:1?response_timeout_ms=250"),
        (70, "pigeon://me:s3cret@loft"),
        (2, "s3://key:s3cret@bucket"),
        (2, "s3cret"),
    ] {
        for format in ["table", "json"] {
            let said = place.call(&["ls", "--store", url, "-o", format]);
            assert_eq!(said.code, code, "{url}: {said:?}");
            assert!(said.err.contains("next"), "{said:?}");
            assert!(!said.err.contains("s3cret") || url == "s3cret", "{said:?}");
        }
        let said = place.call_with(&["ls", "--help"], "", &[("FERRATA_STORE", url)]);
        assert!(!said.out.contains("s3cret"), "the help shows the variable's value");
    }
}

/// Guarantees: CLI-3.
#[test]
fn looking_makes_no_store() {
    let place = Place::new();
    let said = place.call(&["ls"]);
    assert!(!place.folder.path().join("runs").exists(), "{said:?}");
}

#[test]
fn wrong_usage_exits_two_with_suggestion() {
    let place = Place::new();
    for (line, part) in [
        (vec!["lst"], "ls"),
        (vec!["ls", "--since", "5x"], "2h30m"),
        (vec!["ls", "--status", "done"], "completed"),
        (vec!["diff", "r", "nowhere"], "node@visit"),
        (vec![], "Usage"),
    ] {
        let said = place.call(&line);
        assert_eq!((said.code, said.out.as_str()), (2, ""), "{line:?}: {said:?}");
        assert!(said.err.contains(part), "{line:?}: {said:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn same_id_in_two_tenants_is_two_runs() {
    let place = Place::new();
    let service = some_runs(&place).await;
    for tenant in ["a", "b"] {
        service.runtime.start(&pay(), ferrata::Context::new()).id("same").tenant(tenant).await.unwrap();
    }
    let said = place.call(&["show", "same"]);
    assert_eq!(said.code, 2, "{said:?}");
    assert!(said.err.contains("a/same") && said.err.contains("b/same"), "{said:?}");
    assert_eq!(place.json(&["show", "a/same"])["head"]["run"]["tenant"], "a");
    assert_eq!(place.json(&["show", "sam", "--tenant", "b"])["head"]["run"]["tenant"], "b");
    assert_eq!(place.json(&["ls", "--tenant", "a"]).as_array().unwrap().len(), 1);
}
