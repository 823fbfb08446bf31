//! The command on every store: it reads and steers the runs of a service, and moves a run.

use ferrata::RunKey;
use ferrata::record::RunStatus;
use ferrata_test_servers::Service as Server;
use ferrata_tests::{Space, StoreKind};

use crate::service::some_runs;
use crate::support::Place;

fn key(id: &str) -> RunKey {
    RunKey::try_from(id).unwrap()
}

async fn reads_steers_and_moves(kind: impl Into<StoreKind>) {
    Space::within(kind, async |space| {
        let place = Place::on(space);
        let service = some_runs(&place).await;
        place.ok(&["store", "check", "--writes", "2"]);
        let mut listed: Vec<String> = place.ok(&["ls", "-o", "ids"]).lines().map(str::to_owned).collect();
        listed.sort();
        assert_eq!(listed, ["chat-1", "pay-1", "pay-2", "pay-3"]);
        assert_eq!(place.ok(&["ls", "--status", "waiting", "--workflow", "pay", "-o", "ids"]), "pay-1\n");
        place.ok(&["answer", "pay-1", "no", "--by", "ann"]);
        service.until(&key("pay-1"), RunStatus::Completed).await;
        assert_eq!(place.json(&["state", "pay-1", "/answer"]), "no");
        place.ok(&["send", "chat", "bye"]);
        service.until(&key("chat-1"), RunStatus::Completed).await;
        place.ok(&["edit", "pay-3", "--set", "broken=false"]);
        place.ok(&["retry", "pay-3"]);
        service.until(&key("pay-3"), RunStatus::Completed).await;
        place.ok(&["fork", "pay-3", "begin@1", "--id", "forked", "--yes"]);
        service.until(&key("forked"), RunStatus::Interrupted).await;
        place.ok(&["cancel", "forked", "--yes"]);
        service.until(&key("forked"), RunStatus::Cancelled).await;
        place.ok(&["verify", "pay-3"]);
        place.ok(&["export", "pay-3", "--to", "run.jsonl"]);
        place.ok(&["import", "run.jsonl", "--id", "copy"]);
        assert_eq!(place.json(&["state", "copy"]), place.json(&["state", "pay-3"]));
        place.ok(&["prune", "copy", "--keep-last", "1", "--yes"]);
        assert_eq!(place.json(&["history", "copy"]).as_array().unwrap().len(), 1);
        place.ok(&["purge", "copy", "forked", "--yes"]);
        assert_eq!(place.call(&["show", "copy"]).code, 4);
        service.runtime.shutdown(std::time::Duration::ZERO).await.unwrap();
    })
    .await;
}

/// Guarantees: CLI-24.
#[tokio::test(flavor = "multi_thread")]
async fn on_sqlite() {
    reads_steers_and_moves(StoreKind::Sqlite).await;
}

/// Guarantees: CLI-24.
#[tokio::test(flavor = "multi_thread")]
async fn on_postgres() {
    reads_steers_and_moves(Some(Server::Postgres)).await;
}

/// Guarantees: CLI-24.
#[tokio::test(flavor = "multi_thread")]
async fn on_redis() {
    reads_steers_and_moves(Some(Server::Redis)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_redis_cluster() {
    reads_steers_and_moves(Some(Server::RedisCluster)).await;
}

/// Guarantees: CLI-24.
#[tokio::test(flavor = "multi_thread")]
async fn on_s3() {
    reads_steers_and_moves(Some(Server::S3)).await;
}

/// On a server store, records before a damaged last record stay readable for every command that shows a run.
async fn reads_before_a_damage(kind: StoreKind) {
    Space::within(kind, async |space| {
        let place = Place::on(space);
        let service = some_runs(&place).await;
        service.runtime.shutdown(std::time::Duration::ZERO).await.unwrap();
        let sound = place.json(&["state", "pay-2", "--at", "approve@1"]);
        space.damage_last(&key("pay-2")).await;
        assert_eq!(place.json(&["state", "pay-2", "--at", "approve@1"]), sound);
        assert!(place.ok(&["show", "pay-2", "--at", "approve@1"]).contains("begin@1"));
        let read = |line: &[&str]| {
            let said = place.call(line);
            assert_eq!(said.code, 0, "{line:?}: {said:?}");
            said
        };
        let shown = read(&["show", "pay-2"]);
        assert!(shown.err.contains("damaged at record") && shown.out.contains("begin@1"), "{shown:?}");
        assert_eq!(place.json(&["state", "pay-2", "/answer"]), sound["answer"]);
        assert!(read(&["history", "pay-2"]).out.lines().count() > 3);
        assert!(read(&["logs", "pay-2"]).out.contains("`begin@1`"));
        read(&["export", "pay-2", "--to", "before.jsonl"]);
        place.ok(&["import", "before.jsonl", "--id", "copy"]);
        read(&["fork", "pay-2", "begin@1", "--id", "mended", "--yes"]);
        assert_eq!(place.json(&["state", "mended"])["amount"], 120);
        place.ok(&["verify", "mended"]);
        // The run itself is unchanged.
        assert_eq!(place.call(&["verify", "pay-2"]).code, 70);
    })
    .await;
}

/// Guarantees: PIPELINE-13.
#[tokio::test(flavor = "multi_thread")]
async fn before_the_damage_on_sqlite() {
    reads_before_a_damage(StoreKind::Sqlite).await;
}

/// Guarantees: PIPELINE-13.
#[tokio::test(flavor = "multi_thread")]
async fn before_the_damage_on_postgres() {
    reads_before_a_damage(StoreKind::Server(Server::Postgres)).await;
}

/// Guarantees: PIPELINE-13.
#[tokio::test(flavor = "multi_thread")]
async fn before_the_damage_on_redis() {
    reads_before_a_damage(StoreKind::Server(Server::Redis)).await;
}

/// Guarantees: PIPELINE-13.
#[tokio::test(flavor = "multi_thread")]
async fn before_the_damage_on_a_redis_cluster() {
    reads_before_a_damage(StoreKind::Server(Server::RedisCluster)).await;
}

/// Guarantees: PIPELINE-13.
#[tokio::test(flavor = "multi_thread")]
async fn before_the_damage_on_s3() {
    reads_before_a_damage(StoreKind::Server(Server::S3)).await;
}
