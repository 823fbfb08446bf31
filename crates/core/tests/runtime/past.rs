//! Reading, forking, verifying, copying and pruning a run's log.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::sync::Arc;
use std::time::Duration;

use ferrata_core::ask::{Answer, Ask};
use ferrata_core::graph::{Effect, Graph, RetryPolicy};
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{Change, Checkpoint, Outcome, Position, RetentionPolicy, Runtime, SweepLimits};
use ferrata_core::state::{Context, Op, Patch, Reducer};
use ferrata_core::store::{At, CheckpointStore, MemoryStore, Page, Removed};
use ferrata_core::{ErrorKind, RunKey, Seq, Timestamp};
use ferrata_testing::{ManualClock, verify_golden};

fn key(id: &str) -> RunKey {
    RunKey::try_from(id).unwrap()
}

async fn runtime(store: &MemoryStore) -> Runtime {
    Runtime::builder(store.clone()).build().await.unwrap()
}

/// A graph that counts, asks, and doubles. The gate leads to `then`.
fn graph(then: &str) -> Graph<Context> {
    Graph::<Context>::builder("g")
        .channel("path", Reducer::Append)
        .node("count", async |cx, mut s| {
            s.set("n", 1)?;
            s.push("path", cx.node().to_string())?;
            Ok(s)
        })
        .effect(Effect::Pure)
        .gate("ok", |_s: &Context| Ask::<bool>::new("Go on?"), |s, yes| s.set("yes", yes))
        .node("double", async |_cx, mut s| {
            let n: i64 = s.get("n")?.unwrap_or_default();
            s.set("n", 2 * n)?;
            s.push("path", "double")?;
            Ok(s)
        })
        .node("triple", async |_cx, mut s| {
            let n: i64 = s.get("n")?.unwrap_or_default();
            s.set("n", 3 * n)?;
            Ok(s)
        })
        .entry("count")
        .edge("count", "ok")
        .edge("ok", then)
        .edge(
            if then == "double" { "double" } else { "triple" },
            if then == "double" { "triple" } else { "double" },
        )
        .build()
        .unwrap()
}

/// A run that was answered and has completed.
async fn done(store: &MemoryStore) -> Runtime {
    let runtime = runtime(store).await;
    let graph = graph("double");
    let request = runtime.start(&graph, Context::new()).id("r").label("team", "blue").user("ann");
    request.await.unwrap().wait().await.unwrap();
    runtime.respond(&key("r"), "ok", Answer::accept(true).unwrap()).by("bob").await.unwrap();
    let outcome = runtime.resume(&graph, "r").await.unwrap().wait().await.unwrap();
    assert!(matches!(outcome, Outcome::Completed(_)));
    runtime
}

#[tokio::test]
async fn past_state_is_found_by_number_id_visit() {
    let store = MemoryStore::new();
    let runtime = done(&store).await;
    let graph = graph("double");
    let headers = runtime.history(&key("r"), Page::first(100)).await.unwrap().items;
    let double = headers
        .iter()
        .find(|header| header.node.as_ref().is_some_and(|node| node.as_str() == "double"))
        .unwrap();
    for position in [Position::Seq(double.seq), Position::Record(double.id), "double@1".parse().unwrap()] {
        let state = runtime.state_at(&graph, &key("r"), position).await.unwrap();
        assert_eq!(state.get::<i64>("n").unwrap(), Some(2));
    }
    let error =
        runtime.state_at(&graph, &key("r"), "double@2".parse::<Position>().unwrap()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
}

/// An unknown node name in a position yields an error that suggests the closest name.
#[tokio::test]
async fn unknown_node_position_suggests_closest_name() {
    let store = MemoryStore::new();
    let runtime = done(&store).await;
    let run = key("r");
    let unknown = "run default/r: the graph has no node `duoble`; did you mean `double`?";
    let place = runtime.checkpoint(&run, "duoble@1".parse::<Position>().unwrap()).await.unwrap_err();
    let node = runtime.find_node(&run, "duoble").await.unwrap_err();
    for error in [place, node] {
        assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::NotFound, unknown));
    }
    assert_eq!(runtime.find_node(&run, "double").await.unwrap().as_str(), "double");
    // A name without a similar node yields no suggestion.
    let far = runtime.find_node(&run, "publish").await.unwrap_err();
    assert_eq!(far.to_string(), "run default/r: the graph has no node `publish`");
    let forked = runtime.fork(&run, Position::Latest).start_at(["tripple"]).await.unwrap_err();
    assert!(forked.to_string().contains("no node `tripple`; did you mean `triple`?"), "{forked}");
}

