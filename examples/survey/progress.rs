//! Shows the progress of the run, as a bar on a terminal and as lines elsewhere, and the part that was recorded before.

use std::fmt;
use std::io::{IsTerminal, stderr};
use std::sync::Arc;

use ferrata::Event;
use indicatif::{ProgressBar, ProgressStyle};

use crate::graph::{Files, MEASURE};

/// A line is written each time that this many percent more are done.
const STEP: u64 = 10;

pub(crate) struct Progress {
    files: Arc<Files>,
    /// The number of activations that were recorded before. The next fields count those of this process, and how many of them measured a file.
    recorded: u64,
    ran: u64,
    measured: u64,
    /// Whether events were missed, so that the counts may be too low.
    missed: bool,
    face: Face,
}

enum Face {
    Bar(ProgressBar),
    /// Lines. The number is the percentage in the last line.
    Lines(u64),
}

impl Progress {
    pub(crate) fn new(files: Arc<Files>) -> Self {
        let face = if stderr().is_terminal() {
            let bar = ProgressBar::no_length();
            // If the style cannot be used, the bar is plainer.
            if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} files {elapsed}") {
                bar.set_style(style);
            }
            Face::Bar(bar)
        } else {
            Face::Lines(0)
        };
        Self { files, recorded: 0, ran: 0, measured: 0, missed: false, face }
    }

    /// Processes an event; `None` means that events were missed.
    pub(crate) fn see(&mut self, event: Option<Event>) {
        match event {
            None => self.missed = true,
            Some(Event::Resumed { recorded, .. }) => {
                self.recorded = recorded;
                self.say(&format!("continuing; recorded activations, which do not run again: {recorded}"));
            }
            Some(Event::NodeCompleted { node, .. }) => {
                self.ran += 1;
                self.measured += u64::from(node.as_str() == MEASURE);
                self.show();
            }
            Some(Event::NodeFailed { node, visit, failure, .. }) => {
                self.say(&format!("{node}@{visit} failed: {failure}"));
            }
            Some(_) => {}
        }
    }

    /// Returns the number of files that were measured before. All earlier activations except the list measured a file.
    fn before(&self) -> u64 {
        self.recorded.saturating_sub(1).min(self.files.count())
    }

    fn show(&mut self) {
        let (done, all) = (self.before() + self.measured, self.files.count());
        match &mut self.face {
            Face::Bar(bar) => {
                bar.set_length(all);
                bar.set_position(done);
            }
            Face::Lines(told) => {
                let percent = (done * 100).checked_div(all).unwrap_or_default();
                if percent >= *told + STEP {
                    *told = percent - percent % STEP;
                    self.say(&format!("{done} of {all} files ({percent} %)"));
                }
            }
        }
    }

    fn say(&self, line: &str) {
        match &self.face {
            Face::Bar(bar) => bar.println(line),
            Face::Lines(_) => eprintln!("{line}"),
        }
    }

    pub(crate) fn finish(&self) {
        if let Face::Bar(bar) = &self.face {
            bar.finish_and_clear();
        }
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let least = if self.missed { "at least " } else { "" };
        writeln!(f, "measured now: {least}{}", self.measured)?;
        writeln!(f, "skipped, already recorded: {}", self.before())?;
        write!(f, "activations: {} skipped, {least}{} ran", self.recorded, self.ran)
    }
}
