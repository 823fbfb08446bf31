//! Encoding and decoding of objects. Decoding rejects all other bytes.

use ferrata_store::{Fingerprint, WorkflowName};
use proptest::prelude::*;

use super::*;
use ferrata_store::{Epoch, ExecutorId, NodeName, RecordId, RecordKind, RunStatus, Seq, Timestamp, Visit};

/// Creates an id of version 7 with the time of the records in these tests.
fn id(number: u128) -> RecordId {
    RecordId::from_uuid(uuid::Uuid::from_u128(1_600_000_000_000 << 80 | 7 << 76 | number))
}

fn record(seq: u64, body: &[u8]) -> Record {
    let header = RecordHeader {
        format: FORMAT,
        seq: Seq::new(seq),
        id: id(u128::from(seq) + 1),
        prev: seq.checked_sub(1).map(|before| id(u128::from(before) + 1)),
        kind: RecordKind::Node,
        status: RunStatus::InProgress,
        node: Some(NodeName::new("write").unwrap()),
        visit: Some(Visit::new(3)),
        epoch: Epoch::new(1),
        owner: Some(ExecutorId::from_uuid(uuid::Uuid::from_u128(77))),
        wake_at: None,
        at: Timestamp::from_unix_ms(1_600_000_000_000),
        base: false,
        body_len: 0,
        body_crc: 0,
    };
    Record::seal(header, Bytes::copy_from_slice(body)).unwrap()
}

/// The key of the objects in these tests.
const PLACE: &str = "default/r/ffffffff/fffffffffffffffa";

fn tag() -> Tag {
    Tag::of(&record(0, b"").header)
}

fn written(start: u64, bodies: &[&[u8]]) -> (ObjectHead, Vec<Record>, Bytes) {
    let records: Vec<_> = bodies.iter().zip(start..).map(|(body, seq)| record(seq, body)).collect();
    let head = ObjectHead::new(&records, tag(), 4, 100, None);
    let bytes = head.encode(PLACE, &records);
    (head, records, bytes)
}

#[test]
fn object_has_line_head_and_bodies() {
    let (_, _, bytes) = written(5, &[b"{\"a\":1}", b"xyz"]);
    let text = std::str::from_utf8(&bytes).unwrap();
    let expected = concat!(
        r#"{"log":"S7sq","seq":5,"base":4,"bytes":110,"records":["#,
        r#"{"id":"AXSHboAAcAAAAAAAAAAABg","prev":"AXSHboAAcAAAAAAAAAAABQ","node":"write","visit":3,"#,
        r#""owner":"AAAAAAAAAAAAAAAAAAAATQ","len":7,"crc":CRC},"#,
        r#"{"id":"AXSHboAAcAAAAAAAAAAABw","len":3,"crc":CRC}]}"#,
        "\n",
        r#"{"a":1}xyz"#
    );
    let expected = expected.replacen("CRC", &crc32c::crc32c(b"{\"a\":1}").to_string(), 1).replacen(
        "CRC",
        &crc32c::crc32c(b"xyz").to_string(),
        1,
    );
    let (line, rest) = text.split_once('\n').unwrap();
    assert_eq!(rest, expected);
    let json = &rest.as_bytes()[..rest.len() - 10];
    assert_eq!(
        line,
        format!("ferrata-s3 1 {} {:08x}", json.len(), crc32c::crc32c(&[PLACE.as_bytes(), json].concat()))
    );
}

