//! Migrates state changes that the machine still contains to the current form of the state.

use super::Machine;
use crate::error::Result;
use crate::record::Resolution;
use crate::state::Patch;

impl Machine {
    /// Migrates each change that an answer supplied and that is not applied to the state yet. If a change cannot be migrated, its activation fails,
    /// as it does if a change does not fit the state.
    pub fn bring_forward(&mut self, migrate: impl Fn(&Patch) -> Result<Patch>) {
        for activation in self.frontier.activations_mut() {
            let Some(Resolution::Supply(patch)) = &mut activation.resolution else { continue };
            match migrate(patch) {
                Ok(migrated) => *patch = migrated,
                Err(error) => {
                    let reason = format!("the supplied change cannot be migrated: {}", error.message());
                    activation.resolution = Some(Resolution::Fail(reason));
                }
            }
        }
    }
}
