//! What makes a type the state of a run.

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

/// A run's typed value, made of channels.
///
/// Derive it; [`Context`](super::Context) is the one without a type.
///
/// # To ensure correctness, implementors must
///
/// - serialise as a JSON object with one entry per channel, and read back an equal value from it, see
///   [`check_reads_back`](crate::testing::check_reads_back);
/// - let [`State::apply`] write exactly what it changes: folding the patch over the channels before gives the channels
///   after, for every update and in every order of updates;
/// - leave the state unchanged when [`State::apply`] fails;
/// - take the update by the state given to [`State::apply`], not by the one it was made from: after a write conflict the
///   same update is applied anew, to another state;
/// - do nothing, and allocate nothing, for an update that changes nothing;
/// - neither serialise a channel that is not stored nor write it to a patch, and give it in [`State::forget_ephemeral`] the value that it has
///   in a state which was read back.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a state",
    label = "not a state",
    note = "write `#[derive(Clone, Serialize, Deserialize, State)]` on a struct with named fields, or use `Context`"
)]
pub trait State: Clone + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// What a node returns to change this state; the default changes nothing.
    type Update: Default + fmt::Debug + Send + Sync + 'static;

    /// Whether the type has channels that are not stored, as `#[state(ephemeral)]` makes them.
    const EPHEMERAL: bool = false;

    /// Gives each channel that is not stored the value that it has in a state which was read from the log.
    fn forget_ephemeral(&mut self) {}

    /// Returns the channels of this type that are stored.
    fn schema() -> Schema;

    /// Turns an edited copy into an update, by comparing.
    ///
    /// What the reducer of a channel can express becomes that; any other change becomes a plain overwrite.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] naming the channel, for a difference that its type cannot hold.
    fn diff(before: &Self, after: Self) -> Result<Self::Update>;

    /// Applies an update and writes what it changes to `patch`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] naming the channel, for a sum that overflows or a value that cannot be stored. The state is
    /// unchanged; what was written to `patch` must be dropped, as [`Update::apply`](super::Update::apply) does.
    fn apply(&mut self, update: &Self::Update, patch: &mut PatchWriter) -> Result<()>;

    /// Encodes the whole state as the JSON object that a base holds.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] naming channel and path, for a value that cannot be stored, see [`strict`].
    fn to_channels_json(&self) -> Result<Box<RawValue>> {
        let text = strict::state_to_raw_value(self)?;
        if text.get().starts_with('{') {
            return Ok(text);
        }
        let message = "a state must serialise as a JSON object with one entry per channel; use named fields";
        Err(Error::new(ErrorKind::Invalid, message))
    }

    /// Makes the typed state of stored channels.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::GraphChanged`] naming the channel that does not fit the type.
    fn from_channels(channels: Channels, schema: &Schema) -> Result<Self> {
        let mut state: Self = decode::decode(channels, schema)?;
        state.bind(schema);
        Ok(state)
    }

    /// Tells the state which channels its graph declares; only a state without a type needs to know.
    fn bind(&mut self, schema: &Schema) {
        let _ = schema;
    }
}

/// The state as any process reads it from the log: without what nodes of this process hand on in channels that are not stored.
pub(crate) fn as_stored<S: State>(state: &S) -> Cow<'_, S> {
    if !S::EPHEMERAL {
        return Cow::Borrowed(state);
    }
    let mut stored = state.clone();
    stored.forget_ephemeral();
    Cow::Owned(stored)
}
