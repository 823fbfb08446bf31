//! The activations of a run as lines for people: each one, or where there are many, those that are alike as one.

use std::time::Duration;

use anstyle::{AnsiColor, Style};
use ferrata::Timestamp;
use ferrata::runtime::{ActivationPhase, Checkpoint, PastActivation, PendingActivation};
use ferrata::store::RunHead;
use serde_json::Value;

use crate::table::{Cell, Table, clean};
use crate::time::short;
use crate::verdict::{self, NodeVerdict};

/// From how many lines on those that are alike become one: more than a screen.
const FOLDED: usize = 30;

/// What tells, beside the log, what activations do that have not ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// Whether a live process has the run.
    is_driven: bool,
    now: Timestamp,
}

impl Moment {
    /// Makes it of a checkpoint: of the newest record as of now, of an older one as of then.
    pub(crate) fn of(checkpoint: &Checkpoint, head: &RunHead, now: Timestamp) -> Self {
        match checkpoint.record == head.id {
            true => Self { is_driven: head.owner_alive, now },
            false => Self { is_driven: checkpoint.owner.is_some(), now: checkpoint.at },
        }
    }
}

impl Moment {
    /// Returns what an activation does that has not ended.
    pub(crate) fn phase(self, run: &Checkpoint, pending: &PendingActivation) -> ActivationPhase {
        run.phase(pending, self.is_driven, self.now)
    }
}

/// One activation, or several that came to the same.
#[derive(Debug)]
struct Line {
    node: String,
    /// Which visit; none where it stands for several, or for a node without any.
    visit: Option<u32>,
    times: usize,
    rank: Rank,
    outcome: String,
    color: AnsiColor,
    attempts: String,
    /// The shortest and the longest time that it took.
    took: Option<(Duration, Duration)>,
    at: Option<Timestamp>,
    details: String,
}

/// What is looked at first where there are many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Failed,
    Open,
    Done,
    Skipped,
}

/// Makes a table of the activations of a run: in the order in which they ended, or, where there are many, what failed and what is open
/// first, and those that came to the same as one line.
pub(crate) fn table(now: &Checkpoint, moment: Moment, at: impl Fn(Timestamp) -> String) -> Option<Table> {
    let mut lines = lines(now, moment);
    if lines.is_empty() {
        return None;
    }
    if lines.len() > FOLDED {
        lines = folded(lines);
    }
    let mut table = Table::new(["NODE", "OUTCOME", "ATTEMPTS", "TOOK", "AT", "DETAILS"])
        .sparing(["AT", "TOOK", "ATTEMPTS"]);
    for line in lines {
        let node = match (line.visit, line.times) {
            (Some(visit), _) => format!("{}@{visit}", line.node),
            (None, 0 | 1) => line.node,
            (None, times) => format!("{} ×{times}", line.node),
        };
        table.row([
            node.into(),
            Cell::styled(line.outcome, Style::new().fg_color(Some(line.color.into()))),
            line.attempts.into(),
            line.took.map(range).unwrap_or_default().into(),
            line.at.map(&at).unwrap_or_default().into(),
            line.details.into(),
        ]);
    }
    Some(table)
}

