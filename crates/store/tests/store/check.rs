//! Checks before an append and after a load.

use ferrata_store::{
    At, ErrorKind, Record, RecordId, RunId, Seq, check_append, check_asked, check_batch, check_loaded,
    check_news,
};
use ferrata_testing::Log;

#[test]
fn second_entry_of_run_is_refused_alone() {
    let log = |run: &str| Log::new(RunId::new(run).unwrap());
    let mut odd = log("b").next(1);
    odd.records.clear();
    let batch = [log("a").next(1), odd, log("a").next(1), log("c").next(2)];
    let checked = check_batch(&batch, check_append);
    let kinds: Vec<_> = checked.into_iter().map(|checked| checked.map_err(|error| error.kind())).collect();
    assert_eq!(kinds, [Ok(()), Err(ErrorKind::Invalid), Err(ErrorKind::Invalid), Ok(())]);
}

/// Twelve records. Every fourth is a base.
fn log() -> Log {
    let mut log = Log::new(RunId::new("r").expect("a name"));
    let written = log.next(12);
    log.note_append(&written);
    log
}

#[test]
fn load_by_id_ends_with_that_record() {
    let log = log();
    let id = log.records[5].header.id;
    check_asked(&log.key, At::Record(id), &log.records[4..=5]).unwrap();
    check_asked(&log.key, At::Latest, &log.records[4..=6]).unwrap();
    let error = check_asked(&log.key, At::Record(id), &log.records[4..=6]).unwrap_err();
    assert_eq!((error.kind(), error.seq()), (ErrorKind::Corrupt, Some(Seq::new(6))), "{error}");
}

#[test]
fn changes_with_gap_are_corrupt_and_name_record() {
    let log = log();
    for known in 0..12 {
        let head = log.records[known].header.head();
        let since = &log.records[known + 1..];
        check_news(&log.key, head, since).unwrap();
        for gone in 0..since.len().saturating_sub(1) {
            let mut rest = since.to_vec();
            let seq = rest.remove(gone).header.seq;
            let error = check_news(&log.key, head, &rest).unwrap_err();
            assert_eq!((error.kind(), error.seq()), (ErrorKind::Corrupt, Some(seq)), "{error}");
        }
        for strange in 0..since.len() {
            let mut rest = since.to_vec();
            rest[strange].header.prev = Some(RecordId::from_uuid(uuid::Uuid::from_u128(7)));
            let error = check_news(&log.key, head, &rest).unwrap_err();
            assert_eq!((error.kind(), error.seq()), (ErrorKind::Corrupt, Some(rest[strange].header.seq)));
        }
    }
}

#[test]
fn load_with_gap_or_without_base_is_corrupt() {
    let log = log();
    let corrupt = |records: &[Record], last: u64, at: u64| {
        let error = check_loaded(&log.key, records, Seq::new(last)).unwrap_err();
        assert_eq!((error.kind(), error.seq()), (ErrorKind::Corrupt, Some(Seq::new(at))), "{error}");
    };
    for last in 4..8 {
        let loaded = &log.records[4..=last];
        let end = last as u64;
        check_loaded(&log.key, loaded, Seq::new(end)).unwrap();
        for gone in 4..=last {
            let mut rest = loaded.to_vec();
            rest.remove(gone - 4);
            // Without its first record, the load starts with a record that is no base.
            corrupt(&rest, end, if gone == 4 { end } else { gone as u64 });
            let mut strange = loaded.to_vec();
            strange[gone - 4].header.prev = Some(RecordId::from_uuid(uuid::Uuid::from_u128(7)));
            match gone {
                // The predecessor of the first record is not part of the load.
                4 => check_loaded(&log.key, &strange, Seq::new(end)).unwrap(),
                _ => corrupt(&strange, end, gone as u64),
            }
        }
        corrupt(loaded, end + 1, end + 1);
        corrupt(&[], end, end);
    }
    let twice = [log.records[0].clone(), log.records[0].clone()];
    corrupt(&twice, 0, 0);
}
