//! Queues on the page of the fleet and on the page of a waiting run, for any store and without the service's code.

use std::sync::Arc;

use ferrata_core::graph::Graph;
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::runtime::{Outcome, Runtime};
use ferrata_core::state::{Context, Draft};
use ferrata_core::{Clock as _, RunKey, SystemClock, TenantId};
use ferrata_inspector::Viewer;
use ferrata_queue::{NodeQueueExt as _, RuntimeQueueExt as _, StartQueueExt as _};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::support::{World, read};

/// A workflow that continues when it is released, with a slot of the queue `gpu` if requested.
fn held(name: &str, limited: bool, until: &Arc<Semaphore>) -> Graph<Context> {
    let until = Arc::clone(until);
    let work = move |cx: NodeContext, s: Draft<Context>| {
        let until = Arc::clone(&until);
        async move {
            let place = if limited { Some(cx.acquire("gpu", 1).key("card").await?) } else { None };
            until.acquire().await.map_err(|_| NodeError::from("closed"))?.forget();
            drop(place);
            Ok::<_, NodeError>(s)
        }
    };
    Graph::<Context>::builder(name).node("work", work).entry("work").build().unwrap()
}

/// Reads until the condition holds.
pub(crate) async fn until(router: &axum::Router, path: &str, is: impl Fn(&Value) -> bool) -> Value {
    let clock = SystemClock::new();
    let end = clock.monotonic() + std::time::Duration::from_secs(300);
    loop {
        let found = read(router, path).await;
        if is(&found) {
            return found;
        }
        assert!(clock.monotonic() < end, "{path}: {found:#}");
        clock.sleep(std::time::Duration::from_millis(10)).await;
    }
}

async fn queued(driver: &Runtime, graph: &Graph<Context>, tenant: &str, id: &str) {
    let start = driver.start(graph, Context::new()).tenant(tenant).id(id);
    _ = start.queue("mail").key("ann").await.unwrap();
}

/// Guarantees: INSPECT-21.
#[tokio::test]
async fn fleet_shows_queues_and_run_shows_position() {
    let world = World::new();
    let driver = world.driver().await;
    let go = Arc::new(Semaphore::new(0));
    let graph = held("letters", false, &go);
    driver.serve(&graph).unwrap();
    let mail = driver.queue("mail").at_once(1).declare().await.unwrap();
    driver.queue("unused").declare().await.unwrap();
    // Waiters that arrive within the same millisecond are ordered by name.
    for (tenant, id) in [("default", "a"), ("acme", "b"), ("default", "c"), ("default", "d")] {
        queued(&driver, &graph, tenant, id).await;
    }
    mail.pause("the provider is down").await.unwrap();
    mail.set(|set| set.at_once = Some(2)).await.unwrap();

    let router = world.router();
    let fleet = read(&router, "/api/v1/fleet").await;
    assert_eq!(fleet["queues"]["count"], 2, "{fleet:#}");
    let shown = &fleet["queues"]["items"][0];
    assert_eq!((&shown["name"], &shown["status"]), (&json!("mail"), &json!("paused")));
    assert_eq!(shown["why"], "the provider is down");
    assert_eq!((&shown["at_once"], &shown["set_by_operator"]), (&json!(2), &json!(["at_once"])));
    assert_eq!((&shown["held"], &shown["waiting"]), (&json!(1), &json!(3)));
    assert_eq!(shown["holders"][0]["run"]["id"], "a");
    let line: Vec<&str> =
        shown["line"].as_array().unwrap().iter().map(|one| one["run"]["id"].as_str().unwrap()).collect();
    assert_eq!(line, ["b", "c", "d"]);
    assert_eq!(fleet["queues"]["items"][1]["name"], "unused");
    // The runs of queues, and runs that wait for a slot, do not wait for a process.
    assert_eq!((&fleet["queued"]["count"], &fleet["orphaned"]["count"]), (&json!(0), &json!(0)), "{fleet:#}");

    let of = async |id: &str| read(&router, &format!("/api/v1/runs/default/{id}")).await["queues"].clone();
    let (a, c, d) = (of("a").await, of("c").await, of("d").await);
    assert_eq!((&a[0]["waits"], &a[0]["before"], &a[0]["for"]), (&json!(false), &json!(null), &json!("run")));
    assert_eq!((&c[0]["waits"], &c[0]["before"], &d[0]["before"]), (&json!(true), &json!(1), &json!(2)));
    assert_eq!((&d[0]["queue"], &d[0]["paused"]), (&json!("mail"), &json!("the provider is down")));
    assert_eq!((&d[0]["held"], &d[0]["at_once"], &d[0]["waiting"]), (&json!(1), &json!(2), &json!(3)));
    // A view of an earlier record does not show the current queue.
    assert_eq!(read(&router, "/api/v1/runs/default/d?at=0").await["queues"], json!([]));

    // A viewer of one tenant does not see runs of others.
    let of_tenant = |name: &str| {
        let viewer = Viewer::new().of_tenant(TenantId::new(name).unwrap());
        world.inspector().access(move |_| Some(viewer.clone())).into_router()
    };
    let (default, other) = (of_tenant("default"), of_tenant("acme"));
    let shown = read(&default, "/api/v1/fleet").await["queues"]["items"][0].clone();
    assert_eq!(shown["line"].as_array().unwrap().len(), 2, "{shown:#}");
    assert!(!shown.to_string().contains("acme"), "{shown:#}");
    assert_eq!(read(&other, "/api/v1/fleet").await["queues"]["count"], 0);
    let told = read(&other, "/api/v1/runs/acme/b").await["queues"][0].clone();
    assert_eq!((&told["queue"], &told["waits"]), (&json!("mail"), &json!(true)));
    assert!(told.get("before").is_none() && told.get("waiting").is_none(), "{told:#}");

    mail.unpause().await.unwrap();
    go.add_permits(8);
    until(&world.router(), "/api/v1/runs/default/d", |found| found["head"]["status"] == "completed").await;
}

