//! Listing runs: order, pages, cursors, and how runs move between listings.

use ferrata_store::{
    CheckpointStore, Cursor, ErrorKind, Order, Page, Paged, RunHead, RunKey, RunQuery, RunStatus, Timestamp,
};

use crate::stage::{Log, TestStage, every_run, expect_refusal, facts, key_in, ok, query, tenant};

async fn page(store: &dyn CheckpointStore, query: &RunQuery, page: Page) -> Paged<RunHead> {
    ok(store.runs(query, page).await, "listing a page of runs")
}

fn keys(heads: &[RunHead]) -> Vec<RunKey> {
    heads.iter().map(|head| head.run.clone()).collect()
}

/// Starts a run in a tenant, created at this time.
async fn started(stage: &TestStage, tenant: &str, run: &str, created: i64) -> Log {
    let mut log = stage.log_of(key_in(tenant, run)).with_facts(facts("w", created));
    log.write(&*stage.store(), 1).await;
    log
}

/// Starts this many runs, `r-0` the oldest, and returns their keys in that order.
async fn row(stage: &TestStage, count: u32) -> Vec<RunKey> {
    let logs: Vec<Log> =
        (0..count).map(|n| stage.log(&format!("r-{n}")).with_facts(facts("w", i64::from(n) * 10))).collect();
    for logs in logs.chunks(200) {
        for result in stage.store().append(logs.iter().map(|log| log.next(1)).collect()).await {
            ok(result, "starting a run");
        }
    }
    logs.into_iter().map(|log| log.key).collect()
}

/// A store without runs lists none.
pub(crate) async fn an_empty_store_lists_no_runs(stage: TestStage) {
    let listed = page(&*stage.store(), &RunQuery::default(), Page::default()).await;
    assert_eq!(listed, Paged { items: Vec::new(), next: None });
}

/// A listing shows the current head of a run.
pub(crate) async fn listed_heads_are_the_heads(stage: TestStage) {
    let store = stage.store();
    let mut logs = [started(&stage, "a", "r-1", 5).await, started(&stage, "b", "r-2", 6).await];
    for count in [0, 1, 4] {
        for log in &mut logs {
            if count > 0 {
                log.write(&*store, count).await;
            }
        }
        let listed = every_run(&*store, &RunQuery::default(), Order::OldestFirst, 10).await;
        assert_eq!(listed, logs.each_ref().map(Log::run_head), "the heads as listed");
        for head in listed {
            assert_eq!(ok(store.head(&head.run).await, "reading a head").as_ref(), Some(&head));
        }
    }
}

/// Runs are ordered by creation, then tenant, then run id, byte for byte; the newest first is the reverse.
pub(crate) async fn runs_are_ordered_by_creation_then_tenant_then_id(stage: TestStage) {
    // In the order they must have; started in another.
    let ordered = [
        ("z", "z", -1_000),
        ("b", "b", -1),
        ("a", "early", 0),
        ("A", "b", 5),
        ("B", "a", 5),
        ("a", "-", 5),
        ("a", "10", 5),
        ("a", "9", 5),
        ("a", ":", 5),
        ("a", "B", 5),
        ("a", "_", 5),
        ("a", "a", 5),
        ("a", "a-", 5),
        ("a", "a.", 5),
        ("a", "aa", 5),
        ("a", "b", 5),
        ("a-", "a", 5),
        ("a.", "a", 5),
        ("aa", "a", 5),
        ("b", "a", 5),
        ("a", "m", 6),
        ("a", "n", 10),
        ("A", "o", 1_600_000_000_000),
    ];
    for n in 0..ordered.len() {
        // Seven and the number of runs have no common divisor, so each is started once.
        let (tenant, run, created) = ordered[n * 7 % ordered.len()];
        started(&stage, tenant, run, created).await;
    }
    let expected: Vec<_> = ordered.iter().map(|(tenant, run, _)| key_in(tenant, run)).collect();
    for limit in [1, 4, 1_000] {
        let oldest = every_run(&*stage.store(), &RunQuery::default(), Order::OldestFirst, limit).await;
        assert_eq!(keys(&oldest), expected, "the oldest first, {limit} a page");
        let mut newest = every_run(&*stage.store(), &RunQuery::default(), Order::NewestFirst, limit).await;
        newest.reverse();
        assert_eq!(keys(&newest), expected, "the newest first, reversed, {limit} a page");
    }
    let default = page(&*stage.store(), &RunQuery::default(), Page::default()).await;
    assert_eq!(keys(&default.items).first(), expected.last(), "the newest first unless asked otherwise");
}

