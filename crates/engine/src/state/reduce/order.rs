//! The `max` and `min` reducers: keep the greater or the lesser value.

use std::cmp::Ordering;

use super::{Difference, Reduce, Step};
use crate::error::Result;
use crate::state::channel::ChannelId;
use crate::state::writer::PatchWriter;

/// The reducer that keeps the greater value. If a node edits a draft and lowers the value, the channel is overwritten instead.
#[derive(Clone, Copy, Debug)]
pub struct Max;

/// The reducer that keeps the lesser value. If a node edits a draft and raises the value, the channel is overwritten instead.
#[derive(Clone, Copy, Debug)]
pub struct Min;

/// [`Max`] for `Option<T>`. `None` is a missing value, and any value replaces it.
#[derive(Clone, Copy, Debug)]
pub struct MaxOption;

/// [`Min`] for `Option<T>`. `None` is a missing value, and any value replaces it.
#[derive(Clone, Copy, Debug)]
pub struct MinOption;

/// Returns whether `input` replaces `current`.
fn wins<T: PartialOrd>(channel: &ChannelId, current: &T, input: &T, wanted: Ordering) -> Result<bool> {
    match input.partial_cmp(current) {
        Some(order) => Ok(order == wanted),
        None => Err(channel.invalid("cannot order the update and the current value; check for NaN")),
    }
}

macro_rules! order {
    ($plain:ident, $option:ident, $wanted:expr) => {
        impl<T: Clone + PartialOrd + Send + Sync + 'static> Reduce<T> for $plain {
            type Input = T;
            type More = std::convert::Infallible;

            fn join(earlier: &mut T, later: T) {
                // Keep a value without order, which `prepare` rejects.
                if later.partial_cmp(earlier).is_none_or(|order| order == $wanted) {
                    *earlier = later;
                }
            }

            fn diff(_channel: &ChannelId, before: &T, after: T) -> Result<Difference<T, T>> {
                let wins = after.partial_cmp(before) == Some($wanted);
                Ok(if wins { Difference::Input(after) } else { Difference::Overwrite(after) })
            }

            fn prepare(
                channel: &ChannelId,
                current: &T,
                input: &T,
                _patch: &mut PatchWriter,
            ) -> Result<Step<T, Self::More>> {
                let wins = wins(channel, current, input, $wanted)?;
                Ok(if wins { Step::Replace(input.clone()) } else { Step::Keep })
            }

            fn extend(_current: &mut T, more: Self::More) {
                match more {}
            }
        }

        impl<T: Clone + PartialOrd + Send + Sync + 'static> Reduce<Option<T>> for $option {
            type Input = T;
            type More = std::convert::Infallible;

            fn join(earlier: &mut T, later: T) {
                <$plain as Reduce<T>>::join(earlier, later);
            }

            fn diff(
                _channel: &ChannelId,
                before: &Option<T>,
                after: Option<T>,
            ) -> Result<Difference<Option<T>, T>> {
                Ok(match (before, after) {
                    (None, Some(after)) => Difference::Input(after),
                    (Some(before), Some(after)) if after.partial_cmp(before) == Some($wanted) => {
                        Difference::Input(after)
                    }
                    (_, after) => Difference::Overwrite(after),
                })
            }

            fn prepare(
                channel: &ChannelId,
                current: &Option<T>,
                input: &T,
                _patch: &mut PatchWriter,
            ) -> Result<Step<Option<T>, Self::More>> {
                let wins = match current {
                    None => true,
                    Some(current) => wins(channel, current, input, $wanted)?,
                };
                Ok(if wins { Step::Replace(Some(input.clone())) } else { Step::Keep })
            }

            fn extend(_current: &mut Option<T>, more: Self::More) {
                match more {}
            }
        }
    };
}

order!(Max, MaxOption, Ordering::Greater);
order!(Min, MinOption, Ordering::Less);
