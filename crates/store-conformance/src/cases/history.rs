//! Listing the records of a run: order, pages, cursors.

use ferrata_store::{
    CheckpointStore, Cursor, ErrorKind, Order, Page, Paged, PruneCut, RecordHeader, RunKey, RunQuery, Seq,
};

use crate::stage::{Log, Stage, every_header, expect_refusal, key, ok};

async fn page(store: &dyn CheckpointStore, run: &RunKey, page: Page) -> Paged<RecordHeader> {
    ok(store.history(run, page).await, "listing a page of history")
}

fn seqs(headers: &[RecordHeader]) -> Vec<u64> {
    headers.iter().map(|header| header.seq.get()).collect()
}

/// Returns the headers of a log in an order.
fn in_order(log: &Log, order: Order) -> Vec<RecordHeader> {
    let mut headers = log.headers();
    if order == Order::NewestFirst {
        headers.reverse();
    }
    headers
}

/// The history is every header, the newest or the oldest first.
pub(crate) async fn history_lists_every_header_in_both_orders(stage: Stage) {
    let mut log = stage.log("r-1");
    stage.written("other", 3).await;
    for count in [1, 4, 8] {
        log.write(&*stage.store(), count).await;
        for order in [Order::NewestFirst, Order::OldestFirst] {
            let all = page(&*stage.store(), &log.key, Page::first(1_000).with_order(order)).await;
            assert_eq!(all.items, in_order(&log, order), "the history, {order:?}");
        }
    }
    let default = page(&*stage.store(), &log.key, Page::default()).await;
    assert_eq!(default.items, in_order(&log, Order::NewestFirst), "the newest first unless asked otherwise");
}

/// A page holds no more than asked, and the pages together are the whole.
pub(crate) async fn a_page_of_history_holds_no_more_than_asked(stage: Stage) {
    let log = stage.written("r-1", 11).await;
    for order in [Order::NewestFirst, Order::OldestFirst] {
        for limit in [1, 2, 3, 10, 11, 12] {
            let all = every_header(&*stage.store(), &log.key, order, limit).await;
            assert_eq!(all, in_order(&log, order), "the pages of {limit}, {order:?}");
        }
    }
}

/// A page holds a thousand entries at most, whatever is asked; the others are on the pages after it.
pub(crate) async fn a_page_of_history_holds_a_thousand_at_most(stage: Stage) {
    let store = stage.store();
    let log = stage.written("r-1", 1_101).await;
    for order in [Order::NewestFirst, Order::OldestFirst] {
        for limit in [1_001, u32::MAX] {
            let first = page(&*store, &log.key, Page::first(limit).with_order(order)).await;
            assert!(first.items.len() <= Page::MAX as usize, "a page holds 1,000, not {}", first.items.len());
            let all = every_header(&*store, &log.key, order, limit).await;
            assert_eq!(all, in_order(&log, order), "the pages of {limit}, {order:?}");
        }
    }
}

/// The page that holds the last entry has no cursor.
pub(crate) async fn the_last_page_of_history_has_no_cursor(stage: Stage) {
    let store = stage.store();
    let log = stage.written("r-1", 6).await;
    for order in [Order::NewestFirst, Order::OldestFirst] {
        for limit in [1, 2, 3, 5, 6, 7] {
            let (mut seen, mut cursor) = (0, None);
            while seen < 6 {
                let next = Page { cursor, ..Page::first(limit).with_order(order) };
                let Paged { items, next } = page(&*store, &log.key, next).await;
                assert!(!items.is_empty(), "a page before the end holds something");
                seen += items.len();
                assert_eq!(next.is_some(), seen < 6, "a cursor after {seen} of 6, {limit} a page, {order:?}");
                cursor = next;
            }
        }
    }
}

