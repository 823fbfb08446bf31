//! Listings over all shards: one order, and cursors that survive a restart and an added shard.

use ferrata_core::store::{CheckpointStore, Order, Page, Paged, RunQuery};

use crate::world::{World, append, every, next, start};

fn names(heads: Vec<ferrata_core::store::RunHead>) -> Vec<String> {
    heads.into_iter().map(|head| head.run.run.to_string()).collect()
}

/// Guarantees: SHARD-9.
#[tokio::test]
async fn all_shards_list_in_one_order_with_cursors() {
    let world = World::default();
    let store = world.open(&["ab", "abc"]);
    store.setup().await.unwrap();
    let mut expected = start(&store, "run", 100).await;
    // Many runs of the same millisecond, which only their names distinguish.
    for n in 0..40 {
        append(&store, next(&format!("same-{n:02}"), None, 1_000, None)).await.unwrap();
        expected.push(format!("same-{n:02}"));
    }
    for limit in [1, 7, 39, 140, 1_000] {
        let page = Page::first(limit).with_order(Order::OldestFirst);
        assert_eq!(
            names(every(&store, &RunQuery::default(), page).await.unwrap()),
            expected,
            "{limit} per page"
        );
        let mut newest = names(every(&store, &RunQuery::default(), Page::first(limit)).await.unwrap());
        newest.reverse();
        assert_eq!(newest, expected, "{limit} per page, newest first");
    }
    // Limits of the caller apply in addition to those of the cursor.
    let mut query = RunQuery::default();
    query.created_from = Some(ferrata_core::Timestamp::from_unix_ms(10));
    query.created_before = Some(ferrata_core::Timestamp::from_unix_ms(90));
    for order in [Order::OldestFirst, Order::NewestFirst] {
        let listed = every(&store, &query, Page::first(7).with_order(order)).await.unwrap();
        assert_eq!(listed.len(), 80, "{order:?}");
    }
}

/// Guarantees: SHARD-9.
#[tokio::test]
async fn cursor_survives_restart_and_added_shard() {
    for order in [Order::OldestFirst, Order::NewestFirst] {
        let world = World::default();
        let old = world.open(&["ab"]);
        let mut expected = start(&old, "run", 60).await;
        let Paged { items, next: cursor } =
            old.runs(&RunQuery::default(), Page::first(25).with_order(order)).await.unwrap();
        let new = world.open(&["ab", "abc"]);
        start(&new, "later", 30).await;
        let page = Page::first(25).with_order(order).with_cursor(cursor.unwrap());
        let rest = every(&new, &RunQuery::default(), page).await.unwrap();
        let mut seen = names(items);
        seen.extend(names(rest).into_iter().filter(|run| run.starts_with("run")));
        if order == Order::NewestFirst {
            expected.reverse();
        }
        assert_eq!(seen, expected, "{order:?}: each run that existed throughout, once");
    }
}
