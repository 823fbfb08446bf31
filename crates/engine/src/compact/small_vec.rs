//! A list that needs no allocation for one item, because most activations fire one edge and write one channel.
//!
//! The list exists for the benchmark rows `core/disabled` and `core/every-node`, which count allocations.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A list like a `Vec` that stores a single item inline.
#[derive(Clone, Debug)]
pub enum SmallVec<T> {
    One(T),
    /// No item or several items. After a removal, it may also be one item.
    Many(Vec<T>),
}

impl<T> SmallVec<T> {
    pub const fn new() -> Self {
        Self::Many(Vec::new())
    }

    pub(crate) fn push(&mut self, item: T) {
        *self = match std::mem::take(self) {
            Self::Many(items) if items.capacity() == 0 => Self::One(item),
            Self::Many(mut items) => {
                items.push(item);
                Self::Many(items)
            }
            Self::One(first) => Self::Many(vec![first, item]),
        };
    }

    pub(crate) fn truncate(&mut self, len: usize) {
        match self {
            Self::One(_) if len == 0 => *self = Self::new(),
            Self::One(_) => {}
            Self::Many(items) => items.truncate(len),
        }
    }

    pub(crate) fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        match self {
            Self::One(item) if !keep(item) => *self = Self::new(),
            Self::One(_) => {}
            Self::Many(items) => items.retain(keep),
        }
    }
}

impl<T> Default for SmallVec<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Deref for SmallVec<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::One(item) => std::slice::from_ref(item),
            Self::Many(items) => items,
        }
    }
}

impl<T> DerefMut for SmallVec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Self::One(item) => std::slice::from_mut(item),
            Self::Many(items) => items,
        }
    }
}

impl<T> From<Vec<T>> for SmallVec<T> {
    fn from(items: Vec<T>) -> Self {
        Self::Many(items)
    }
}

impl<T> From<SmallVec<T>> for Vec<T> {
    fn from(few: SmallVec<T>) -> Self {
        match few {
            SmallVec::One(item) => vec![item],
            SmallVec::Many(items) => items,
        }
    }
}

impl<T> FromIterator<T> for SmallVec<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let mut few = Self::new();
        items.into_iter().for_each(|item| few.push(item));
        few
    }
}

impl<T> IntoIterator for SmallVec<T> {
    type Item = T;
    type IntoIter = std::iter::Chain<std::option::IntoIter<T>, std::vec::IntoIter<T>>;

    fn into_iter(self) -> Self::IntoIter {
        let (one, many) = match self {
            Self::One(item) => (Some(item), Vec::new()),
            Self::Many(items) => (None, items),
        };
        one.into_iter().chain(many)
    }
}

impl<'a, T> IntoIterator for &'a SmallVec<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<T: PartialEq> PartialEq for SmallVec<T> {
    /// Compares the items, in whichever form the lists are.
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Eq> Eq for SmallVec<T> {}

impl<T: Serialize> Serialize for SmallVec<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(&**self)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for SmallVec<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Items(PhantomData))
    }
}

struct Items<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Items<T> {
    type Value = SmallVec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<SmallVec<T>, A::Error> {
        let Some(first) = items.next_element()? else { return Ok(SmallVec::new()) };
        let Some(second) = items.next_element()? else { return Ok(SmallVec::One(first)) };
        let mut all = vec![first, second];
        while let Some(item) = items.next_element()? {
            all.push(item);
        }
        Ok(SmallVec::Many(all))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Act {
        Push(u8),
        Truncate(usize),
        Retain(u8),
        Take,
        Double,
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            4 => any::<u8>().prop_map(Act::Push),
            2 => (0..4usize).prop_map(Act::Truncate),
            2 => any::<u8>().prop_map(Act::Retain),
            1 => Just(Act::Take),
            1 => Just(Act::Double),
        ]
    }

    proptest! {
        /// After any sequence of operations, it equals a vector.
        #[test]
        fn it_is_a_vector(acts in prop::collection::vec(act(), 0..24)) {
            let (mut few, mut all) = (SmallVec::new(), Vec::new());
            for act in acts {
                match act {
                    Act::Push(item) => {
                        few.push(item);
                        all.push(item);
                    }
                    Act::Truncate(len) => {
                        few.truncate(len);
                        all.truncate(len);
                    }
                    Act::Retain(most) => {
                        few.retain(|item| *item <= most);
                        all.retain(|item| *item <= most);
                    }
                    Act::Take => {
                        prop_assert!(std::mem::take(&mut few).into_iter().eq(std::mem::take(&mut all)));
                    }
                    Act::Double => {
                        few.iter_mut().for_each(|item| *item = item.wrapping_mul(2));
                        all.iter_mut().for_each(|item: &mut u8| *item = item.wrapping_mul(2));
                    }
                }
                prop_assert_eq!(&*few, &*all);
                prop_assert_eq!(&few, &all.iter().copied().collect::<SmallVec<_>>());
                prop_assert_eq!(&Vec::from(few.clone()), &all);
                prop_assert_eq!(&SmallVec::from(all.clone()), &few);
            }
        }
    }
}