/// Records that are added meanwhile are not seen by a listing of the newest first, and at the end of the other.
pub(crate) async fn history_goes_on_while_records_are_added(stage: Stage) {
    let store = stage.store();
    for (run, order) in [("r-1", Order::NewestFirst), ("r-2", Order::OldestFirst)] {
        let mut log = stage.written(run, 7).await;
        let before = in_order(&log, order);
        let (mut all, mut cursor) = (Vec::new(), None);
        loop {
            let next = Page { cursor, ..Page::first(2).with_order(order) };
            let Paged { items, next } = page(&*store, &log.key, next).await;
            all.extend(items);
            if next.is_none() {
                break;
            }
            cursor = next;
            if log.records.len() < 12 {
                log.write(&*store, 1).await;
            }
        }
        match order {
            Order::NewestFirst => assert_eq!(all, before, "what was there at the first page, once each"),
            Order::OldestFirst => {
                assert_eq!(all, in_order(&log, order), "all that was there at the last page")
            }
        }
    }
}

/// Records that are pruned meanwhile are passed over; those that stay are seen once each.
pub(crate) async fn history_goes_on_while_records_are_pruned(stage: Stage) {
    let store = stage.store();
    for (run, order) in [("r-1", Order::NewestFirst), ("r-2", Order::OldestFirst)] {
        let log = stage.written(run, 12).await;
        let first = page(&*store, &log.key, Page::first(2).with_order(order)).await;
        ok(store.prune(&log.key, PruneCut { at: Seq::new(8), base: None }).await, "pruning");
        let cursor = first.next.expect("twelve records are more than two");
        let rest = page(&*store, &log.key, Page::first(100).with_order(order).with_cursor(cursor)).await;
        let expected: &[u64] = match order {
            Order::NewestFirst => &[9, 8],
            Order::OldestFirst => &[8, 9, 10, 11],
        };
        assert_eq!(seqs(&rest.items), expected, "the rest after pruning, {order:?}");
    }
    // The cursor itself stands at a record that is gone, and nothing is left after it.
    let log = stage.written("r-3", 12).await;
    let first = page(&*store, &log.key, Page::first(6)).await;
    ok(store.prune(&log.key, PruneCut { at: Seq::new(8), base: None }).await, "pruning");
    let cursor = first.next.expect("twelve records are more than six");
    let rest = page(&*store, &log.key, Page::first(6).with_cursor(cursor)).await;
    assert_eq!((seqs(&rest.items), rest.next), (vec![], None), "what is left was pruned");
}

/// A run that does not exist has no history, which is not the same as an empty one.
pub(crate) async fn history_of_a_missing_run_is_not_found(stage: Stage) {
    stage.written("other", 2).await;
    let listed = stage.store().history(&key("missing"), Page::default()).await;
    expect_refusal(listed, &[ErrorKind::NotFound], "the history of a run that does not exist");
}

/// Text that no store would make as a cursor.
pub(super) const NO_CURSORS: [&str; 9] =
    ["", "no cursor", "-1", "seq/", "run/", "1.5", "'; --", "99999999999999999999999", "\u{0}\u{7f}é"];

/// A cursor that is not of this listing is refused; it is never taken for the first page.
pub(crate) async fn a_foreign_cursor_of_history_is_invalid(stage: Stage) {
    let store = stage.store();
    let log = stage.written("r-1", 3).await;
    stage.written("r-2", 3).await;
    let runs = ok(store.runs(&RunQuery::default(), Page::first(1)).await, "listing runs");
    let foreign = runs.next.expect("two runs are more than one");
    for cursor in NO_CURSORS.into_iter().map(Cursor::new).chain([foreign]) {
        let what = format!("the cursor {:?}", cursor.as_str());
        let listed = store.history(&log.key, Page::default().with_cursor(cursor)).await;
        expect_refusal(listed, &[ErrorKind::Invalid], &what);
    }
}

/// A cursor is text that any instance understands.
pub(crate) async fn a_cursor_of_history_is_for_every_instance(stage: Stage) {
    let (store, other) = (stage.store(), stage.another().await);
    let log = stage.written("r-1", 5).await;
    for order in [Order::NewestFirst, Order::OldestFirst] {
        let first = page(&*store, &log.key, Page::first(2).with_order(order)).await;
        let text = first.next.expect("five records are more than two").as_str().to_owned();
        let next = Page::first(10).with_order(order).with_cursor(Cursor::new(text));
        let rest = page(&*other, &log.key, next).await;
        assert_eq!(rest.items, in_order(&log, order)[2..], "the rest from another instance, {order:?}");
    }
}
