//! Lists the headers of a run: ranges, the stored records, and the size of one answer.

use ferrata_store::{
    Anchor, CheckpointStore, ErrorKind, HeaderRange, Headers, PruneCut, RecordHeader, RunKey, Seq,
};

use crate::stage::{TestStage, every_header, expect_refusal, key, ok};

async fn list(store: &dyn CheckpointStore, run: &RunKey, range: HeaderRange) -> Headers {
    ok(store.headers(run, range).await, "listing headers")
}

fn seqs(headers: &[RecordHeader]) -> Vec<u64> {
    headers.iter().map(|header| header.seq.get()).collect()
}

/// Returns the next range; `None` at the end. Checks that each range gets closer to the end.
fn next(asked: HeaderRange, answer: &Headers) -> Option<HeaderRange> {
    let next = asked.after(answer)?;
    let is_nearer = match (asked.anchor(), next.anchor()) {
        (Anchor::From(before), Anchor::From(after)) => after > before,
        (Anchor::UpTo(before), Anchor::UpTo(after)) => after < before,
        _ => false,
    };
    assert!(is_nearer, "a walk must come to its end: {next:?} follows {asked:?}");
    Some(next)
}

/// Returns the ranges at the two ends of a log: the oldest headers, and the newest headers.
fn ends(limit: u32) -> [HeaderRange; 2] {
    [HeaderRange::oldest(limit), HeaderRange::newest(limit)]
}

/// Headers are those of the records. They come in the order of their numbers, from both ends.
pub(crate) async fn headers_come_in_order_from_both_ends(stage: TestStage) {
    let mut log = stage.log("r-1");
    stage.written("other", 3).await;
    for count in [1, 4, 8] {
        log.write(&*stage.store(), count).await;
        for range in ends(1_000) {
            let all = list(&*stage.store(), &log.key, range).await;
            assert_eq!(all.items, log.headers(), "the headers, {range:?}");
        }
    }
}

/// An answer has at most the requested number of headers, and all answers together have all headers.
pub(crate) async fn a_range_holds_no_more_than_asked(stage: TestStage) {
    let log = stage.written("r-1", 11).await;
    for limit in [1, 2, 3, 10, 11, 12] {
        for start in ends(limit) {
            let all = every_header(&*stage.store(), &log.key, start).await;
            assert_eq!(all, log.headers(), "the answers to {start:?}");
        }
    }
}

/// A range that begins or ends in the middle has the records next to that number.
pub(crate) async fn a_range_begins_or_ends_where_asked(stage: TestStage) {
    let log = stage.written("r-1", 11).await;
    for seq in 0..11 {
        for limit in [1, 3, 50] {
            let from = list(&*stage.store(), &log.key, HeaderRange::from(Seq::new(seq), limit)).await;
            let end = (seq + u64::from(limit)).min(11);
            assert_eq!(seqs(&from.items), (seq..end).collect::<Vec<_>>(), "{limit} from {seq} on");
            let upto = list(&*stage.store(), &log.key, HeaderRange::up_to(Seq::new(seq), limit)).await;
            let begin = (seq + 1).saturating_sub(u64::from(limit));
            assert_eq!(seqs(&upto.items), (begin..=seq).collect::<Vec<_>>(), "{limit} up to {seq}");
            assert_eq!(
                [from.items, upto.items].map(|items| items.iter().all(|h| log.headers().contains(h))),
                [true; 2]
            );
        }
    }
}

/// An answer has at most a thousand headers, whatever the request. Later answers have the others.
pub(crate) async fn an_answer_holds_a_thousand_headers_at_most(stage: TestStage) {
    let store = stage.store();
    let log = stage.written("r-1", 1_101).await;
    for limit in [1_001, u32::MAX] {
        for start in ends(limit) {
            let first = list(&*store, &log.key, start).await.items.len();
            assert!(first <= HeaderRange::MAX as usize, "an answer holds 1,000, not {first}");
            let all = every_header(&*store, &log.key, start).await;
            assert_eq!(all, log.headers(), "the answers to {start:?}");
        }
    }
}

/// An answer says which records the run stores, so that a reader knows when there are no more.
pub(crate) async fn an_answer_says_what_is_kept(stage: TestStage) {
    let store = stage.store();
    let log = stage.written("r-1", 6).await;
    for cut in [0, 4] {
        ok(store.prune(&log.key, PruneCut { at: Seq::new(cut), base: None }).await, "pruning");
        for limit in [1, 2, 5, 6, 7] {
            for start in ends(limit) {
                let (mut seen, mut range) = (0, Some(start));
                while let Some(asked) = range {
                    let answer = list(&*store, &log.key, asked).await;
                    let kept = (answer.first.get(), answer.last.get());
                    assert_eq!(kept, (cut, 5), "what is kept, said with {asked:?}");
                    assert!(!answer.items.is_empty(), "an answer before the end holds something");
                    seen += answer.items.len() as u64;
                    range = next(asked, &answer);
                    assert_eq!(range.is_some(), seen < 6 - cut, "more after {seen}, {asked:?}");
                }
            }
        }
    }
}

