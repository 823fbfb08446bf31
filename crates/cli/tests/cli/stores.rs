//! Export, import, retention, removal and verification of logs, and the commands for the store itself.

use ferrata_test_servers::Service;
use ferrata_tests::Space;

use crate::service::some_runs;
use crate::support::Place;

/// Guarantees: CLI-21.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_exported_and_imported_elsewhere() {
    let (place, other) = (Place::new(), Place::new());
    drop(some_runs(&place).await);
    place.ok(&["export", "pay-2", "--to", "run.jsonl"]);
    assert_eq!(
        place.call(&["export", "pay-2", "--to", "run.jsonl"]).code,
        8,
        "a file must not be overwritten"
    );
    let file = place.folder.path().join("run.jsonl");
    let file = file.to_str().unwrap();
    other.ok(&["import", file]);
    other.ok(&["import", file]);
    assert_eq!(other.json(&["state", "pay-2"]), place.json(&["state", "pay-2"]));
    other.ok(&["import", file, "--id", "copy"]);
    assert_eq!(other.ok(&["ls", "-o", "ids"]).lines().count(), 2);
    let text = place.ok(&["export", "pay-1"]);
    let url = other.url();
    let taken = other.call_with(&["import", "-", "--id", "copy"], &text, &[("FERRATA_STORE", &url)]);
    assert_eq!(taken.code, 8, "{taken:?}");
}

/// A sharded store has a single URL, which names a file. The command accepts it, too.
///
/// Guarantees: CLI-24.
#[tokio::test(flavor = "multi_thread")]
async fn shard_file_url_lists_all_shards() {
    let (place, fleet) = (Place::new(), Place::new());
    drop(some_runs(&place).await);
    let log = fleet.write("run.jsonl", &place.ok(&["export", "pay-2"]));
    fleet.write(
        "shards",
        "# Two folders.\nshard north file:north\nshard south file:south\ngeneration north south\n",
    );
    let url = format!("sharded:{}", fleet.folder.path().join("shards").display());
    let mut ids: Vec<String> = (0..6).map(|number| format!("copy-{number}")).collect();
    for id in &ids {
        fleet.ok(&["import", log.to_str().unwrap(), "--id", id, "--store", &url]);
    }
    let listed = |store: &str| -> Vec<String> {
        let out = fleet.ok(&["ls", "--store", store, "-o", "ids"]);
        let ids = out.lines().map(|id| id.rsplit('/').next().unwrap().to_owned());
        let mut ids: Vec<String> = ids.filter(|id| id.starts_with("copy-")).collect();
        ids.sort_unstable();
        ids
    };
    assert_eq!(listed(&url), ids);
    // Each run is in one of the shards.
    let folder = |name: &str| format!("file:{}", fleet.folder.path().join(name).display());
    let mut apart = [listed(&folder("north")), listed(&folder("south"))].concat();
    apart.sort_unstable();
    ids.sort_unstable();
    assert_eq!(apart, ids);

    fleet.write("shards", "shard north file:north\ngeneration north east\n");
    let said = fleet.call(&["ls", "--store", &url]);
    assert_ne!(said.code, 0);
    assert!(said.err.contains("line 2 of ") && said.err.contains("add `shard east`"), "{said:?}");
}

/// `--tenant` decides the tenant of an import, and not the file.
///
/// Guarantees: COPY-1.
#[tokio::test(flavor = "multi_thread")]
async fn import_writes_to_named_tenant() {
    let (place, other) = (Place::new(), Place::new());
    drop(some_runs(&place).await);
    let text = place.ok(&["export", "pay-2"]).replacen("\"tenant\":\"default\"", "\"tenant\":\"victim\"", 1);
    let file = other.write("run.jsonl", &text);
    let file = file.to_str().unwrap();
    other.ok(&["--tenant", "mine", "import", file]);
    assert_eq!(other.ok(&["ls", "-o", "ids"]).trim(), "mine/pay-2");
    other.ok(&["--tenant", "mine", "import", file, "--id", "copy"]);
    other.ok(&["import", file]);
    let listed = other.ok(&["ls", "-o", "ids"]);
    let mut listed: Vec<&str> = listed.lines().collect();
    listed.sort_unstable();
    assert_eq!(listed, ["mine/copy", "mine/pay-2", "victim/pay-2"]);
}

/// Guarantees: CLI-19.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_dropped_without_a_yes() {
    let place = Place::new();
    let service = some_runs(&place).await;
    service.runtime.shutdown(std::time::Duration::ZERO).await.unwrap();
    let count = |place: &Place| place.json(&["history", "pay-2", "--all"]).as_array().unwrap().len();
    let before = count(&place);
    place.ok(&["prune", "pay-2", "--keep-last", "2"]);
    assert_eq!(count(&place), before);
    place.ok(&["prune", "pay-2", "--keep-last", "2", "--yes"]);
    assert_eq!(count(&place), 2);
    place.ok(&["verify", "pay-2"]);
    place.ok(&["sweep", "--purge", "failed=0s"]);
    assert_eq!(place.ok(&["ls", "-o", "ids"]).lines().count(), 4);
    place.ok(&["sweep", "--purge", "failed=0s", "--gentle", "--yes"]);
    assert_eq!(place.call(&["show", "pay-3"]).code, 4);
    assert_eq!(place.call(&["purge", "pay-2"]).code, 2);
    assert_eq!(place.json(&["purge", "pay-2", "--yes"])[0]["records"], 2);
    assert_eq!(place.call(&["show", "pay-2"]).code, 4);
    place.ok(&["purge", "pay-1", "chat-1", "--yes", "--force"]);
    assert_eq!(place.ok(&["ls"]), "");
}

