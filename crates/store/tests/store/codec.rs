//! Every field of a header through every codec.

use std::collections::HashSet;

use ferrata_store::codec::{Field, JsonHeader, JsonLayout, Shape, Value, binary};
use ferrata_store::{ErrorKind, FORMAT, Record, RecordHeader, RunId, RunKey, Seq, TenantId, Timestamp};
use ferrata_testing::{any_headers, headers_by_field};
use serde_json::json;
use uuid::Uuid;

/// Omits common values, and values that the reader gets from elsewhere.
#[derive(Debug)]
enum Compact {}

impl JsonLayout for Compact {
    const SHORT_IDS: bool = true;

    fn key(field: Field) -> Option<&'static str> {
        (field != Field::Seq).then(|| field.name())
    }
}

/// Headers of all kinds, with each field changed at least once.
fn headers() -> Vec<RecordHeader> {
    let by_field = headers_by_field();
    let changed: HashSet<Field> = by_field.iter().map(|(field, _)| *field).collect();
    assert_eq!(changed.len(), Field::ALL.len());
    by_field.into_iter().map(|(_, header)| header).chain(any_headers(7, 300)).collect()
}

#[test]
fn header_requires_exactly_its_fields() {
    for header in headers() {
        let same = RecordHeader::from_fields(|field| Ok(header.field(field)), |field| field);
        assert_eq!(same, Ok(header.clone()));
        for field in Field::ALL {
            let lacking = |other: Field| Ok(header.field(other).filter(|_| other != field));
            let made = RecordHeader::from_fields(lacking, |field| field);
            assert_eq!(made.is_ok(), field.is_optional(), "{field:?}");
            let other =
                if field.shape() == Shape::Number { Value::Number(u64::MAX) } else { Value::Number(1) };
            let wrong = |other_field: Field| match other_field == field {
                true => Ok(Some(other.clone())),
                false => Ok(header.field(other_field)),
            };
            let made = RecordHeader::from_fields(wrong, |field| field);
            // A record may have any sequence number.
            assert_eq!(made.err(), (field != Field::Seq).then_some(field));
        }
    }
}

#[test]
fn json_that_spells_everything_out_comes_back() {
    for header in headers() {
        let text = serde_json::to_string(&header).unwrap();
        assert_eq!(serde_json::from_str::<RecordHeader>(&text).unwrap(), header, "{text}");
    }
}

/// The keys and their order must stay the same in every later version.
#[test]
fn a_header_is_spelled_out_as_documented() {
    let text = concat!(
        r#"{"v":1,"seq":300,"id":"019aa4b6-4500-7000-0000-000000000002","prev":"019aa4b6-4500-7000-0000-000000000003","#,
        r#""kind":"node","status":"in_progress","node":"write","visit":2,"epoch":2,"#,
        r#""owner":"019aa4b6-4500-7000-0000-000000000009","wake_at":-1,"at":1763700000000,"base":true,"len":2,"crc":2}"#
    );
    let mut header = headers_by_field()[0].1.clone();
    (header.wake_at, header.base) = (Some(Timestamp::from_unix_ms(-1)), true);
    assert_eq!(serde_json::to_string(&header).unwrap(), text);
    assert_eq!(serde_json::from_str::<RecordHeader>(text).unwrap(), header);
    let short = r#"{"v":1,"seq":300,"id":"019aa4b6-4500-7000-0000-000000000002","kind":"node","status":"in_progress","epoch":2,"at":1763700000000,"len":2,"crc":2}"#;
    let bare = RecordHeader {
        prev: None,
        node: None,
        visit: None,
        owner: None,
        wake_at: None,
        base: false,
        ..header
    };
    assert_eq!(serde_json::to_string(&bare).unwrap(), short);
    assert_eq!(serde_json::from_str::<RecordHeader>(short).unwrap(), bare);
}

