//! A run that the command drives: its pipeline, its location, and how it starts.

use std::sync::atomic::{AtomicBool, Ordering};

use ferrata::{Context as State, RunKey};
use ferrata_dot::run_dir::RestorePoint;

use super::load::LoadedPipeline;
use super::location::RunLocation;
use crate::args::HowArgs;
use crate::output::quoted;

/// A run that the command drives.
#[derive(Debug)]
pub(super) struct DriveJob {
    pub(super) loaded: LoadedPipeline,
    pub(super) place: RunLocation,
    pub(super) run: RunKey,
    pub(super) kind: StartKind,
    pub(super) how: HowArgs,
    /// Whether this process has sent a start or a claim of the run. The start or the claim may take effect even if the call failed.
    pub(super) touched: AtomicBool,
}

impl DriveJob {
    /// Creates a job that has not sent a start or a claim yet.
    pub(super) fn new(
        loaded: LoadedPipeline,
        place: RunLocation,
        run: RunKey,
        kind: StartKind,
        how: HowArgs,
    ) -> Self {
        Self { loaded, place, run, kind, how, touched: AtomicBool::new(false) }
    }

    /// Records that this process is about to start or claim the run.
    pub(super) fn touch(&self) {
        self.touched.store(true, Ordering::Relaxed);
    }

    /// Returns the command that resumes the run with the same options.
    pub(super) fn resume(&self) -> String {
        let resume = self.place.resume(&self.run);
        // A backend from the environment or the graph applies again, so its option can be omitted.
        let implied = std::env::var("FERRATA_BACKEND").ok();
        match self.how.backend.as_deref().filter(|given| implied.as_deref() != Some(given)) {
            Some(backend) => format!("{resume} --backend {}", quoted(backend)),
            None => resume,
        }
    }
}

/// How the command starts to drive the run.
#[derive(Debug)]
pub(super) enum StartKind {
    Start {
        input: State,
        labels: Vec<(String, String)>,
    },
    Resume,
    /// Starts a new run from a checkpoint file, because no log exists.
    Restore(Box<RestorePoint>),
}