/// Decoding restores an omitted field from the previous record, or from the values with which most objects begin. It also restores a field that
/// differs, even if the field is absent.
#[test]
fn what_is_left_out_comes_back() {
    let mut records: Vec<_> = (0..8).map(|seq| record(seq, b"x")).collect();
    let header = |at: usize| records[at].header.clone();
    let changed = [
        RecordHeader { kind: RecordKind::Start, node: None, visit: None, owner: None, ..header(0) },
        RecordHeader { epoch: Epoch::new(2), status: RunStatus::Failed, ..header(1) },
        RecordHeader { node: None, visit: Some(Visit::new(1)), ..header(2) },
        RecordHeader { owner: None, at: Timestamp::from_unix_ms(-5), ..header(3) },
        RecordHeader { prev: None, wake_at: Some(Timestamp::from_unix_ms(9)), ..header(4) },
        RecordHeader { prev: Some(id(99)), base: true, ..header(5) },
        RecordHeader { id: RecordId::from_uuid(uuid::Uuid::from_u128(u128::MAX)), ..header(6) },
        RecordHeader { kind: RecordKind::Node, epoch: Epoch::new(1), ..header(7) },
    ];
    for (record, header) in records.iter_mut().zip(changed) {
        record.header = header;
    }
    for from in 0..records.len() {
        for upto in from + 1..=records.len() {
            let part = &records[from..upto];
            let (head, back) = ObjectHead::decode_whole(
                PLACE,
                &ObjectHead::new(part, tag(), 0, 0, None).encode(PLACE, part),
            )
            .unwrap();
            assert_eq!(back, part, "{from} to {upto}");
            assert_eq!(head.log, tag());
        }
    }
}

/// Encodes and decodes each value of each field of a header, after every different value. Includes fields that a later version adds.
#[test]
fn every_field_of_a_header_comes_back() {
    let by_field = ferrata_testing::headers_by_field().into_iter().map(|(_, header)| header);
    let headers = by_field.chain(ferrata_testing::any_headers(9, 200));
    let records: Vec<Record> = headers
        .zip(7..)
        .map(|(header, seq)| RecordHeader { seq: Seq::new(seq), ..header })
        .map(|header| Record::seal(header, Bytes::from_static(b"x")).unwrap())
        .collect();
    let (_, back) = ObjectHead::decode_whole(
        PLACE,
        &ObjectHead::new(&records, tag(), 0, 0, None).encode(PLACE, &records),
    )
    .unwrap();
    assert_eq!(back, records);
    for pair in records.windows(2) {
        let (_, back) =
            ObjectHead::decode_whole(PLACE, &ObjectHead::new(pair, tag(), 0, 0, None).encode(PLACE, pair))
                .unwrap();
        assert_eq!(back, pair);
    }
}

/// Measures the size of a record without its body, for a typical record with a node and an owner: alone in its object, and among other records.
#[test]
fn a_step_takes_little_beside_its_body() {
    let body = vec![b'x'; 300];
    let beside = |count: usize| {
        let (_, _, bytes) = written(123_456, &vec![body.as_slice(); count]);
        (bytes.len() - count * body.len()) / count
    };
    assert!(beside(1) <= 240, "{} bytes alone", beside(1));
    assert!(beside(100) <= 65, "{} bytes among a hundred", beside(100));
    println!("{} bytes alone, {} among a hundred", beside(1), beside(100));
}

#[test]
fn facts_and_the_cut_come_back() {
    let graph = Fingerprint::of(b"graph");
    let facts =
        RunFacts::new(WorkflowName::new("w").unwrap(), "1", graph, graph, Timestamp::default()).unwrap();
    let records = [record(0, b"base")];
    let mut head = ObjectHead::new(&records, tag(), 0, 0, Some(facts));
    head = head.with_records(&[]);
    head.cut = Some(LogCut { first: 9, object: 7, dropped: -5 });
    let (found, at) = ObjectHead::decode(PLACE, &head.encode(PLACE, &[])).unwrap();
    assert_eq!(found, head);
    assert_eq!((found.first(), found.end(), found.last()), (0, 0, None));
    assert_eq!(at, head.encode(PLACE, &[]).len());
}

#[test]
fn object_cut_in_middle_keeps_position() {
    let (head, mut records, _) = written(5, &[b"a", b"b", b"c"]);
    records.drain(..2);
    let head = head.with_records(&records);
    let (found, back) = ObjectHead::decode_whole(PLACE, &head.encode(PLACE, &records)).unwrap();
    assert_eq!((found.start, found.first(), found.end()), (5, 7, 8));
    assert_eq!(back, records);
    assert_eq!(found.bytes, 103, "the totals must not change");
}

