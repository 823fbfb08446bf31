//! Resolving work with an unknown outcome by supplying the node's changes.

use ferrata::{Context, RunStatus};
use serde_json::json;

use crate::service::{Service, charge};
use crate::support::Place;

/// An operator can supply the result of a payment with `--set`.
///
/// Guarantees: CLI-15.
#[tokio::test(flavor = "multi_thread")]
async fn supply_takes_changes_like_edit() {
    let place = Place::new();
    let service = Service::start(&place).await;
    let mut input = Context::new();
    input.set("amount", 120).unwrap();
    let run = service.run(&charge(), "charge-1", input).await;
    service.until(&run, RunStatus::Interrupted).await;
    let answer = |more: &[&str]| place.call(&[&["answer", "charge-1", "card"], more].concat());
    let supply = "next: ferrata answer charge-1 card --resolve supply --set CHANNEL=VALUE\n";
    for (more, part) in [
        (&["--resolve", "supply"][..], "use `--resolve skip` to keep the state"),
        (&["--resolve", "supply:{\"receipt\":\"r-7\"}"], "pass the changes with --set"),
        (&["--resolve", "skip", "--set", "receipt=r-7"], "need `--resolve supply`"),
    ] {
        let said = answer(more);
        assert!(
            said.code == 2 && said.err.contains(part) && said.err.ends_with(supply),
            "{more:?}: {said:?}"
        );
    }
    // A value of another type may be a typing mistake. A new channel is normal for such a node.
    let wrong = answer(&["--resolve", "supply", "--set", "amount=much"]);
    assert!(wrong.code == 2 && wrong.err.contains("channel `amount` has a number"), "{wrong:?}");
    let right =
        answer(&["--resolve", "supply", "--set", "receipt=r-7", "--set", "amount=119", "--by", "ann"]);
    assert_eq!(right.code, 0, "{right:?}");
    service.until(&run, RunStatus::Completed).await;
    assert_eq!(place.json(&["state", "charge-1"]), json!({ "amount": 119, "receipt": "r-7" }));
    assert!(
        place.ok(&["logs", "charge-1"]).contains("ann answered `card@1`: it happened"),
        "the log must contain the resolution"
    );
}
