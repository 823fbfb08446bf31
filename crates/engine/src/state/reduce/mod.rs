//! The types of channels that each reducer of `#[derive(State)]` supports.
//!
//! A reducer joins typed updates into a typed channel. Applications can implement [`AppendChannel`], [`FirstChannel`], [`MergeChannel`] and
//! [`SumChannel`] for their own types. The other items of this module are for the generated code.

mod append;
mod custom;
mod first;
mod last;
mod merge;
mod order;
mod slot;
mod sum;
mod union;

use super::channel::ChannelId;
use super::writer::PatchWriter;
use crate::error::Result;

pub use append::AppendChannel;
pub use first::FirstChannel;
pub use merge::MergeChannel;
pub use sum::SumChannel;
pub use union::UnionChannel;

// For the derive. The application then needs no `serde` dependency.
#[doc(hidden)]
pub use serde::Serializer;

#[doc(hidden)]
pub use self::{
    append::Append,
    custom::{Custom, CustomReducer},
    first::First,
    last::Last,
    merge::{Merge, MergeInput},
    order::{Max, MaxOption, Min, MinOption},
    slot::{ByEquality, ByStored, Comparison, Encode, Plain, Ready, Slot, diff, prepare, prepare_ephemeral},
    sum::Sum,
    union::Union,
};

/// A reducer, for channels of type `T`.
///
/// An update is applied in two phases, which makes it atomic: [`Reduce::prepare`] does all the work that can fail, and [`Reduce::extend`] cannot
/// fail.
#[doc(hidden)]
pub trait Reduce<T> {
    /// The type of the input that an update has for the channel.
    type Input: Send + Sync + 'static;

    /// The type of the change that [`Reduce::extend`] makes to the channel in place.
    type More;

    /// Whether the input that [`Reduce::diff`] returns must produce exactly the edited value. If it is true and the result differs, the edited value
    /// overwrites the channel instead.
    const EXACT: bool = false;

    /// Joins two inputs of the same update into one. The result has the effect of `earlier` and then `later`.
    fn join(earlier: &mut Self::Input, later: Self::Input);

    /// Computes the difference between `before` and the edited value `after`, as an input of the reducer or as an overwrite. The two values differ.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](ferrata_store::ErrorKind::Invalid) with the channel's name, if `T` cannot represent the difference.
    fn diff(channel: &ChannelId, before: &T, after: T) -> Result<Difference<T, Self::Input>>;

    /// Decides the effect of `input` on the channel, and writes the effect to the patch. It does not write the effect [`Step::Replace`], which the
    /// caller writes.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](ferrata_store::ErrorKind::Invalid) with the channel's name.
    fn prepare(
        channel: &ChannelId,
        current: &T,
        input: &Self::Input,
        patch: &mut PatchWriter,
    ) -> Result<Step<T, Self::More>>;

    /// Applies the effect that [`Reduce::prepare`] decided.
    fn extend(current: &mut T, more: Self::More);
}

/// The difference between an edited value and its original.
#[derive(Debug)]
#[non_exhaustive]
#[doc(hidden)]
pub enum Difference<T, I> {
    /// The values do not differ in a relevant way.
    None,
    /// The reducer can produce the difference from this input.
    Input(I),
    /// The reducer cannot produce the difference, so this value must replace the current value.
    Overwrite(T),
}

/// The effect that an input has on a channel.
#[derive(Debug)]
#[non_exhaustive]
#[doc(hidden)]
pub enum Step<T, M> {
    /// The channel does not change.
    Keep,
    /// This value replaces the current value. It is not written to the patch yet.
    Replace(T),
    /// The current value is extended in place. The extension is already written to the patch.
    Extend(M),
}
