//! A run to drive: the pipeline, its place, and how the run begins.

use std::sync::atomic::{AtomicBool, Ordering};

use ferrata::{Context as State, RunKey};
use ferrata_dot::run_dir::RestorePoint;

use super::load::LoadedPipeline;
use super::location::RunLocation;
use crate::args::HowArgs;
use crate::output::quoted;

/// A run to drive.
#[derive(Debug)]
pub(super) struct DriveJob {
    pub(super) loaded: LoadedPipeline,
    pub(super) place: RunLocation,
    pub(super) run: RunKey,
    pub(super) kind: StartKind,
    pub(super) how: HowArgs,
    /// Whether this process has sent a start or a claim of the run, which may take effect.
    pub(super) touched: AtomicBool,
}

impl DriveJob {
    /// Creates a job that has not touched its run.
    pub(super) fn new(
        loaded: LoadedPipeline,
        place: RunLocation,
        run: RunKey,
        kind: StartKind,
        how: HowArgs,
    ) -> Self {
        Self { loaded, place, run, kind, how, touched: AtomicBool::new(false) }
    }

    /// Records that this process starts or claims the run next.
    pub(super) fn touch(&self) {
        self.touched.store(true, Ordering::Relaxed);
    }

    /// Returns the command that resumes the run with the same options.
    pub(super) fn resume(&self) -> String {
        let resume = self.place.resume(&self.run);
        // Values from the environment or the graph apply again without options.
        let implied = std::env::var("FERRATA_BACKEND").ok();
        match self.how.backend.as_deref().filter(|given| implied.as_deref() != Some(given)) {
            Some(backend) => format!("{resume} --backend {}", quoted(backend)),
            None => resume,
        }
    }
}

/// How the run begins.
#[derive(Debug)]
pub(super) enum StartKind {
    Start {
        input: State,
        labels: Vec<(String, String)>,
    },
    Resume,
    /// From a checkpoint alone.
    Restore(Box<RestorePoint>),
}
