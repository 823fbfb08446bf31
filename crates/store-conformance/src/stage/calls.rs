//! Calls that must succeed or fail in a certain way. A failed check says what was tried.

use std::fmt::Debug;

use ferrata_store::{
    Anchor, At, CheckpointStore, ErrorKind, HeadRef, HeaderRange, Order, Page, Paged, RecordHeader, Result,
    RunAppend, RunHead, RunKey, RunQuery, Seq,
};

use super::Log;

/// Returns the value of a call that must succeed.
#[track_caller]
pub(crate) fn ok<T>(result: Result<T>, what: &str) -> T {
    result.unwrap_or_else(|error| panic!("{what} must succeed, and failed: {error:?}"))
}

/// Checks that the store refused a call with this kind, and returns the error.
#[track_caller]
pub(crate) fn expect_refusal<T: Debug>(
    result: Result<T>,
    kinds: &[ErrorKind],
    what: &str,
) -> ferrata_store::Error {
    match result {
        Ok(value) => panic!("{what} must be refused with {kinds:?}, and returned {value:?}"),
        Err(error) => {
            assert!(kinds.contains(&error.kind()), "{what} must be refused with {kinds:?}, not: {error:?}");
            error
        }
    }
}

/// Appends one entry, and returns its result.
pub(crate) async fn append_one(store: &dyn CheckpointStore, append: &RunAppend) -> Result<HeadRef> {
    let mut results = store.append(vec![append.clone()]).await;
    assert_eq!(results.len(), 1, "an append of one entry must have one result: {results:?}");
    results.remove(0)
}

/// Appends one entry, which must succeed.
pub(crate) async fn appended(store: &dyn CheckpointStore, append: &RunAppend) -> HeadRef {
    let what = format!("appending to {} after {:?}", append.run, append.expected);
    let head = ok(append_one(store, append).await, &what);
    let last = append.records.last().map(|record| record.header.head());
    assert_eq!(Some(head), last, "{what} must return the new head");
    head
}

/// Returns all headers of a run in order. Fetches them from the oldest or from the newest on, `limit` at a time.
pub(crate) async fn every_header(
    store: &dyn CheckpointStore,
    run: &RunKey,
    start: HeaderRange,
) -> Vec<RecordHeader> {
    ok(every_header_or(store, run, start).await, "listing the headers")
}

/// Like [`every_header`], but returns the error of a failed call.
pub(crate) async fn every_header_or(
    store: &dyn CheckpointStore,
    run: &RunKey,
    start: HeaderRange,
) -> Result<Vec<RecordHeader>> {
    let (mut answers, mut range) = (Vec::new(), Some(start));
    while let Some(asked) = range {
        let answer = store.headers(run, asked).await?;
        let (most, found) = (asked.limit() as usize, answer.items.len());
        assert!(found <= most, "an answer of at most {most} headers, or 1,000, must not hold {found}");
        range = asked.after(&answer);
        answers.push(answer.items);
        assert!(answers.len() < MOST_PAGES as usize, "a walk must come to its end");
    }
    if matches!(start.anchor(), Anchor::UpTo(_)) {
        answers.reverse();
    }
    Ok(answers.concat())
}

/// Returns all runs that match a query. Fetches them `limit` at a time.
pub(crate) async fn every_run(
    store: &dyn CheckpointStore,
    query: &RunQuery,
    order: Order,
    limit: u32,
) -> Vec<RunHead> {
    let (mut all, mut walk) = (Vec::new(), PageWalk::new(order, limit));
    while let Some(page) = walk.next() {
        all.extend(walk.take_page(ok(store.runs(query, page).await, "listing runs")));
    }
    all
}

/// The maximum number of pages of a listing in the suite. More pages mean that the cursor does not advance.
const MOST_PAGES: u32 = 3_000;

/// Reads all pages of a listing.
pub(crate) struct PageWalk {
    next: Option<Page>,
    pages: u32,
}

impl PageWalk {
    pub(crate) fn new(order: Order, limit: u32) -> Self {
        Self { next: Some(Page::first(limit).with_order(order)), pages: 0 }
    }

    /// Returns the next page to fetch; `None` after the last page.
    pub(crate) fn next(&self) -> Option<Page> {
        self.next.clone()
    }

    /// Takes a fetched page, and returns its entries.
    pub(crate) fn take_page<T>(&mut self, Paged { items, next }: Paged<T>) -> Vec<T> {
        self.pages += 1;
        assert!(self.pages < MOST_PAGES, "a listing must come to its end; {MOST_PAGES} pages did not");
        let page = self.next.take().expect("only a page that was asked for is taken");
        let (most, found) = (page.limit, items.len());
        assert!(
            found <= page.max_items(),
            "a page of at most {most} entries, or 1,000, must not hold {found}"
        );
        self.next = next.map(|cursor| page.with_cursor(cursor));
        items
    }
}

/// Checks that exactly this log is stored: its head, its headers from both ends, and each stored record by number and by id.
pub(crate) async fn is_kept(store: &dyn CheckpointStore, log: &Log) {
    is_kept_at_head(store, log).await;
    let run = &log.key;
    if log.records.is_empty() {
        let history = store.headers(run, HeaderRange::newest(50)).await;
        expect_refusal(
            history,
            &[ErrorKind::NotFound],
            &format!("the history of {run}, which does not exist"),
        );
        return;
    }
    for start in [HeaderRange::oldest(1_000), HeaderRange::newest(1_000)] {
        let headers = every_header(store, run, start).await;
        assert_eq!(headers, log.headers(), "the headers of {run}, {start:?}");
    }
    for record in &log.records {
        let seq = record.header.seq.get();
        for at in [At::Seq(Seq::new(seq)), At::Record(record.header.id)] {
            let loaded = ok(store.load(run, at).await, &format!("loading {run} at {at}"));
            assert_eq!(loaded, Some(log.loaded(seq)), "what is loaded of {run} at {at}");
        }
    }
}

/// Checks that the head of this log is stored, and the load at the head. If the log is empty, checks that the run does not exist.
pub(crate) async fn is_kept_at_head(store: &dyn CheckpointStore, log: &Log) {
    let run = &log.key;
    let head = ok(store.head(run).await, &format!("reading the head of {run}"));
    let loaded = ok(store.load(run, At::Latest).await, &format!("loading {run}"));
    if log.records.is_empty() {
        assert_eq!(head, None, "the head of {run}, which does not exist");
        assert_eq!(loaded, None, "what is loaded of {run}, which does not exist");
        return;
    }
    // Ignore whether the owner is alive: other properties check that.
    let head = head.map(|mut head| {
        head.owner_alive = false;
        head
    });
    assert_eq!(head, Some(log.run_head()), "the head of {run}");
    let last = log.records.last().map_or(0, |record| record.header.seq.get());
    assert_eq!(loaded, Some(log.loaded(last)), "what is loaded of {run} at its head");
}
