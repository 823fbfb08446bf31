//! How typed updates join typed channels: what `#[derive(State)]` is made of.
//!
//! A reducer is a marker type that implements [`Reduce`] for the channel types it can join. Which types these are is said
//! by one small trait per reducer ([`AppendChannel`], [`SumChannel`], ...), open to the types of applications.

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

// For the derive, so that it needs no `serde` in the application's dependencies.
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
/// An update is applied in two halves, so that it is applied whole or not at all: [`Reduce::prepare`] does all that can
/// fail, [`Reduce::extend`] cannot.
pub trait Reduce<T> {
    /// What an update carries for the channel.
    type Input: Send + Sync + 'static;

    /// What [`Reduce::extend`] adds to the channel in place.
    type More;

    /// Whether an input that [`Reduce::diff`] made gives exactly the edited value, so that a draft which it does not give becomes a
    /// plain overwrite.
    const EXACT: bool = false;

    /// Adds a later input of the same update to an earlier one.
    fn join(earlier: &mut Self::Input, later: Self::Input);

    /// Turns an edited value, which differs from `before`, into an input or a plain overwrite.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) naming the channel, if `T` cannot hold the difference.
    fn diff(channel: &ChannelId, before: &T, after: T) -> Result<Difference<T, Self::Input>>;

    /// Decides what joining `input` does to the channel, and writes it unless it is [`Step::Replace`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) naming the channel.
    fn prepare(
        channel: &ChannelId,
        current: &T,
        input: &Self::Input,
        patch: &mut PatchWriter,
    ) -> Result<Step<T, Self::More>>;

    /// Does what [`Reduce::prepare`] decided.
    fn extend(current: &mut T, more: Self::More);
}

/// How an edited value differs.
#[derive(Debug)]
#[non_exhaustive]
pub enum Difference<T, I> {
    /// Not in a way that matters.
    None,
    /// In a way the reducer can express.
    Input(I),
    /// In another way: the value replaces whatever is there.
    Overwrite(T),
}

/// What joining an input does to a channel.
#[derive(Debug)]
#[non_exhaustive]
pub enum Step<T, M> {
    /// Nothing.
    Keep,
    /// Gives it a new value, which is still to be written.
    Replace(T),
    /// Adds to it in place; it is written already.
    Extend(M),
}
