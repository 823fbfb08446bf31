//! Values that libraries keep in a runtime, such as the queues of `ferrata-queue`.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The extensions of a runtime, one value for each type.
#[derive(Default)]
pub(crate) struct Extensions(Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>);

impl Extensions {
    /// Returns the extension of type `T`, and creates it with `make` on first use. `make` must not call this method.
    pub(crate) fn get_or_insert_with<T: Send + Sync + 'static>(&self, make: impl FnOnce() -> T) -> Arc<T> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = all.get(&TypeId::of::<T>()).cloned().and_then(|found| found.downcast().ok());
        found.unwrap_or_else(|| {
            let made = Arc::new(make());
            all.insert(TypeId::of::<T>(), Arc::clone(&made) as _);
            made
        })
    }

    /// Returns whether there is no extension.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}
