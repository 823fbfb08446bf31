//! Altered logs with valid checksums: a reader returns their content or a corruption error with the run and the record, and never panics.

use ferrata_core::ask::Answer;
use ferrata_core::record::{Record, RecordKind, Resolution, RunStatus};
use ferrata_core::runtime::{Position, RetentionPolicy, Runtime};
use ferrata_core::state::{Op, Patch};
use ferrata_core::{Epoch, Error, ErrorKind, RecordId, Result, Seq, Timestamp, Visit};
use serde_json::{Value, json};
use uuid::Uuid;

use super::chance::Chance;
use super::random_runs::{Log, RandomRun, key};
use super::seeds;

/// Number of alterations of each random run.
const TIMES: usize = 12;

/// Counts a value and all values within it.
fn size(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(size).sum::<usize>(),
        Value::Object(map) => map.values().map(size).sum::<usize>(),
        _ => 0,
    }
}

/// Visits the value at an index, counted from the root in depth-first order.
fn visit(value: &mut Value, place: &mut usize, change: &mut impl FnMut(&mut Value)) -> bool {
    if *place == 0 {
        change(value);
        return true;
    }
    *place -= 1;
    match value {
        Value::Array(items) => items.iter_mut().any(|item| visit(item, place, change)),
        Value::Object(map) => map.values_mut().any(|item| visit(item, place, change)),
        _ => false,
    }
}

/// Replaces one value by another that fits its kind.
fn change(value: &mut Value, chance: &mut Chance, other: &Value) {
    const NUMBERS: [u64; 7] = [0, 1, 2, 77, 2_147_483_647, 4_294_967_295, u64::MAX];
    match value {
        Value::Array(items) if !items.is_empty() => {
            let (one, another) = (chance.below(items.len()), chance.below(items.len()));
            match chance.below(5) {
                0 => items.push(items[one].clone()),
                1 => items.insert(0, items[one].clone()),
                2 => _ = items.remove(one),
                3 => items.swap(one, another),
                _ => items.reverse(),
            }
        }
        Value::Object(map) if !map.is_empty() => {
            let key = map.keys().nth(chance.below(map.len())).unwrap().clone();
            match chance.below(3) {
                0 => _ = map.remove(&key),
                1 => _ = map.insert(key, other.clone()),
                _ => {
                    let from = map.keys().nth(chance.below(map.len())).unwrap().clone();
                    let copied = map[&from].clone();
                    map.insert(key, copied);
                }
            }
        }
        Value::Number(number) => {
            let next = number.as_u64().unwrap_or(0).wrapping_add(1);
            *value = if chance.one_in(2) { json!(next) } else { json!(chance.pick(&NUMBERS)) };
        }
        Value::String(text) => {
            *text = (*chance.pick(&["n0", "n1", "end", "split", "each", "nobody", "", "n0@1", "n1@1:q"]))
                .to_owned();
        }
        Value::Bool(flag) => *flag = !*flag,
        _ => *value = other.clone(),
    }
}

/// Changes the body of a record, usually in the fields that record events.
fn change_body(record: &Record, chance: &mut Chance) -> Record {
    let mut body: Value = serde_json::from_slice(&record.body).unwrap();
    let other = [json!(null), json!([]), json!({}), json!(1), json!("n0")][chance.below(5)].clone();
    for _ in 0..=chance.below(2) {
        let done = body.get("done").and_then(Value::as_array).is_some_and(|done| !done.is_empty());
        if done && chance.one_in(3) {
            // Repeat an ended activation, in full or in part, or move it to another node.
            let list = body["done"].as_array_mut().unwrap();
            let one = list[chance.below(list.len())].clone();
            match chance.below(3) {
                0 => list.push(one),
                1 => list[0]["node"] = json!(*chance.pick(&["n0", "n1", "split", "end", "turn"])),
                _ => list[0]["visit"] = json!(1 + chance.below(3)),
            }
            continue;
        }
        let mut place = chance.below(size(&body));
        visit(&mut body, &mut place, &mut |value| change(value, chance, &other));
    }
    Record::seal(record.header.clone(), serde_json::to_vec(&body).unwrap().into()).unwrap()
}

fn change_header(record: &mut Record, chance: &mut Chance) {
    let header = &mut record.header;
    match chance.below(8) {
        0 => {
            let kinds = [
                RecordKind::Node,
                RecordKind::Claim,
                RecordKind::Base,
                RecordKind::Signal,
                RecordKind::Start,
            ];
            header.kind = *chance.pick(&kinds);
        }
        1 => header.status = *chance.pick(&RunStatus::ALL),
        2 => header.base = !header.base,
        3 => header.visit = Some(Visit::new(*chance.pick(&[0, 1, u32::MAX]))),
        4 => header.epoch = Epoch::new(*chance.pick(&[0, 7, u32::MAX])),
        5 => header.at = Timestamp::from_unix_ms(*chance.pick(&[i64::MIN, -1, i64::MAX])),
        6 => header.wake_at = Some(Timestamp::from_unix_ms(*chance.pick(&[i64::MIN, 0, i64::MAX]))),
        _ => header.owner = None,
    }
}

