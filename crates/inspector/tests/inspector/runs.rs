//! Reading lists, a run, its state, and differences.

use std::sync::Arc;

use axum::http::StatusCode;
use ferrata_core::ask::{Answer, Ask};
use ferrata_core::graph::Graph;
use ferrata_core::node::{NodeContext, NodeError};
use ferrata_core::record::RunStatus;
use ferrata_core::state::{Context, Draft};
use ferrata_core::store::CheckpointStore as _;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::support::{READS, World, get, input, pay, read};

/// Guarantees: INSPECT-1.
#[tokio::test]
async fn reading_writes_nothing() {
    let world = World::with_runs().await;
    let router = world.router();
    for path in READS {
        let reply = get(&router, path).await;
        assert_eq!(reply.status, StatusCode::OK, "{path}: {}", reply.text);
    }
    assert!(world.reads() > 0);
    assert_eq!(world.writes(), 0, "the operator's runtime must not write");
}

#[tokio::test]
async fn runs_are_listed_by_filter_and_search() {
    let world = World::with_runs().await;
    let router = world.router();
    let ids = async |query: &str| -> Vec<String> {
        let list = read(&router, &format!("/api/v1/runs?{query}")).await;
        list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|run| format!("{}/{}", run["tenant"].as_str().unwrap(), run["id"].as_str().unwrap()))
            .collect()
    };
    assert_eq!(ids("status=failed").await, ["default/pay-3"]);
    assert_eq!(ids("status=failed,interrupted").await.len(), 2);
    assert_eq!(ids("tenant=other").await, ["other/pay-1"]);
    assert_eq!(
        ids("label=team%3Dred&user=ann&order=oldest").await,
        ["default/pay-1", "default/pay-2", "default/pay-3"]
    );
    assert_eq!(ids("q=PAY-3").await, ["default/pay-3"], "a complete id matches in any case");
    assert_eq!(ids("q=team%3Dred+pay-2").await, ["default/pay-2"]);
    assert_eq!(ids("q=other/pay-1").await, ["other/pay-1"]);
    assert_eq!(ids("q=nothing").await, [""; 0]);
    // The pages contain each run once.
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = read(&router, &format!("/api/v1/runs?limit=1&cursor={cursor}")).await;
        seen.extend(page["items"].as_array().unwrap().iter().map(|run| run["head"].clone()));
        match page["next"].as_str() {
            Some(next) => cursor = form_urlencoded::byte_serialize(next.as_bytes()).collect(),
            None => break,
        }
    }
    seen.dedup();
    assert_eq!(seen.len(), 4);
}

/// A search returns at most as many runs as requested, although it reads whole pages of the store.
///
/// Guarantees: INSPECT-9.
#[tokio::test]
async fn search_respects_limit_and_continues_after_it() {
    let world = World::with_runs().await;
    world.copy("pay-3", 40).await;
    world.copy("pay-1", 30).await;
    let router = world.router();
    let all = read(&router, "/api/v1/runs?limit=200").await;
    let found = |answer: &Value, words: &str| -> Vec<String> {
        let items = answer["items"].as_array().unwrap().iter();
        let ids = items.map(|run| run["id"].as_str().unwrap().to_owned());
        ids.filter(|id| id.contains(words)).collect()
    };
    for (words, order) in [("pay-3", "newest"), ("pay", "newest"), ("1-2", "oldest"), ("none", "newest")] {
        let mut wanted = found(&all, words);
        if order == "oldest" {
            wanted.reverse();
        }
        for limit in [1, 2, 7, 41, 200] {
            let (mut seen, mut cursor) = (Vec::new(), String::new());
            loop {
                let before = world.reads();
                let path = format!("/api/v1/runs?q={words}&order={order}&limit={limit}&cursor={cursor}");
                let page = read(&router, &path).await;
                assert!(world.reads() - before <= 3, "{path}");
                let ids = found(&page, "");
                // The run with exactly this id comes first, however old it is.
                let named = usize::from(cursor.is_empty() && limit == 1 && words == "pay-3");
                assert!(ids.len() <= limit + named, "{path}: {ids:?}");
                seen.extend(ids);
                match page["next"].as_str() {
                    Some(next) => cursor = form_urlencoded::byte_serialize(next.as_bytes()).collect(),
                    None => break,
                }
            }
            if words == "pay-3" {
                assert_eq!(seen.remove(0), "pay-3");
                wanted.retain(|id| id != "pay-3");
                seen.retain(|id| id != "pay-3");
            }
            assert_eq!(seen, wanted, "{words}, {limit}");
        }
    }
}

