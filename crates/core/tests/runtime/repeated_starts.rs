//! A start that a newer version of the program repeats returns the same run, like a client's retried request.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use ferrata_core::graph::{Graph, GraphBuilder};
use ferrata_core::runtime::{RetentionPolicy, Runtime};
use ferrata_core::state::{ChannelSpec, Context, PatchWriter, Reducer, Schema, State};
use ferrata_core::{ErrorKind, Result};
use serde::{Deserialize, Serialize};

use super::world::World;

fn of(version: u32) -> GraphBuilder<Context> {
    Graph::<Context>::builder("w").state_version(version).node("only", async |_cx, s| Ok(s)).entry("only")
}

/// The input of version 1 names the customer `who`, and that of version 2 `customer`.
fn newer() -> Graph<Context> {
    let graph = of(2).migrate(1, |channels| {
        let who = channels.remove("who").unwrap_or_default();
        channels.insert("customer".to_owned(), who);
        Ok(())
    });
    graph.build().unwrap()
}

fn input(field: &str, value: &str) -> Context {
    let mut input = Context::new();
    input.set(field, value).unwrap();
    input
}

async fn id_of(runtime: &Runtime) -> ferrata_core::RecordId {
    runtime.head(&ferrata_core::RunKey::try_from("r").unwrap()).await.unwrap().unwrap().id
}

/// A start that is repeated after a deployment with the same input in the new form returns the existing run, not `ALREADY_EXISTS`.
#[tokio::test]
async fn migrated_input_is_same_run() {
    let world = World::new();
    let runtime = world.process().await;
    let old = of(1).build().unwrap();
    let start = || runtime.start(&old, input("who", "ann")).id("r").config(1).message("first");
    start().await.unwrap().completed().await.unwrap();
    let written = id_of(&runtime).await;
    let new = newer();
    let again = runtime.start(&new, input("customer", "ann")).id("r").config(1).message("first");
    again.await.unwrap().completed().await.unwrap();
    assert_eq!(id_of(&runtime).await, written, "the repeated start must write nothing");
    // If a value differs, it is another input.
    let other = [
        runtime.start(&new, input("customer", "bob")).id("r").config(1).message("first"),
        runtime.start(&new, input("customer", "ann")).id("r").config(2).message("first"),
        runtime.start(&new, input("customer", "ann")).id("r").config(1).message("second"),
        runtime.start(&new, input("customer", "ann")).id("r").config(1),
    ];
    for other in other {
        assert_eq!(other.await.unwrap_err().kind(), ErrorKind::AlreadyExists);
    }
    // The older version cannot read the input of the newer one.
    let by_newer = runtime.start(&new, input("customer", "ann")).id("n").await.unwrap();
    by_newer.completed().await.unwrap();
    let refused = runtime.start(&old, input("who", "ann")).id("n").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Before {
    who: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct After {
    who: String,
    #[serde(default)]
    note: Option<String>,
}

macro_rules! state_without_updates {
    ($($state:ident: $($channel:literal)*;)*) => { $(
        impl State for $state {
            type Update = ();

            fn schema() -> Schema {
                Schema::new(1, [$(ChannelSpec::new($channel, Reducer::Last)),*])
            }

            fn diff(_before: &Self, _after: Self) -> Result<()> {
                Ok(())
            }

            fn apply(&mut self, _update: &(), _patch: &mut PatchWriter) -> Result<()> {
                Ok(())
            }
        }
    )* };
}

state_without_updates! { Before: "who"; After: "who" "note"; }

/// A new field with a default needs no new version. The repeated start still returns the existing run.
#[tokio::test]
async fn defaulted_field_is_same_run() {
    let world = World::new();
    let runtime = world.process().await;
    let old = Graph::<Before>::builder("w").node("only", async |_cx, s| Ok(s)).entry("only").build().unwrap();
    let new = Graph::<After>::builder("w").node("only", async |_cx, s| Ok(s)).entry("only").build().unwrap();
    let ann = || "ann".to_owned();
    runtime.start(&old, Before { who: ann() }).id("r").await.unwrap().completed().await.unwrap();
    let again = runtime.start(&new, After { who: ann(), note: None }).id("r").await.unwrap();
    assert_eq!(again.completed().await.unwrap().who, "ann");
    let other = runtime.start(&new, After { who: ann(), note: Some(ann()) }).id("r").await.unwrap_err();
    assert_eq!(other.kind(), ErrorKind::AlreadyExists);
}

/// Without its first record, a run has no input to compare.
#[tokio::test]
async fn pruned_input_is_not_compared() {
    let world = World::new();
    let runtime = world.process().await;
    let run = runtime.start(&of(1).build().unwrap(), input("who", "ann")).id("r").await.unwrap();
    run.completed().await.unwrap();
    let policy = RetentionPolicy::keep_all().keep_last(1);
    assert!(runtime.apply_retention(run.run(), &policy).await.is_ok());
    let refused = runtime.start(&newer(), input("customer", "ann")).id("r").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::AlreadyExists, "{refused}");
    runtime.start(&of(1).build().unwrap(), input("who", "ann")).id("r").await.unwrap();
}
