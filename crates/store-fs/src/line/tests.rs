//! The stored form of lines, and reading them.

use ferrata_store::{
    Epoch, ExecutorId, FORMAT, Fingerprint, NodeName, RecordKind, RunStatus, Seq, Timestamp, Visit,
    WorkflowName,
};
use proptest::prelude::*;

use super::*;

fn id(text: &str) -> RecordId {
    text.parse().unwrap()
}

/// A typical record: a node completed in a run that an executor owns.
fn typical(body: &'static [u8]) -> Record {
    let header = RecordHeader {
        format: FORMAT,
        seq: Seq::new(1_234),
        id: id("019aa4b6-4500-768c-931c-6e7d5b8ea912"),
        prev: Some(id("019aa4b6-4500-733a-aa7e-3a750bc1f99b")),
        kind: RecordKind::Node,
        status: RunStatus::InProgress,
        node: Some(NodeName::new("approve").unwrap()),
        visit: Some(Visit::new(2)),
        epoch: Epoch::new(1),
        owner: Some("019aa4b6-4500-70e0-b668-7bfc03897c96".parse::<ExecutorId>().unwrap()),
        wake_at: None,
        at: Timestamp::from_unix_ms(1_763_700_000_001),
        base: false,
        body_len: 0,
        body_crc: 0,
    };
    Record::seal(header, Bytes::from_static(body)).unwrap()
}

fn written(record: &Record, before: Option<RecordId>, part: Part) -> String {
    let mut out = Vec::new();
    write_record(&mut out, record, before, part);
    String::from_utf8(out).unwrap()
}

/// Parses a line into a record, with the id of the record in the previous line.
fn read(line: &str, before: Option<RecordId>) -> Result<(Record, Part), Flaw> {
    let line = read_record(line.strip_suffix('\n').unwrap().as_bytes())?;
    let body = line.body()?;
    let mut header = line.header;
    header.prev = header.prev.or(before);
    Ok((Record { header, body }, line.part))
}

