//! The stored form of headers, byte by byte, and bytes that are not a valid header.

use super::*;
use crate::id::{Epoch, Visit};

fn header() -> RecordHeader {
    RecordHeader {
        format: FORMAT,
        seq: Seq::new(300),
        id: "019aa4b6-4500-768c-931c-6e7d5b8ea912".parse().unwrap(),
        prev: Some("019aa4b6-4500-768c-931c-6e7d5b8ea911".parse().unwrap()),
        kind: RecordKind::Node,
        status: RunStatus::InProgress,
        node: Some(NodeName::new("write").unwrap()),
        visit: Some(Visit::new(2)),
        epoch: Epoch::new(1),
        owner: Some("019aa4b6-4500-768c-931c-000000000001".parse().unwrap()),
        wake_at: None,
        at: Timestamp::from_unix_ms(1_763_700_000_000),
        base: false,
        body_len: 300,
        body_crc: 1_860_712_058,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Every later version must read this stored form, so this test never changes.
///
/// Guarantees: REDIS-10.
#[test]
fn a_header_is_stored_as_documented() {
    let text = write(&header(), Seq::new(297)).unwrap();
    let parts = [
        "019aa4b64500768c931c6e7d5b8ea912", // id
        "ac02",                             // number 300
        "01",                               // format
        "03",                               // three records after the base
        "01",                               // node
        "00",                               // in progress
        "0f",                               // prev, owner, node, visit
        "01",                               // epoch
        "8094b2cbd466",                     // time
        "ac02",                             // length of the body
        "6ee8367a",                         // its checksum
        "019aa4b64500768c931c6e7d5b8ea911", // prev
        "019aa4b64500768c931c000000000001", // owner
        "057772697465",                     // write
        "02",                               // visit
    ];
    assert_eq!(hex(&text), parts.concat());
    assert_eq!(read(&text).unwrap(), (header(), Seq::new(297)));
    assert!(text.starts_with(&beginning(&header().head())));
    let first = RecordHeader {
        prev: None,
        node: None,
        visit: None,
        owner: None,
        wake_at: Some(Timestamp::from_unix_ms(-1)),
        base: true,
        ..header()
    };
    let text = write(&first, Seq::new(0)).unwrap();
    assert_eq!(hex(&text[18..20]), "0100", "it is a base itself");
    assert_eq!(text.last(), Some(&1), "the least time before 1970");
    assert_eq!(read(&text).unwrap(), (first, Seq::new(300)));
}

/// Guarantees: REDIS-10.
#[test]
fn every_value_comes_back() {
    for kind in RecordKind::ALL {
        for status in RunStatus::ALL {
            let header = RecordHeader { kind, status, ..header() };
            let text = write(&header, Seq::new(0)).unwrap();
            assert_eq!(read(&text).unwrap().0, header);
        }
    }
    for number in [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
        let mut header = RecordHeader { seq: Seq::new(number), base: true, ..header() };
        header.body_len = u32::try_from(number).unwrap_or(u32::MAX);
        header.epoch = Epoch::new(header.body_len);
        for at in [i64::MIN, -1, 0, 1, i64::MAX, number.cast_signed()] {
            header.at = Timestamp::from_unix_ms(at);
            header.wake_at = Some(header.at);
            let text = write(&header, Seq::new(0)).unwrap();
            assert_eq!(read(&text).unwrap(), (header.clone(), header.seq));
            assert!(text.starts_with(&beginning(&header.head())));
        }
    }
}

#[test]
fn invalid_header_is_damage_newer_one_is_not() {
    let good = write(&header(), Seq::new(297)).unwrap();
    let mut newer = good[..19].to_vec();
    newer[18] = 2;
    assert_eq!(read(&newer), Err(InvalidHeader::Newer { seq: 300, format: 2 }), "whatever follows");
    for cut in 0..good.len() {
        assert!(read(&good[..cut]) == Err(InvalidHeader::Damaged), "cut at {cut}");
    }
    let mut longer = good.to_vec();
    longer.push(0);
    assert!(read(&longer) == Err(InvalidHeader::Damaged));
    // The kind, the status, the bits of optional fields, and a number without an end.
    for (at, byte) in [(20, 11), (21, 6), (22, 0x2f), (22, 0xff)] {
        let mut broken = good.to_vec();
        broken[at] = byte;
        assert!(read(&broken) == Err(InvalidHeader::Damaged), "{byte} at {at}");
    }
    assert!(read(&[0xff; 64]) == Err(InvalidHeader::Damaged));
    // A base after its record is invalid.
    assert_eq!(write(&header(), Seq::new(300)), None);
    let mut early = good.to_vec();
    (early[16], early[17], early[19]) = (0x83, 0x00, 0x04);
    assert!(read(&early) == Err(InvalidHeader::Damaged));
}
