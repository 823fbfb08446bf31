//! The inspector: a page that shows the runs of a store, and an API below it, as one router.
//!
//! ```
//! # async fn mount(runtime: ferrata_core::runtime::Runtime) -> axum::Router {
//! axum::Router::new().nest("/ferrata", ferrata_inspector::router(runtime))
//! # }
//! ```
//!
//! The page is at `/ferrata` then. As it stands the router only reads, and answers only to clients that reach it as `localhost`, `127.0.0.1` or `[::1]`:
//! [`Inspector`] opens it further, asks the service's own authentication, keeps tenants apart, and hides fields of the state.
//!
//! Everything that the page shows comes from the JSON API below `api/v1`, which `api/v1/openapi.json` describes. Reading writes
//! nothing: no request but those below `acts` appends a record, has a heartbeat or sets a store up.

mod access;
mod api;
mod app;
mod assets;
mod cache;
mod digits;
mod guard;
mod inspector;
mod outline;
mod params;
mod problem;
mod queues;
mod redact;
mod trees;
mod view;

pub use access::Viewer;
pub use inspector::Inspector;
pub use outline::{Outline, OutlineEdge, OutlineNode};

use ferrata_core::runtime::Runtime;

/// Makes the router of an inspector that reads the runs of a runtime's store, and no more: [`Inspector`] has the choices.
pub fn router(runtime: Runtime) -> axum::Router {
    Inspector::new(runtime).into_router()
}
