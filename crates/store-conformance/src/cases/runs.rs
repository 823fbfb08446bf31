//! Listings of runs: order, pages, cursors, and the movement of runs between listings.

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

/// Starts `count` runs, of which `r-0` is the oldest. Returns their keys in that order.
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

/// A store without runs returns an empty listing.
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

/// Runs are ordered by time of creation, then tenant, then run id, in byte order. Newest first is the reverse order.
pub(crate) async fn runs_are_ordered_by_creation_then_tenant_then_id(stage: TestStage) {
    // The runs in the expected order. They are started in another order.
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
        // Seven and the number of runs have no common divisor, so each run is started once.
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
        // The writer's clock goes backward with each record.
        let at = ferrata_store::Timestamp::from_unix_ms(1_000 - 100 * n);
        logs[log].write_with(&*store, 1, |header| header.at = at).await;
        let listed = every_run(&*store, &RunQuery::default(), Order::OldestFirst, 10).await;
        assert_eq!(keys(&listed), expected, "the order of creation stays");
        crate::stage::is_kept(&*store, &logs[log]).await;
    }
}

/// A page has at most the requested number of runs, and all pages together have all runs.
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

/// A page has at most a thousand runs, whatever the request. Later pages have the others.
pub(crate) async fn a_page_of_runs_holds_a_thousand_at_most(stage: TestStage) {
    let expected = row(&stage, 1_050).await;
    let first = page(&*stage.store(), &RunQuery::default(), Page::first(u32::MAX)).await;
    assert!(first.items.len() <= Page::MAX as usize, "a page holds 1,000, not {}", first.items.len());
    let all = every_run(&*stage.store(), &RunQuery::default(), Order::OldestFirst, u32::MAX).await;
    assert_eq!(keys(&all), expected, "every run, page by page");
}

/// The page with the last run has no cursor, even if other runs follow that do not match the query.
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

/// Runs that are started during a listing do not disturb it: a run that exists all the time is listed exactly once.
pub(crate) async fn pages_of_runs_go_on_while_runs_are_started(stage: TestStage) {
    let store = stage.store();
    let there = row(&stage, 9).await;
    for order in [Order::NewestFirst, Order::OldestFirst] {
        let (mut all, mut cursor) = (Vec::new(), None);
        for n in 0..100 {
            let next = Page { cursor, ..Page::first(2).with_order(order) };
            let Paged { items, next } = page(&*store, &RunQuery::default(), next).await;
            all.extend(keys(&items));
            // Start a run at each end and in the middle. The listing may include these runs or not.
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

/// Runs that are purged during a listing do not disturb it, not even the run at the cursor.
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

/// An append moves a run from the listing of its previous status to that of its new status.
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

/// Texts that are not cursors of any store.
const NO_CURSORS: [&str; 9] =
    ["", "no cursor", "-1", "seq/", "run/", "1.5", "'; --", "99999999999999999999999", "\u{0}\u{7f}é"];

/// In the order that the store chooses, each run is listed once, and the order is one of the two.
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

/// The store refuses a cursor that does not belong to the listing. It never returns the first page instead.
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

/// Every instance accepts a cursor of another instance.
pub(crate) async fn a_cursor_of_runs_is_for_every_instance(stage: TestStage) {
    let (store, other) = (stage.store(), stage.another().await);
    let there = row(&stage, 5).await;
    let first = page(&*store, &RunQuery::default(), Page::first(2).with_order(Order::OldestFirst)).await;
    let text = first.next.expect("five runs are more than two").as_str().to_owned();
    let next = Page::first(10).with_order(Order::OldestFirst).with_cursor(Cursor::new(text));
    let rest = page(&*other, &RunQuery::default(), next).await;
    assert_eq!(keys(&rest.items), there[2..], "the rest, from another instance");
}
