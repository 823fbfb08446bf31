//! Durable functions for [Ferrata](ferrata_core). A durable function is an async function whose runs survive the end of their process.
//!
//! ```
//! use std::time::Duration;
//!
//! use ferrata_core::runtime::Runtime;
//! use ferrata_core::store::MemoryStore;
//! use ferrata_flow::{FlowContext, FlowError, RuntimeFlowExt, flow};
//!
//! async fn fulfil(cx: FlowContext, order: u64) -> Result<String, FlowError> {
//!     let stock: u64 = cx.step("reserve", || async { Ok::<_, FlowError>(order * 10) }).await?;
//!     cx.sleep("settle", Duration::from_millis(1)).await;
//!     cx.step("ship", || async { Ok::<_, FlowError>(format!("shipped {stock}")) }).await
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let runtime = Runtime::builder(MemoryStore::new()).build().await?;
//! let fulfil = flow("fulfil", fulfil);
//! runtime.serve(fulfil.graph()?)?;
//! assert_eq!(runtime.call(&fulfil, 7).id("order-7").await?, "shipped 70");
//! # Ok(())
//! # }
//! ```
//!
//! A flow is a graph with one node. After a crash or a long wait, the function runs again from its start, and each recorded operation of its
//! [`FlowContext`] returns the recorded result. `docs/how-to/functions.md` explains what is safe in a function, and what happens when its code
//! changes.
//!
//! # Invariants
//!
//! - Recorded operations end in the recorded order, one at a time. The next operation ends only when the function is quiet: it was polled, and it
//!   waits.
//! - No new operation starts before the function has requested every recorded operation that has an effect.

// The documentation shows the methods of `FlowContext` in the order of these groups.
mod context;

mod step;

mod wait;

mod child;
mod map;

mod saga;

mod transaction;

mod again;
mod change;
mod check;
mod entry;
mod error;
mod flow;
mod gate;
mod gate_state;
mod names;
mod recorded;
mod runner;
mod start;
mod ticket;

pub use change::CodeChange;
pub use check::FlowCheckError;
pub use child::FlowChildRequest;
pub use context::FlowContext;
pub use error::{FlowError, FlowErrorKind, FlowFailure};
pub use flow::{Flow, GraphFlowExt, flow};
pub use start::{FlowCall, FlowCallError, FlowHandle, RuntimeFlowExt};
pub use step::{StepOutcome, StepRequest};
pub use wait::FlowFuture;

/// Only Ferrata implements the extension traits, so a new method breaks no application.
mod sealed {
    pub trait SealedType {}

    impl SealedType for ferrata_core::runtime::Runtime {}
    impl<S: ferrata_core::state::State> SealedType for ferrata_core::graph::GraphBuilder<S> {}
}