/// Guarantees: INSPECT-21.
#[tokio::test]
async fn node_waiting_for_slot_names_queue() {
    let world = World::new();
    let router = world.router();
    // A waiting run leaves memory after a moment.
    let store = world.store.clone();
    let driver =
        Runtime::builder(store).release_after(std::time::Duration::from_millis(50)).build().await.unwrap();
    let patient = world.driver().await;
    let go = Arc::new(Semaphore::new(0));
    let (first, second) = (held("first", true, &go), held("second", true, &go));
    driver.serve(&second).unwrap();
    driver.queue("gpu").at_once(1).declare().await.unwrap();
    patient.start(&first, Context::new()).id("holder").await.unwrap();
    let fleet = until(&router, "/api/v1/fleet", |fleet| fleet["queues"]["items"][0]["held"] == 1).await;
    assert_eq!(fleet["queues"]["items"][0]["holders"][0]["for"], "node");
    // The run waits in memory, so its own log does not show the wait.
    patient.start(&first, Context::new()).id("memory").await.unwrap();
    let told = async |id: &str, is: &dyn Fn(&Value) -> bool| {
        until(&router, &format!("/api/v1/runs/default/{id}"), |found| is(&found["queues"][0])).await
    };
    let found = told("memory", &|one| one["waits"] == true).await;
    assert_eq!((&found["queues"][0]["before"], &found["head"]["status"]), (&json!(0), &json!("in_progress")));
    // An idle run waits with a question, which the grant answers.
    let rests = driver.start(&second, Context::new()).id("rests").await.unwrap();
    assert!(matches!(rests.wait().await.unwrap(), Outcome::Interrupted(_)));
    // The cached list of queues is older than this waiter.
    let found = read(&router, "/api/v1/runs/default/rests").await;
    assert_eq!((&found["queues"][0]["queue"], &found["queues"][0]["before"]), (&json!("gpu"), &json!(1)));
    assert_eq!((&found["queues"][0]["for"], &found["queues"][0]["key"]), (&json!("node"), &json!("card")));
    go.add_permits(8);
    for id in ["holder", "memory", "rests"] {
        let path = format!("/api/v1/runs/default/{id}");
        let ended = until(&router, &path, |found| found["head"]["status"] == "completed").await;
        assert_eq!(ended["queues"], json!([]));
    }
}

/// Cached queue data is read again after some seconds, on a clock that a busy machine does not advance.
///
/// Guarantees: INSPECT-10.
#[tokio::test(start_paused = true)]
async fn quiet_queues_are_listed_without_reading() {
    let world = World::with_runs().await;
    let driver = world.driver().await;
    for name in ["a", "b", "c", "d"] {
        driver.queue(name).at_once(3).declare().await.unwrap();
    }
    let router = world.router();
    let cost = async |path: &str| {
        let before = world.reads();
        let found = read(&router, path).await;
        (world.reads() - before, found)
    };
    let (first, found) = cost("/api/v1/fleet").await;
    assert_eq!((first, found["queues"]["items"].as_array().unwrap().len()), (6, 4));
    assert_eq!(cost("/api/v1/fleet").await.0, 2, "the runs in progress and the list of queues");
    driver.queue("b").find().await.unwrap().unwrap().pause("enough").await.unwrap();
    let (again, found) = cost("/api/v1/fleet").await;
    assert_eq!((again, &found["queues"]["items"][0]["name"]), (3, &json!("b")), "changed data must be read");
    // A cancelled queue grants no slots, and does not hide other queues.
    driver.cancel(&RunKey::try_from("queue:c").unwrap(), "away with it").await.unwrap();
    let (_, found) = cost("/api/v1/fleet").await;
    assert_eq!(found["queues"]["unreadable"][0]["name"], "c", "{found:#}");
    assert_eq!(cost("/api/v1/fleet").await.0, 2, "an unreadable queue must not be read repeatedly");
    driver.purge(&RunKey::try_from("queue:c").unwrap()).await.unwrap();
    let (_, found) = cost("/api/v1/fleet").await;
    assert_eq!((&found["queues"]["count"], &found["queues"]["unreadable"]), (&json!(3), &json!([])));
    // For a run without a queue, the cost is unchanged.
    cost("/api/v1/runs/default/pay-2").await;
    assert_eq!(cost("/api/v1/runs/default/pay-2").await.0, 1);
}
