//! The trait for the state of a run.

use std::borrow::Cow;
use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::channels::Channels;
use super::decode;
use super::schema::Schema;
use super::strict;
use super::writer::PatchWriter;
use crate::error::{Error, ErrorKind, Result};

/// The typed state of a run. Its fields are channels.
///
/// Implement this trait with `#[derive(State)]`. If you need no typed state, use [`Context`](super::Context). The methods that the derive writes are
/// hidden, because they may change in any release.
///
/// The type must serialize as a JSON object with one entry per channel, and decode an equal value from it: see `check_reads_back` of
/// `ferrata::testing`.
//
// An implementation must
// - write exactly the changes of `apply` to the patch: if the patch is applied to the earlier channels, the result must equal the later channels,
//   for every update and in every order of updates;
// - leave the state unchanged when `apply` fails;
// - apply the update to the state that is passed to `apply`, and not to the state from which the update was made, because after a write conflict
//   the same update is applied again to another state;
// - do nothing and allocate nothing for an update without changes;
// - neither serialize an ephemeral channel nor write it to a patch, and reset it in `forget_ephemeral` to the value that it has in a state that was
//   decoded from the log.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a state",
    label = "not a state",
    note = "write `#[derive(Clone, Serialize, Deserialize, State)]` on a struct with named fields, or use `Context`"
)]
pub trait State: Clone + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// The update that a node returns to change this state. The default changes nothing.
    type Update: Default + fmt::Debug + Send + Sync + 'static;

    /// Whether the type has channels that are not stored, declared with `#[state(ephemeral)]`.
    #[doc(hidden)]
    const EPHEMERAL: bool = false;

    /// Resets each ephemeral channel to its value in a state that was decoded from the log.
    #[doc(hidden)]
    fn forget_ephemeral(&mut self) {}

    /// Returns the stored channels of this type.
    fn schema() -> Schema;

    /// Compares the edited copy with the original, and returns the update between them.
    ///
    /// If the channel's reducer can produce the change, the change becomes an input of the reducer. Otherwise the new value overwrites the channel.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] with the channel's name if the type of the channel cannot represent the difference.
    #[doc(hidden)]
    fn diff(before: &Self, after: Self) -> Result<Self::Update>;

    /// Applies an update and writes its changes to `patch`.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] with the channel's name if a sum overflows or a value cannot be stored. The state then stays unchanged, but
    /// `patch` may contain a part of the changes. The caller must discard them, as [`Update::apply`](super::Update::apply) does.
    #[doc(hidden)]
    fn apply(&mut self, update: &Self::Update, patch: &mut PatchWriter) -> Result<()>;

    /// Encodes the whole state as a JSON object, the form in which a base (a record with the full state) contains it.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] with the channel and the path if a value cannot be stored, see [`strict`].
    #[doc(hidden)]
    fn to_channels_json(&self) -> Result<Box<RawValue>> {
        let text = strict::state_to_raw_value(self)?;
        if text.get().starts_with('{') {
            return Ok(text);
        }
        let message = "a state must serialise as a JSON object with one entry per channel; use named fields";
        Err(Error::new(ErrorKind::Invalid, message))
    }

    /// Decodes the typed state from stored channels.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::GraphChanged`] with the name of the channel that does not fit the type.
    #[doc(hidden)]
    fn from_channels(channels: Channels, schema: &Schema) -> Result<Self> {
        let mut state: Self = decode::decode(channels, schema)?;
        state.bind(schema);
        Ok(state)
    }

    /// Receives the channels that the graph declares. Only an untyped state needs this method.
    #[doc(hidden)]
    fn bind(&mut self, schema: &Schema) {
        let _ = schema;
    }
}

/// Returns the state as every process decodes it from the log. Ephemeral channels have their initial values.
#[doc(hidden)]
pub fn as_stored<S: State>(state: &S) -> Cow<'_, S> {
    if !S::EPHEMERAL {
        return Cow::Borrowed(state);
    }
    let mut stored = state.clone();
    stored.forget_ephemeral();
    Cow::Owned(stored)
}
