//! Shows the progress of a run as a bar or as lines, and prints notes in between. During a run, only this module writes to the terminal.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{IsTerminal, stderr};
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use ferrata::{Clock, Event, SystemClock};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::args::ProgressFace;
use crate::context::CommandContext;
use crate::output::to_stderr;
use crate::table::{clean, paint, safe};
use crate::time::short;
use crate::verdict::NodeVerdict;

/// Interval at which the bar is drawn again if there are no events.
const TICK: Duration = Duration::from_millis(120);

/// Width of the names of nodes in lines. A longer name shifts the rest of its line.
const NAMES: usize = 12;

/// Shows the progress of a run.
#[derive(Debug)]
pub(super) struct ProgressReporter {
    face: ReporterStyle,
    color: bool,
    clock: SystemClock,
    nodes: usize,
    ended: BTreeSet<String>,
    working: BTreeMap<String, Duration>,
    began: Duration,
    /// Events that happened during a question. These events are printed later, because they would disturb the person who types.
    held: Vec<String>,
}

#[derive(Debug)]
enum ReporterStyle {
    Bar(ProgressBar),
    /// The bar is hidden for a moment.
    Away,
    Lines,
    None,
}

impl ProgressReporter {
    /// Creates the progress output of a run. `nodes` is the number of nodes in its pipeline.
    pub(super) fn new(context: &CommandContext, wanted: ProgressFace, nodes: usize) -> Self {
        let face = match wanted {
            _ if context.global.quiet => ReporterStyle::None,
            ProgressFace::None => ReporterStyle::None,
            ProgressFace::Lines => ReporterStyle::Lines,
            ProgressFace::Auto if !stderr().is_terminal() => ReporterStyle::Lines,
            ProgressFace::Auto | ProgressFace::Bar => ReporterStyle::Bar(bar(nodes)),
        };
        let clock = context.clock.clone();
        let began = clock.monotonic();
        let color = context.out.color_notes;
        Self {
            face,
            color,
            clock,
            nodes,
            ended: BTreeSet::new(),
            working: BTreeMap::new(),
            began,
            held: Vec::new(),
        }
    }

    /// Writes a line, whether or not a bar is shown.
    pub(super) fn write_line(&self, line: &str) {
        match &self.face {
            // The person is about to answer a question, so begin a new line.
            ReporterStyle::Away => to_stderr(&format!("\n{line}\n"), self.color),
            // A hidden bar, for example without a terminal, would not print the line.
            ReporterStyle::Bar(bar) if !bar.is_hidden() => bar.println(safe(line, self.color)),
            ReporterStyle::Bar(_) | ReporterStyle::Lines => to_stderr(&format!("{line}\n"), self.color),
            ReporterStyle::None => {}
        }
    }

    /// Writes a line even with `--quiet`.
    pub(super) fn write_always(&self, line: &str) {
        match self.face {
            ReporterStyle::None => to_stderr(&format!("{line}\n"), self.color),
            _ => self.write_line(line),
        }
    }

    /// Hides the bar during a question. Notes are printed as lines in the meantime.
    pub(super) fn pause(&mut self) {
        if let ReporterStyle::Bar(bar) = &self.face {
            bar.finish_and_clear();
            self.face = ReporterStyle::Away;
        }
    }

    /// Shows the bar again.
    pub(super) fn unpause(&mut self) {
        if matches!(self.face, ReporterStyle::Away) {
            let took = self.clock.monotonic().saturating_sub(self.began);
            self.face = ReporterStyle::Bar(bar(self.nodes).with_elapsed(took));
            self.write_held();
            self.draw();
        }
    }

    /// Writes the events that happened during a question.
    fn write_held(&mut self) {
        for line in std::mem::take(&mut self.held) {
            self.write_line(&line);
        }
    }

    /// Removes the bar.
    pub(super) fn finish(&mut self) {
        if let ReporterStyle::Bar(bar) = &self.face {
            bar.finish_and_clear();
        }
        self.face = match self.face {
            ReporterStyle::Bar(_) | ReporterStyle::Away => ReporterStyle::Lines,
            ReporterStyle::Lines => ReporterStyle::Lines,
            ReporterStyle::None => ReporterStyle::None,
        };
        self.write_held();
    }

    /// Counts the nodes that earlier records show as ended.
    pub(super) fn recorded(&mut self, nodes: impl IntoIterator<Item = String>) {
        self.ended.extend(nodes);
        self.draw();
    }