/// Guarantees: FS-1.
#[test]
fn lines_are_stored_like_this() {
    let run = RunKey::new(TenantId::new("acme").unwrap(), RunId::new("r:1").unwrap());
    let print = Fingerprint::of(b"graph");
    let workflow = WorkflowName::new("review").unwrap();
    let facts =
        RunFacts::new(workflow, "1", print, print, Timestamp::from_unix_ms(1_763_700_000_000)).unwrap();
    let mut out = Vec::new();
    write_opening(&mut out, &run, Seq::new(7), &facts);
    assert_eq!(
        String::from_utf8(out.clone()).unwrap(),
        concat!(
            r#"{"ferrata":1,"tenant":"acme","run":"r:1","first":7,"facts":{"workflow":"review","version":"1","#,
            r#""graph":"806c38f6211dddabf2c77f766a693e11","input":"806c38f6211dddabf2c77f766a693e11","#,
            r#""created":1763700000000},"sum":"07f14e04"}"#,
            "\n"
        )
    );
    let opening = read_opening(out.strip_suffix(b"\n").unwrap()).unwrap();
    assert_eq!(opening, Opening { run, first: Seq::new(7), facts });

    let record = typical(br#"{"set": {"draft":"x"}}"#);
    let line = written(&record, record.header.prev, Part::WHOLE);
    assert_eq!(
        line,
        concat!(
            r#"{"v":1,"seq":1234,"id":"AZqktkUAdoyTHG59W46pEg","node":"approve","visit":2,"#,
            r#""owner":"AZqktkUAcOC2aHv8A4l8lg","#,
            r#""at":1763700000001,"body":{"set": {"draft":"x"}},"sum":"a058c328"}"#,
            "\n"
        )
    );
    let overhead = line.len() - record.body.len();
    assert!(overhead <= 160, "{overhead} bytes beside the body");

    let mut record = typical(b"\x00\xff");
    record.header.kind = RecordKind::Claim;
    record.header.status = RunStatus::Interrupted;
    record.header.epoch = Epoch::new(2);
    assert_eq!(
        written(&record, None, Part { number: 2, of: 3 }),
        concat!(
            r#"{"v":1,"seq":1234,"id":"AZqktkUAdoyTHG59W46pEg","prev":"AZqktkUAczqqfjp1C8H5mw","#,
            r#""kind":"claim","status":"interrupted","node":"approve","visit":2,"epoch":2,"#,
            r#""owner":"AZqktkUAcOC2aHv8A4l8lg","#,
            r#""at":1763700000001,"part":[2,3],"body64":"AP8=","sum":"b836c043"}"#,
            "\n"
        )
    );
}

/// Guarantees: FS-4.
#[test]
fn whatever_the_header_it_comes_back() {
    let node = typical(b"1").header;
    let mut headers = vec![
        RecordHeader { node: None, visit: None, ..node.clone() },
        RecordHeader { owner: None, ..node.clone() },
        RecordHeader { wake_at: Some(Timestamp::from_unix_ms(0)), ..node.clone() },
        RecordHeader { at: Timestamp::from_unix_ms(-1), ..node.clone() },
        RecordHeader { base: true, ..node.clone() },
        RecordHeader { seq: Seq::new(0), prev: None, base: true, ..node.clone() },
        RecordHeader { seq: Seq::new(u64::MAX), visit: Some(Visit::new(u32::MAX)), ..node.clone() },
    ];
    headers.extend([0, 2, u32::MAX].map(|epoch| RecordHeader { epoch: Epoch::new(epoch), ..node.clone() }));
    headers.extend(RecordKind::ALL.map(|kind| RecordHeader { kind, ..node.clone() }));
    headers.extend(RunStatus::ALL.map(|status| RecordHeader { status, ..node.clone() }));
    for header in headers {
        let record = Record::seal(header, Bytes::from_static(b"{}")).unwrap();
        for before in [record.header.prev, None] {
            let line = written(&record, before, Part::WHOLE);
            assert_eq!(read(&line, before).unwrap().0, record, "{line}");
        }
    }
}

#[test]
fn line_stores_prev_only_for_base_or_gap() {
    let mut record = typical(b"1");
    let before = record.header.prev;
    assert!(!written(&record, before, Part::WHOLE).contains("prev"));
    assert!(written(&record, None, Part::WHOLE).contains("prev"));
    assert!(written(&record, Some(record.header.id), Part::WHOLE).contains("prev"));
    record.header.base = true;
    assert!(written(&record, before, Part::WHOLE).contains("prev"));
    record.header.prev = None;
    assert!(!written(&record, None, Part::WHOLE).contains("prev"));
}

/// Guarantees: FS-4.
#[test]
fn json_line_bodies_are_stored_verbatim() {
    let as_they_are: [&[u8]; 8] = [
        b"{}",
        b"null",
        b"1.50e3",
        b"\"\xc3\xa9\"",
        b"{\"a\" : [1,\t2]}",
        b"\"\\ud800\"",
        b"[]\r".split_last().unwrap().1,
        b"0",
    ];
    for body in as_they_are {
        let line = written(&typical(body), None, Part::WHOLE);
        assert!(line.contains(&format!("\"body\":{},", std::str::from_utf8(body).unwrap())), "{line}");
    }
    let encoded: [&[u8]; 12] = [
        b"",
        b" 1",
        b"1 ",
        b"{}\n",
        b"[1,\n2]",
        b"{",
        b"1 2",
        b"nul",
        b"\"\xff\"",
        b"\"\x01\"",
        b"\0",
        b"{}{}",
    ];
    for body in encoded {
        let record = typical(body);
        let line = written(&record, None, Part::WHOLE);
        assert!(line.contains("\"body64\":\""), "{line}");
        assert_eq!(read(&line, None).unwrap().0, record);
    }
    // Deeper than a recursive parser can go.
    let deep: &'static [u8] =
        Box::leak([vec![b'['; 100_000], vec![b']'; 100_000]].concat().into_boxed_slice());
    let record = typical(deep);
    assert_eq!(read(&written(&record, None, Part::WHOLE), None).unwrap().0, record);
}

/// Guarantees: FS-4.
#[test]
fn body_resembling_line_tail_reads_as_body() {
    for body in [
        br#"{"a":1,"body":2,"sum":"00000000"}"#.as_slice(),
        br#"{"a":1,"body64":"","part":[1,2]}"#,
        br#","body":1,"sum":"00000000"}"#,
        br#"{"v":3,"seq":0}"#,
    ] {
        let record = typical(body);
        let part = Part { number: 1, of: 2 };
        assert_eq!(read(&written(&record, None, part), None).unwrap(), (record, part));
    }
}

fn resealed(inside: &str) -> String {
    let mut line = inside.as_bytes().to_vec();
    write_sum(&mut line, 0);
    String::from_utf8(line).unwrap()
}

#[test]
fn line_with_valid_checksum_can_be_invalid() {
    let line = written(&typical(b"1"), None, Part { number: 1, of: 2 });
    let inside = &line[..line.len() - SUM - 1];
    assert_eq!(resealed(inside), line);
    let flaw = |inside: String| read(&resealed(&inside), None).unwrap_err();
    assert_eq!(flaw(inside.replace("\"v\":1", "\"v\":2")), Flaw::Newer(2));
    // A newer version may write anything after its version.
    assert_eq!(flaw("{\"v\":99,\"other\":[]".into()), Flaw::Newer(99));
    for (from, to) in [
        ("\"v\":1", "\"v\":\"1\""),
        ("\"v\":1,", ""),
        ("\"v\":1", "\"v\":0"),
        ("\"v\":1", "\"v\":99999999999999999999"),
        ("\"seq\":1234", "\"seq\":-1"),
        ("\"visit\":2", "\"visit\":2,\"kind\":\"other\""),
        ("\"at\":1763700000001,", ""),
        ("AZqktkUAdoyTHG59W46pEg", "AZqktkUAdoyTHG59W46pE"),
        ("AZqktkUAdoyTHG59W46pEg", "AZqktkUAdoyTHG59W46pEgAA"),
        ("AZqktkUAdoyTHG59W46pEg", "AZqktkUAdoyTHG59W46pE*"),
        ("\"body\":1", "\"bodies\":1"),
        (",\"body\":1", ""),
        ("\"body\":1", "\"body64\":1"),
        ("\"body\":1", "\"body64\":\"*\""),
        ("[1,2]", "[0,2]"),
        ("[1,2]", "[3,2]"),
        ("[1,2]", "[1]"),
        ("[1,2]", "[1,99999999999]"),
        ("\"part\":", "\"parts\":"),
    ] {
        let changed = inside.replace(from, to);
        assert_ne!(changed, inside, "{from}");
        assert!(matches!(flaw(changed), Flaw::Content(_)), "{from} -> {to}");
    }
    for short in ["", "x", ",\"sum\":\"00000000\"}"] {
        assert!(read_record(short.as_bytes()).is_err());
        assert!(read_opening(short.as_bytes()).is_err());
    }
    let capitals = format!("{}{}", &line[..line.len() - 11], line[line.len() - 11..].to_uppercase());
    assert_eq!(read(&capitals, None).unwrap_err(), Flaw::Sum);
}

#[test]
fn copied_line_of_torn_append_becomes_whole() {
    for body in [b"1".as_slice(), b"\x00"] {
        let record = typical(body);
        let line = written(&record, None, Part { number: 2, of: 3 });
        let mut copied = Vec::new();
        read_record(line.trim_end().as_bytes()).unwrap().write_whole(&mut copied);
        assert_eq!(String::from_utf8(copied).unwrap(), written(&record, None, Part::WHOLE));
    }
}

proptest! {
    /// Guarantees: FS-4.
    #[test]
    fn whatever_the_body_it_comes_back(body in prop::collection::vec(any::<u8>(), 0..200)) {
        let header = typical(b"").header;
        let record = Record::seal(header, body.into()).unwrap();
        let line = written(&record, None, Part::WHOLE);
        prop_assert_eq!(line.matches('\n').count(), 1);
        prop_assert!(serde_json::from_str::<serde_json::Value>(&line).is_ok());
        prop_assert_eq!(read(&line, None).unwrap().0, record);
    }

    /// Guarantees: FS-4.
    #[test]
    fn no_bytes_make_reading_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _read = (read_record(&bytes).is_ok(), read_opening(&bytes).is_ok());
        let mut sealed = bytes;
        write_sum(&mut sealed, 0);
        sealed.pop();
        let _read = read_opening(&sealed).is_ok();
        if let Ok(line) = read_record(&sealed) {
            let _body = line.body();
        }
    }
}

/// Writes and reads each value of each field of a header, including fields that a later version adds.
#[test]
fn every_field_of_a_header_comes_back() {
    let by_field = ferrata_testing::headers_by_field().into_iter().map(|(_, header)| header);
    for header in by_field.chain(ferrata_testing::any_headers(3, 200)) {
        let record = Record::seal(header, Bytes::from_static(b"{}")).unwrap();
        for before in [record.header.prev, None] {
            let line = written(&record, before, Part::WHOLE);
            assert_eq!(read(&line, before), Ok((record.clone(), Part::WHOLE)), "{line}");
        }
    }
}
