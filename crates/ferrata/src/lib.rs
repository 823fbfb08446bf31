//! Durable graphs of async code, checkpointed as append-only run logs.
//!
//! A run's state is a struct with `#[derive(State)]`; each field is a *channel*, and says how an update joins it.
//!
//! ```
//! use std::collections::BTreeMap;
//!
//! use ferrata::state::PatchWriter;
//! use ferrata::{State, Update};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Clone, Debug, Default, Serialize, Deserialize, State)]
//! struct Review {
//!     draft: String,
//!     #[state(append)]
//!     notes: Vec<String>,
//!     #[state(merge)]
//!     scores: BTreeMap<String, u32>,
//!     #[state(max)]
//!     attempts: u32,
//! }
//!
//! let mut state = Review::default();
//! let mut patch = PatchWriter::recording();
//! let update: Update<Review> = Review::update().notes(["checked"]).attempts(2).into();
//! update.apply(&mut state, &mut patch)?;
//!
//! assert_eq!(state.notes, ["checked"]);
//! assert_eq!(
//!     serde_json::to_string(&patch.finish().patch).unwrap(),
//!     r#"[{"append":["notes",["checked"]]},{"set":["attempts",2]}]"#,
//! );
//! # Ok::<(), ferrata::Error>(())
//! ```

pub use ferrata_core::state::{self, Context, Draft, State, Update};
pub use ferrata_core::{Error, ErrorKind, Result};
pub use ferrata_macros::State;