/// Later appends and the writer's clock do not move a run in listings.
pub(crate) async fn an_append_does_not_move_a_run_in_listings(stage: TestStage) {
    let store = stage.store();
    let mut logs = [started(&stage, "t", "r-1", 1).await, started(&stage, "t", "r-2", 2).await];
    let expected = logs.each_ref().map(|log| log.key.clone());
    for (n, log) in [(1, 0), (2, 1), (3, 0)] {
        // The writer's clock goes backwards with each record.
        let at = ferrata_store::Timestamp::from_unix_ms(1_000 - 100 * n);
        logs[log].write_with(&*store, 1, |header| header.at = at).await;
        let listed = every_run(&*store, &RunQuery::default(), Order::OldestFirst, 10).await;
        assert_eq!(keys(&listed), expected, "the order of creation stays");
        crate::stage::is_kept(&*store, &logs[log]).await;
    }
}

/// A page holds no more than asked, and the pages together are the whole.
pub(crate) async fn a_page_of_runs_holds_no_more_than_asked(stage: TestStage) {
    let expected = row(&stage, 9).await;
    for limit in [1, 2, 3, 8, 9, 10] {
        let oldest = every_run(&*stage.store(), &RunQuery::default(), Order::OldestFirst, limit).await;
        assert_eq!(keys(&oldest), expected, "the pages of {limit}, the oldest first");
        let mut newest = every_run(&*stage.store(), &RunQuery::default(), Order::NewestFirst, limit).await;
        newest.reverse();
        assert_eq!(keys(&newest), expected, "the pages of {limit}, the newest first");
    }
}

/// A page holds a thousand runs at most, whatever the request; later pages hold the rest.
pub(crate) async fn a_page_of_runs_holds_a_thousand_at_most(stage: TestStage) {
    let expected = row(&stage, 1_050).await;
    let first = page(&*stage.store(), &RunQuery::default(), Page::first(u32::MAX)).await;
    assert!(first.items.len() <= Page::MAX as usize, "a page holds 1,000, not {}", first.items.len());
    let all = every_run(&*stage.store(), &RunQuery::default(), Order::OldestFirst, u32::MAX).await;
    assert_eq!(keys(&all), expected, "every run, page by page");
}

/// The page that holds the last run has no cursor, also when others follow that do not meet the query.
pub(crate) async fn the_last_page_of_runs_has_no_cursor(stage: TestStage) {
    let store = stage.store();
    row(&stage, 6).await;
    for (tenant, run, created) in [("t", "x", 5), ("t", "y", 15), ("t", "z", 25)] {
        started(&stage, tenant, run, created).await;
    }
    let of_tenant = query(|query| query.tenant = Some(tenant("t")));
    for (query, count) in [(RunQuery::default(), 9), (of_tenant, 3)] {
        for order in [Order::NewestFirst, Order::OldestFirst] {
            for limit in [1, 2, 3, 8, 9, 10] {
                let (mut seen, mut cursor) = (0, None);
                while seen < count {
                    let next = Page { cursor, ..Page::first(limit).with_order(order) };
                    let Paged { items, next } = page(&*store, &query, next).await;
                    seen += items.len();
                    assert_eq!(next.is_some(), seen < count, "a cursor after {seen} of {count}, {order:?}");
                    cursor = next;
                }
            }
        }
    }
}

/// Runs that are started meanwhile do not disturb a listing: what is there throughout is seen exactly once.
pub(crate) async fn pages_of_runs_go_on_while_runs_are_started(stage: TestStage) {
    let store = stage.store();
    let there = row(&stage, 9).await;
    for order in [Order::NewestFirst, Order::OldestFirst] {
        let (mut all, mut cursor) = (Vec::new(), None);
        for n in 0..100 {
            let next = Page { cursor, ..Page::first(2).with_order(order) };
            let Paged { items, next } = page(&*store, &RunQuery::default(), next).await;
            all.extend(keys(&items));
            // One at each end and one in the middle, which the listing may see or not.
            for (place, created) in [(0, -1 - n), (1, 45), (2, 1_000 + n)] {
                if n < 4 {
                    started(&stage, "t", &format!("{order:?}-{n}-{place}"), created).await;
                }
            }
            cursor = next;
            if cursor.is_none() {
                break;
            }
        }
        let mut seen: Vec<_> = all.iter().filter(|key| there.contains(key)).cloned().collect();
        if order == Order::NewestFirst {
            seen.reverse();
        }
        assert_eq!(seen, there, "what is there throughout is seen once, in order, {order:?}");
        let distinct: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len(), "nothing is seen twice, {order:?}");
    }
}

/// Runs that are purged meanwhile, even the one at the cursor, do not disturb a listing.
pub(crate) async fn pages_of_runs_go_on_while_runs_are_purged(stage: TestStage) {
    let store = stage.store();
    let there = row(&stage, 9).await;
    let first = page(&*store, &RunQuery::default(), Page::first(3).with_order(Order::OldestFirst)).await;
    assert_eq!(keys(&first.items), there[..3]);
    for gone in [0, 2, 4] {
        ok(store.purge(&there[gone], None).await, "purging");
    }
    let cursor = first.next.expect("nine runs are more than three");
    let next = Page::first(10).with_order(Order::OldestFirst).with_cursor(cursor);
    let rest = page(&*store, &RunQuery::default(), next).await;
    let expected = [3, 5, 6, 7, 8].map(|n| there[n].clone());
    assert_eq!(keys(&rest.items), expected, "what was not yet seen and is still there");
}

