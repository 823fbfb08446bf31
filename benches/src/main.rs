//! Measures what the library costs, in turn with a bare reference. `cargo xtask bench` runs this program.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark prints its table")]

mod args;
mod bare;
mod graphs;
mod guard;
mod machine;
mod measure;
mod notice;
mod objects;
mod report;
mod row;
mod space;
mod work;

use std::process::ExitCode;

use anyhow::Result;

use crate::args::Args;
use crate::space::Kind;
use crate::work::Table;

#[tokio::main]
async fn main() -> ExitCode {
    match Box::pin(run()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<()> {
    let args = Args::read()?;
    let begun = measure::now();
    let mut table = Table { args, rows: Vec::new() };
    println!("{}\n", machine::in_words());
    work::core::measure(&mut table).await?;
    Box::pin(work::children::in_memory(&mut table)).await?;
    Box::pin(work::flows::in_memory(&mut table)).await?;
    Box::pin(work::stream::in_memory(&mut table)).await?;
    Box::pin(work::observed::in_memory(&mut table)).await?;
    Box::pin(work::rest::in_memory(&mut table)).await?;
    for server in table.args.stores.clone() {
        Box::pin(work::one::measure(&mut table, &server)).await?;
        Box::pin(work::runs::measure(&mut table, &server)).await?;
        Box::pin(work::flows::measure(&mut table, &server)).await?;
        if Kind::of(&server)? == Kind::Postgres {
            Box::pin(work::observed::measure(&mut table, &server)).await?;
            Box::pin(work::transactions::measure(&mut table, &server)).await?;
            Box::pin(work::queues::measure(&mut table, &server)).await?;
            Box::pin(work::fan::measure(&mut table, &server)).await?;
            Box::pin(work::children::measure(&mut table, &server)).await?;
            Box::pin(work::list::measure(&mut table, &server)).await?;
            Box::pin(work::sweep::measure(&mut table, &server)).await?;
            Box::pin(work::memory::measure(&mut table, &server)).await?;
        }
        if matches!(Kind::of(&server)?, Kind::Postgres | Kind::Redis) {
            Box::pin(work::stream::measure(&mut table, &server)).await?;
        }
        if matches!(Kind::of(&server)?, Kind::Sqlite | Kind::Files) {
            Box::pin(work::list::runs(&mut table, &server)).await?;
        }
        if matches!(Kind::of(&server)?, Kind::Postgres | Kind::Files) {
            Box::pin(work::load::measure(&mut table, &server)).await?;
        }
        Box::pin(work::cost::measure(&mut table, &server)).await?;
        Box::pin(work::bytes::measure(&mut table, &server)).await?;
        Box::pin(work::rest::measure(&mut table, &server)).await?;
    }
    println!("{} rows in {:.0} s", table.rows.len(), begun.elapsed().as_secs_f64());
    report::write(&table)?;
    match &table.args.guard {
        Some(path) => guard::check(path, &table.rows),
        None => Ok(()),
    }
}