/// Guarantees: CHECKPOINT-1.
#[tokio::test]
async fn checkpoint_shows_all_fields_and_preserves_unknown_ones() {
    let store = MemoryStore::new();
    let runtime = done(&store).await;
    let now = runtime.checkpoint(&key("r"), Position::Latest).await.unwrap();
    assert_eq!(now.status, RunStatus::Completed);
    assert_eq!(now.user.as_deref(), Some("ann"));
    assert_eq!(now.labels.get("team"), Some("blue"));
    assert_eq!(now.input, Some(serde_json::json!({})));
    let past: Vec<_> =
        now.history.iter().map(|past| (past.node.as_str(), past.effect, past.attempts)).collect();
    assert_eq!(
        past,
        [
            ("count", Some(Effect::Pure), Some(1)),
            ("ok", Some(Effect::Human), Some(1)),
            ("double", Some(Effect::Write), Some(1)),
            ("triple", Some(Effect::Write), Some(1)),
        ]
    );
    let asked = runtime.checkpoint(&key("r"), "count@1".parse::<Position>().unwrap()).await.unwrap();
    assert_eq!(asked.next.iter().map(|next| next.node.as_str()).collect::<Vec<_>>(), ["ok"]);

    let mut text = serde_json::to_value(&now).unwrap();
    text["of_tomorrow"] = "kept".into();
    let read: Checkpoint = serde_json::from_value(text.clone()).unwrap();
    assert_eq!(serde_json::to_value(&read).unwrap(), text);
}

