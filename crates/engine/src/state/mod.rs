//! Channels, reducers, patches and folding.
//!
//! The state of a run is a typed value with *channels* as its top-level fields. A node returns an [`Update`]. Applying the update changes the live
//! value and writes a [`Patch`], the same change as plain JSON operations. Folding patches over [`Channels`] needs no user type, and gives exactly
//! the serialized live value.

mod channel;
mod channels;
mod context;
mod contract;
mod decode;
mod draft;
mod hand_in;
mod json_equality;
mod node_notes;
mod op;
mod patch;
mod patch_parts;
pub mod reduce;
mod reread;
mod schema;
mod secret;
pub mod strict;
#[doc(hidden)]
pub mod text;
mod update;
mod writer;

pub use channel::ChannelId;
pub use channels::Channels;
pub use context::{Context, ContextUpdate};
pub use contract::State;
pub use contract::as_stored;
pub use draft::Draft;
pub use hand_in::HandIn;
pub use node_notes::NodeNotes;
pub use node_notes::{Artifact, MemoryRead};
pub(crate) use op::FoldedChange;
pub use op::Op;
pub use patch::Patch;
pub use reread::reread;
pub use schema::{ChannelSpec, Reducer, Schema};
pub use secret::{HIDDEN, Secrets};
pub use update::{IntoUpdate, Update};
pub use update::{KeptUpdate, SentOut};
pub use writer::{Mark, PatchWriter, Touch, Write, WrittenPatch};
