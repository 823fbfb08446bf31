//! Names: every valid run id and tenant is distinct from all others, whatever it looks like.

use ferrata_store::{Order, RunKey, RunQuery};

use crate::stage::{Log, TestStage, every_run, is_kept, is_kept_at_head, key_in, ok};

/// Valid ids that a store may confuse with something else: its files, temporary names, devices, options, numbers and separators, and ids that
/// differ only in case or by a suffix.
fn hostile_names() -> Vec<String> {
    let mut names: Vec<String> = [
        "a",
        "A",
        "aa",
        "aA",
        "Aa",
        "AA",
        "a.",
        "a..b",
        "a.b",
        "a:b",
        "a-b",
        "a_b",
        "a__b",
        "a:b:c",
        ":",
        "::",
        ":a",
        "a:",
        "-",
        "--",
        "--help",
        "-a",
        "_",
        "__",
        "_a",
        "0",
        "00",
        "1",
        "-1",
        "01",
        "1e3",
        "0x10",
        "null",
        "NULL",
        "true",
        "nan",
        "default",
        "con",
        "CON",
        "nul",
        "aux.txt",
        "com1",
        "prn.log",
        "lock",
        "a.lock",
        "lock.a",
        "log",
        "log.jsonl",
        "a.jsonl",
        "a.log",
        "a.tmp",
        "x.tmp",
        "tmp",
        "a.tmp.1",
        "a.bak",
        "a.new",
        "a.swp",
        "a.json",
        "index",
        "index.json",
        "head",
        "heads",
        "HEAD",
        "meta",
        "meta.json",
        "run",
        "runs",
        "record",
        "records",
        "base",
        "facts",
        "claims",
        "executors",
        "heartbeats",
        "tenants",
        "ferrata",
        "ferrata:runs",
        "format",
        "version",
        "00000000000000000000",
        "18446744073709551615",
        "018f3a4e-0000-7000-8000-000000000001",
        "018F3A4E-0000-7000-8000-000000000001",
        "a.0",
        "a.1",
        "a.00",
        "r:0",
        "r:1",
        "r-1",
        "r_1",
        "r.1",
        "e",
        "E",
        "ss",
        "SS",
        "i",
        "I",
        "incarnation",
        "z.z.z.z",
    ]
    .map(str::to_owned)
    .into();
    for length in [126, 127, 128] {
        names.push("x".repeat(length));
        names.push("X".repeat(length));
        names.push("x:".repeat(length / 2));
        names.push("x.".repeat(length / 2));
    }
    names.sort();
    names.dedup();
    names
}

/// Writes a log for each key, checks all of them, purges every second one, and checks again.
async fn are_all_distinct(stage: &TestStage, keys: Vec<RunKey>) {
    let store = stage.store();
    let mut logs: Vec<Log> = keys.into_iter().map(|key| stage.log_of(key)).collect();
    let batch: Vec<_> = logs.iter().map(|log| log.next(1)).collect();
    for (log, entry) in logs.iter_mut().zip(&batch) {
        crate::stage::appended(&*store, entry).await;
        log.note_append(entry);
    }
    for log in &mut logs {
        log.write(&*store, 2).await;
    }
    // Check everything after the purges, because that would show a confused name.
    for log in &logs {
        is_kept_at_head(&*store, log).await;
    }
    let listed = every_run(&*store, &RunQuery::default(), Order::OldestFirst, 1_000).await;
    assert_eq!(listed.len(), logs.len(), "each is listed once");

    for log in logs.iter_mut().step_by(2) {
        let purged = ok(store.purge(&log.key, None).await, "purging a run with a hostile name");
        assert_eq!(purged.records, 3, "purging {} removes its own records", log.key);
        log.records.clear();
    }
    for log in &logs {
        if log.records.is_empty() {
            is_kept_at_head(&*store, log).await;
        } else {
            is_kept(&*store, log).await;
        }
    }
}

/// Returns all names, or every third name in the short form.
fn names_for(stage: &TestStage) -> impl Iterator<Item = String> {
    hostile_names().into_iter().step_by(stage.times(1, 3))
}

/// Each valid run id is a separate run.
pub(crate) async fn every_valid_run_id_is_a_run_of_its_own(stage: TestStage) {
    are_all_distinct(&stage, names_for(&stage).map(|name| key_in("default", &name)).collect()).await;
}

/// Each valid tenant is a separate tenant.
pub(crate) async fn every_valid_tenant_is_one_of_its_own(stage: TestStage) {
    are_all_distinct(&stage, names_for(&stage).map(|name| key_in(&name, "r-1")).collect()).await;
}

/// The store never confuses two keys whose tenant and run id have the same text when joined.
pub(crate) async fn tenant_and_run_id_do_not_run_together(stage: TestStage) {
    let pairs = [
        ("a", "b:c"),
        ("a:b", "c"),
        ("a", "b.c"),
        ("a.b", "c"),
        ("a", "b-c"),
        ("a-b", "c"),
        ("a", "b_c"),
        ("a_b", "c"),
        ("a", "b::c"),
        ("a:", ":c"),
        ("a:", "b:c"),
        ("a", "a"),
        ("aa", "a"),
        ("a", "aa"),
        ("b", "a"),
        ("c", "a:b"),
        ("a:b:c", "d"),
        ("a", "b:c:d"),
        ("a:b", "c:d"),
        ("1", "11"),
        ("11", "1"),
    ];
    are_all_distinct(&stage, pairs.map(|(tenant, run)| key_in(tenant, run)).into()).await;
}

/// The same run id in two tenants means two runs, for every call.
pub(crate) async fn the_same_run_id_in_two_tenants_is_two_runs(stage: TestStage) {
    let store = stage.store();
    let mut logs = ["acme", "umbrella"].map(|tenant| stage.log_of(key_in(tenant, "r-1")));
    for (log, count) in logs.iter_mut().zip([6, 9]) {
        log.write(&*store, count).await;
    }
    let [mut acme, mut umbrella] = logs;
    is_kept(&*store, &acme).await;
    is_kept(&*store, &umbrella).await;

    let cut = ferrata_store::PruneCut { at: ferrata_store::Seq::new(4), base: None };
    ok(store.prune(&acme.key, cut).await, "pruning the run of one tenant");
    acme.note_pruned(4, None);
    umbrella.write(&*store, 1).await;
    is_kept(&*store, &acme).await;
    is_kept(&*store, &umbrella).await;

    ok(store.purge(&acme.key, None).await, "purging the run of one tenant");
    acme.records.clear();
    is_kept_at_head(&*store, &acme).await;
    is_kept(&*store, &umbrella).await;
}