#[test]
fn marks_and_newer_objects_are_not_damage() {
    assert_eq!(ObjectHead::decode(PLACE, GONE), Err(InvalidObject::Gone));
    assert_eq!(ObjectHead::decode(PLACE, b"ferrata-s3 2 gone\n"), Err(InvalidObject::Newer(2)));
    assert_eq!(ObjectHead::decode(PLACE, b"ferrata-s3 7 what is this\n?"), Err(InvalidObject::Newer(7)));
    for bytes in [
        &b""[..],
        b"\n",
        b"ferrata-s3",
        b"ferrata-s3 1\n",
        b"ferrata-s3 0 gone\n",
        b"ferrata-s3 x 1 00000000\n",
        b"PK\n",
        &[255; 99],
    ] {
        assert!(matches!(ObjectHead::decode(PLACE, bytes), Err(InvalidObject::Damaged(_))), "{bytes:?}");
    }
    let (head, mut records, _) = written(1, &[b"a"]);
    records[0].header.format = FORMAT + 1;
    let json = String::from_utf8(head.with_records(&records).encode(PLACE, &records).to_vec()).unwrap();
    // A kind and a format that this version does not know.
    let json = json.split('\n').nth(1).unwrap().replace("\"node\":", "\"kind\":\"poem\",\"node\":") + "\n";
    let bytes = format!(
        "ferrata-s3 1 {} {:08x}\n{json}a",
        json.len(),
        crc32c::crc32c(format!("{PLACE}{json}").as_bytes())
    );
    assert_eq!(
        ObjectHead::decode(PLACE, bytes.as_bytes()),
        Err(InvalidObject::NewerRecord(u64::from(FORMAT) + 1))
    );
}

/// An object under the key of another run, generation or record, for example after a manual copy.
#[test]
fn object_of_another_place_is_damage() {
    let (_, _, bytes) = written(5, &[b"a"]);
    for place in [
        "default/s/ffffffff/fffffffffffffffa",
        "default/r/fffffffe/fffffffffffffffa",
        "default/r/ffffffff/fffffffffffffffb",
        "",
    ] {
        let damaged = "its head does not match its checksum".to_owned();
        assert_eq!(ObjectHead::decode(place, &bytes), Err(InvalidObject::Damaged(damaged)), "{place}");
    }
}

proptest! {
    #[test]
    fn objects_come_back(
        start in 0_u64..1 << 60,
        bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..6),
    ) {
        let bodies: Vec<&[u8]> = bodies.iter().map(Vec::as_slice).collect();
        let (head, records, bytes) = written(start, &bodies);
        let (found, back) = ObjectHead::decode_whole(PLACE, &bytes).unwrap();
        prop_assert_eq!(&found, &head);
        prop_assert_eq!(&back, &records);
        prop_assert_eq!(found.headers().to_vec(), records.iter().map(|r| r.header.clone()).collect::<Vec<_>>());
    }

    /// Changing any single byte, or cutting off the end, is detected: in the head at once, in a body by its checksum.
    ///
    /// Guarantees: S3-10.
    #[test]
    fn no_damage_passes(at in any::<prop::sample::Index>(), flip in 1_u8..=255, cut in any::<prop::sample::Index>()) {
        let (_, records, bytes) = written(3, &[b"first body", b"second"]);
        let mut damaged = bytes.to_vec();
        damaged[at.index(bytes.len())] ^= flip;
        if let Ok((_, found)) = ObjectHead::decode_whole(PLACE, &damaged.into()) {
            let run = ferrata_store::RunId::new("r").unwrap().into();
            prop_assert!(found.iter().any(|record| record.verify(&run).is_err()) || found == records);
        }
        prop_assert!(ObjectHead::decode_whole(PLACE, &bytes.slice(..cut.index(bytes.len()))).is_err());
    }
}
