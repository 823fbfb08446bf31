//! What the nodes of a process ask a queue for: no attempt of one twice by the same name.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use ferrata_core::Epoch;

use super::Desk;

/// The id of a place, and the attempt that asks for it, by its epoch and number. A detached task of an earlier attempt may still hold the place.
pub(crate) type Asked = (String, Epoch, u32);

/// The places that nodes of the process hold or wait for.
#[derive(Debug, Default)]
pub(super) struct Claims(Mutex<HashSet<Asked>>);

/// That an attempt has a place, or waits for it. Dropped, it may ask for it again.
#[derive(Debug)]
pub(crate) struct Claim {
    desk: Arc<Desk>,
    asked: Asked,
}

impl Claim {
    /// Notes that a place is asked for; `None` if the attempt has it, or waits for it.
    pub(crate) fn new(desk: &Arc<Desk>, asked: Asked) -> Option<Arc<Self>> {
        let is_new = desk.claims.0.lock().unwrap_or_else(PoisonError::into_inner).insert(asked.clone());
        is_new.then(|| Arc::new(Self { desk: Arc::clone(desk), asked }))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.desk.claims.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.asked);
    }
}