/// Guarantees: INSPECT-9.
#[tokio::test]
async fn run_list_reads_no_log_and_no_payload() {
    let world = World::with_runs().await;
    let router = world.router();
    let before = world.reads();
    let list = read(&router, "/api/v1/runs").await;
    assert_eq!(world.reads() - before, 1, "one call of the store");
    assert!(!list.to_string().contains("4111-1111") && !list.to_string().contains("bank is closed"));
    // Data beyond the head is read once per head.
    let brief = async || read(&router, "/api/v1/briefs?run=default/pay-3&run=default/pay-2").await;
    let first = brief().await;
    assert_eq!(first["items"][0]["brief"]["failed_node"], "send");
    assert!(first["items"][0]["brief"]["failure"].as_str().unwrap().contains("the bank is closed"));
    assert_eq!(first["items"][1]["brief"]["why"]["question"], "approve@1:gate");
    let before = world.reads();
    assert_eq!(brief().await, first);
    assert_eq!(world.reads() - before, 2, "only the heads must be read");
}

/// Guarantees: INSPECT-17.
#[tokio::test]
async fn run_view_has_entire_graph_without_payload() {
    let world = World::with_runs().await;
    let show = read(&world.router(), "/api/v1/runs/default/pay-3").await;
    assert!(!show.to_string().contains("4111-1111"), "{show}");
    let names = |show: &Value| -> Vec<String> {
        let mut names: Vec<String> = show["run"]["graph"]["nodes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|node| node["name"].as_str().unwrap().to_owned())
            .collect();
        names.sort();
        names
    };
    assert_eq!(
        names(&show),
        ["approve", "check", "refuse", "send"],
        "this also holds for nodes that the run has not visited"
    );
    let look = |show: &Value, name: &str| {
        let nodes = show["run"]["graph"]["nodes"].as_array().unwrap();
        nodes.iter().find(|node| node["name"] == name).unwrap()["look"].clone()
    };
    assert_eq!(look(&show, "check"), "done");
    assert_eq!(look(&show, "send"), "failed");
    assert_eq!(show["why"][0]["text"], "failed at `send@1`: the bank is closed");
    assert_eq!(show["run"]["open"][0]["stopped"], true);
    // The edges are known without the code. The outline adds their conditions.
    assert_eq!(show["run"]["graph"]["edges"].as_array().unwrap().len(), 4);
    let known = world.inspector().graph(&pay()).into_router();
    let show = read(&known, "/api/v1/runs/default/pay-3").await;
    let edges = show["run"]["graph"]["edges"].as_array().unwrap();
    let taken: Vec<&Value> = edges.iter().filter(|edge| edge["taken"] == 1).collect();
    assert_eq!((edges.len(), taken.len()), (4, 1));
    assert_eq!(
        (&taken[0]["from"], &taken[0]["to"], &taken[0]["kind"]),
        (&json!("check"), &json!("send"), &json!("routed"))
    );
    // At the record before the failure, the node was running.
    let then = read(&known, "/api/v1/runs/default/pay-3?at=check@1").await;
    assert_eq!(look(&then, "send"), "going");
    assert_eq!(then["run"]["failure"], Value::Null);
}

/// Guarantees: INSPECT-15.
#[tokio::test]
async fn inbox_lists_questions_with_answer_shapes() {
    let world = World::with_runs().await;
    let router = world.router();
    let inbox = read(&router, "/api/v1/questions").await;
    let items = inbox["items"].as_array().unwrap();
    assert_eq!(items.len(), 1);
    assert_eq!(items[0]["run"]["id"], "pay-2");
    assert_eq!(items[0]["question"]["expects"], "bool");
    assert_eq!(items[0]["question"]["schema"]["type"], "boolean");
    assert_eq!(items[0]["question"]["text"], "\"Pay this much?\"");
    let before = world.reads();
    read(&router, "/api/v1/questions").await;
    assert_eq!(world.reads() - before, 1, "an open page costs one call of the store");
}

/// A graph that never ends.
fn ever_busy() -> Graph<Context> {
    Graph::<Context>::builder("busy")
        .node("work", async |_cx, _s: Draft<Context>| std::future::pending::<Result<(), NodeError>>().await)
        .entry("work")
        .build()
        .unwrap()
}

/// The inbox shows an older waiting run behind two hundred newer active runs.
///
/// Guarantees: INSPECT-15.
#[tokio::test]
async fn inbox_shows_old_question_among_many_active_runs() {
    let world = World::with_runs().await;
    let driver = world.driver().await;
    let _run = driver.start(&ever_busy(), Context::new()).id("busy").await.unwrap();
    world.copy("busy", 250).await;
    world.copy("pay-2", 2).await;
    let router = world.router();
    let first = read(&router, "/api/v1/questions").await;
    let asking: Vec<&Value> =
        first["items"].as_array().unwrap().iter().map(|one| &one["run"]["id"]).collect();
    assert_eq!(asking, ["pay-2-1", "pay-2-0", "pay-2"]);
    assert_eq!((&first["looked_at"], &first["unread"]), (&json!(200), &json!(100)));
    assert!(first["next"].is_string(), "there are more runs: {}", first["next"]);
    // The pages contain each run once, idle runs before active ones.
    for limit in [1, 2, 3, 50] {
        let (mut asking, mut looked, mut cursor) = (Vec::new(), 0, String::new());
        loop {
            let page = read(&router, &format!("/api/v1/questions?limit={limit}&cursor={cursor}")).await;
            asking.extend(page["items"].as_array().unwrap().iter().map(|one| one["run"]["id"].clone()));
            looked += page["looked_at"].as_u64().unwrap();
            match page["next"].as_str() {
                Some(next) => cursor = form_urlencoded::byte_serialize(next.as_bytes()).collect(),
                None => break,
            }
        }
        assert_eq!(
            (looked, asking),
            (254, vec![json!("pay-2-1"), json!("pay-2-0"), json!("pay-2")]),
            "{limit}"
        );
    }
    let foreign = get(&router, "/api/v1/questions?cursor=elsewhere").await;
    assert_eq!(foreign.status, StatusCode::BAD_REQUEST);
}

/// Reads an inbox with so many runs that idle and active runs are listed separately. `meanwhile` happens in between.
async fn inbox(world: &World, meanwhile: impl Future<Output = ()> + Send + 'static) -> Vec<String> {
    // The first listing covers both, and the second only idle runs.
    for _listing in 0..2 {
        world.counting.meanwhile.add(async {});
    }
    world.counting.meanwhile.add(meanwhile);
    let answer = read(&world.router(), "/api/v1/questions?limit=2").await;
    let items = answer["items"].as_array().unwrap().iter();
    items.map(|one| format!("{} {}", one["run"]["id"], one["question"]["id"]).replace('"', "")).collect()
}

/// A graph with a question and concurrent work.
fn asks_beside(work: &Arc<Notify>) -> Graph<Context> {
    let work = Arc::clone(work);
    Graph::<Context>::builder("beside")
        .node("begin", async |_cx, s| Ok(s))
        .gate("left", |_s: &Context| Ask::<bool>::new("Left?"), |s, yes| s.set("left", yes))
        .gate("right", |_s: &Context| Ask::<bool>::new("Right?"), |s, yes| s.set("right", yes))
        .node("work", move |_cx: NodeContext, s: Draft<Context>| {
            let work = Arc::clone(&work);
            async move {
                work.notified().await;
                Ok(s)
            }
        })
        .entry("begin")
        .route("begin", ["left", "right", "work"], |s: &Context, _cx| match s.get::<bool>("busy") {
            Ok(Some(true)) => vec!["right", "work"],
            _ => vec!["left", "right"],
        })
        .edge("left", "work")
        .build()
        .unwrap()
}

/// A run that becomes active between two listings is in the inbox once, and a run that becomes idle is not omitted.
///
/// Guarantees: INSPECT-15.
#[tokio::test]
async fn inbox_shows_run_moving_during_listing_once() {
    let begun = async |busy: bool| {
        let (world, work) = (World::new(), Arc::new(Notify::new()));
        let (driver, graph) = (world.driver().await, asks_beside(&work));
        for id in ["a-1", "a-2"] {
            driver.start(&ever_busy(), Context::new()).id(id).await.unwrap();
        }
        let mut state = Context::new();
        state.set("busy", busy).unwrap();
        let run = driver.start(&graph, state).id("moves").await.unwrap();
        (world, work, driver, graph, run)
    };
    // One of its two questions is answered, and a process claims it.
    let (world, _work, driver, graph, run) = begun(false).await;
    run.wait().await.unwrap();
    let asks = inbox(&world, async move {
        driver.respond(run.run(), "left", Answer::accept(true).unwrap()).await.unwrap();
        driver.resume(&graph, "moves").await.unwrap();
        assert_eq!(driver.head(run.run()).await.unwrap().unwrap().status, RunStatus::InProgress);
    });
    assert_eq!(asks.await, ["moves right@1:gate"]);
    // Its work next to the question has completed.
    let (world, work, _driver, _graph, run) = begun(true).await;
    let asks = inbox(&world, async move {
        work.notify_one();
        run.wait().await.unwrap();
    });
    assert_eq!(asks.await, ["moves right@1:gate"]);
}

/// Guarantees: INSPECT-9.
#[tokio::test]
async fn state_is_read_one_level_each() {
    let world = World::new();
    let driver = world.driver().await;
    let graph = ferrata_core::graph::Graph::<Context>::builder("big")
        .node("keep", async |_cx, s| Ok(s))
        .entry("keep")
        .build()
        .unwrap();
    let mut state = Context::new();
    state.set("text", "ä".repeat(20_000)).unwrap();
    state.set("list", (0..1_000).collect::<Vec<u32>>()).unwrap();
    state.set("a/b~c", json!({ "deep": { "er": 1 } })).unwrap();
    driver.start(&graph, state).id("big").await.unwrap().wait().await.unwrap();
    let router = world.router();
    let state = async |query: &str| {
        read(&router, &format!("/api/v1/runs/default/big/state?{query}")).await["state"].clone()
    };
    let top = state("").await;
    assert_eq!((&top["kind"], &top["total"], &top["next"]), (&json!("object"), &json!(3), &Value::Null));
    let of = |key: &str| {
        top["entries"].as_array().unwrap().iter().find(|entry| entry["key"] == key).unwrap().clone()
    };
    assert_eq!(of("a/b~c")["value"], json!({ "deep": { "er": 1 } }), "small values must be complete");
    assert_eq!(of("a/b~c")["path"], "/a~1b~0c");
    assert!(of("text")["value"].is_null() && of("text")["preview"].as_str().unwrap().chars().count() < 200);
    assert_eq!(state("path=/a~1b~0c/deep/er").await["value"], 1);
    // A long text or list continues where it was cut.
    let (mut text, mut offset) = (String::new(), 0);
    loop {
        let part = state(&format!("path=/text&offset={offset}")).await;
        text.push_str(part["value"].as_str().unwrap());
        match part["next"].as_u64() {
            Some(next) => offset = next,
            None => break,
        }
    }
    assert_eq!(text, "ä".repeat(20_000));
    let part = state("path=/list&offset=900&limit=60").await;
    assert_eq!((part["entries"].as_array().unwrap().len(), &part["next"]), (60, &json!(960)));
    assert_eq!(part["entries"][0]["value"], 900);
    assert_eq!(state("path=/list&offset=99999").await["entries"], json!([]));
    assert_eq!(get(&router, "/api/v1/runs/default/big/state?path=/none").await.status, StatusCode::NOT_FOUND);
}

/// Guarantees: INSPECT-20.
#[tokio::test]
async fn states_differ_between_places_and_between_runs() {
    let world = World::with_runs().await;
    let router = world.router();
    let diff = read(&router, "/api/v1/runs/default/pay-1/diff?from=0&to=latest").await;
    assert_eq!(
        diff["changes"],
        json!([{ "op": "add", "path": "/receipt", "after": { "value": "r-1", "bytes": 5 } }])
    );
    let diff = read(&router, "/api/v1/runs/default/pay-1/diff?from=0&to=0&of=default/pay-3").await;
    assert_eq!(diff["changes"][0]["path"], "/amount");
    assert_eq!(
        (&diff["changes"][0]["before"]["value"], &diff["changes"][0]["after"]["value"]),
        (&json!(5), &json!(13))
    );
}

#[tokio::test]
async fn records_are_told_in_words_from_any_on() {
    let world = World::with_runs().await;
    let router = world.router();
    let all = read(&router, "/api/v1/runs/default/pay-3/records").await;
    let items = all["items"].as_array().unwrap();
    assert!(items[0]["text"].as_str().unwrap().contains("started at `check`"));
    assert!(
        items
            .iter()
            .any(|item| item["node"] == "send" && item["text"].as_str().unwrap().contains("bank is closed"))
    );
    let part = read(&router, "/api/v1/runs/default/pay-3/records?from=1&limit=1").await;
    assert_eq!((&part["items"][0]["seq"], &part["from"]), (&json!(1), &json!(1)));
    assert_eq!(part["next"], json!(2));
}

#[tokio::test]
async fn a_family_is_shown_with_forks_and_lineage() {
    let world = World::with_runs().await;
    let source = ferrata_core::RunKey::try_from("pay-3").unwrap();
    world
        .operator
        .fork(&source, ferrata_core::runtime::Position::Latest)
        .id("again")
        .start_at("check")
        .await
        .unwrap();
    let router = world.router();
    let family = read(&router, "/api/v1/runs/default/pay-3/family").await;
    assert_eq!(family["forks"][0]["id"], "again");
    let family = read(&router, "/api/v1/runs/default/again/family").await;
    let line: Vec<&Value> =
        family["lineage"].as_array().unwrap().iter().map(|one| &one["run"]["id"]).collect();
    assert_eq!(line, [&json!("pay-3"), &json!("again")]);
    let _ = input(1);
}

/// The drawing contains the edges of unvisited nodes, and those that a fork took over.
///
/// Guarantees: INSPECT-17.
#[tokio::test]
async fn whole_graph_is_known_from_log() {
    let world = World::with_runs().await;
    let edges = async |path: &str| {
        let shown =
            read(&world.router(), &format!("/api/v1/runs/default/{path}")).await["run"]["graph"].clone();
        assert_eq!(shown["whole"], true, "{shown:#}");
        let all = shown["edges"].as_array().unwrap().iter();
        let word = |value: &Value| value.as_str().unwrap().to_owned();
        all.map(|edge| format!("{} {} {}", word(&edge["from"]), word(&edge["to"]), edge["taken"]))
            .collect::<Vec<_>>()
    };
    let all = |check: [u8; 2]| {
        let [approve, send] = check;
        [
            "approve refuse 0".to_owned(),
            "approve send 0".to_owned(),
            format!("check approve {approve}"),
            format!("check send {send}"),
        ]
    };
    assert_eq!(edges("pay-1").await, all([0, 1]));
    // An earlier record has the same edges, so that the drawing does not move.
    assert_eq!(edges("pay-1?at=0").await, all([0, 0]));
    assert_eq!(edges("pay-2").await, all([1, 0]));
    let source = ferrata_core::RunKey::try_from("pay-3").unwrap();
    let fork = world.operator.fork(&source, ferrata_core::runtime::Position::Latest).id("f");
    fork.start_at("check").await.unwrap();
    assert_eq!(
        edges("f").await,
        all([0, 0]),
        "only the source's log contains the edges that fired before the fork"
    );
}

/// Guarantees: INSPECT-21.
#[tokio::test]
async fn the_fleet_tells_executors_and_runs_without_one() {
    let world = World::with_runs().await;
    let source = ferrata_core::RunKey::try_from("pay-3").unwrap();
    world
        .operator
        .fork(&source, ferrata_core::runtime::Position::Latest)
        .id("left")
        .start_at("check")
        .await
        .unwrap();
    let fleet = read(&world.router(), "/api/v1/fleet").await;
    assert_eq!(fleet["in_progress"], 1, "{fleet}");
    assert_eq!(fleet["store"]["kind"], "memory");
    let alone = fleet["queued"]["count"].as_u64().unwrap() + fleet["orphaned"]["count"].as_u64().unwrap();
    assert_eq!(alone, 1);
}

#[tokio::test]
async fn dead_owner_is_shown_without_new_record() {
    let world = World::new();
    let driver = world.driver().await;
    let graph = ferrata_core::graph::Graph::<Context>::builder("long")
        .node("work", async |_cx, _s: ferrata_core::state::Draft<Context>| {
            std::future::pending::<Result<(), ferrata_core::node::NodeError>>().await
        })
        .entry("work")
        .build()
        .unwrap();
    driver.start(&graph, Context::new()).id("Long-1").await.unwrap();
    let router = world.router();
    let kinds = async || read(&router, "/api/v1/runs/default/Long-1").await["why"].clone();
    assert_eq!(kinds().await[0]["kind"], "working");
    world.store.heartbeat(&driver.executor(), std::time::Duration::ZERO).await.unwrap();
    assert_eq!(kinds().await[0]["kind"], "orphaned");
    let found = read(&router, "/api/v1/runs?q=Long-1").await;
    assert_eq!(found["items"].as_array().unwrap().len(), 1, "ids are case-sensitive");
}

/// Guarantees: INSPECT-21.
#[tokio::test]
async fn children_are_listed_by_node_failures_first() {
    let world = World::new();
    let child = ferrata_core::graph::Graph::<Context>::builder("child")
        .node("work", async |_cx, s: ferrata_core::state::Draft<Context>| match s.get::<u32>("number")? {
            Some(7) => Err(ferrata_core::node::NodeError::from("seven").fatal()),
            _ => Ok(s),
        })
        .entry("work")
        .build()
        .unwrap();
    let parent = ferrata_core::graph::Graph::<Context>::builder("parent")
        .node("fan", move |cx: NodeContext, s: ferrata_core::state::Draft<Context>| {
            let child = child.clone();
            async move {
                for number in 0..20_u32 {
                    let mut input = Context::new();
                    input.set("number", number)?;
                    // The test needs the failure of this child.
                    let _ = cx.child(&child, input).name(format!("c{number}")).await;
                }
                Ok(s)
            }
        })
        .entry("fan")
        .build()
        .unwrap();
    let driver = world.driver().await;
    driver.start(&parent, Context::new()).id("parent").await.unwrap().completed().await.unwrap();
    let family = read(&world.router(), "/api/v1/runs/default/parent/family?limit=5").await;
    assert_eq!(family["children"].as_array().unwrap().len(), 5);
    assert_eq!(family["more_children"], true);
    let fan = &family["by_node"][0];
    assert_eq!((&fan["node"], &fan["count"]), (&json!("fan"), &json!(20)));
    assert_eq!(fan["statuses"], json!({ "completed": 19, "failed": 1 }));
    assert_eq!((&fan["runs"][0]["name"], &fan["runs"][0]["status"]), (&json!("c7"), &json!("failed")));
    assert_eq!(fan["runs"].as_array().unwrap().len(), 8);
}

/// The page reads the effects that a fork would repeat from the newest record, also while it shows an earlier one.
///
/// Guarantees: INSPECT-20.
#[tokio::test]
async fn fork_lists_repeated_effects_from_newest_record() {
    let world = World::with_runs().await;
    let router = world.router();
    let again = async |query: &str| -> Vec<String> {
        let told = read(&router, &format!("/api/v1/runs/default/pay-1/repeats?{query}")).await;
        let items = told["items"].as_array().unwrap().iter();
        items
            .map(|one| format!("{} {} {}", one["node"], one["effect"], one["times"]).replace('"', ""))
            .collect()
    };
    assert_eq!(again("at=0").await, ["check write 1", "send write 1"]);
    assert_eq!(again("at=check@1").await, ["send write 1"]);
    assert_eq!(again("").await, [""; 0]);
    assert_eq!(again("start_at=send").await, ["check write 1", "send write 1"]);
    let stranger = get(&router, "/api/v1/runs/default/pay-1/repeats?start_at=nowhere").await;
    assert_eq!(stranger.status, StatusCode::NOT_FOUND);
}