    /// Shows an event; `None` means that events were missed. An event of a child is shown with the child's run, and does not count.
    pub(super) fn show_event(&mut self, event: Option<&Event>, child: Option<&str>) {
        let called = |node: &str, visit: u32| match child {
            Some(child) => format!("{child}:{}", activation_name(node, visit)),
            None => activation_name(node, visit),
        };
        match event {
            None => self.line("note", "", "skipped some events that came too fast; the log has all of them"),
            Some(Event::Resumed { recorded, graph_changed, .. }) => {
                let changed =
                    if *graph_changed { "; the pipeline has changed, but not where the run is" } else { "" };
                self.line(
                    "resume",
                    "",
                    &format!("recorded nodes, which do not run again: {recorded}{changed}"),
                );
            }
            Some(Event::NodeStarted { node, visit, attempt }) => {
                let name = called(node.as_str(), visit.get());
                self.working.insert(name.clone(), self.clock.monotonic());
                let more = if *attempt > 1 { format!("attempt {attempt}") } else { String::new() };
                // The bar itself shows the running nodes.
                if matches!(self.face, ReporterStyle::Lines) {
                    self.line("start", &name, &more);
                }
            }
            Some(Event::NodeCompleted { node, visit, took, verdict }) => {
                let name = called(node.as_str(), visit.get());
                self.working.remove(&name);
                if child.is_none() {
                    self.ended.insert(node.to_string());
                }
                let came =
                    verdict.as_ref().map_or(NodeVerdict::Done, |said| NodeVerdict::of_word(&said.outcome));
                let why = verdict.as_ref().map(|said| &*said.reason).unwrap_or_default();
                let more = if why.is_empty() { short(*took) } else { format!("{}  {why}", short(*took)) };
                self.line(came.word(), &name, &more);
            }
            Some(Event::NodeFailed { node, visit, failure, retry_in }) => {
                let name = called(node.as_str(), visit.get());
                self.working.remove(&name);
                match retry_in {
                    Some(delay) => {
                        let more = format!("in {}: {}", short(*delay), failure.message);
                        self.line("retry", &name, &more);
                    }
                    None => self.line("failed", &name, &failure.message),
                }
            }
            Some(Event::NodeInDoubt { node, visit, failure }) => {
                let name = called(node.as_str(), visit.get());
                self.working.remove(&name);
                self.line("doubt", &name, &failure.message);
            }
            Some(Event::Asked { node, visit, name }) => {
                let asked = called(node.as_str(), visit.get());
                self.line("wait", &asked, &format!("asks {node}@{visit}:{name}"));
            }
            Some(_) => return,
        }
        self.draw();
    }

    /// Writes a line about a node.
    fn line(&mut self, word: &str, node: &str, more: &str) {
        let color = match word {
            "done" => AnsiColor::Green,
            "failed" | "fail" => AnsiColor::Red,
            "skip" => AnsiColor::BrightBlack,
            "retry" | "wait" | "part" => AnsiColor::Yellow,
            _ => AnsiColor::Cyan,
        };
        // The text of a failure may contain any output of a command.
        let more = clean(more);
        let painted = paint(&format!("{word:<6}"), Style::new().fg_color(Some(color.into())), self.color);
        let text = match &self.face {
            ReporterStyle::Lines => {
                let time = self.clock.now().to_string();
                let time = time.get(11..19).unwrap_or_default();
                format!("{time} {painted}  {node:<NAMES$}  {more}")
            }
            ReporterStyle::Bar(_) | ReporterStyle::Away => format!("  {painted}  {node:<NAMES$}  {more}"),
            ReporterStyle::None => return,
        };
        if matches!(self.face, ReporterStyle::Away) {
            self.held.push(text.trim_end().to_owned());
        } else {
            self.write_line(text.trim_end());
        }
    }

    fn draw(&self) {
        if let ReporterStyle::Bar(bar) = &self.face {
            bar.set_position(self.ended.len() as u64);
            let names: Vec<&str> = self.working.keys().map(String::as_str).collect();
            bar.set_message(names.join(", "));
        }
    }

    /// Returns a text with the number of ended nodes and the duration.
    pub(super) fn summary_text(&self) -> String {
        let took = self.clock.monotonic().saturating_sub(self.began);
        format!("{} of {} nodes, {}", self.ended.len(), self.nodes, short(took))
    }
}

/// Returns the name of an activation: the name of its node, and from the second visit on the number of the visit.
fn activation_name(node: &str, visit: u32) -> String {
    if visit > 1 { format!("{node}@{visit}") } else { node.to_owned() }
}

fn bar(nodes: usize) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(nodes as u64), ProgressDrawTarget::stderr());
    // If the style cannot be used, the bar is plainer.
    if let Ok(style) = ProgressStyle::with_template(" {bar:12} {pos}/{len} nodes  {elapsed}  {msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(TICK);
    bar
}
