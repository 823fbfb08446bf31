//! What a typed update holds for one channel, and applying it.

use std::marker::PhantomData;

use serde::{Serialize, Serializer};

use super::{Difference, Reduce, Step};
use crate::error::Result;
use crate::state::channel::ChannelId;
use crate::state::writer::{PatchWriter, Write};

/// What a typed update holds for one channel: an overwrite, then an input for the reducer, each optional.
#[derive(Debug)]
pub struct Slot<T, I> {
    overwrite: Option<T>,
    input: Option<I>,
}

impl<T, I> Default for Slot<T, I> {
    fn default() -> Self {
        Self { overwrite: None, input: None }
    }
}

impl<T, I> Slot<T, I> {
    /// Replaces the channel, and forgets what the update did to it before.
    pub fn overwrite(&mut self, value: T) {
        *self = Self { overwrite: Some(value), input: None };
    }

    /// Adds an input for the reducer.
    pub fn reduce<R: Reduce<T, Input = I>>(&mut self, input: I) {
        match &mut self.input {
            Some(earlier) => R::join(earlier, input),
            None => self.input = Some(input),
        }
    }

    /// Tells whether the update leaves the channel alone.
    pub fn is_empty(&self) -> bool {
        self.overwrite.is_none() && self.input.is_none()
    }
}

/// How a channel is encoded: as its type says, or as its field's `#[serde(serialize_with)]` does.
pub trait Encode<T> {
    /// Serialises the value of a channel.
    ///
    /// # Errors
    ///
    /// Those of the serializer.
    fn encode<S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error>;
}

/// Encodes a channel as its type says.
#[derive(Clone, Copy, Debug)]
pub struct Plain;

impl<T: Serialize> Encode<T> for Plain {
    fn encode<S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
        value.serialize(serializer)
    }
}

struct Encoded<'a, T, E>(&'a T, PhantomData<E>);

impl<T, E: Encode<T>> Serialize for Encoded<'_, T, E> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        E::encode(self.0, serializer)
    }
}

/// A change of one channel that has been written and can no longer fail.
#[derive(Debug)]
#[must_use = "commit it, or the state is not what the patch says"]
pub struct Ready<T, R: Reduce<T>> {
    overwrite: Option<T>,
    step: Step<T, R::More>,
}

impl<T, R: Reduce<T>> Ready<T, R> {
    /// Changes the channel.
    pub fn commit(self, current: &mut T) {
        if let Some(value) = self.overwrite {
            *current = value;
        }
        match self.step {
            Step::Keep => {}
            Step::Replace(value) => *current = value,
            Step::Extend(more) => R::extend(current, more),
        }
    }
}

/// Compares one channel of an edited state.
///
/// # Errors
///
/// As [`Reduce::diff`].
pub fn diff<T: PartialEq, R: Reduce<T>>(
    channel: &ChannelId,
    before: &T,
    after: T,
) -> Result<Slot<T, R::Input>> {
    let mut slot = Slot::default();
    if *before != after {
        match R::diff(channel, before, after)? {
            Difference::None => {}
            Difference::Input(input) => slot.input = Some(input),
            Difference::Overwrite(value) => slot.overwrite = Some(value),
        }
    }
    Ok(slot)
}

/// Does all of a channel's change that can fail: computes it and writes it.
///
/// # Errors
///
/// As [`Reduce::prepare`] and [`PatchWriter::set`].
pub fn prepare<T: Clone, R: Reduce<T>, E: Encode<T>>(
    channel: &ChannelId,
    current: &T,
    slot: &Slot<T, R::Input>,
    patch: &mut PatchWriter,
) -> Result<Ready<T, R>> {
    let encoded = |value| Encoded::<T, E>(value, PhantomData);
    if let Some(value) = &slot.overwrite {
        patch.set(channel, &encoded(value), Write::Overwritten)?;
    }
    let step = match &slot.input {
        None => Step::Keep,
        Some(input) => R::prepare(channel, slot.overwrite.as_ref().unwrap_or(current), input, patch)?,
    };
    if let Step::Replace(value) = &step {
        patch.set(channel, &encoded(value), Write::Reduced)?;
    }
    Ok(Ready { overwrite: slot.overwrite.clone(), step })
}
