//! Identifies an activation by its inputs. After a write conflict, an activation with the same node and visit may have other inputs, so it is not the
//! same activation.

use std::sync::Arc;

use serde_json::value::RawValue;

use crate::compact::small_vec::SmallVec;
use crate::engine::frontier::{ActivationKey, Token};
use crate::engine::machine::Machine;

/// The item and the inputs with which an activation was created.
#[derive(Default)]
pub(super) struct ActivationOrigin {
    item: Option<Arc<RawValue>>,
    inputs: SmallVec<Token>,
}

impl ActivationOrigin {
    /// Returns the item and the inputs of an unfinished activation.
    pub(super) fn of(machine: &Machine, key: ActivationKey) -> Self {
        let Some(activation) = machine.in_flight().get(&key) else { return Self::default() };
        Self { item: activation.item.clone(), inputs: activation.inputs.iter().cloned().collect() }
    }

    /// Returns whether the activation is unfinished in the machine and has the same inputs there.
    pub(super) fn leads_to(&self, machine: &Machine, key: ActivationKey) -> bool {
        machine.in_flight().get(&key).is_some_and(|activation| {
            is_same(self.item.as_ref(), activation.item.as_ref())
                && self.inputs.len() == activation.inputs.len()
                && self.inputs.iter().zip(&activation.inputs).all(|(before, now)| {
                    // A node that only the log knows may have another number in another machine.
                    machine.index(before.from) == machine.index(now.from)
                        && before.visit == now.visit
                        && is_same(before.output.as_ref(), now.output.as_ref())
                        && is_same(before.item.as_ref(), now.item.as_ref())
                })
        })
    }
}

fn is_same(before: Option<&Arc<RawValue>>, now: Option<&Arc<RawValue>>) -> bool {
    before.map(|text| text.get()) == now.map(|text| text.get())
}