/// Guarantees: CLI-22.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_log_is_found_and_named() {
    let place = Place::new();
    let service = some_runs(&place).await;
    service.runtime.shutdown(std::time::Duration::ZERO).await.unwrap();
    place.ok(&["verify", "pay-2"]);
    let mut damaged = 0;
    let mut folders = vec![place.folder.path().join("runs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.to_string_lossy().contains("pay-2") {
                let text = std::fs::read_to_string(&path).unwrap();
                damaged += usize::from(text.contains("\"amount\",120"));
                std::fs::write(&path, text.replacen("\"amount\",120", "\"amount\",999", 1)).unwrap();
            }
        }
    }
    assert!(damaged > 0, "the file of the run must not contain this patch");
    let said = place.call(&["verify", "pay-2"]);
    assert_eq!(said.code, 70, "{said:?}");
    assert!(said.err.contains("record"), "{said:?}");
}

/// Guarantees: CLI-23.
#[test]
fn a_store_is_checked_and_its_promises_told() {
    let place = Place::new();
    let found = place.json(&["store", "check", "--setup", "--writes", "3"]);
    assert_eq!(
        (&found["kind"], &found["durable"], &found["shared"]),
        (&"file".into(), &true.into(), &true.into())
    );
    assert_eq!(found["writes"]["calls"], 3);
    assert_eq!(place.ok(&["ls"]), "", "the values must be purged");
    let sql = place.call_with(
        &["store", "check", "--print-migrations", "--store", "postgres://me:s3cret@127.0.0.1:1/app"],
        "",
        &[],
    );
    assert_eq!(sql.code, 0, "{sql:?}");
    assert!(sql.out.contains("CREATE TABLE") && !sql.out.contains("s3cret"), "{sql:?}");
    assert_eq!(place.call(&["store", "check", "--print-migrations"]).code, 2);
}

/// Guarantees: CLI-23.
#[test]
fn a_store_is_held_against_its_contract() {
    let place = Place::new();
    let found = place.json(&["store", "check", "--conformance", "--quiet", "--store", "memory:"]);
    assert!(found["conformance"]["held"].as_u64().unwrap() > 50, "{found}");
    assert_eq!(found["conformance"]["failed"], serde_json::json!([]));
}

/// Guarantees: BLOB-5, CLI-19.
#[tokio::test(flavor = "multi_thread")]
async fn values_that_no_record_names_are_collected() {
    let place = Place::new();
    let folder = place.folder.path().join("blobs");
    let at = folder.to_str().unwrap();
    let missing = place.call(&["blobs", "gc", at]);
    assert!(missing.code == 4 && missing.err.contains("blobs"), "{missing:?}");
    let service = some_runs(&place).await;
    let blobs = ferrata::blobs::Blobs::in_folder(&folder).unwrap();
    let [named, unnamed] = [blobs.put("named").await.unwrap(), blobs.put("unnamed").await.unwrap()];
    let run = ferrata::RunKey::from(ferrata::RunId::new("chat-1").unwrap());
    service.runtime.send(&run, named).await.unwrap();
    service.runtime.shutdown(std::time::Duration::ZERO).await.unwrap();
    // Within the grace period, or without confirmation, nothing changes.
    place.ok(&["blobs", "gc", at, "--yes"]);
    place.ok(&["blobs", "gc", at, "--grace", "0s"]);
    for (step, removed) in [(1, 0), (2, 1)] {
        let said = place.json(&["blobs", "gc", at, "--grace", "0s", "--yes"]);
        assert_eq!((&said["named"], &said["removed"]), (&1.into(), &removed.into()), "{step}: {said}");
    }
    assert_eq!(blobs.get(&named).await.unwrap(), "named");
    assert_eq!(blobs.get(&unnamed).await.unwrap_err().kind(), ferrata::ErrorKind::NotFound);
}

/// The same with values in the database of the runs. Remains of old uploads are removed, too.
///
/// Guarantees: BLOB-5.
#[tokio::test(flavor = "multi_thread")]
async fn values_in_a_database_are_collected_and_counted() {
    Space::within(Some(Service::Postgres), async |space| {
        let store = space.open();
        store.setup().await.unwrap();
        let place = Place::on(space);
        let service = some_runs(&place).await;
        let blobs = ferrata::blobs::Blobs::new(std::sync::Arc::new(
            ferrata::PostgresStore::from_url(space.url(), <_>::default()).unwrap().objects(),
        ));
        let [named, unnamed] = [blobs.put("named").await.unwrap(), blobs.put("unnamed").await.unwrap()];
        let run = ferrata::RunKey::from(ferrata::RunId::new("chat-1").unwrap());
        service.runtime.send(&run, named).await.unwrap();
        service.runtime.shutdown(std::time::Duration::ZERO).await.unwrap();
        for removed in [0, 1] {
            let said = place.json(&["blobs", "gc", &place.url(), "--grace", "0s", "--yes"]);
            assert_eq!((&said["named"], &said["removed"]), (&1.into(), &removed.into()), "{said}");
        }
        assert_eq!(blobs.get(&named).await.unwrap(), "named");
        assert_eq!(blobs.get(&unnamed).await.unwrap_err().kind(), ferrata::ErrorKind::NotFound);
        let counted = place.json(&["store", "keys", "--blobs", &place.url()]);
        assert_eq!(counted[0]["values"], 1, "{counted}");
    })
    .await;
}
