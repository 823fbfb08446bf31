//! The part of a typed update that changes one channel, and its application to the state.

use std::marker::PhantomData;

use serde::{Serialize, Serializer};

use super::{Difference, Reduce, Step};
use crate::error::Result;
use crate::state::channel::ChannelId;
use crate::state::json_equality::is_same_json;
use crate::state::strict;
use crate::state::writer::{PatchWriter, Write};

/// The part of a typed update that changes one channel. It contains an optional new value, and an optional input for the reducer that is applied
/// after it.
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
    /// Makes the update replace the channel by `value`. Earlier changes of the channel in this update are dropped.
    pub fn overwrite(&mut self, value: T) {
        *self = Self { overwrite: Some(value), input: None };
    }

    /// Adds an input for the reducer to the update.
    pub fn reduce<R: Reduce<T, Input = I>>(&mut self, input: I) {
        match &mut self.input {
            Some(earlier) => R::join(earlier, input),
            None => self.input = Some(input),
        }
    }

    /// Returns whether the update does not change the channel.
    pub fn is_empty(&self) -> bool {
        self.overwrite.is_none() && self.input.is_none()
    }
}

/// How a channel is encoded: by the `Serialize` of its type, or by the `#[serde(serialize_with)]` of its field.
pub trait Encode<T> {
    /// Serializes the value of a channel.
    ///
    /// # Errors
    ///
    /// Returns the errors of the serializer.
    fn encode<S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error>;
}

/// Encodes a channel by the `Serialize` of its type.
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

/// A change of one channel that is already written to the patch. Applying it to the state cannot fail.
#[derive(Debug)]
#[must_use = "commit it, or the state is not what the patch says"]
pub struct Ready<T, R: Reduce<T>> {
    overwrite: Option<T>,
    step: Step<T, R::More>,
}

impl<T, R: Reduce<T>> Ready<T, R> {
    /// Applies the change to the channel.
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

/// Compares one channel of an edited state with the original.
///
/// # Errors
///
/// Returns the errors of [`Reduce::diff`].
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

/// Compares a channel in derived code. If the type of the channel is `Eq`, values are compared by `==`. Otherwise their stored forms are compared
/// too.
#[derive(Debug)]
pub struct Comparison<T, R, E>(PhantomData<fn() -> T>, PhantomData<fn() -> R>, PhantomData<fn() -> E>);

impl<T, R, E> Comparison<T, R, E> {
    /// Creates a comparison of one channel.
    pub const fn new() -> Self {
        Self(PhantomData, PhantomData, PhantomData)
    }
}

impl<T, R, E> Default for Comparison<T, R, E> {
    fn default() -> Self {
        Self::new()
    }
}

/// Compares values of a type that is `Eq`.
pub trait ByEquality<T, R: Reduce<T>> {
    /// Compares one channel of an edited state, see [`diff`].
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Reduce::diff`].
    fn compare(&self, channel: &ChannelId, before: &T, after: T) -> Result<Slot<T, R::Input>>;
}

impl<T: Eq, R: Reduce<T>, E> ByEquality<T, R> for Comparison<T, R, E> {
    fn compare(&self, channel: &ChannelId, before: &T, after: T) -> Result<Slot<T, R::Input>> {
        diff::<T, R>(channel, before, after)
    }
}

/// Compares values of a type that is not `Eq`, such as a type with floats. For such types `==` is not exact: it treats `0.0` and `-0.0` as equal.
///
/// The trait is implemented for a reference to a [`Comparison`], so that the compiler prefers [`ByEquality`] if both traits apply.
pub trait ByStored<T, R: Reduce<T>> {
    /// Compares the stored form of one channel of an edited state.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Reduce::diff`], and [`ErrorKind::Invalid`](ferrata_store::ErrorKind::Invalid) for a value that cannot be stored.
    fn compare(&self, channel: &ChannelId, before: &T, after: T) -> Result<Slot<T, R::Input>>;
}

impl<T: Clone, R: Reduce<T>, E: Encode<T>> ByStored<T, R> for &Comparison<T, R, E> {
    fn compare(&self, channel: &ChannelId, before: &T, after: T) -> Result<Slot<T, R::Input>> {
        let stored =
            |value: &T| strict::channel_to_value(channel.name(), &Encoded::<T, E>(value, PhantomData));
        let wanted = stored(&after)?;
        let mut slot = Slot::default();
        if is_same_json(&stored(before)?, &wanted) {
            return Ok(slot);
        }
        match R::diff(channel, before, after.clone())? {
            Difference::None => {}
            Difference::Overwrite(value) => slot.overwrite = Some(value),
            Difference::Input(input) => {
                slot.input = Some(input);
                if R::EXACT {
                    let mut made = before.clone();
                    prepare::<T, R, E>(channel, before, &slot, &mut PatchWriter::idle())?.commit(&mut made);
                    if !is_same_json(&stored(&made)?, &wanted) {
                        slot.overwrite(after);
                    }
                }
            }
        }
        Ok(slot)
    }
}

/// Computes the change of a channel and writes it to the patch. This does all the work that can fail.
///
/// # Errors
///
/// Returns the errors of [`Reduce::prepare`] and [`PatchWriter::set`].
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

/// Computes the change of an ephemeral channel, like [`prepare`]. It writes nothing to the patch, and two concurrent writers of an ephemeral channel
/// cause no error.
///
/// # Errors
///
/// Returns the errors of [`Reduce::prepare`].
pub fn prepare_ephemeral<T: Clone, R: Reduce<T>>(
    channel: &ChannelId,
    current: &T,
    slot: &Slot<T, R::Input>,
) -> Result<Ready<T, R>> {
    let step = match &slot.input {
        None => Step::Keep,
        Some(input) => {
            R::prepare(channel, slot.overwrite.as_ref().unwrap_or(current), input, &mut PatchWriter::idle())?
        }
    };
    Ok(Ready { overwrite: slot.overwrite.clone(), step })
}