/// Alters one or two records of a log, and restores the chain of record ids.
fn altered(log: &[Record], chance: &mut Chance) -> Vec<Record> {
    let mut records = log.to_vec();
    for _ in 0..=chance.below(2) {
        let place = chance.below(records.len());
        match chance.below(10) {
            0 if records.len() > 1 => _ = records.remove(place),
            1 => records.insert(place, records[chance.below(records.len())].clone()),
            2 => {
                let other = chance.below(records.len());
                records.swap(place, other);
            }
            3 => change_header(&mut records[place], chance),
            _ => records[place] = change_body(&records[place], chance),
        }
    }
    let mut prev = None;
    for (seq, record) in (0..).zip(&mut records) {
        (record.header.seq, record.header.prev) = (Seq::new(seq), prev);
        record.header.id = RecordId::from_uuid(Uuid::from_u128(u128::from(seq) + 1));
        prev = Some(record.header.id);
    }
    records
}

/// Checks that the error of a reader is one of those that are permitted for an altered log.
fn judge<T>(result: Result<T>, what: &str, label: &str) -> Option<Error> {
    let error = result.err()?;
    if error.kind() == ErrorKind::Corrupt {
        assert_eq!(error.run(), Some(&key("r")), "{label}, {what}: {error:?}");
        assert!(error.seq().is_some(), "{label}, {what}: {error:?}");
    } else {
        let told = [
            ErrorKind::NotFound,
            ErrorKind::GraphChanged,
            ErrorKind::WrongStatus,
            ErrorKind::AlreadyExists,
            ErrorKind::Invalid,
            ErrorKind::TooLarge,
            ErrorKind::Conflict,
        ];
        assert!(told.contains(&error.kind()), "{label}, {what}: {error:?}");
    }
    Some(error)
}

/// Guarantees: VERIFY-3.
#[tokio::test]
async fn an_altered_log_is_read_or_called_corrupt() {
    let (mut corrupt, mut read) = (0, 0);
    for seed in seeds(8) {
        let mut random_run = RandomRun::of(seed);
        if seed % 2 == 0 {
            random_run = random_run.finely();
        }
        let graph = random_run.graph();
        let log = Log::of(&random_run.live().await, &key("r")).await;
        let mut chance = Chance::new(seed ^ 11);
        for time in 0..TIMES {
            // Use a short prefix, so that the alteration matters.
            let upto = 1 + chance.below(log.records.len().min(24));
            let records = altered(&log.records[..upto], &mut chance);
            let label = format!("seed {seed}, time {time}");
            let world = async || {
                let store = log.as_of(0).await;
                store.tamper(&key("r"), |kept| kept.clone_from(&records));
                let runtime = Runtime::builder(store.clone()).build().await.unwrap();
                (store, runtime)
            };
            let (_, runtime) = world().await;
            let run = key("r");
            let mut said = Vec::new();
            let middle = Seq::new(records.len() as u64 / 2);
            let visited: Position = "n0@1".parse().unwrap();
            for place in [Position::Latest, Position::Seq(middle), visited] {
                said.push(judge(runtime.state_at(&graph, &run, place.clone()).await, "state", &label));
                said.push(judge(runtime.checkpoint(&run, place.clone()).await, "checkpoint", &label));
                said.push(judge(runtime.diff(&run, place, Position::Latest).await, "diff", &label));
            }
            said.push(judge(runtime.timeline(&run, Seq::new(0)).await, "timeline", &label));
            said.push(judge(runtime.post_mortem(&run).await, "post mortem", &label));
            said.push(judge(runtime.verify(&graph, &run).await, "verify", &label));
            said.push(judge(runtime.check_log(&run).await, "check", &label));
            said.push(judge(runtime.questions(&run).await, "questions", &label));
            said.push(judge(runtime.lineage(&run).await, "lineage", &label));
            let small = RetentionPolicy::keep_all().keep_last(2);
            said.push(judge(runtime.preview_retention(&run, &small).await, "preview", &label));
            let text = runtime.export(&run).await;
            if let Ok(text) = &text {
                let copy = runtime.import(text, Some(key("copy"))).await;
                let refused = copy.err().map(|error| error.kind());
                assert!(refused.is_none_or(|kind| kind == ErrorKind::Invalid), "{label}: {refused:?}");
            }
            said.push(judge(text, "export", &label));
            for deed in 0..9 {
                let (_store, runtime) = world().await;
                let set = Patch::from_ops(&[Op::Set("n".into(), 1.into())]).unwrap();
                let done = match deed {
                    0 => runtime.respond(&run, "n0", Answer::accept(1).unwrap()).await,
                    1 => runtime.respond(&run, "n0@1", Answer::from(Resolution::Skip)).await,
                    2 => runtime.send(&run, "hello").await,
                    3 => runtime.pause(&run, "lunch").await,
                    4 => runtime.cancel(&run, "enough").await,
                    5 => runtime.retry(&run).await,
                    6 => runtime.edit(&run, set).check_with(&graph).await,
                    7 => runtime.fork(&run, middle).id("f").await.map(|_| ()),
                    _ => runtime.apply_retention(&run, &small).await.map(|_| ()),
                };
                said.push(judge(done, "deed", &label));
            }
            let (_store, runtime) = world().await;
            let resumed = runtime.resume(&graph, "r").take_over().await;
            said.push(judge(resumed, "resume", &label));
            match said.iter().flatten().any(|error| error.kind() == ErrorKind::Corrupt) {
                true => corrupt += 1,
                false => read += 1,
            }
        }
    }
    assert!(corrupt > 30 && read > 4, "{corrupt} corrupt, {read} read");
}

