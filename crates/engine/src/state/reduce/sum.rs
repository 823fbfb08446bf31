//! The `sum` reducer: adds the update.

use std::time::Duration;

use super::{Difference, Reduce, Step};
use crate::error::Result;
use crate::state::channel::ChannelId;
use crate::state::writer::PatchWriter;

/// The reducer that adds numbers. If a node edits a draft, the difference to the original is added. The result is exact for integers. For floats, it
/// has a rounding error of the size that the greater of the two values has.
#[derive(Clone, Copy, Debug)]
pub struct Sum;

/// A number type with checked addition.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a channel with `#[state(sum)]`",
    label = "not a number that adds up",
    note = "make it an integer, a float or a `Duration`, implement `SumChannel` for it, or choose another reducer"
)]
pub trait SumChannel: Clone + PartialEq + Send + Sync + 'static {
    /// The error message for a draft with a difference that this type cannot represent.
    const NO_DIFFERENCE: &'static str = WIDER;

    /// Returns the sum with `more`, or `None` if the type cannot represent the sum.
    fn plus(&self, more: &Self) -> Option<Self>;

    /// Returns the number that must be added to `before` to get this number, or `None` if the type cannot represent it.
    fn difference(&self, before: &Self) -> Option<Self>;

    /// Returns whether adding this number changes nothing.
    fn is_zero(&self) -> bool;
}

const WIDER: &str = "the draft changed the sum by more than its type can hold; widen the type";
const LOWERED: &str = "the draft lowered the sum, which unsigned numbers cannot express; use a signed type, or the reducer `last`";

macro_rules! integer {
    ($no_difference:ident: $($ty:ty)*) => {$(
        impl SumChannel for $ty {
            const NO_DIFFERENCE: &'static str = $no_difference;

            fn plus(&self, more: &Self) -> Option<Self> {
                self.checked_add(*more)
            }

            fn difference(&self, before: &Self) -> Option<Self> {
                self.checked_sub(*before)
            }

            fn is_zero(&self) -> bool {
                *self == <$ty>::default()
            }
        }
    )*};
}

integer!(WIDER: i8 i16 i32 i64 i128 isize);
integer!(LOWERED: u8 u16 u32 u64 u128 usize Duration);

macro_rules! float {
    ($($ty:ty)*) => {$(
        impl SumChannel for $ty {
            fn plus(&self, more: &Self) -> Option<Self> {
                Some(*self + *more).filter(|sum| sum.is_finite())
            }

            fn difference(&self, before: &Self) -> Option<Self> {
                Some(*self - *before).filter(|difference| difference.is_finite())
            }

            fn is_zero(&self) -> bool {
                *self == 0.0
            }
        }
    )*};
}

float!(f32 f64);

impl<T: SumChannel> Reduce<T> for Sum {
    // Added one by one, because two summands of one update may overflow before an error can be reported.
    type Input = Vec<T>;
    type More = std::convert::Infallible;

    fn join(earlier: &mut Vec<T>, later: Vec<T>) {
        earlier.extend(later);
    }

    fn diff(channel: &ChannelId, before: &T, after: T) -> Result<Difference<T, Vec<T>>> {
        match after.difference(before) {
            Some(difference) => Ok(Difference::Input(vec![difference])),
            None => Err(channel.invalid(T::NO_DIFFERENCE)),
        }
    }

    fn prepare(
        channel: &ChannelId,
        current: &T,
        input: &Vec<T>,
        _patch: &mut PatchWriter,
    ) -> Result<Step<T, Self::More>> {
        if input.iter().all(T::is_zero) {
            return Ok(Step::Keep);
        }
        let sum = input.iter().try_fold(current.clone(), |sum, more| sum.plus(more));
        sum.map(Step::Replace).ok_or_else(|| {
            let ty = std::any::type_name::<T>();
            channel.invalid(format_args!("the sum does not fit {ty}; widen the type, or add less"))
        })
    }

    fn extend(_current: &mut T, more: Self::More) {
        match more {}
    }
}
