//! The activations of a run as lines for people. If there are many, activations with the same result share a line.

use std::time::Duration;

use anstyle::{AnsiColor, Style};
use ferrata::Timestamp;
use ferrata::runtime::{ActivationPhase, Checkpoint, PastActivation, PendingActivation};
use ferrata::store::RunHead;
use serde_json::Value;

use crate::table::{Table, TableCell, clean};
use crate::time::short;
use crate::verdict::{self, NodeVerdict};

/// Number of activations from which equal ones share a line: more than fit on a screen.
const FOLDED: usize = 30;

/// The time of a read, and whether a live process drives the run. The log does not contain them, and open activations are described with them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadMoment {
    /// Whether a live process drives the run.
    is_driven: bool,
    now: Timestamp,
}

impl ReadMoment {
    /// Creates the value for a checkpoint. For the newest record it contains the current time, and for an older record the time of the record.
    pub(crate) fn of(checkpoint: &Checkpoint, head: &RunHead, now: Timestamp) -> Self {
        match checkpoint.record == head.id {
            true => Self { is_driven: head.owner_alive, now },
            false => Self { is_driven: checkpoint.owner.is_some(), now: checkpoint.at },
        }
    }
}

impl ReadMoment {
    /// Returns the current phase of an open activation.
    pub(crate) fn phase(self, run: &Checkpoint, pending: &PendingActivation) -> ActivationPhase {
        run.phase(pending, self.is_driven, self.now)
    }
}

/// A line about one activation, or about several with the same result.
#[derive(Debug)]
struct ActivationLine {
    node: String,
    /// The number of the visit. `None` for several activations, or for a node that does not count visits.
    visit: Option<u32>,
    times: usize,
    rank: LineRank,
    outcome: String,
    color: AnsiColor,
    attempts: String,
    /// The shortest and the longest duration.
    took: Option<(Duration, Duration)>,
    at: Option<Timestamp>,
    details: String,
}

/// The order of the lines if there are many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum LineRank {
    Failed,
    Open,
    Done,
    Skipped,
}

/// Formats the activations of a run as a table, in the order of their ends. If there are many activations, failed and open ones come first, and
/// activations with the same result share a line.
pub(crate) fn table(now: &Checkpoint, moment: ReadMoment, at: impl Fn(Timestamp) -> String) -> Option<Table> {
    let mut lines = lines(now, moment);
    if lines.is_empty() {
        return None;
    }
    if lines.len() > FOLDED {
        lines = combine_lines(lines);
    }
    let mut table = Table::new(["NODE", "OUTCOME", "ATTEMPTS", "TOOK", "AT", "DETAILS"])
        .omit_first(["AT", "TOOK", "ATTEMPTS"]);
    for line in lines {
        let node = match (line.visit, line.times) {
            (Some(visit), _) => format!("{}@{visit}", line.node),
            (None, 0 | 1) => line.node,
            (None, times) => format!("{} ×{times}", line.node),
        };
        table.row([
            node.into(),
            TableCell::styled(line.outcome, Style::new().fg_color(Some(line.color.into()))),
            line.attempts.into(),
            line.took.map(range).unwrap_or_default().into(),
            line.at.map(&at).unwrap_or_default().into(),
            line.details.into(),
        ]);
    }
    Some(table)
}

/// Formats the artifacts of nodes as a table, by node.
pub(crate) fn artifacts(now: &Checkpoint) -> Option<Table> {
    let mut table = Table::new(["NODE", "ARTIFACT", "BYTES", "TYPE", "WHERE"]).omit_first(["TYPE", "BYTES"]);
    for (node, artifact) in
        now.artifacts.iter().flat_map(|(node, all)| all.iter().map(move |one| (node, one)))
    {
        table.row([
            node.as_str().into(),
            artifact.name.as_str().into(),
            artifact.bytes.map(|bytes| bytes.to_string()).unwrap_or_default().into(),
            artifact.media_type.as_deref().unwrap_or_default().into(),
            artifact.reference.as_str().into(),
        ]);
    }
    (!now.artifacts.is_empty()).then_some(table)
}

fn lines(now: &Checkpoint, moment: ReadMoment) -> Vec<ActivationLine> {
    let ended = now.history.iter().map(ended_line);
    // If the activation stopped the run, its end is in the history too.
    let has_ended = |one: &PendingActivation| {
        now.history.iter().any(|past| !past.ok && past.node == one.node && past.visit == one.visit)
    };
    let going =
        now.next.iter().filter(|one| !(one.stopped && has_ended(one))).map(|one| open_line(now, moment, one));
    let skipped = now.skipped.iter().map(|node| ActivationLine {
        node: node.to_string(),
        visit: None,
        times: 1,
        rank: LineRank::Skipped,
        outcome: "- skipped".to_owned(),
        color: AnsiColor::BrightBlack,
        attempts: String::new(),
        took: None,
        at: None,
        details: String::new(),
    });
    ended.chain(going).chain(skipped).collect()
}

