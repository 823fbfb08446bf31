//! Values that an application shares with its nodes, such as clients and settings. Each value is found by its type.

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// Values that nodes share, at most one per type.
#[derive(Clone, Default)]
#[doc(hidden)]
pub struct Resources {
    by_type: HashMap<TypeId, (&'static str, Arc<dyn Any + Send + Sync>)>,
}

impl Resources {
    /// Adds a value. It replaces an earlier value of the same type.
    pub fn insert<T: Send + Sync + 'static>(&mut self, value: T) {
        self.by_type.insert(TypeId::of::<T>(), (type_name::<T>(), Arc::new(value)));
    }

    /// Returns the value of type `T`, if there is one.
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.by_type.get(&TypeId::of::<T>()).and_then(|(_, value)| value.downcast_ref())
    }
}

impl Resources {
    /// Lists the registered types, for the error about a missing one.
    pub(crate) fn names(&self) -> String {
        let mut names: Vec<&str> = self.by_type.values().map(|(name, _)| *name).collect();
        names.sort_unstable();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    }
}

impl fmt::Debug for Resources {
    /// Formats only the types, because the values may contain secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.by_type.values().map(|(name, _)| name)).finish()
    }
}
