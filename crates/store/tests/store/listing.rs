//! Listings, their pages and their cursors.

use ferrata_store::{
    Cursor, ErrorKind, Listing, Order, Page, RunHead, RunId, RunKey, RunPlace, RunQuery, TenantId, Timestamp,
    WorkflowName, page,
};
use ferrata_testing::{Log, facts};

#[test]
fn cursor_is_valid_only_in_its_listing() {
    let run = RunKey::new(TenantId::new("t:.-_").unwrap(), RunId::new("r:1.2").unwrap());
    let listing = Listing::of_runs(&RunQuery::default(), Order::NewestFirst);
    let place = RunPlace { created: Timestamp::from_unix_ms(-5), run: run.clone() };
    let cursor = place.cursor(listing);
    assert_eq!(RunPlace::read(listing, &cursor).unwrap(), place);
    let mut query = RunQuery::default();
    query.labels.push(("a".into(), "b".into()));
    for other in [
        Listing::of_runs(&query, Order::NewestFirst),
        Listing::of_runs(&RunQuery::default(), Order::OldestFirst),
        Listing::of_history(&run, Order::NewestFirst),
    ] {
        assert_eq!(RunPlace::read(other, &cursor).unwrap_err().kind(), ErrorKind::Invalid);
    }
}

/// All stores share the filter, the order, the page and its cursor.
#[test]
fn pages_of_all_heads_are_the_listing() {
    let head = |n: i64| {
        // Two runs per time, so that the id decides, in mixed order.
        let run = RunKey::from(RunId::new(format!("r{}", n * 7 % 11)).unwrap());
        let mut log = Log::new(run).with_facts(facts(if n % 3 == 0 { "pay" } else { "ship" }, n / 2));
        log.note_append(&log.next(1));
        log.run_head()
    };
    let heads: Vec<RunHead> = (0..11).map(head).collect();
    let mut wanted: Vec<RunPlace> =
        heads.iter().filter(|head| head.facts.workflow.as_str() == "ship").map(RunPlace::of).collect();
    wanted.sort();
    let now = Timestamp::from_unix_ms(0);
    let mut query = RunQuery::default();
    query.workflow = Some(WorkflowName::new("ship").unwrap());
    for (order, limit) in [Order::OldestFirst, Order::NewestFirst, Order::Any]
        .into_iter()
        .flat_map(|order| (1..=8).map(move |limit| (order, limit)))
    {
        let (mut listed, mut asked) = (Vec::new(), Some(Page::first(limit).with_order(order)));
        while let Some(part) = asked.take() {
            let paged = page(&query, &part, now, heads.iter().cloned()).unwrap();
            assert!((1..=part.max_items()).contains(&paged.items.len()), "{order:?} by {limit}");
            listed.extend(paged.items.iter().map(RunPlace::of));
            assert!(listed.len() <= wanted.len(), "{order:?} by {limit} lists a run twice");
            asked = paged.next.map(|cursor| part.with_cursor(cursor));
        }
        if order == Order::NewestFirst {
            listed.reverse();
        }
        assert_eq!(listed, wanted, "{order:?} by {limit}");
    }
    let first = page(&query, &Page::first(1), now, heads.iter().cloned()).unwrap();
    let foreign = Page::first(1).with_cursor(first.next.unwrap());
    let refused = page(&RunQuery::default(), &foreign, now, heads).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    let none = page(&query, &Page::default(), now, []).unwrap();
    assert!(none.items.is_empty() && none.next.is_none());
}

#[test]
fn other_text_is_refused() {
    let listing = Listing::of_runs(&RunQuery::default(), Order::NewestFirst);
    for place in ["", ".", "x", "1", "1.", "1.a", "1.a/", "1./a", "1.../a", "1.a/..", "x.a/b"] {
        assert!(RunPlace::read(listing, &listing.cursor(place)).is_err(), "{place}");
        assert!(RunPlace::read(listing, &Cursor::new(place)).is_err(), "{place}");
    }
}
