//! Bringing what a machine holds of the state into the form that the code of today reads.

use super::Machine;
use crate::error::Result;
use crate::record::Resolution;
use crate::state::Patch;

impl Machine {
    /// Turns each change that an answer supplied for an activation, and that is not in the state yet, into one of the state as it is
    /// migrated. A change that has no such form fails its activation, as one that does not fit the state would.
    pub(crate) fn bring_forward(&mut self, migrate: impl Fn(&Patch) -> Result<Patch>) {
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
