//! The registration of a run that this process drives.

use std::sync::Arc;

use super::release::{claim_error, release_failed_run};
use crate::claim::ClaimId;
use crate::compact::queue::Receiver;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{HeadRef, RunKey};
use crate::kernel::admission::RunPermit;
use crate::kernel::commands::DriverCommand;
use crate::kernel::inner::RuntimeInner;
use crate::kernel::run_change::LeftRun;
use crate::store::RunAppend;
use crate::telemetry::RunMeter;

/// The registration of a run that this process drives. Dropping it deregisters the run.
pub(crate) struct DriverRegistration {
    shared: Arc<RuntimeInner>,
    /// The change that is sent to libraries when the registration is dropped.
    pub(crate) left: LeftRun,
    /// The heartbeat term of the claim: see [`HeartbeatMonitor`](crate::kernel::heartbeat::HeartbeatMonitor).
    pub(crate) term: u64,
    /// The number of late heartbeats when ownership was last certain.
    pub(crate) gaps: u64,
    /// The claim with which the log may name this process as the owner, until the run has a driver.
    owed: Option<ClaimId>,
    /// The capacity that the run uses. It is freed when the run is deregistered.
    _permit: RunPermit,
    pub(crate) control: Receiver<DriverCommand>,
    /// Counts the driver's work.
    pub(crate) meter: RunMeter,
}

impl DriverRegistration {
    /// Registers that this process drives a run, so that it cannot have a second driver in this process.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Conflict`] if this process already drives the run, and [`ErrorKind::Closed`] if the runtime is shutting down. Returns
    /// [`ErrorKind::Unavailable`] while the heartbeats of this process are lost, and [`ErrorKind::Invalid`] if the runtime is an operator's.
    pub(crate) fn enter(
        shared: &Arc<RuntimeInner>,
        run: &RunKey,
        permit: RunPermit,
        is_recovered: bool,
    ) -> Result<Self> {
        let (term, gaps) = shared.takes(run)?;
        let control = shared.registry.enter(run, is_recovered)?;
        let shared = Arc::clone(shared);
        let meter = RunMeter::silent();
        let left = LeftRun { run: run.clone(), facts: None, ended_at: None };
        Ok(Self { shared, left, term, gaps, owed: None, control, meter, _permit: permit })
    }

    /// Appends the record that makes this process the owner of the run with this claim. If the reply is lost, a separate task resolves the outcome.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Committer::append`](crate::kernel::committer::Committer::append), and [`ErrorKind::Unavailable`] if heartbeats are
    /// lost. After an error, the run is deregistered.
    pub(crate) async fn claim(mut self, append: RunAppend, claim: ClaimId) -> Result<(Self, HeadRef)> {
        self.expect_claim(Some(claim));
        match self.shared.committer.append(append.clone(), Some(self.term)).await {
            Ok(durable) => Ok((self, durable)),
            Err(error) => {
                self.expect_claim(None);
                let shared = Arc::clone(&self.shared);
                drop(self);
                Err(claim_error(&shared, append, claim, &error))
            }
        }
    }

    /// Sets the claim with which the log may name this process as the owner before the run has a driver. If the registration is dropped before the
    /// caller resets the claim, the run is released. This also happens after a panic during the start or claim.
    pub(crate) fn expect_claim(&mut self, claim: Option<ClaimId>) {
        self.owed = claim;
    }
}

impl Drop for DriverRegistration {
    fn drop(&mut self) {
        self.shared.registry.unregister(&self.left);
        self.shared.recovery.notify_ended();
        // Only a driver knows the facts of its run. The run may have ended before the driver received this command.
        while let Some(control) = self.control.try_recv().filter(|_| self.left.facts.is_some()) {
            if let DriverCommand::Begun(reply) = control {
                // The caller may be gone.
                let _ = reply.send(());
            }
        }
        if let Some(claim) = self.owed {
            let why = Error::new(ErrorKind::Closed, "it panicked before it drove the run");
            release_failed_run(&Arc::downgrade(&self.shared), &self.left.run, claim, &why);
        }
    }
}
