//! The `append` reducer: adds the update's items after the current ones.

use std::collections::VecDeque;

use serde::Serialize;

use super::{Difference, Reduce, Step};
use crate::error::Result;
use crate::state::channel::ChannelId;
use crate::state::writer::PatchWriter;

/// The reducer that appends items. Only the new items are stored.
///
/// If a node edits a draft and changes or removes earlier items, the whole channel is overwritten instead.
#[derive(Clone, Copy, Debug)]
pub struct Append;

/// A sequence type that supports appending. It must serialize as an array of its items in order.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a channel with `#[state(append)]`",
    label = "not a sequence",
    note = "make it a `Vec` or a `VecDeque`, or choose another reducer"
)]
pub trait AppendChannel: Sized {
    /// The type of the items of the sequence.
    type Item: Clone + Serialize + Send + Sync + 'static;

    /// Appends items.
    fn extend_with(&mut self, items: Vec<Self::Item>);

    /// Returns the items that follow the items of `before`.
    ///
    /// # Errors
    ///
    /// Returns the sequence itself if it does not begin with all items of `before`.
    fn split_after(self, before: &Self) -> Result<Vec<Self::Item>, Self>;
}

impl<T: Clone + PartialEq + Serialize + Send + Sync + 'static> AppendChannel for Vec<T> {
    type Item = T;

    fn extend_with(&mut self, items: Vec<T>) {
        self.extend(items);
    }

    fn split_after(mut self, before: &Self) -> Result<Vec<T>, Self> {
        if self.starts_with(before) { Ok(self.split_off(before.len())) } else { Err(self) }
    }
}

impl<T: Clone + PartialEq + Serialize + Send + Sync + 'static> AppendChannel for VecDeque<T> {
    type Item = T;

    fn extend_with(&mut self, items: Vec<T>) {
        self.extend(items);
    }

    fn split_after(mut self, before: &Self) -> Result<Vec<T>, Self> {
        let begins = self.len() >= before.len() && self.iter().zip(before).all(|(a, b)| a == b);
        if begins { Ok(self.split_off(before.len()).into()) } else { Err(self) }
    }
}

impl<T: AppendChannel> Reduce<T> for Append {
    const EXACT: bool = true;
    type Input = Vec<T::Item>;
    type More = Vec<T::Item>;

    fn join(earlier: &mut Self::Input, later: Self::Input) {
        earlier.extend(later);
    }

    fn diff(_channel: &ChannelId, before: &T, after: T) -> Result<Difference<T, Self::Input>> {
        Ok(match after.split_after(before) {
            Ok(items) => Difference::Input(items),
            Err(after) => Difference::Overwrite(after),
        })
    }

    fn prepare(
        channel: &ChannelId,
        _current: &T,
        input: &Self::Input,
        patch: &mut PatchWriter,
    ) -> Result<Step<T, Self::More>> {
        patch.append(channel, input)?;
        Ok(if input.is_empty() { Step::Keep } else { Step::Extend(input.clone()) })
    }

    fn extend(current: &mut T, more: Self::More) {
        current.extend_with(more);
    }
}
