//! An exported and imported run equals the original, even after a prune. Only its records get new numbers.

use ferrata_core::Clock as _;
use ferrata_core::graph::Graph;
use ferrata_core::record::{Record, RecordHeader, RunStatus};
use ferrata_core::runtime::{Position, RetentionPolicy, Runtime};
use ferrata_core::state::{Context, Op, Patch};
use ferrata_core::store::{CheckpointStore, MemoryStore};
use ferrata_core::{ErrorKind, Seq};

use super::chance::Chance;
use super::kept::chain;
use super::prunes::cut_at;
use super::random_runs::{Log, RandomRun, end, key, last, records};
use super::seeds;

async fn plain(store: &MemoryStore) -> Runtime {
    Runtime::builder(store.clone()).build().await.unwrap()
}

/// A record without its sequence number, and without the places that repeat it.
fn unnumbered(record: &Record) -> (RecordHeader, Vec<u8>) {
    let header = RecordHeader { seq: Seq::new(0), prev: None, ..record.header.clone() };
    (header, record.body.to_vec())
}

/// The effect of an import on records: the owner of the exported run does not own the copy.
fn let_go(mut records: Vec<Record>) -> Vec<Record> {
    let head = &mut records.last_mut().unwrap().header;
    if !matches!(head.status, RunStatus::Completed | RunStatus::Cancelled) {
        head.owner = None;
    }
    records
}

/// Guarantees: COPY-1.
#[tokio::test]
async fn a_copy_is_the_run() {
    for seed in seeds(60) {
        let store = RandomRun::of(seed).live().await;
        let run = key("r");
        let runtime = plain(&store).await;
        let text = runtime.export(&run).await.unwrap();
        let elsewhere = MemoryStore::new();
        let other = plain(&elsewhere).await;
        // The same import again returns the same run.
        for _ in 0..2 {
            assert_eq!(other.import(&text, None).await.unwrap(), run);
        }
        assert_eq!(records(&elsewhere, &run).await, let_go(records(&store, &run).await), "seed {seed}");
        other.check_log(&run).await.unwrap();
        let (mut before, mut after) =
            (runtime.head(&run).await.unwrap().unwrap(), other.head(&run).await.unwrap().unwrap());
        // The store decides whether the owner is alive, so ignore this field.
        (before.owner_alive, after.owner_alive) = (false, false);
        if before.status == RunStatus::Failed {
            before.owner = None;
        }
        assert_eq!(after, before, "seed {seed}");
    }
}

/// Guarantees: COPY-1.
#[tokio::test]
async fn copy_of_pruned_run_renumbers_records() {
    for seed in seeds(40) {
        let random_run = RandomRun::of(seed);
        let mut chance = Chance::new(seed ^ 5);
        let store = random_run.live().await;
        let run = key("r");
        let to = last(&store, &run).await;
        let at = chance.below(usize::try_from(to).unwrap()) as u64;
        let cut = chance.below(usize::try_from(at + 1).unwrap()) as u64;
        let label = format!("seed {seed}, as of {at}, cut at {cut}");
        let store = Log::of(&store, &run).await.as_of(at).await;
        cut_at(&store, &run, cut).await;
        let runtime = random_run.process(&store, 2).await;
        let text = runtime.export(&run).await.unwrap();
        let elsewhere = MemoryStore::new();
        let other = random_run.process(&elsewhere, 3).await;
        other.import(&text, Some(key("copy"))).await.unwrap();
        let (kept, copied) = (records(&store, &run).await, records(&elsewhere, &key("copy")).await);
        assert_eq!(copied.len() as u64, at - cut + 1, "{label}");
        let plain = |records: &[Record]| records.iter().map(unnumbered).collect::<Vec<_>>();
        assert_eq!(plain(&copied), plain(&let_go(kept)), "{label}");
        // A copy of the copy equals the copy.
        let again = MemoryStore::new();
        let third = random_run.process(&again, 4).await;
        let copy = other.export(&key("copy")).await.unwrap();
        third.import(&copy, None).await.unwrap();
        assert_eq!(third.export(&key("copy")).await.unwrap(), copy, "{label}");
        // The copy and the run continue to the same end.
        let graph = random_run.graph();
        let mut ends = Vec::new();
        for (runtime, id) in [(&runtime, "r"), (&other, "copy")] {
            let handle = runtime.resume(&graph, id).take_over().checkpoints(random_run.policy).await.unwrap();
            ends.push(end(random_run.go_on(&[runtime], &graph, handle, false).await));
        }
        assert_eq!(ends[0], ends[1], "{label}");
    }
}