/// Guarantees: HISTORY-4.
#[tokio::test]
async fn a_difference_names_each_change_and_makes_it() {
    let store = MemoryStore::new();
    let runtime = done(&store).await;
    let diff = runtime
        .diff(&key("r"), "count@1".parse::<Position>().unwrap(), "double@1".parse::<Position>().unwrap())
        .await
        .unwrap();
    let changed =
        |path: &str| diff.changes.iter().find(|change| serde_json::to_value(change).unwrap()["path"] == path);
    let Some(Change::Replace { value, before, .. }) = changed("/n") else { panic!("{diff:?}") };
    assert_eq!((value, before), (&2.into(), &1.into()));
    assert!(matches!(changed("/path/1"), Some(Change::Add { .. })), "{diff:?}");
    let mut state = serde_json::json!({"n": 1, "path": ["count"]});
    diff.apply(&mut state).unwrap();
    assert_eq!(state, serde_json::json!({"n": 2, "path": ["count", "double"], "yes": true}));
    let mut other = serde_json::json!([]);
    assert_eq!(diff.apply(&mut other).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(other, serde_json::json!([]));
}

#[tokio::test]
async fn fork_continues_from_past_and_preserves_source() {
    let store = MemoryStore::new();
    let runtime = done(&store).await;
    let graph = graph("double");
    let before = runtime.export(&key("r")).await.unwrap();
    let patch = Patch::from_ops(&[Op::Set("n".into(), 10.into())]).unwrap();
    let at: Position = "ok@1".parse().unwrap();
    let fork = runtime.fork(&key("r"), at.clone()).id("f").edit(patch.clone()).drive(&graph).await.unwrap();
    let Outcome::Completed(state) = fork.wait().await.unwrap() else { panic!() };
    assert_eq!(state.get::<i64>("n").unwrap(), Some(60));
    assert_eq!(runtime.export(&key("r")).await.unwrap(), before);

    let head = runtime.head(&key("f")).await.unwrap().unwrap();
    assert_eq!(head.facts.parent.as_ref().unwrap().run, key("r"));
    assert_eq!((head.facts.user.as_deref(), head.facts.labels.get("team")), (Some("ann"), Some("blue")));
    let line = runtime.lineage(&key("f")).await.unwrap();
    assert_eq!(line.iter().map(|one| one.run.run.as_str().to_owned()).collect::<Vec<_>>(), ["r", "f"]);

    runtime.fork(&key("r"), at.clone()).id("f").edit(patch).drive(&graph).await.unwrap();
    let other = runtime.fork(&key("r"), at).id("f").drive(&graph).await.unwrap_err();
    assert_eq!(other.kind(), ErrorKind::AlreadyExists, "{other}");
}

#[tokio::test]
async fn a_fork_asks_again_and_may_begin_elsewhere() {
    let store = MemoryStore::new();
    let runtime = done(&store).await;
    let graph = graph("double");
    let asked = runtime
        .fork(&key("r"), "count@1".parse::<Position>().unwrap())
        .id("again")
        .drive(&graph)
        .await
        .unwrap();
    let Outcome::Interrupted(questions) = asked.wait().await.unwrap() else { panic!() };
    assert_eq!(questions[0].id, "ok@1:gate");

    let over = runtime.fork(&key("r"), Position::Latest).id("over").drive(&graph).await.unwrap_err();
    assert_eq!(over.kind(), ErrorKind::Invalid, "{over}");
    let elsewhere =
        runtime.fork(&key("r"), Position::Latest).id("else").start_at("double").drive(&graph).await.unwrap();
    let Outcome::Completed(state) = elsewhere.wait().await.unwrap() else { panic!() };
    assert_eq!(state.get::<i64>("n").unwrap(), Some(36));
    let stranger =
        runtime.fork(&key("r"), Position::Latest).start_at("nowhere").drive(&graph).await.unwrap_err();
    assert_eq!(stranger.kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn cancelled_run_forks_from_its_position() {
    let store = MemoryStore::new();
    let runtime = runtime(&store).await;
    let graph = graph("double");
    runtime.start(&graph, Context::new()).id("r").await.unwrap().wait().await.unwrap();
    runtime.cancel(&key("r"), "no").await.unwrap();
    let fork = runtime.fork(&key("r"), Position::Latest).id("f").drive(&graph).await.unwrap();
    let Outcome::Interrupted(questions) = fork.wait().await.unwrap() else { panic!() };
    assert_eq!(questions[0].id, "ok@1:gate");
}

#[tokio::test]
async fn verification_finds_first_diverging_record() {
    let store = MemoryStore::new();
    let runtime = done(&store).await;
    let same = runtime.verify(&graph("double"), &key("r")).await.unwrap();
    assert_eq!((same.divergence, same.checked), (None, 4));
    let other = runtime.verify(&graph("triple"), &key("r")).await.unwrap().divergence.unwrap();
    assert_eq!(other.node.as_ref().unwrap().as_str(), "ok");
    assert!(other.what.contains("the node led to double, and today leads to triple"), "{other}");
    let golden = runtime.export(&key("r")).await.unwrap();
    assert!(verify_golden(&graph("double"), &golden).await.unwrap().divergence.is_none());
    assert!(verify_golden(&graph("triple"), &golden).await.unwrap().divergence.is_some());
}

#[tokio::test]
async fn an_exported_run_is_imported_as_it_was() {
    let store = MemoryStore::new();
    let runtime = done(&store).await;
    let text = runtime.export(&key("r")).await.unwrap();
    let elsewhere = MemoryStore::new();
    let other = Runtime::builder(elsewhere.clone()).build().await.unwrap();
    assert_eq!(other.import(&text, None).await.unwrap(), key("r"));
    assert_eq!(other.import(&text, None).await.unwrap(), key("r"));
    assert_eq!(other.export(&key("r")).await.unwrap(), text);
    other.import(&text, Some(key("copy"))).await.unwrap();
    let (one, two) = (
        store.load(&key("r"), At::Latest).await.unwrap(),
        elsewhere.load(&key("copy"), At::Latest).await.unwrap(),
    );
    assert_eq!(one, two);

    let cut: String = text.lines().take(3).map(|line| format!("{line}\n")).collect();
    // Replace the checksum of the first record by another number of the same length.
    let (before, after) = text.split_once("\"crc\":").unwrap();
    let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap();
    let wrong = after[..digits].parse::<u32>().unwrap() ^ 1;
    let spoilt = format!("{before}\"crc\":{wrong}{}", &after[digits..]);
    for (bad, kind) in [
        (cut.as_str(), ErrorKind::Invalid),
        ("", ErrorKind::Invalid),
        ("{}", ErrorKind::Invalid),
        (&spoilt, ErrorKind::Corrupt),
    ] {
        assert_eq!(other.import(bad, Some(key("bad"))).await.unwrap_err().kind(), kind);
    }
    assert!(other.head(&key("bad")).await.unwrap().is_none());
}

/// A chain of `nodes` nodes that append to a list.
fn chain(nodes: usize) -> Graph<Context> {
    let mut builder = Graph::<Context>::builder("chain").channel("path", Reducer::Append);
    for at in 0..nodes {
        builder = builder.node(format!("n{at}"), async |cx, _s| {
            Ok(Context::update().reduce("path", vec![cx.node().to_string()]))
        });
    }
    builder = builder.entry("n0");
    for at in 1..nodes {
        builder = builder.edge(format!("n{}", at - 1), format!("n{at}"));
    }
    builder.build().unwrap()
}

#[tokio::test]
async fn prune_follows_policy_and_preserves_retained_states() {
    let store = MemoryStore::new();
    let runtime = runtime(&store).await;
    let graph = chain(60);
    runtime.start(&graph, Context::new()).id("r").await.unwrap().wait().await.unwrap();
    let last = runtime.head(&key("r")).await.unwrap().unwrap().seq.get();
    let mut states = Vec::new();
    for seq in 0..=last {
        states.push(runtime.state_at(&graph, &key("r"), Seq::new(seq)).await.unwrap());
    }
    let policy = RetentionPolicy::keep_all().keep_last(10);
    runtime.pin(&key("r"), Seq::new(last - 20)).await.unwrap();
    runtime.apply_retention(&key("r"), &policy).await.unwrap();
    assert_eq!(runtime.head(&key("r")).await.unwrap().unwrap().first, Seq::new(last - 20));
    runtime.unpin(&key("r"), Seq::new(last - 20)).await.unwrap();
    let removed = runtime.apply_retention(&key("r"), &policy).await.unwrap();
    let first = runtime.head(&key("r")).await.unwrap().unwrap().first.get();
    // Pinning and unpinning also write records.
    assert_eq!((first, removed.records, removed.bytes > 0), (last + 2 - 9, 13, true));
    for seq in first..=last {
        let kept = runtime.state_at(&graph, &key("r"), Seq::new(seq)).await.unwrap();
        assert_eq!(kept, states[usize::try_from(seq).unwrap()], "record {seq}");
    }
    let gone = runtime.state_at(&graph, &key("r"), Seq::new(first - 1)).await.unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound);
    assert_eq!(runtime.apply_retention(&key("r"), &policy).await.unwrap(), Removed::default());
}

#[tokio::test]
async fn active_run_prunes_its_log() {
    let store = MemoryStore::new();
    let policy = RetentionPolicy::keep_all().keep_last(20);
    let runtime = Runtime::builder(store.clone()).retention(policy).build().await.unwrap();
    let graph = chain(400);
    let Outcome::Completed(state) =
        runtime.start(&graph, Context::new()).id("r").await.unwrap().wait().await.unwrap()
    else {
        panic!()
    };
    assert_eq!(state.get::<Vec<String>>("path").unwrap().unwrap().len(), 400);
    // The driver polls its head a last time, concurrently with the run. Wait for that poll.
    let settled = async {
        loop {
            let head = runtime.head(&key("r")).await.unwrap().unwrap();
            if head.seq.get() - head.first.get() <= 3 * 20 {
                return head;
            }
            tokio::task::yield_now().await;
        }
    };
    settled.await;
}

#[tokio::test]
async fn sweep_removes_old_ended_runs_in_parts() {
    let clock = Arc::new(ManualClock::new(Timestamp::from_unix_ms(1_000_000)));
    let store = MemoryStore::with_clock(Arc::clone(&clock) as _);
    let runtime = Runtime::builder(store.clone()).clock(Arc::clone(&clock) as _).build().await.unwrap();
    let graph = chain(3);
    for id in 0..25 {
        runtime.start(&graph, Context::new()).id(format!("r{id}")).await.unwrap().wait().await.unwrap();
    }
    clock.advance(Duration::from_secs(3_600));
    runtime.start(&graph, Context::new()).id("young").await.unwrap().wait().await.unwrap();
    let policy = RetentionPolicy::keep_all().purge_after(RunStatus::Completed, Duration::from_secs(3_600));
    let dry = runtime.sweep(&policy, SweepLimits::default(), true).await.unwrap();
    assert_eq!((dry.runs, dry.purged, dry.next.is_none()), (26, 25, true));
    let (mut limits, mut purged, mut records) = (SweepLimits::default().with_runs(10), 0, 0);
    loop {
        let report = runtime.sweep(&policy, limits.clone(), false).await.unwrap();
        assert!(report.runs <= 10 && report.failed.is_empty());
        purged += report.purged;
        records += report.records;
        match report.next {
            Some(next) => limits = limits.with_cursor(next),
            None => break,
        }
    }
    assert_eq!((purged, records), (25, dry.records));
    assert!(runtime.head(&key("young")).await.unwrap().is_some());
}

#[tokio::test]
async fn old_state_version_migrates_step_by_step() {
    let store = MemoryStore::new();
    let runtime = runtime(&store).await;
    let old = graph("double");
    runtime.start(&old, Context::new()).id("r").await.unwrap().wait().await.unwrap();
    runtime.respond(&key("r"), "ok", Answer::accept(true).unwrap()).await.unwrap();
    let build = |steps: u32| {
        let mut builder = Graph::<Context>::builder("g").channel("path", Reducer::Append).state_version(3);
        for from in 1..=steps {
            builder = builder.migrate(from, move |channels| {
                let n = channels.get("n").and_then(serde_json::Value::as_i64).unwrap_or_default();
                channels.insert("n".into(), (n * 10 + i64::from(from)).into());
                Ok(())
            });
        }
        builder
            .node("count", async |_cx, _s| Ok(()))
            .effect(Effect::Pure)
            .gate("ok", |_s: &Context| Ask::<bool>::new("Go on?"), |s, yes| s.set("yes", yes))
            .node("double", async |_cx, _s| Ok(()))
            .node("triple", async |_cx, _s| Ok(()))
            .entry("count")
            .edge("count", "ok")
            .edge("ok", "double")
            .edge("double", "triple")
            .build()
            .unwrap()
    };
    let head = runtime.head(&key("r")).await.unwrap().unwrap();
    let error = runtime.resume(&build(1), "r").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::GraphChanged, "{error}");
    assert!(error.to_string().contains("add `.migrate(2, ..)`"), "{error}");
    assert_eq!(runtime.head(&key("r")).await.unwrap().unwrap(), head, "the check must change nothing");
    let Outcome::Completed(state) = runtime.resume(&build(2), "r").await.unwrap().wait().await.unwrap()
    else {
        panic!()
    };
    assert_eq!(state.get::<i64>("n").unwrap(), Some(112));
    let stale = runtime.state_at(&old, &key("r"), Position::Latest).await.unwrap_err();
    assert_eq!(stale.kind(), ErrorKind::GraphChanged, "{stale}");
}

#[tokio::test]
async fn a_post_mortem_tells_what_happened_and_why() {
    let store = MemoryStore::new();
    let runtime = runtime(&store).await;
    let graph = Graph::<Context>::builder("g")
        .node("fails", async |_cx, _s| {
            let error: Result<(), _> = Err(std::io::Error::other("no | network"));
            error?;
            Ok(())
        })
        .retry(RetryPolicy::none().with_attempts(2))
        .entry("fails")
        .build()
        .unwrap();
    runtime.start(&graph, Context::new()).id("r").await.unwrap().wait().await.unwrap();
    let text = runtime.post_mortem(&key("r")).await.unwrap();
    for part in [
        "# Run default/r: failed",
        "attempt 1 of `fails@1` failed",
        "failed after 2 attempts",
        "no \\| network",
        "`fails@1` stopped the run",
    ] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
}
