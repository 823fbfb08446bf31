//! Values with a `Serialize` that panics or fails: the request fails, and its caller continues.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use ferrata_core::graph::Graph;
use ferrata_core::state::{ChannelSpec, PatchWriter, Reducer, Schema, State};
use ferrata_core::{Error, ErrorKind};
use ferrata_testing::LedgerStore;
use serde::{Deserialize, Serialize, Serializer};

use super::world::World;

/// A value whose `Serialize` panics for 7 and fails for 8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
struct Brittle(u32);

impl Serialize for Brittle {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            7 => panic!("it is seven"),
            8 => Err(serde::ser::Error::custom("it is eight")),
            n => serializer.serialize_u32(n),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Holder {
    n: Brittle,
}

impl State for Holder {
    type Update = ();

    fn schema() -> Schema {
        Schema::new(1, [ChannelSpec::new("n", Reducer::Last)])
    }

    fn diff(_before: &Self, _after: Self) -> Result<(), Error> {
        Ok(())
    }

    fn apply(&mut self, _update: &(), _patch: &mut PatchWriter) -> Result<(), Error> {
        Ok(())
    }
}

fn graph() -> Graph<Holder> {
    Graph::<Holder>::builder("g").node("only", async |_cx, s| Ok(s)).entry("only").build().unwrap()
}

fn check(what: &str, n: u32, error: &Error) {
    let (kind, says) = match n {
        7 => (ErrorKind::Closed, "it is seven"),
        _ => (ErrorKind::Invalid, "it is eight"),
    };
    assert_eq!(error.kind(), kind, "{what} of {n}: {error}");
    assert!(format!("{error:?}").contains(says), "{what} of {n}: {error:?}");
}

/// A panic in the `Serialize` of an input or of a message becomes an error of `start` or `send`, and does not unwind into the caller.
///
/// Guarantees: DURABLE-14.
#[tokio::test]
async fn panicking_value_fails_the_request() {
    let world = World::new();
    let (runtime, graph) = (world.process().await, graph());
    let run = runtime.start(&graph, Holder::default()).id("there").await.unwrap();
    run.completed().await.unwrap();
    let ledger = LedgerStore::new();
    let within = ferrata_core::runtime::Runtime::builder(ledger.clone()).build().await.unwrap();
    for n in [7, 8] {
        let bad = Brittle(n);
        let start = runtime.start(&graph, Holder { n: bad }).id("r").await;
        check("the input", n, &start.unwrap_err());
        let config = runtime.start(&graph, Holder::default()).id("r").config(bad).await;
        check("the configuration", n, &config.unwrap_err());
        let message = runtime.start(&graph, Holder::default()).id("r").message(bad).await;
        check("the first message", n, &message.unwrap_err());
        check("a message", n, &runtime.send(run.run(), bad).await.unwrap_err());
        let mut tx = ledger.transaction().await.unwrap();
        let within = within.start(&graph, Holder { n: bad }).id("r").in_transaction(&mut *tx).await;
        check("the input within a transaction", n, &within.unwrap_err());
    }
    assert!(runtime.head(&ferrata_core::RunKey::try_from("r").unwrap()).await.unwrap().is_none());
}
