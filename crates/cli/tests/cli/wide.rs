//! Text output for runs with many activations, and on narrow terminals.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ferrata::prelude::*;
use ferrata::record::RunStatus;
use unicode_width::UnicodeWidthStr;

use crate::service::{Service, some_runs};
use crate::support::{Place, Said};

/// Number of completed activations.
static DONE: AtomicU32 = AtomicU32::new(0);

/// Runs 500 concurrent activations. One fails after all others have ended.
async fn work(cx: NodeContext, s: Draft<Context>) -> NodeResult<Context> {
    if cx.item::<u32>()? != 7 {
        DONE.fetch_add(1, Ordering::SeqCst);
        return Ok(s.into());
    }
    while DONE.load(Ordering::SeqCst) < 499 {
        tokio::task::yield_now().await;
    }
    Err("the seventh is broken".into())
}

fn fan() -> Graph<Context> {
    Graph::<Context>::builder("fan")
        .node("split", async |_cx, s| Ok(s))
        .node("work", work)
        .entry("split")
        .route("split", ["work"], |_, _| Route::each("work", 0..500))
        .build()
        .unwrap()
}

/// Runs a line on a terminal with this many columns.
fn narrow(place: &Place, columns: usize, line: &[&str]) -> Said {
    let columns = columns.to_string();
    place.call_with(line, "", &[("FERRATA_STORE", &place.url()), ("COLUMNS", &columns)])
}

/// `show` groups many activations, and lists the failed one separately.
///
/// Guarantees: CLI-10.
#[tokio::test(flavor = "multi_thread")]
async fn wide_run_shows_failures_and_summarizes_rest() {
    let place = Place::new();
    let service = Service::start(&place).await;
    let run = service.run(&fan(), "fan-1", Context::new()).await;
    service.until(&run, RunStatus::Failed).await;
    service.runtime.shutdown(Duration::ZERO).await.unwrap();
    let shown = place.ok(&["show", "fan-1"]);
    let table: Vec<&str> = shown.lines().skip_while(|line| !line.starts_with("NODE")).collect();
    assert!(table[1].starts_with("work@8 ") && table[1].contains("✗ failed"), "{shown}");
    assert!(table[1].contains("the seventh is broken") && !shown.contains("✗ stopped"), "{shown}");
    assert!(shown.contains("\nsplit@1 ") && shown.contains("\nwork ×499  ✓ done"), "{shown}");
    assert!(shown.lines().count() < 20, "{shown}");
    // JSON contains all of them.
    let all = place.json(&["show", "fan-1"]);
    assert_eq!(all["checkpoint"]["history"].as_array().unwrap().len(), 501);
}

/// Rows and headers are not broken within words.
///
/// Guarantees: CLI-10.
#[tokio::test(flavor = "multi_thread")]
async fn tables_fit_a_narrow_terminal() {
    let place = Place::new();
    let service = some_runs(&place).await;
    service.runtime.shutdown(Duration::ZERO).await.unwrap();
    for columns in [40, 50, 60, 80] {
        for line in [
            &["ls"][..],
            &["show", "pay-3"],
            &["show", "pay-3", "--node", "send"],
            &["history", "pay-2"],
            &["questions"],
            &["fork", "pay-2", "--list"],
        ] {
            let said = narrow(&place, columns, line);
            assert_eq!(said.code, 0, "{line:?}: {said:?}");
            let rows = said.out.lines().skip_while(|line| !line.starts_with(|c: char| c.is_uppercase()));
            for row in rows.take_while(|row| !row.is_empty()) {
                assert!(row.width() <= columns, "{line:?} in {columns} columns: {row}");
            }
        }
    }
    let shown = narrow(&place, 50, &["show", "pay-3"]).out;
    let header = shown.lines().find(|line| line.starts_with("NODE")).unwrap();
    assert_eq!(header, "NODE       OUTCOME   TOOK  DETAILS", "{shown}");
    // Piped output is complete.
    assert!(place.ok(&["show", "pay-3"]).contains("TOOK"));
}

/// `show --node` prints text, not JSON.
///
/// Guarantees: CLI-4.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_shown_as_text() {
    let place = Place::new();
    let service = some_runs(&place).await;
    service.runtime.shutdown(Duration::ZERO).await.unwrap();
    let shown = place.ok(&["show", "pay-3", "--node", "send"]);
    assert!(shown.starts_with("node      send\nrun       pay-3\n\nNODE    OUTCOME"), "{shown}");
    assert!(shown.matches("\nsend@1  ").count() == 1 && shown.contains("\nsend@1  ✗ failed"), "{shown}");
    assert!(shown.contains("\nfailures\n  @1, attempt 1, "), "{shown}");
    assert!(shown.ends_with(": the bank is closed\n"), "{shown}");
    let asks = place.ok(&["show", "pay-1", "--node", "approve@1"]);
    assert!(asks.contains("? approve@1:gate  Pay 120 EUR?\n  expects "), "{asks}");
    assert_eq!(place.json(&["show", "pay-3", "--node", "send"])["node"], "send");
}