/// `verify` reports the record of an activation that ended twice as corrupt, and does not panic.
///
/// Guarantees: VERIFY-3.
#[tokio::test]
async fn an_activation_that_ended_twice_is_corrupt() {
    let random_run = RandomRun::of(0).finely();
    let log = Log::of(&random_run.live().await, &key("r")).await;
    let place = log.records.iter().position(|record| record.header.kind == RecordKind::Node).unwrap();
    for stranger in [false, true] {
        let store = log.as_of(log.records.len() as u64 - 1).await;
        store.tamper(&key("r"), |records| {
            let mut body: Value = serde_json::from_slice(&records[place].body).unwrap();
            let done = body["done"].as_array_mut().unwrap();
            match stranger {
                true => done[0]["node"] = json!("end"),
                false => done.push(done[0].clone()),
            }
            let body = serde_json::to_vec(&body).unwrap();
            records[place] = Record::seal(records[place].header.clone(), body.into()).unwrap();
        });
        let runtime = Runtime::builder(store).build().await.unwrap();
        for error in [
            runtime.verify(&random_run.graph(), &key("r")).await.unwrap_err(),
            runtime.check_log(&key("r")).await.unwrap_err(),
            runtime.checkpoint(&key("r"), Seq::new(place as u64)).await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            assert_eq!(
                (error.run(), error.seq()),
                (Some(&key("r")), Some(Seq::new(place as u64))),
                "{error}"
            );
        }
    }
}

/// A body in the format of an `EnvelopeStore` is reported as unsupported, so that the operator opens the right store and does not look for a backup.
#[tokio::test]
async fn body_in_an_envelope_is_unsupported() {
    let random_run = RandomRun::of(0).finely();
    let log = Log::of(&random_run.live().await, &key("r")).await;
    let store = log.as_of(log.records.len() as u64 - 1).await;
    store.tamper(&key("r"), |records| {
        for record in records {
            let enveloped = [&[0xFE, 1, 1], &record.body[..]].concat();
            *record = Record::seal(record.header.clone(), enveloped.into()).unwrap();
        }
    });
    let runtime = Runtime::builder(store).build().await.unwrap();
    let (graph, run) = (random_run.graph(), key("r"));
    let small = RetentionPolicy::keep_all().keep_last(2);
    for (verb, error) in [
        ("export", runtime.export(&run).await.unwrap_err()),
        ("state", runtime.state_at(&graph, &run, Position::Latest).await.unwrap_err()),
        ("timeline", runtime.timeline(&run, Seq::new(0)).await.unwrap_err()),
        ("post mortem", runtime.post_mortem(&run).await.unwrap_err()),
        ("verify", runtime.verify(&graph, &run).await.unwrap_err()),
        ("check", runtime.check_log(&run).await.unwrap_err()),
        ("retention", runtime.apply_retention(&run, &small).await.unwrap_err()),
        ("send", runtime.send(&run, "hello").await.unwrap_err()),
        ("fork", runtime.fork(&run, Position::Latest).id("f").await.map(drop).unwrap_err()),
    ] {
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{verb}: {error}");
        assert!(error.to_string().contains("`EnvelopeStore`"), "{verb}: {error}");
    }
}
