//! Schedules for [Ferrata](ferrata_core) start runs at calendar times. Each tick starts its run exactly once, even after crashes.
//!
//! ```
//! use ferrata_core::graph::Graph;
//! use ferrata_core::runtime::Runtime;
//! use ferrata_core::state::Context;
//! use ferrata_testing::World;
//! use ferrata_schedule::RuntimeScheduleExt;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let report = Graph::<Context>::builder("report").node("write", async |_cx, s| Ok(s)).entry("write").build()?;
//! let world = World::new(); // in a service: a store and the clock on the wall
//! let process = world.process().await?;
//! let nightly =
//!     process.schedule("nightly").cron("0 3 * * *").timezone("Europe/Zurich").start(&report, Context::new()).await?;
//! world.pass_for(std::time::Duration::from_secs(7 * 86_400)).await;
//! assert_eq!(nightly.runs().await?.items.len(), 7);
//! # Ok(())
//! # }
//! ```
//!
//! A schedule is itself a run of its own workflow. So every store can keep, claim, recover, pause and list a schedule like any other run.
//! `docs/how-to/schedules.md` has the rules and the guarantees.
//!
//! # Guarantees
//!
//! - The id of a tick's run consists of the schedule's name and the tick. The run starts exactly once, even after crashes.
//! - If processes declare different definitions, a process with the highest version drives the schedule.

mod definition;
mod opaque_state;
mod policy;
mod progress;
mod request;
mod schedule;
mod schedule_nodes;
mod times;

pub use definition::ScheduleDefinition;
pub use policy::{CatchUp, Overlap};
pub use progress::{ScheduleProgress, TickEnd, TickResult};
pub use request::{RuntimeScheduleExt, ScheduleRequest};
pub use schedule::{ActiveTick, Schedule, ScheduleStatus};
pub use times::Times;

/// Only Ferrata implements the extension traits, so a new method breaks no application.
mod sealed {
    pub trait SealedType {}

    impl SealedType for ferrata_core::runtime::Runtime {}
}