/// With each append a run moves to the listing of its status, and out of that of the one before.
pub(crate) async fn a_run_moves_between_listings_with_its_status(stage: TestStage) {
    let store = stage.store();
    let mut log = started(&stage, "t", "r-1", 1).await;
    let other = started(&stage, "t", "r-2", 2).await;
    for status in [
        RunStatus::Interrupted,
        RunStatus::InProgress,
        RunStatus::AwaitingInput,
        RunStatus::Failed,
        RunStatus::Cancelled,
        RunStatus::Completed,
    ] {
        log.write_with(&*store, 1, |header| header.status = status).await;
        for listed in RunStatus::ALL {
            let query = query(|query| query.statuses = vec![listed]);
            let heads = every_run(&*store, &query, Order::OldestFirst, 10).await;
            let mut expected = Vec::new();
            if listed == status {
                expected.push(log.run_head());
            }
            if listed == RunStatus::InProgress {
                expected.push(other.run_head());
            }
            assert_eq!(heads, expected, "the runs that are {listed}, when one is {status}");
        }
    }
}

/// Text that no store would make as a cursor.
const NO_CURSORS: [&str; 9] =
    ["", "no cursor", "-1", "seq/", "run/", "1.5", "'; --", "99999999999999999999999", "\u{0}\u{7f}é"];

/// In whichever order a store lists runs best, each is listed once, and in one of the two orders.
pub(crate) async fn runs_in_any_order_are_listed_once_each(stage: TestStage) {
    let there = row(&stage, 7).await;
    for limit in [1, 2, 3, 7, 10] {
        let mut found = keys(&every_run(&*stage.store(), &RunQuery::default(), Order::Any, limit).await);
        if found.first() != there.first() {
            found.reverse();
        }
        assert_eq!(found, there, "the runs in any order, {limit} a page");
    }
}

/// A cursor that is not of this listing is refused; it is never taken for the first page.
pub(crate) async fn a_foreign_cursor_of_runs_is_invalid(stage: TestStage) {
    let store = stage.store();
    row(&stage, 3).await;
    for cursor in NO_CURSORS.into_iter().map(Cursor::new) {
        let what = format!("the cursor {:?}", cursor.as_str());
        let listed = store.runs(&RunQuery::default(), Page::default().with_cursor(cursor)).await;
        expect_refusal(listed, &[ErrorKind::Invalid], &what);
    }
}

/// A cursor works only with its own query and order. With others, a listing would omit runs or repeat them.
pub(crate) async fn a_cursor_of_another_query_or_order_is_invalid(stage: TestStage) {
    let store = stage.store();
    let there = row(&stage, 4).await;
    let tenant = there[0].tenant.clone();
    let queries = [
        RunQuery::default(),
        query(|query| query.tenant = Some(tenant)),
        query(|query| query.statuses = RunStatus::ALL.to_vec()),
        query(|query| query.created_from = Some(Timestamp::from_unix_ms(i64::MIN))),
    ];
    let orders = [Order::NewestFirst, Order::OldestFirst];
    for (made, made_for) in queries.iter().enumerate() {
        for made_in in orders {
            let first = page(&*store, made_for, Page::first(1).with_order(made_in)).await;
            let cursor = first.next.expect("some runs are more than one");
            for (given, given_to) in queries.iter().enumerate() {
                for order in orders {
                    let next = Page::first(10).with_order(order).with_cursor(cursor.clone());
                    let listed = store.runs(given_to, next).await;
                    if (made, made_in) == (given, order) {
                        ok(listed, "the rest of the same listing");
                        continue;
                    }
                    let what =
                        format!("a cursor of {made_for:?}, {made_in:?}, given to {given_to:?}, {order:?}");
                    expect_refusal(listed, &[ErrorKind::Invalid], &what);
                }
            }
        }
    }
}

/// A cursor is text that any instance understands.
pub(crate) async fn a_cursor_of_runs_is_for_every_instance(stage: TestStage) {
    let (store, other) = (stage.store(), stage.another().await);
    let there = row(&stage, 5).await;
    let first = page(&*store, &RunQuery::default(), Page::first(2).with_order(Order::OldestFirst)).await;
    let text = first.next.expect("five runs are more than two").as_str().to_owned();
    let next = Page::first(10).with_order(Order::OldestFirst).with_cursor(Cursor::new(text));
    let rest = page(&*other, &RunQuery::default(), next).await;
    assert_eq!(keys(&rest.items), there[2..], "the rest, from another instance");
}
