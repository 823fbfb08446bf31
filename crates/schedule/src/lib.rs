//! Schedules for [Ferrata](ferrata_core): runs that start by the calendar, each of them once, whatever crashes.
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
//! A schedule is a run of a workflow of its own, so it is stored, claimed, recovered, paused and listed as any other run, on every store.
//! `docs/how-to/schedules.md` says how, and what is promised.
//!
//! # Guarantees
//!
//! - The run of a tick has an id made of the schedule's name and the tick, and is started once, whatever crashes.
//! - Of several processes with different definitions, those with the highest version have the schedule.

mod definition;
mod opaque_state;
mod policy;
mod progress;
mod request;
mod schedule;
mod schedule_nodes;
mod times;

pub use definition::Definition;
pub use policy::{CatchUp, Overlap};
pub use progress::{Progress, TickEnd, TickResult};
pub use request::{RuntimeScheduleExt, ScheduleRequest};
pub use schedule::{ActiveTick, Schedule, ScheduleStatus};
pub use times::Times;
