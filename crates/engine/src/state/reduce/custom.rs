//! The reducer that calls a function of the application.

use std::marker::PhantomData;

use super::{Difference, Reduce, Step};
use crate::error::Result;
use crate::state::channel::ChannelId;
use crate::state::writer::PatchWriter;

/// The reducer that calls a function of the application. If a node edits a draft, the whole channel is overwritten instead, because only the function
/// can interpret an update.
#[derive(Clone, Copy, Debug)]
pub struct Custom<F>(PhantomData<F>);

/// A function that joins an update into a channel. `#[state(with = path)]` implements it.
pub trait CustomReducer<T> {
    /// Joins `update` into `current`. The function must return the same result for the same arguments, at any time and on any host.
    fn reduce(current: &mut T, update: T);
}

impl<T: Clone + PartialEq + Send + Sync + 'static, F: CustomReducer<T>> Reduce<T> for Custom<F> {
    type Input = Vec<T>;
    type More = std::convert::Infallible;

    fn join(earlier: &mut Vec<T>, later: Vec<T>) {
        earlier.extend(later);
    }

    fn diff(_channel: &ChannelId, _before: &T, after: T) -> Result<Difference<T, Vec<T>>> {
        Ok(Difference::Overwrite(after))
    }

    fn prepare(
        _channel: &ChannelId,
        current: &T,
        input: &Vec<T>,
        _patch: &mut PatchWriter,
    ) -> Result<Step<T, Self::More>> {
        // Use a copy, because the function may panic.
        let mut joined = current.clone();
        for update in input {
            F::reduce(&mut joined, update.clone());
        }
        Ok(if joined == *current { Step::Keep } else { Step::Replace(joined) })
    }

    fn extend(_current: &mut T, more: Self::More) {
        match more {}
    }
}
