//! The inspector: a web page that shows the runs of a store, and a JSON API for the page. One axum router serves both.
//!
//! ```
//! # async fn mount(runtime: ferrata_core::runtime::Runtime) -> axum::Router {
//! axum::Router::new().nest("/ferrata", ferrata_inspector::router(runtime))
//! # }
//! ```
//!
//! The page is then at `/ferrata`. By default the router only reads, and answers only clients that reach it as `localhost`, `127.0.0.1` or `[::1]`.
//! [`Inspector`] changes these defaults. The type can use the service's own authentication, separate tenants, and hide fields of the state.
//!
//! The page gets all its data from the JSON API below `api/v1`, which `api/v1/openapi.json` describes. Only requests below `acts` append records,
//! send heartbeats or set up a store.

mod access;
mod api;
mod app;
mod assets;
mod cache;
mod exact_numbers;
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

/// Creates the router of a read-only inspector for a runtime's store. Use [`Inspector`] to change its settings.
pub fn router(runtime: Runtime) -> axum::Router {
    Inspector::new(runtime).into_router()
}
