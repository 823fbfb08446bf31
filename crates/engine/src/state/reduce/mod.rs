//! Reducers: the joins of typed updates and typed channels, for `#[derive(State)]`.
//!
//! A reducer is a marker type that implements [`Reduce`] for the channel types that it supports. One small trait per reducer ([`AppendChannel`],
//! [`SumChannel`], ...) selects these types. Applications can implement the traits for their own types.

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

// For the derive. The application then needs no `serde` dependency.
pub use serde::Serializer;

pub use append::{Append, AppendChannel};
pub use custom::{Custom, CustomReducer};
pub use first::{First, FirstChannel};
pub use last::Last;
pub use merge::{Merge, MergeChannel, MergeInput};
pub use order::{Max, MaxOption, Min, MinOption};
pub use slot::{
    ByEquality, ByStored, Comparison, Encode, Plain, Ready, Slot, diff, prepare, prepare_ephemeral,
};
pub use sum::{Sum, SumChannel};
pub use union::{Union, UnionChannel};

/// A reducer, for channels of type `T`.
///
/// An update is applied in two phases, which makes it atomic: [`Reduce::prepare`] does all the work that can fail, and [`Reduce::extend`] cannot
/// fail.
pub trait Reduce<T> {
    /// The input of an update for the channel.
    type Input: Send + Sync + 'static;

    /// The change that [`Reduce::extend`] makes to the channel in place.
    type More;

    /// Whether an input of [`Reduce::diff`] gives exactly the edited value. If so, a draft with another result becomes a plain overwrite.
    const EXACT: bool = false;

    /// Adds a later input of the same update to an earlier one.
    fn join(earlier: &mut Self::Input, later: Self::Input);

    /// Converts an edited value, which differs from `before`, to an input or a plain overwrite.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](ferrata_store::ErrorKind::Invalid) with the channel's name, if `T` cannot represent the difference.
    fn diff(channel: &ChannelId, before: &T, after: T) -> Result<Difference<T, Self::Input>>;

    /// Decides the effect of `input` on the channel, and writes it unless it is [`Step::Replace`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](ferrata_store::ErrorKind::Invalid) with the channel's name.
    fn prepare(
        channel: &ChannelId,
        current: &T,
        input: &Self::Input,
        patch: &mut PatchWriter,
    ) -> Result<Step<T, Self::More>>;

    /// Applies the decision of [`Reduce::prepare`].
    fn extend(current: &mut T, more: Self::More);
}

/// The difference of an edited value.
#[derive(Debug)]
#[non_exhaustive]
pub enum Difference<T, I> {
    /// No relevant difference.
    None,
    /// A difference that the reducer can express.
    Input(I),
    /// Any other difference: the value replaces the current one.
    Overwrite(T),
}

/// The effect of an input on a channel.
#[derive(Debug)]
#[non_exhaustive]
pub enum Step<T, M> {
    /// No effect.
    Keep,
    /// Replaces the value. The new value is not written yet.
    Replace(T),
    /// Adds to the value in place. The addition is already written.
    Extend(M),
}