/// Guarantees: CUSTOM-STORE-4.
#[test]
fn json_without_what_is_assumed_comes_back() {
    let all = headers();
    for (before, header) in all.iter().zip(&all[1..]) {
        let assumed = |field: Field| match field {
            Field::Seq => header.field(field),
            field => before.field(field),
        };
        let said = JsonHeader::<Compact>::of(header, assumed);
        let text = serde_json::to_string(&said).unwrap();
        let read: JsonHeader<Compact> = serde_json::from_str(&text).unwrap();
        assert_eq!(read.header(assumed).as_ref(), Ok(header), "{text}");
        for field in Field::ALL {
            let is_left_out = field == Field::Seq || before.field(field) == header.field(field);
            assert_eq!(text.contains(&format!("\"{}\":", field.name())), !is_left_out, "{field:?} in {text}");
        }
    }
    let same = JsonHeader::<Compact>::of(&all[0], |field| all[0].field(field));
    assert_eq!(serde_json::to_string(&same).unwrap(), "{}");
}

#[test]
fn invalid_header_json_is_refused_unknown_is_ignored() {
    let good = json!({
        "v": 1, "seq": 3, "id": Uuid::nil(), "kind": "node", "status": "failed", "epoch": 1, "at": 5, "len": 0, "crc": 0,
    });
    let mut more = good.clone();
    more["colour"] = json!({"of": ["the", "day"]});
    let read = |value: &serde_json::Value| serde_json::from_value::<RecordHeader>(value.clone());
    assert_eq!(read(&more).unwrap(), read(&good).unwrap());
    for (key, value) in [
        ("v", json!(70_000)),
        ("seq", json!(-1)),
        ("id", json!("x")),
        ("kind", json!("poem")),
        ("status", json!(null)),
        ("node", json!(".")),
        ("epoch", json!(1_u64 << 32)),
        ("base", json!("yes")),
        ("at", json!("now")),
    ] {
        let mut bad = good.clone();
        bad[key] = value;
        assert!(read(&bad).is_err(), "{key}");
        bad.as_object_mut().unwrap().remove(key);
        assert_eq!(read(&bad).is_err(), good.get(key).is_some(), "{key}");
    }
    let twice = r#"{"v":1,"v":1}"#;
    assert!(serde_json::from_str::<RecordHeader>(twice).unwrap_err().to_string().contains("duplicate"));
}

/// Guarantees: CUSTOM-STORE-4.
#[test]
fn bytes_come_back() {
    for header in headers() {
        let base = if header.base { header.seq } else { Seq::new(0) };
        let bytes = binary::write(&header, base).unwrap();
        assert_eq!(binary::read(&bytes), Ok((header, base)));
    }
}

/// The log has records of two formats. A later release reads both, and this one names the second format in its error.
///
/// Guarantees: FORMAT-8.
#[test]
fn next_format_reads_both_and_this_one_refuses_it() {
    let run = RunKey::new(TenantId::default(), RunId::new("r").unwrap());
    let record = |format: u16| {
        let header = RecordHeader { format, base: true, ..headers().remove(0) };
        Record::seal(header, bytes::Bytes::from_static(b"{}")).unwrap()
    };
    let next = FORMAT + 1;
    for format in [FORMAT, next] {
        let record = record(format);
        let header = &record.header;
        let bytes = binary::write(header, header.seq).unwrap();
        assert_eq!(binary::read_up_to(&bytes, next), Ok((header.clone(), header.seq)));
        let text = serde_json::to_string(header).unwrap();
        assert!(text.starts_with(&format!("{{\"v\":{format},")), "{text}");
        assert_eq!(serde_json::from_str::<RecordHeader>(&text).unwrap(), *header);
        record.verify_up_to(&run, next).unwrap();
        let (read, verified) = (binary::read(&bytes), record.verify(&run));
        if format == next {
            let (seq, format) = (header.seq.get(), next.into());
            assert_eq!(read, Err(binary::InvalidHeader::Newer { seq, format }));
            assert_eq!(verified.unwrap_err().kind(), ErrorKind::Unsupported);
        } else {
            assert_eq!(read, Ok((header.clone(), header.seq)));
            verified.unwrap();
        }
    }
}
