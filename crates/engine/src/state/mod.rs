//! The state of a run, with its channels, reducers and patches.
//!
//! The state of a run is a typed value. Its top-level fields are called *channels*. A node returns an [`Update`]. When the runtime applies the
//! update, it changes the live value and writes a [`Patch`], which contains the same change as JSON operations. A patch can be applied to
//! [`Channels`], the untyped state, without the user's type. The result is exactly the serialized live value.

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
#[doc(hidden)]
pub mod strict;
#[doc(hidden)]
pub mod text;
mod update;
mod writer;

pub use channels::Channels;
pub use context::{Context, ContextUpdate};
pub use contract::State;
pub use draft::Draft;
pub use hand_in::HandIn;
pub use node_notes::{Artifact, MemoryRead};
pub(crate) use op::FoldedChange;
pub use op::Op;
pub use patch::Patch;
pub use schema::{ChannelSpec, Reducer, Schema};
pub use secret::{HIDDEN, Secrets};
pub use update::{IntoUpdate, Update};

#[doc(hidden)]
pub use self::{
    channel::ChannelId,
    contract::as_stored,
    node_notes::NodeNotes,
    reread::reread,
    update::{KeptUpdate, SentOut},
    writer::{Mark, PatchWriter, Touch, Write, WrittenPatch},
};
