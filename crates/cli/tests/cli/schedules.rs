//! Schedules on the command line.
#![expect(
    clippy::disallowed_methods,
    reason = "schedules of another process tick by the clock of the machine"
)]

use std::time::Duration;

use ferrata::Timestamp;
use ferrata::prelude::*;
use ferrata_test_servers::Service as Server;
use ferrata_tests::{Space, StoreKind};
use serde_json::json;

use crate::service::{PATIENCE, Service, busy};
use crate::support::Place;

/// Guarantees: CLI-15, SCHEDULE-15.
#[tokio::test(flavor = "multi_thread")]
async fn schedule_can_be_listed_paused_unpaused() {
    let place = Place::new();
    let service = Service::start(&place).await;
    let said = place.call(&["schedule", "ls"]);
    assert_eq!((said.code, said.out.as_str()), (0, ""), "{said:?}");
    assert!(said.err.contains("no schedules"), "{said:?}");

    let often = service.runtime.schedule("often").cron("* * * * * *").overlap(Overlap::Skip);
    let often = often.start(&busy(), Context::new()).await.unwrap();
    let nightly =
        service.runtime.schedule("nightly").tenant("acme").cron("0 3 * * *").timezone("Europe/Zurich");
    nightly.start(&busy(), Context::new()).await.unwrap();
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while often.runs().await.unwrap().items.is_empty() {
        assert!(tokio::time::Instant::now() < deadline, "no tick starts a run");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    let listed = place.json(&["schedule", "ls"]);
    let names: Vec<_> = listed.as_array().unwrap().iter().map(|one| &one["definition"]["name"]).collect();
    assert_eq!(names, ["nightly", "often"]);
    assert_eq!(listed[0]["next"].as_array().unwrap().len(), 3);
    assert_eq!(place.ok(&["schedule", "ls", "-o", "ids"]), "acme/nightly\noften\n");
    assert_eq!(place.ok(&["schedule", "ls", "--tenant", "acme", "-o", "ids"]), "acme/nightly\n");
    // The id is printed with its tenant, in the form that a command accepts.
    assert_eq!(place.ok(&["schedule", "ls", "--tenant", "default", "-o", "ids"]), "default/often\n");
    place.ok(&["schedule", "show", "default/often", "--tenant", "acme"]);

    let shown = place.ok(&["schedule", "show", "acme/nightly"]);
    for part in [
        "acme/nightly version 1",
        "0 3 * * * in Europe/Zurich",
        "late      the last missed tick starts late",
        "overlap   skipped",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let next = place.json(&["schedule", "next", "nightly", "--tenant", "acme", "-n", "2"]);
    let next: Vec<_> = next.as_array().unwrap().iter().map(|one| one["tick"].as_i64().unwrap()).collect();
    assert!(next.len() == 2 && next[1] - next[0] >= 23 * 3_600_000, "{next:?}");

    place.ok(&["schedule", "pause", "often", "--by", "eve", "--reason", "stocktaking"]);
    assert_eq!(place.json(&["schedule", "show", "often"])["is_paused"], json!(true));
    let again = place.call(&["schedule", "pause", "often"]);
    assert_eq!(again.code, 8, "{again:?}");
    place.ok(&["schedule", "unpause", "often"]);
    assert_eq!(place.json(&["schedule", "show", "often"])["is_paused"], json!(false));
    for line in [["schedule", "show", "none"], ["schedule", "next", "acme/often"]] {
        let said = place.call(&line);
        assert_eq!(said.code, 4, "{said:?}");
        assert!(said.err.contains("ferrata schedule ls"), "{said:?}");
    }
    assert_eq!(place.call(&["schedule", "show", "a b"]).code, 2);
}

/// Two processes share a schedule of seconds. The first one exits, and the second continues. Each tick is counted once.
async fn ticks_once(kind: impl Into<StoreKind>) {
    Space::within(kind, async |space| {
        let place = Place::on(space);
        let store = place.open();
        store.setup().await.unwrap();
        let work =
            Graph::<Context>::builder("work").node("do", async |_cx, s| Ok(s)).entry("do").build().unwrap();
        let process = async || {
            let runtime = Runtime::builder_with(place.open()).build().await.unwrap();
            let often = runtime.schedule("often").cron("* * * * * *").catch_up(CatchUp::All(100));
            let often = often.start(&work, Context::new()).await.unwrap();
            (runtime, often)
        };
        let ((first, often), (second, _)) = (process().await, process().await);
        // On a slow machine, there may be more runs than the default page size.
        let count = async || often.runs().limit(1_000).await.unwrap().items.len();
        let until = async |least: usize| {
            let deadline = tokio::time::Instant::now() + PATIENCE;
            while count().await < least {
                if tokio::time::Instant::now() >= deadline {
                    let all = second.runs().limit(1_000).await.unwrap().items;
                    let newest: Vec<_> = all.iter().take(4).collect();
                    panic!(
                        "no tick starts a run: {:?}; {} runs: {newest:#?}",
                        often.status().await,
                        all.len()
                    );
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        until(2).await;
        first.shutdown(Duration::ZERO).await.unwrap();
        until(count().await + 2).await;
        second.shutdown(Duration::ZERO).await.unwrap();

        let runs = often.runs().oldest_first().limit(1_000).await.unwrap().items;
        let mut ids: Vec<_> = runs.iter().map(|head| head.run.run.as_str().to_owned()).collect();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), runs.len());
        let progress = often.status().await.unwrap().progress;
        let decided = progress.decided.unwrap().unix_ms();
        let since: Vec<_> = ids[0].split('.').skip(1).collect();
        let ticks = (0..).find(|n| {
            let tick = Timestamp::from_unix_ms(decided - n * 1_000).to_string();
            tick.replace(".000Z", "Z") == since[0]
        });
        let accounted = progress.started + progress.skipped + progress.missed + progress.due.len() as u64;
        assert_eq!(accounted, ticks.unwrap() as u64 + 1, "{progress:?}");
        // The last tick of the first process may have started its run without being counted.
        let begun = runs.len() as u64 - progress.started;
        assert!(begun <= 1 && begun <= progress.due.len() as u64, "{progress:?}, {ids:?}");
        assert_eq!(place.ok(&["schedule", "ls", "-o", "ids"]), "often\n");
    })
    .await;
}

/// Guarantees: CLI-15.
#[tokio::test(flavor = "multi_thread")]
async fn on_files() {
    ticks_once(StoreKind::Files).await;
}

/// Guarantees: CLI-15.
#[tokio::test(flavor = "multi_thread")]
async fn on_sqlite() {
    ticks_once(StoreKind::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_postgres() {
    ticks_once(Some(Server::Postgres)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_redis() {
    ticks_once(Some(Server::Redis)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_redis_cluster() {
    ticks_once(Some(Server::RedisCluster)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_s3() {
    ticks_once(Some(Server::S3)).await;
}