/// If records are added meanwhile, a reader going to the oldest record does not see them, and a reader going to the newest does.
pub(crate) async fn headers_go_on_while_records_are_added(stage: TestStage) {
    let store = stage.store();
    for (run, start) in ["r-1", "r-2"].into_iter().zip(ends(2)) {
        let mut log = stage.written(run, 7).await;
        let before = log.headers();
        let (mut all, mut range) = (Vec::new(), Some(start));
        while let Some(asked) = range {
            let answer = list(&*store, &log.key, asked).await;
            range = next(asked, &answer);
            all.extend(answer.items);
            if range.is_some() && log.records.len() < 12 {
                log.write(&*store, 1).await;
            }
        }
        all.sort_by_key(|header| header.seq);
        let expected = if run == "r-1" { log.headers() } else { before };
        assert_eq!(all, expected, "each record once, {start:?}");
    }
}

/// If records are pruned meanwhile, a reader skips them, and sees each remaining record once.
pub(crate) async fn headers_go_on_while_records_are_pruned(stage: TestStage) {
    let store = stage.store();
    for (run, start) in ["r-1", "r-2"].into_iter().zip(ends(2)) {
        let log = stage.written(run, 12).await;
        let first = list(&*store, &log.key, start).await;
        ok(store.prune(&log.key, PruneCut { at: Seq::new(8), base: None }).await, "pruning");
        let (mut rest, mut range) = (Vec::new(), start.after(&first));
        while let Some(asked) = range {
            let answer = list(&*store, &log.key, asked).await;
            range = next(asked, &answer);
            rest.extend(seqs(&answer.items));
        }
        rest.sort_unstable();
        let expected: &[u64] = if run == "r-1" { &[8, 9, 10, 11] } else { &[8, 9] };
        assert_eq!(rest, expected, "the rest after pruning, {start:?}");
    }
    // The next record is pruned, and no record follows it.
    let log = stage.written("r-3", 12).await;
    let start = HeaderRange::newest(6);
    let first = list(&*store, &log.key, start).await;
    ok(store.prune(&log.key, PruneCut { at: Seq::new(8), base: None }).await, "pruning");
    let next = start.after(&first).expect("twelve records are more than six");
    let rest = list(&*store, &log.key, next).await;
    assert_eq!((seqs(&rest.items), next.after(&rest)), (vec![], None), "what is left was pruned");
}

/// A range beyond the head, or before the oldest stored record, is empty.
pub(crate) async fn a_range_of_nothing_is_empty(stage: TestStage) {
    let store = stage.store();
    let log = stage.written("r-1", 9).await;
    ok(store.prune(&log.key, PruneCut { at: Seq::new(4), base: None }).await, "pruning");
    for range in [
        HeaderRange::from(Seq::new(9), 5),
        HeaderRange::from(Seq::new(u64::MAX), 5),
        HeaderRange::up_to(Seq::new(3), 5),
        HeaderRange::up_to(Seq::new(0), 5),
    ] {
        let answer = list(&*store, &log.key, range).await;
        assert_eq!((seqs(&answer.items), range.after(&answer)), (vec![], None), "{range:?}");
        assert_eq!((answer.first.get(), answer.last.get()), (4, 8), "what is kept, said with {range:?}");
    }
}

/// Headers of a run that does not exist are an error, unlike an empty range.
pub(crate) async fn headers_of_a_missing_run_are_not_found(stage: TestStage) {
    stage.written("other", 2).await;
    for range in ends(50) {
        let listed = stage.store().headers(&key("missing"), range).await;
        expect_refusal(listed, &[ErrorKind::NotFound], "the headers of a run that does not exist");
    }
}

/// Every instance lists the same headers, and can continue after an answer of another instance.
pub(crate) async fn a_range_goes_on_in_every_instance(stage: TestStage) {
    let (store, other) = (stage.store(), stage.another().await);
    let log = stage.written("r-1", 5).await;
    for (start, rest) in ends(2).into_iter().zip([&log.headers()[2..], &log.headers()[..3]]) {
        let first = list(&*store, &log.key, start).await;
        let next = start.after(&first).expect("five records are more than two");
        let next = match next.anchor() {
            Anchor::From(seq) => HeaderRange::from(seq, 10),
            Anchor::UpTo(seq) => HeaderRange::up_to(seq, 10),
        };
        assert_eq!(list(&*other, &log.key, next).await.items, rest, "the rest from another instance");
    }
}
