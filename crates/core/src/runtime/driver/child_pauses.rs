//! Pauses and unpauses children together with their run. Only children that are cancelled when the run ends are paused.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::RunDriver;
use super::children::{ChildEvent, ChildTasks};
use crate::record::child::ActivationChild;
use crate::record::parent_link::ChildRef;
use crate::runtime::child_control::child_pause::set_pause;
use crate::state::State;

/// The pause state that was last sent to each child.
#[derive(Debug, Default)]
pub(super) struct ChildPauses {
    /// The pause state last sent to each child, and whether the child's start was durable then.
    told: BTreeMap<(ChildRef, bool), bool>,
    /// Children whose signal is being sent.
    busy: BTreeSet<ChildRef>,
    /// Whether all children have been unpaused after the last pause.
    all_go_on: bool,
}

impl ChildPauses {
    /// Marks a child's signal as sent.
    pub(super) fn done(&mut self, child: &ChildRef) {
        self.busy.remove(child);
    }
}

impl<S: State> RunDriver<S> {
    /// Pauses the children that end with the run when the run is paused, and unpauses them when it continues. Returns whether signals to children are
    /// pending. The run does not become idle while signals are pending.
    ///
    /// If the start of a child is not recorded, the child gets its signal only when no node is running, because a running node may still start it.
    pub(super) fn sync_child_pauses(&mut self, is_at_work: bool) -> bool {
        let pause = self.machine.paused().is_some();
        let is_concerned = pause || self.machine.was_paused();
        if !is_concerned || self.machine.cancel().is_some() || self.machine.status().is_finished() {
            return false;
        }
        let ChildTasks { holds, tasks, .. } = self.waits.children();
        if !pause && holds.all_go_on {
            return false;
        }
        holds.all_go_on = false;
        if !holds.busy.is_empty() {
            return true;
        }
        let run = self.journal.run();
        let bound = self.machine.children().filter(|(_, child)| child.ends_with_parent());
        let told: Vec<_> = bound
            .filter(|(_, child)| child.began || !(pause && is_at_work))
            .map(|(key, child): (_, ActivationChild)| (self.machine.child_ref(run, key, &child), child.began))
            .filter(|start| holds.told.get(start) != Some(&pause))
            .collect();
        for (child, began) in told {
            holds.told.insert((child.clone(), began), pause);
            holds.busy.insert(child.clone());
            let (shared, parent) = (Arc::clone(&self.shared), Arc::clone(&self.scope));
            tasks.spawn(async move {
                set_pause(&shared, &child, &parent, pause).await;
                ChildEvent::Held(child)
            });
        }
        if !pause && holds.busy.is_empty() {
            holds.told.clear();
            holds.all_go_on = true;
        }
        !holds.busy.is_empty()
    }
}
