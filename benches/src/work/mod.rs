//! The workloads, in one module for each topic.

pub(crate) mod bytes;
pub(crate) mod children;
pub(crate) mod core;
pub(crate) mod cost;
pub(crate) mod fan;
pub(crate) mod flows;
pub(crate) mod list;
pub(crate) mod load;
pub(crate) mod memory;
pub(crate) mod observed;
pub(crate) mod one;
pub(crate) mod queues;
pub(crate) mod rest;
pub(crate) mod runs;
pub(crate) mod stream;
pub(crate) mod sweep;
pub(crate) mod transactions;

use anyhow::Result;
use ferrata::Runtime;

use crate::args::Args;
use crate::row::Row;
use crate::space::Space;

/// The table of results. Each row is printed as soon as it is measured.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) args: Args,
    pub(crate) rows: Vec<Row>,
}

impl Table {
    /// Adds a row.
    #[expect(clippy::print_stdout, reason = "a person waits for each row")]
    pub(crate) fn push(&mut self, row: Row) {
        println!("{row}");
        self.rows.push(row);
    }

    /// Returns whether a row is to be measured.
    pub(crate) fn wants(&self, id: &str) -> bool {
        self.args.wants(id)
    }
}

/// Opens a runtime in a space.
pub(crate) async fn runtime(space: &Space) -> Result<Runtime> {
    Ok(Runtime::builder_with(space.open()?).build().await?)
}

/// Returns the average size of the bodies of a run's records in bytes.
pub(crate) async fn body_bytes(runtime: &Runtime, run: &ferrata::RunKey) -> Result<usize> {
    let page = runtime.history(run, ferrata::store::Page::first(1_000)).await?;
    // Leave out the first record, because it contains everything that is recorded once per run.
    let bodies: Vec<usize> =
        page.items.iter().filter(|header| !header.base).map(|header| header.body_len as usize).collect();
    Ok(bodies.iter().sum::<usize>() / bodies.len().max(1))
}