/// Makes a table of what nodes made elsewhere, by node.
pub(crate) fn artifacts(now: &Checkpoint) -> Option<Table> {
    let mut table = Table::new(["NODE", "ARTIFACT", "BYTES", "TYPE", "WHERE"]).sparing(["TYPE", "BYTES"]);
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

fn lines(now: &Checkpoint, moment: Moment) -> Vec<Line> {
    let ended = now.history.iter().map(ended);
    // That an activation stopped the run is said by its end.
    let has_ended = |one: &PendingActivation| {
        now.history.iter().any(|past| !past.ok && past.node == one.node && past.visit == one.visit)
    };
    let going =
        now.next.iter().filter(|one| !(one.stopped && has_ended(one))).map(|one| going(now, moment, one));
    let skipped = now.skipped.iter().map(|node| Line {
        node: node.to_string(),
        visit: None,
        times: 1,
        rank: Rank::Skipped,
        outcome: "- skipped".to_owned(),
        color: AnsiColor::BrightBlack,
        attempts: String::new(),
        took: None,
        at: None,
        details: String::new(),
    });
    ended.chain(going).chain(skipped).collect()
}

fn ended(past: &PastActivation) -> Line {
    let led: Vec<String> = past.led_to.iter().map(ToString::to_string).collect();
    let led = if led.is_empty() { String::new() } else { format!("→ {}", led.join(", ")) };
    let came = NodeVerdict::of(past);
    let shown = match (came, verdict::word(past)) {
        (NodeVerdict::Done, "success") => "done",
        // What failed for good is told from what the run went on after.
        (NodeVerdict::Failed, _) if !past.ok => "failed",
        (_, word) => word,
    };
    let details = match (verdict::reason(past), came) {
        ("", _) => led,
        (why, NodeVerdict::Done) => clean(why),
        (why, _) => format!("{} {led}", clean(why)).trim_end().to_owned(),
    };
    let took = past.took_ms.map(Duration::from_millis);
    Line {
        node: past.node.to_string(),
        visit: Some(past.visit.get()),
        times: 1,
        rank: match came {
            NodeVerdict::Failed | NodeVerdict::Partial => Rank::Failed,
            NodeVerdict::Done => Rank::Done,
            NodeVerdict::Skipped => Rank::Skipped,
        },
        outcome: format!("{} {}", came.sign(), clean(shown)),
        color: came.color(),
        attempts: past.attempts.filter(|&n| n > 1).map(|n| n.to_string()).unwrap_or_default(),
        took: took.map(|took| (took, took)),
        at: past.at,
        details,
    }
}

fn going(now: &Checkpoint, moment: Moment, pending: &PendingActivation) -> Line {
    let phase = moment.phase(now, pending);
    let (rank, sign, color) = match phase {
        ActivationPhase::Stopped => (Rank::Failed, "✗", AnsiColor::Red),
        ActivationPhase::Asking => (Rank::Open, "?", AnsiColor::Yellow),
        ActivationPhase::Running => (Rank::Open, "…", AnsiColor::Cyan),
        _ => (Rank::Open, "…", AnsiColor::Yellow),
    };
    let mut failures = now.diagnostics.iter().rev();
    let last = failures.find(|one| one.node == pending.node && one.visit == pending.visit);
    let why = last.filter(|_| pending.failed > 0).map(|last| clean(&last.failure.message));
    let details = [pending.progress.as_ref().map(come_to), why];
    Line {
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

/// Writes how far attempts have come, on one line and not long.
fn come_to(progress: &Value) -> String {
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

/// Makes one line of those of a node that came to the same, for the same reason where they failed.
fn folded(lines: Vec<Line>) -> Vec<Line> {
    let mut folded: Vec<Line> = Vec::new();
    let mut known = std::collections::HashMap::new();
    for line in lines {
        let why = if line.rank == Rank::Failed { line.details.clone() } else { String::new() };
        let at = *known.entry((line.node.clone(), line.outcome.clone(), why)).or_insert(folded.len());
        match folded.get_mut(at) {
            None => folded.push(line),
            Some(same) => same.add(&line),
        }
    }
    // Of equals, the order in which they ended stays.
    folded.sort_by_key(|line| line.rank);
    folded
}

impl Line {
    /// Takes in another one that came to the same.
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

/// Writes the shortest and the longest of several times, with the unit once where it is the same.
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
    fn how_far_an_attempt_has_come_is_one_short_line() {
        assert_eq!(come_to(&serde_json::json!("page 3 of 9")), "at page 3 of 9");
        assert_eq!(come_to(&serde_json::json!({ "rows": 7 })), r#"at {"rows":7}"#);
        let long = come_to(&serde_json::json!(format!("a\n{}", "b".repeat(100))));
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
