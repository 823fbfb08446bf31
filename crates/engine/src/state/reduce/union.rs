//! The `union` reducer: adds the update's new items after the current ones.

use std::collections::BTreeSet;

use serde::Serialize;

use super::{Difference, Reduce, Step};
use crate::error::Result;
use crate::state::channel::ChannelId;
use crate::state::writer::PatchWriter;

/// The reducer that adds items which the channel does not contain yet. If a node edits a draft and removes or moves items, the channel is overwritten
/// instead.
#[derive(Clone, Copy, Debug)]
pub struct Union;

/// A collection type without duplicates.
///
/// A `Vec` keeps the order of insertion, and only new items are written to the log, but each addition compares the item with all current items. A
/// `BTreeSet` finds items quickly, but because it sorts them, each change writes the whole set to the log.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a channel with `#[state(union)]`",
    label = "not a collection with an order of its own",
    note = "make it a `Vec` or a `BTreeSet` (a `HashSet` is stored in another order each time), or choose another reducer"
)]
pub trait UnionChannel: Clone {
    /// The type of the items of the collection.
    type Item: Clone + Serialize + Send + Sync + 'static;

    /// Returns the items that an edited collection has gained compared with `before`. If items were removed or moved, it returns the whole collection
    /// as an overwrite.
    #[doc(hidden)]
    fn gained(self, before: &Self) -> Difference<Self, Vec<Self::Item>>;

    /// Decides the effect of adding `items`.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`PatchWriter::append`].
    #[doc(hidden)]
    fn add(
        &self,
        channel: &ChannelId,
        items: &[Self::Item],
        patch: &mut PatchWriter,
    ) -> Result<Step<Self, Vec<Self::Item>>>;

    /// Adds new items.
    fn extend_with(&mut self, items: Vec<Self::Item>);
}

fn without_duplicates<T: PartialEq>(items: Vec<T>) -> Vec<T> {
    let mut kept = Vec::with_capacity(items.len());
    for item in items {
        if !kept.contains(&item) {
            kept.push(item);
        }
    }
    kept
}

impl<T: Clone + PartialEq + Serialize + Send + Sync + 'static> UnionChannel for Vec<T> {
    type Item = T;

    fn gained(mut self, before: &Self) -> Difference<Self, Vec<T>> {
        if self.starts_with(before) {
            Difference::Input(self.split_off(before.len()))
        } else {
            Difference::Overwrite(without_duplicates(self))
        }
    }

    fn add(&self, channel: &ChannelId, items: &[T], patch: &mut PatchWriter) -> Result<Step<Self, Vec<T>>> {
        let mut new: Vec<T> = Vec::new();
        for item in items {
            if !self.contains(item) && !new.contains(item) {
                new.push(item.clone());
            }
        }
        patch.append(channel, &new)?;
        Ok(if new.is_empty() { Step::Keep } else { Step::Extend(new) })
    }

    fn extend_with(&mut self, items: Vec<T>) {
        self.extend(items);
    }
}

impl<T: Clone + Ord + Serialize + Send + Sync + 'static> UnionChannel for BTreeSet<T> {
    type Item = T;

    fn gained(mut self, before: &Self) -> Difference<Self, Vec<T>> {
        if self.is_superset(before) {
            self.retain(|item| !before.contains(item));
            Difference::Input(self.into_iter().collect())
        } else {
            Difference::Overwrite(self)
        }
    }

    fn add(&self, _channel: &ChannelId, items: &[T], _patch: &mut PatchWriter) -> Result<Step<Self, Vec<T>>> {
        if items.iter().all(|item| self.contains(item)) {
            return Ok(Step::Keep);
        }
        let mut joined = self.clone();
        joined.extend(items.iter().filter(|item| !self.contains(item)).cloned());
        Ok(Step::Replace(joined))
    }

    fn extend_with(&mut self, items: Vec<T>) {
        self.extend(items);
    }
}

impl<T: UnionChannel> Reduce<T> for Union {
    type Input = Vec<T::Item>;
    type More = Vec<T::Item>;

    fn join(earlier: &mut Self::Input, later: Self::Input) {
        earlier.extend(later);
    }

    fn diff(_channel: &ChannelId, before: &T, after: T) -> Result<Difference<T, Self::Input>> {
        Ok(after.gained(before))
    }

    fn prepare(
        channel: &ChannelId,
        current: &T,
        input: &Self::Input,
        patch: &mut PatchWriter,
    ) -> Result<Step<T, Self::More>> {
        current.add(channel, input, patch)
    }

    fn extend(current: &mut T, more: Self::More) {
        current.extend_with(more);
    }
}
