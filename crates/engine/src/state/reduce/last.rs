//! The `last` reducer: replaces the value.

use std::convert::Infallible;

use super::{Difference, Reduce, Step};
use crate::error::Result;
use crate::state::channel::ChannelId;
use crate::state::writer::PatchWriter;

/// The default reducer: every write replaces the value.
#[derive(Clone, Copy, Debug)]
pub struct Last;

impl<T> Reduce<T> for Last {
    // This reducer has only overwrites.
    type Input = Infallible;
    type More = Infallible;

    fn join(_earlier: &mut Infallible, later: Infallible) {
        match later {}
    }

    fn diff(_channel: &ChannelId, _before: &T, after: T) -> Result<Difference<T, Infallible>> {
        Ok(Difference::Overwrite(after))
    }

    fn prepare(
        _channel: &ChannelId,
        _current: &T,
        input: &Infallible,
        _patch: &mut PatchWriter,
    ) -> Result<Step<T, Infallible>> {
        match *input {}
    }

    fn extend(_current: &mut T, more: Infallible) {
        match more {}
    }
}