fn ended_line(past: &PastActivation) -> ActivationLine {
    let led: Vec<String> = past.led_to.iter().map(ToString::to_string).collect();
    let led = if led.is_empty() { String::new() } else { format!("→ {}", led.join(", ")) };
    let came = NodeVerdict::of(past);
    let shown = match (came, verdict::word(past)) {
        (NodeVerdict::Done, "success") => "done",
        // A failure that stopped the node is shown differently from a failure after which the run continued.
        (NodeVerdict::Failed, _) if !past.ok => "failed",
        (_, word) => word,
    };
    let details = match (verdict::reason(past), came) {
        ("", _) => led,
        (why, NodeVerdict::Done) => clean(why),
        (why, _) => format!("{} {led}", clean(why)).trim_end().to_owned(),
    };
    let took = past.took_ms.map(Duration::from_millis);
    ActivationLine {
        node: past.node.to_string(),
        visit: Some(past.visit.get()),
        times: 1,
        rank: match came {
            NodeVerdict::Failed | NodeVerdict::Partial => LineRank::Failed,
            NodeVerdict::Done => LineRank::Done,
            NodeVerdict::Skipped => LineRank::Skipped,
        },
        outcome: format!("{} {}", came.sign(), clean(shown)),
        color: came.color(),
        attempts: past.attempts.filter(|&n| n > 1).map(|n| n.to_string()).unwrap_or_default(),
        took: took.map(|took| (took, took)),
        at: past.at,
        details,
    }
}

fn open_line(now: &Checkpoint, moment: ReadMoment, pending: &PendingActivation) -> ActivationLine {
    let phase = moment.phase(now, pending);
    let (rank, sign, color) = match phase {
        ActivationPhase::Stopped => (LineRank::Failed, "✗", AnsiColor::Red),
        ActivationPhase::Asking => (LineRank::Open, "?", AnsiColor::Yellow),
        ActivationPhase::Running => (LineRank::Open, "…", AnsiColor::Cyan),
        _ => (LineRank::Open, "…", AnsiColor::Yellow),
    };
    let mut failures = now.diagnostics.iter().rev();
    let last = failures.find(|one| one.node == pending.node && one.visit == pending.visit);
    let why = last.filter(|_| pending.failed > 0).map(|last| clean(&last.failure.message));
    let details = [pending.progress.as_ref().map(progress_text), why];
    ActivationLine {
        node: pending.node.to_string(),
        visit: Some(pending.visit.get()),
        times: 1,
        rank,
        outcome: format!("{sign} {phase}"),
        color,
        attempts: if pending.failed > 0 { format!("{} failed", pending.failed) } else { String::new() },
        took: None,
        at: pending.retry_at.filter(|_| phase == ActivationPhase::Retrying),
        details: details.into_iter().flatten().collect::<Vec<_>>().join("; "),
    }
}

/// Formats the progress of an attempt as one short line.
fn progress_text(progress: &Value) -> String {
    const WIDTH: usize = 60;
    let text = match progress {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    let text = clean(&text);
    match text.char_indices().nth(WIDTH) {
        Some((end, _)) => format!("at {}…", &text[..end]),
        None => format!("at {text}"),
    }
}

/// Combines the lines of a node that have the same result and, if they failed, the same reason.
fn combine_lines(lines: Vec<ActivationLine>) -> Vec<ActivationLine> {
    let mut folded: Vec<ActivationLine> = Vec::new();
    let mut known = std::collections::HashMap::new();
    for line in lines {
        let why = if line.rank == LineRank::Failed { line.details.clone() } else { String::new() };
        let at = *known.entry((line.node.clone(), line.outcome.clone(), why)).or_insert(folded.len());
        match folded.get_mut(at) {
            None => folded.push(line),
            Some(same) => same.add(&line),
        }
    }
    // Lines of the same rank keep the order of their ends.
    folded.sort_by_key(|line| line.rank);
    folded
}

impl ActivationLine {
    /// Adds another line with the same result to this line.
    fn add(&mut self, other: &Self) {
        self.visit = None;
        self.times += other.times;
        if self.attempts != other.attempts {
            self.attempts.clear();
        }
        self.took = match (self.took, other.took) {
            (Some((least, most)), Some((less, more))) => Some((least.min(less), most.max(more))),
            (one, other) => one.or(other),
        };
        self.at = self.at.max(other.at);
        if self.details != other.details {
            self.details.clear();
        }
    }
}

/// Formats the shortest and the longest duration. A unit that both share is written once.
fn range((least, most): (Duration, Duration)) -> String {
    let (least, most) = (short(least), short(most));
    if least == most {
        return most;
    }
    match (least.strip_suffix("ms"), most.strip_suffix("ms")) {
        (Some(least), Some(_)) => format!("{least}–{most}"),
        _ => format!("{least}–{most}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempt_progress_is_one_short_line() {
        assert_eq!(progress_text(&serde_json::json!("page 3 of 9")), "at page 3 of 9");
        assert_eq!(progress_text(&serde_json::json!({ "rows": 7 })), r#"at {"rows":7}"#);
        let long = progress_text(&serde_json::json!(format!("a\n{}", "b".repeat(100))));
        assert!(!long.contains('\n') && long.chars().count() <= 64, "{long}");
    }

    #[test]
    fn a_range_has_its_unit_once() {
        let range = |least, most| range((Duration::from_millis(least), Duration::from_millis(most)));
        assert_eq!(range(20, 20), "20ms");
        assert_eq!(range(20, 25), "20–25ms");
        assert_eq!(range(20, 2_500), "20ms–2.5s");
    }
}
