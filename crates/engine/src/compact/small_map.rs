//! An ordered map that needs no allocation for one entry, because most runs are at one node at a time.
//!
//! The map exists for the benchmark rows `core/disabled` and `core/every-node`, which count allocations, and `memory/in-progress`.

use std::collections::{BTreeMap, btree_map};
use std::ops::RangeInclusive;

/// An ordered map that usually has one entry.
///
/// It behaves like a [`BTreeMap`]. A single entry is stored inline. With the second entry the map becomes a tree, and it stays a tree until it is
/// empty.
#[derive(Clone, Debug)]
pub struct FewMap<K, V> {
    /// The only entry of the map. It is `None` if `many` has entries.
    one: Option<(K, V)>,
    many: BTreeMap<K, V>,
}

impl<K, V> Default for FewMap<K, V> {
    fn default() -> Self {
        Self { one: None, many: BTreeMap::new() }
    }
}

fn pair<K, V>(entry: &(K, V)) -> (&K, &V) {
    (&entry.0, &entry.1)
}

impl<K: Ord, V> FewMap<K, V> {
    pub fn len(&self) -> usize {
        usize::from(self.one.is_some()) + self.many.len()
    }

    pub fn is_empty(&self) -> bool {
        self.one.is_none() && self.many.is_empty()
    }

    pub fn get(&self, key: &K) -> Option<&V> {
        match &self.one {
            Some((at, value)) => (at == key).then_some(value),
            None => self.many.get(key),
        }
    }

    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        match &mut self.one {
            Some((at, value)) => (at == key).then_some(value),
            None => self.many.get_mut(key),
        }
    }

    pub fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// Returns the entry with the least key.
    pub(crate) fn first(&self) -> Option<(&K, &V)> {
        self.one.as_ref().map(pair).or_else(|| self.many.first_key_value())
    }

    /// Inserts a value, and returns the previous one.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.one.take() {
            None if self.many.is_empty() => {
                self.one = Some((key, value));
                None
            }
            Some((at, before)) if at == key => {
                self.one = Some((key, value));
                Some(before)
            }
            first => {
                self.many.extend(first);
                self.many.insert(key, value)
            }
        }
    }

    pub fn remove(&mut self, key: &K) -> Option<V> {
        match self.one.take_if(|(at, _)| at == key) {
            Some((_, value)) => Some(value),
            None => self.many.remove(key),
        }
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }

    pub fn retain(&mut self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        self.one.take_if(|(key, value)| !keep(key, value));
        self.many.retain(keep);
    }

    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> + '_ {
        self.one.iter().map(pair).chain(&self.many)
    }

    pub fn keys(&self) -> impl Iterator<Item = &K> + '_ {
        self.iter().map(|(key, _)| key)
    }

    pub fn values(&self) -> impl Iterator<Item = &V> + '_ {
        self.iter().map(|(_, value)| value)
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> + '_ {
        self.one.iter_mut().map(|(_, value)| value).chain(self.many.values_mut())
    }

    /// Returns the entries in an inclusive range of keys.
    pub(crate) fn range(&self, keys: RangeInclusive<K>) -> impl Iterator<Item = (&K, &V)> + '_ {
        let one = self.one.as_ref().filter(|(key, _)| keys.contains(key));
        one.map(pair).into_iter().chain(self.many.range(keys))
    }
}

impl<K, V> IntoIterator for FewMap<K, V> {
    type Item = (K, V);
    type IntoIter = std::iter::Chain<std::option::IntoIter<(K, V)>, btree_map::IntoIter<K, V>>;

    fn into_iter(self) -> Self::IntoIter {
        self.one.into_iter().chain(self.many)
    }
}

impl<K: Ord, V: PartialEq> PartialEq for FewMap<K, V> {
    /// Compares the entries, in whichever form the maps are.
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<K: Ord, V: Eq> Eq for FewMap<K, V> {}

#[cfg(test)]
impl<K: Ord, V> std::ops::Index<&K> for FewMap<K, V> {
    type Output = V;

    fn index(&self, key: &K) -> &V {
        self.get(key).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Act {
        Insert(u8, u8),
        Remove(u8),
        Change(u8),
        Keep(u8),
        Clear,
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            4 => (0..4u8, any::<u8>()).prop_map(|(key, value)| Act::Insert(key, value)),
            4 => (0..4u8).prop_map(Act::Remove),
            2 => (0..4u8).prop_map(Act::Change),
            1 => (0..4u8).prop_map(Act::Keep),
            1 => Just(Act::Clear),
        ]
    }

    proptest! {
        /// After any sequence of operations, it equals a tree.
        #[test]
        fn it_is_a_tree(acts in prop::collection::vec(act(), 0..40), from in 0..4u8, to in 0..4u8) {
            let (mut few, mut tree) = (FewMap::default(), BTreeMap::new());
            for act in acts {
                match act {
                    Act::Insert(key, value) => {
                        prop_assert_eq!(few.insert(key, value), tree.insert(key, value));
                    }
                    Act::Remove(key) => prop_assert_eq!(few.remove(&key), tree.remove(&key)),
                    Act::Change(key) => {
                        few.get_mut(&key).into_iter().for_each(|value| *value ^= 1);
                        tree.get_mut(&key).into_iter().for_each(|value| *value ^= 1);
                    }
                    Act::Keep(most) => {
                        few.retain(|&key, _| key <= most);
                        tree.retain(|&key, _| key <= most);
                    }
                    Act::Clear => {
                        few.clear();
                        tree.clear();
                    }
                }
                prop_assert!(few.iter().eq(tree.iter()));
                prop_assert_eq!((few.len(), few.is_empty()), (tree.len(), tree.is_empty()));
                prop_assert_eq!(few.first(), tree.first_key_value());
                prop_assert!((0..4).all(|key| few.get(&key) == tree.get(&key)));
                if from <= to {
                    prop_assert!(few.range(from..=to).eq(tree.range(from..=to)));
                }
                prop_assert!(few.clone().into_iter().eq(tree.clone()));
            }
        }
    }
}