/// The records before a damaged record can be exported and imported as a run.
#[tokio::test]
async fn records_before_damage_export_as_own_run() {
    for seed in seeds(8) {
        let store = RandomRun::of(seed).live().await;
        let run = key("r");
        let runtime = plain(&store).await;
        let whole = records(&store, &run).await;
        for count in 1..=whole.len() {
            let text = runtime.export_before(&run, Seq::new(count as u64)).await.unwrap();
            let elsewhere = MemoryStore::new();
            let other = plain(&elsewhere).await;
            other.import(&text, None).await.unwrap();
            assert_eq!(records(&elsewhere, &run).await, let_go(whole[..count].to_vec()), "seed {seed}");
            other.check_log(&run).await.unwrap();
        }
        let all = runtime.export_before(&run, Seq::new(u64::MAX)).await.unwrap();
        assert_eq!(all, runtime.export(&run).await.unwrap(), "seed {seed}");
        let error = runtime.export_before(&run, Seq::new(0)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    }
}

/// An import assigns new sequence numbers, so it must refuse a file in which a record is missing.
///
/// Guarantees: COPY-2.
#[tokio::test]
async fn a_file_with_a_hole_is_refused() {
    let random_run = RandomRun::of(0).finely();
    let store = random_run.live().await;
    let runtime = plain(&store).await;
    let text = runtime.export(&key("r")).await.unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let count = lines.len() - 1;
    lines[0] = lines[0].replace(&format!("\"records\":{count}"), &format!("\"records\":{}", count - 1));
    for gone in [2, 3, count - 1] {
        let mut lines = lines.clone();
        lines.remove(gone);
        let text = lines.join("\n");
        let error = runtime.import(&text, Some(key("copy"))).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(
            error.to_string().contains(&format!("line {} of the file does not follow", gone + 1)),
            "{error}"
        );
    }
    assert!(runtime.head(&key("copy")).await.unwrap().is_none());
    // Without its first record, the file looks like that of a pruned run, but its first record is no base.
    lines.remove(1);
    let error = runtime.import(&lines.join("\n"), Some(key("copy"))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

/// In the copy of a pruned run, a pinned record has another sequence number. The pin refers to the new number, so the next prune keeps the record.
///
/// Guarantees: PIN-1.
#[tokio::test]
async fn copy_of_pruned_run_preserves_pin() {
    let random_run = RandomRun::of(0).finely();
    let store = random_run.live().await;
    let run = key("r");
    let to = last(&store, &run).await;
    assert!(to > 8);
    let runtime = plain(&store).await;
    runtime.pin(&run, Seq::new(5)).await.unwrap();
    runtime.pin(&run, Seq::new(6)).await.unwrap();
    let keep_one = RetentionPolicy::keep_all().keep_last(1);
    runtime.apply_retention(&run, &keep_one).await.unwrap();
    let pinned = runtime.checkpoint(&run, Seq::new(6)).await.unwrap();
    runtime.import(&runtime.export(&run).await.unwrap(), Some(key("copy"))).await.unwrap();
    let copy = key("copy");
    runtime.unpin(&copy, Seq::new(0)).await.unwrap();
    runtime.apply_retention(&copy, &keep_one).await.unwrap();
    assert_eq!(runtime.head(&copy).await.unwrap().unwrap().first, Seq::new(1));
    let copied = runtime.checkpoint(&copy, Position::Record(pinned.record)).await.unwrap();
    assert_eq!((copied.state, copied.history.len()), (pinned.state, pinned.history.len()));
    let error = runtime.unpin(&copy, Seq::new(6)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    runtime.unpin(&copy, Seq::new(1)).await.unwrap();
    assert!(runtime.apply_retention(&copy, &keep_one).await.unwrap().records > 0);
}

/// A pin of a record that is not written yet survives a prune that drops the record of the pin.
///
/// Guarantees: PIN-1.
#[tokio::test]
async fn pin_of_future_record_survives_prune() {
    let (store, graph, run) = (MemoryStore::new(), chain(30), key("r"));
    let process = plain(&store).await;
    let handle = process.start(&graph, Context::new()).id("r").on_hold("to be pinned").await.unwrap();
    process.pin(&run, Seq::new(20)).await.unwrap();
    process.unpause(&run).await.unwrap();
    drop(handle);
    process.resume(&graph, "r").await.unwrap().completed().await.unwrap();
    assert!(last(&store, &run).await > 30);
    // Another process cuts the run here, because the pinned record did not exist when it read the log.
    cut_at(&store, &run, 12).await;
    let keep_one = RetentionPolicy::keep_all().keep_last(1);
    process.apply_retention(&run, &keep_one).await.unwrap();
    assert_eq!(process.head(&run).await.unwrap().unwrap().first, Seq::new(20));
    // This also holds for a copy, in which the pin has another number.
    let copy = key("copy");
    process.import(&process.export(&run).await.unwrap(), Some(copy.clone())).await.unwrap();
    process.apply_retention(&copy, &keep_one).await.unwrap();
    assert_eq!(process.head(&copy).await.unwrap().unwrap().first, Seq::new(0));
    process.unpin(&copy, Seq::new(0)).await.unwrap();
    assert!(process.apply_retention(&copy, &keep_one).await.unwrap().records > 0);
}

/// A copy of an active run does not belong to the owner of the original, so another process can claim it.
///
/// Guarantees: COPY-1.
#[tokio::test]
async fn copy_of_active_run_is_claimed() {
    let ask = Graph::<Context>::builder("asks")
        .node("wait", async |cx, mut s| {
            let open: bool = s.get("open")?.unwrap_or_default();
            if !open {
                std::future::pending::<()>().await;
            }
            s.set("by", cx.idempotency_key())?;
            Ok(s)
        })
        .entry("wait")
        .build()
        .unwrap();
    let store = MemoryStore::new();
    let (one, two) = (plain(&store).await, plain(&store).await);
    let _driven = one.start(&ask, Context::new()).id("r").await.unwrap();
    let text = one.export(&key("r")).await.unwrap();
    assert!(one.head(&key("r")).await.unwrap().unwrap().owner_alive);
    for (runtime, id) in [(&one, "a"), (&two, "b")] {
        runtime.import(&text, Some(key(id))).await.unwrap();
        let head = runtime.head(&key(id)).await.unwrap().unwrap();
        assert_eq!((head.status, head.owner), (RunStatus::InProgress, None));
        let open = Patch::from_ops(&[Op::Set("open".into(), true.into())]).unwrap();
        runtime.edit(&key(id), open).check_with(&ask).await.unwrap();
    }
    two.serve(&ask).unwrap();
    let clock = ferrata_core::SystemClock::new();
    let deadline = clock.monotonic() + std::time::Duration::from_secs(60);
    for id in ["a", "b"] {
        while !store.head(&key(id)).await.unwrap().unwrap().status.is_finished() {
            assert!(clock.monotonic() < deadline, "no process claims the copy {id}");
            clock.sleep(std::time::Duration::from_millis(5)).await;
        }
    }
    assert_eq!(store.head(&key("r")).await.unwrap().unwrap().status, RunStatus::InProgress);
}

/// An import refuses every value that a start refuses, and writes nothing.
///
/// Guarantees: COPY-2.
#[tokio::test]
async fn facts_and_claims_of_a_file_are_checked() {
    let store = RandomRun::of(0).finely().live().await;
    let runtime = plain(&store).await;
    let text = runtime.export(&key("r")).await.unwrap();
    let (title, rest) = text.split_once('\n').unwrap();
    let title: serde_json::Value = serde_json::from_str(title).unwrap();
    let facts = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut title = title.clone();
        change(&mut title["facts"]);
        format!("{title}\n{rest}")
    };
    let files = [
        ("the version", facts(&|facts| facts["version"] = "\u{1b}]0;x\u{7}".into())),
        ("the version", facts(&|facts| facts["version"] = "".into())),
        ("the user", facts(&|facts| facts["user"] = "a\u{0}b".into())),
        ("the user", facts(&|facts| facts["user"] = "\u{9b}31m".into())),
        ("the user", facts(&|facts| facts["user"] = "x".repeat(257).into())),
        ("the start time", facts(&|facts| facts["created"] = i64::MAX.into())),
        ("the start time", facts(&|facts| facts["created"] = i64::MIN.into())),
        ("line 1", facts(&|facts| facts["labels"] = serde_json::json!({ "k": "a\rb" }))),
        ("an epoch that is out of range", text.replacen("\"epoch\":1", "\"epoch\":4294967295", 2)),
    ];
    for (says, file) in files {
        let error = runtime.import(&file, Some(key("copy"))).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains(says), "{says}: {error}");
        assert!(runtime.head(&key("copy")).await.unwrap().is_none());
    }
}

/// An export may be printed to a terminal, so it has no control characters, and it is read back byte for byte.
///
/// Guarantees: COPY-3.
#[tokio::test]
async fn an_export_holds_nothing_that_steers_a_terminal() {
    let hostile = "a\u{1b}[2J\u{9b}31m\u{202e}\u{7f}\u{2066}\u{2028}é日";
    let graph = Graph::<Context>::builder("w").node("a", async |_cx, _s| Ok(())).entry("a").build().unwrap();
    let store = MemoryStore::new();
    let runtime = plain(&store).await;
    let mut input = Context::new();
    input.set("text", hostile).unwrap();
    input.set(hostile, 1).unwrap();
    let run = runtime.start(&graph, input).id("r").label("k", "\u{202e}v").await.unwrap();
    run.completed().await.unwrap();
    let text = runtime.export(&key("r")).await.unwrap();
    let steers = |c: char| c != '\n' && (c.is_control() || "\u{202e}\u{2066}\u{2028}".contains(c));
    assert!(!text.contains(steers), "{text:?}");
    let elsewhere = MemoryStore::new();
    plain(&elsewhere).await.import(&text, None).await.unwrap();
    assert_eq!(records(&elsewhere, &key("r")).await, records(&store, &key("r")).await);
    let head = elsewhere.head(&key("r")).await.unwrap().unwrap();
    assert_eq!(head.facts, store.head(&key("r")).await.unwrap().unwrap().facts);
}
