//! The `first` reducer: keeps the first written value.

use super::{Difference, Reduce, Step};
use crate::error::Result;
use crate::state::channel::ChannelId;
use crate::state::writer::PatchWriter;

/// The reducer that keeps the first written value. A channel counts as not written while it is `None`.
///
/// If a node edits a draft and changes or clears a written value, the channel is overwritten instead.
#[derive(Clone, Copy, Debug)]
pub struct First;

/// A channel type that can be unset. Only `Option` implements this trait.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a channel with `#[state(first)]`",
    label = "cannot represent an unset value",
    note = "make it an `Option<{Self}>`: it is unset while it is `None`"
)]
pub trait FirstChannel: Sized {
    /// The type of the value of a channel that is set.
    type Value: Clone + Send + Sync + 'static;

    /// Returns whether the channel is set.
    fn is_set(&self) -> bool;

    /// Creates a set channel.
    fn set_to(value: Self::Value) -> Self;

    /// Returns the value.
    fn into_value(self) -> Option<Self::Value>;
}

impl<T: Clone + Send + Sync + 'static> FirstChannel for Option<T> {
    type Value = T;

    fn is_set(&self) -> bool {
        self.is_some()
    }

    fn set_to(value: T) -> Self {
        Some(value)
    }

    fn into_value(self) -> Option<T> {
        self
    }
}

impl<T: FirstChannel> Reduce<T> for First {
    type Input = T::Value;
    type More = std::convert::Infallible;

    fn join(_earlier: &mut T::Value, _later: T::Value) {}

    fn diff(_channel: &ChannelId, before: &T, after: T) -> Result<Difference<T, T::Value>> {
        if before.is_set() {
            return Ok(Difference::Overwrite(after));
        }
        Ok(after.into_value().map_or(Difference::None, Difference::Input))
    }

    fn prepare(
        _channel: &ChannelId,
        current: &T,
        input: &T::Value,
        _patch: &mut PatchWriter,
    ) -> Result<Step<T, Self::More>> {
        Ok(if current.is_set() { Step::Keep } else { Step::Replace(T::set_to(input.clone())) })
    }

    fn extend(_current: &mut T, more: Self::More) {
        match more {}
    }
}
