//! The store returns bodies, headers and facts exactly as written.

use bytes::Bytes;
use ferrata_store::{
    At, Epoch, Fingerprint, HeadRef, Labels, NodeName, Parent, RecordHeader, RecordId, RecordKind, RunStatus,
    Seq, Timestamp, Visit,
};
use ferrata_testing::{any_headers, headers_by_field};

use crate::stage::{TestStage, appended, facts, is_kept, is_kept_at_head, key_in, ok};

/// The largest number that every tool handles exactly, including JSON parsers that use floating-point numbers.
const LARGE: i64 = (1 << 53) - 1;

/// Bodies are bytes. A store never interprets them.
///
/// Guarantees: FORMAT-1.
pub(crate) async fn bodies_are_kept_byte_for_byte(stage: TestStage) {
    let every_byte: Vec<u8> = (0..=255).collect();
    let bodies: [&[u8]; 22] = [
        b"",
        b"x",
        b"\0",
        b"\n",
        b"\r\n",
        b"\n\n{}\n",
        b" ",
        b"{}",
        b"{}\n",
        b"{\"a\": 1.0, \"a\" :1e0 }",
        b"null",
        b"[",
        b"'; drop table records; --",
        b"\"\\\"\\\\\"",
        b"\\x00\\u0000",
        b"\xff\xfe\xfd",
        b"\xc3\x28",
        "\u{feff}né \u{1F980}".as_bytes(),
        b"\x1f\x8b\x08",
        b"\x28\xb5\x2f\xfd",
        b"ends with a zero\0",
        &every_byte,
    ];
    let mut log = stage.written("r-1", 1).await;
    for body in bodies {
        let entry = log.next_body(Bytes::copy_from_slice(body));
        appended(&*stage.store(), &entry).await;
        log.note_append(&entry);
    }
    is_kept(&*stage.store(), &log).await;
    for (record, body) in log.records[1..].iter().zip(bodies) {
        let loaded = ok(stage.store().load(&log.key, At::Record(record.header.id)).await, "loading a body");
        let last = loaded.and_then(|mut records| records.pop()).expect("the record is there");
        assert_eq!(last.body, body, "the body comes back byte for byte");
    }
}

/// The store keeps an incompressible body of one mebibyte.
pub(crate) async fn a_body_of_a_mebibyte_is_kept(stage: TestStage) {
    let mut word = 1_u32;
    let body: Vec<u8> = std::iter::repeat_with(|| {
        // A linear congruential generator (Numerical Recipes). Its upper byte repeats only after 2³² steps.
        word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        word.to_be_bytes()[0]
    })
    .take(1 << 20)
    .collect();
    let mut log = stage.written("r-1", 1).await;
    let entry = log.next_body(body);
    appended(&*stage.store(), &entry).await;
    log.note_append(&entry);
    log.write(&*stage.store(), 1).await;
    is_kept(&*stage.store(), &log).await;
}

/// The store returns every field of a header unchanged, whatever its value.
///
/// Guarantees: CUSTOM-STORE-4, FORMAT-1.
pub(crate) async fn headers_are_kept_field_for_field(stage: TestStage) {
    let store = stage.store();
    let mut log = stage.written("r-1", 1).await;
    let owner = stage.executor();
    let longest = "n".repeat(128);
    let nodes = [None, Some("write"), Some("a:b.c/d-E/_"), Some(longest.as_str())];
    for (place, kind) in RecordKind::ALL.into_iter().enumerate() {
        let shape = |header: &mut RecordHeader| {
            header.kind = kind;
            header.status = RunStatus::ALL[place % RunStatus::ALL.len()];
            header.node = nodes[place % nodes.len()].map(|n| NodeName::new(n).expect("the names are valid"));
            header.visit = [None, Some(Visit::new(1)), Some(Visit::new(u32::MAX))][place % 3];
            header.epoch = Epoch::new([1, 2, u32::MAX][place % 3]);
            header.owner = [None, Some(owner)][place % 2];
            header.wake_at = [None, Some(0), Some(LARGE)][place % 3].map(Timestamp::from_unix_ms);
            header.at = Timestamp::from_unix_ms([0, 1_700_000_000_123, -1, LARGE, -LARGE][place % 5]);
            header.base = place % 4 == 3;
        };
        log.write_with(&*store, 1, shape).await;
        is_kept_at_head(&*store, &log).await;
    }
    // Then write all headers at once: each field with each of its values, including fields that a later version adds.
    let by_field = headers_by_field().into_iter().map(|(_, header)| header);
    let all: Vec<RecordHeader> = by_field.chain(any_headers(5, 20)).collect();
    let began = log.records.len();
    let shape = |header: &mut RecordHeader| {
        let place = usize::try_from(header.seq.get()).expect("the suite's logs are short") - began;
        let RecordHeader { seq, id, prev, .. } = *header;
        *header = RecordHeader { seq, id, prev, ..all[place].clone() };
    };
    log.write_with(&*store, all.len(), shape).await;
    is_kept_at_head(&*store, &log).await;
    is_kept(&*store, &log).await;
}

/// The store returns every field of a run's facts unchanged, whatever its value.
///
/// Guarantees: FORMAT-1.
pub(crate) async fn facts_are_kept_field_for_field(stage: TestStage) {
    let store = stage.store();
    let mut labels = Labels::default();
    for (n, text) in super::HOSTILE_TEXTS.iter().enumerate() {
        labels.insert(format!("{n}{text}"), *text).expect("hostile, and valid");
    }
    labels.insert("empty", "").expect("a value may be empty");
    labels.insert("k".repeat(256), "v".repeat(256)).expect("256 bytes are allowed");
    let mut full = facts("pub.lish:2", -LARGE);
    full.version = "1.2.3-é \"β\" $.".to_owned();
    full.graph = Fingerprint::of(b"another graph");
    full.input = Fingerprint::of(b"another input");
    let id = RecordId::from_uuid(*stage.executor().as_uuid());
    let at = HeadRef { seq: Seq::new(u64::from(u32::MAX)), id };
    let full = full
        .with_user("O'Brien <\"ö\"@example.org>")
        .expect("the user is valid")
        .with_labels(labels)
        .with_parent(Parent { run: key_in("an.other", "r-0"), at });
    for (run, facts) in [("plain", facts("w", 0)), ("late", facts("w", LARGE)), ("full", full)] {
        let mut log = stage.log(run).with_facts(facts);
        log.write(&*store, 1).await;
        is_kept_at_head(&*store, &log).await;
        log.write(&*store, 5).await;
        is_kept_at_head(&*store, &log).await;
    }
}

/// If a caller changes a loaded record, it changes only its copy.
pub(crate) async fn what_was_loaded_can_be_changed_without_harm(stage: TestStage) {
    let store = stage.store();
    let log = stage.written("r-1", 6).await;
    for _ in 0..3 {
        let loaded = ok(store.load(&log.key, At::Latest).await, "loading");
        for mut record in loaded.into_iter().flatten() {
            record.header.status = RunStatus::Failed;
            // Succeeds only if nothing else owns these bytes.
            if let Ok(mut bytes) = record.body.try_into_mut() {
                bytes.fill(b'!');
            }
        }
        let head = ok(store.head(&log.key).await, "reading the head");
        drop(head.map(|mut head| head.facts.labels.insert("changed", "yes")));
        is_kept(&*store, &log).await;
    }
}
