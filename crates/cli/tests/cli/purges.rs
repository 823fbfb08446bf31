//! `purge` of many runs.

use std::time::Duration;

use ferrata::{Context, RunStatus};

use crate::service::{Service, pay};
use crate::support::Place;

/// A purge of many runs shows its progress, and ends with a total.
///
/// Guarantees: CLI-12.
#[tokio::test(flavor = "multi_thread")]
async fn purge_of_many_prints_sum() {
    let place = Place::new();
    let service = Service::start(&place).await;
    let mut runs = Vec::new();
    for number in 0..52 {
        runs.push(service.run(&pay(), &format!("pay-{number}"), Context::new()).await);
    }
    for run in &runs {
        service.until(run, RunStatus::Interrupted).await;
        service.runtime.cancel(run, "enough").await.unwrap();
        service.until(run, RunStatus::Cancelled).await;
    }
    service.runtime.shutdown(Duration::ZERO).await.unwrap();
    let one = place.call(&["purge", "pay-50", "--yes"]);
    assert!(one.out.contains("pay-50") && !one.err.contains("removed"), "{one:?}");
    let many = place.call(&["purge", "--status", "cancelled", "--yes"]);
    assert_eq!((many.code, many.out.as_str()), (0, ""), "{many:?}");
    assert!(many.err.contains("removed 51 runs: "), "{many:?}");
    assert_eq!(place.ok(&["ls"]), "");
}
