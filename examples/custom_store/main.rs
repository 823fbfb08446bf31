//! A custom store in two hundred lines. All runs are in one file, which every change writes completely.
//!
//! `cargo run --example custom_store` runs a graph with the store. `tests/custom_store` runs the conformance suite.

#![expect(clippy::print_stdout, reason = "the program's output")]

mod store;

use std::path::PathBuf;

use ferrata::prelude::*;

use self::store::OneFile;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("runs.json"), PathBuf::from);
    let graph = Graph::<Context>::builder("count")
        .node("count", async |_cx, mut s| {
            s.set("n", 1)?;
            Ok(s)
        })
        .entry("count")
        .build()?;
    let runtime = Runtime::builder(OneFile::open(&path)?).build().await?;
    let state = runtime.start(&graph, Context::new()).id("first").await?.completed().await?;
    println!("{:?} is in {}; run this again and it is found there", state.get::<i64>("n")?, path.display());
    Ok(())
}
