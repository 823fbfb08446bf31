//! A report for each night, at three in the morning in Zurich.
//!
//! ```text
//! cargo run --example nightly
//! cargo run --example nightly -- '*/5 * * * * *'
//! ```
//!
//! Start it in several terminals, and kill any of them with `kill -9`: each tick has exactly one report. With the pattern of the second command, a
//! report is due every five seconds. `cargo run -p ferrata-cli -- --store file:.ferrata-nightly schedule ls` shows the schedule.
#![expect(clippy::print_stdout, reason = "what the schedule does is what the program is for")]

use std::error::Error;

use ferrata::prelude::*;
use ferrata::{Clock, SystemClock};

/// Three in the morning, in the local time of the zone.
const NIGHTLY: &str = "0 3 * * *";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let pattern = std::env::args().nth(1).unwrap_or_else(|| NIGHTLY.to_owned());
    let report = Graph::<Context>::builder("report")
        .node("write", async |cx, mut s| {
            println!("process {}: the report of {} is written", std::process::id(), cx.run().run);
            s.set("lines", 42)?;
            Ok(s)
        })
        .entry("write")
        .build()?;
    let runtime = Runtime::builder_with(ferrata::connect("file:.ferrata-nightly")?).build().await?;
    // Use another name for another pattern. Two definitions with the same name would need different versions.
    let name = if pattern == NIGHTLY { "nightly" } else { "sample" };
    let schedule = runtime
        .schedule(name)
        .cron(&pattern)
        .timezone("Europe/Zurich")
        .catch_up(CatchUp::Last)
        .overlap(Overlap::Skip)
        .start(&report, Context::new())
        .await?;
    let status = schedule.status().await?;
    for tick in status.next(SystemClock::new().now(), 3)? {
        println!("due at {tick}");
    }
    tokio::signal::ctrl_c().await?;
    runtime.drain().await?;
    Ok(())
}
