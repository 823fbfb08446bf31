//! A row of the table: a workload, its reference, the measurements, and the goal.

use std::fmt;

use serde::Serialize;

use crate::measure::{Pair, Spread};

/// The goal of a row.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) enum Goal {
    /// At most this factor times the reference.
    Times(f64),
    /// At least this factor times the rate of the reference.
    Rate(f64),
    /// At most this much more than the reference.
    Extra(f64),
    /// At most this much, independent of the reference.
    Each(f64),
    /// At most this much in every single measurement.
    Most(f64),
    /// The row has no goal. The row is shown for comparison, or its notes have goals.
    None,
}

impl Goal {
    fn is_met(self, row: &Row) -> Option<bool> {
        match self {
            Self::Times(most) => Some(row.ratio?.median <= most),
            Self::Rate(least) => Some(row.ratio?.median <= 1.0 / least),
            Self::Extra(most) => Some(row.extra?.median <= most),
            Self::Each(most) => Some(row.ours.median <= most),
            Self::Most(most) => Some(row.ours.max <= most),
            Self::None => None,
        }
    }

    /// Describes the goal in words, with the unit of the row.
    fn in_words(self, unit: &str) -> String {
        match self {
            Self::Times(most) => format!("at most {most}x"),
            Self::Rate(least) => format!("at least {least}x the rate"),
            Self::Extra(most) => format!("at most +{most} {unit}"),
            Self::Each(most) => format!("at most {most} {unit}"),
            Self::Most(most) => format!("never over {most} {unit}"),
            Self::None => String::new(),
        }
    }
}

/// A row of the table.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// The name of the row in files and on the command line.
    pub(crate) id: String,
    pub(crate) workload: String,
    pub(crate) reference: String,
    pub(crate) unit: &'static str,
    pub(crate) ours: Spread,
    pub(crate) theirs: Option<Spread>,
    /// The workload's cost divided by the reference's cost.
    pub(crate) ratio: Option<Spread>,
    /// The workload's cost minus the reference's cost.
    pub(crate) extra: Option<Spread>,
    pub(crate) goal: Goal,
    /// Further findings.
    pub(crate) notes: Vec<String>,
    /// Whether every goal is met, including the goals of notes.
    pub(crate) met: Option<bool>,
}

impl Row {
    /// Creates a row for two workloads that were measured in turn.
    pub(crate) fn pair(
        id: impl Into<String>,
        workload: impl Into<String>,
        reference: impl Into<String>,
        unit: &'static str,
        pair: Pair,
        goal: Goal,
    ) -> Self {
        let mut row = Self::alone(id, workload, unit, pair.ours, goal);
        row.reference = reference.into();
        row.theirs = Some(pair.theirs);
        row.ratio = Some(pair.ratio);
        row.extra = Some(pair.extra);
        row.judged()
    }

    /// Creates a row without a reference.
    pub(crate) fn alone(
        id: impl Into<String>,
        workload: impl Into<String>,
        unit: &'static str,
        ours: Spread,
        goal: Goal,
    ) -> Self {
        let row = Self {
            id: id.into(),
            workload: workload.into(),
            reference: String::new(),
            unit,
            ours,
            theirs: None,
            ratio: None,
            extra: None,
            goal,
            notes: Vec::new(),
            met: None,
        };
        row.judged()
    }

    /// Adds a finding that has no goal.
    #[must_use]
    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// Adds a finding with its own goal. The row meets its goal only if both goals are met.
    #[must_use]
    pub(crate) fn also(mut self, note: impl Into<String>, met: bool) -> Self {
        self.notes.push(format!("{} ({})", note.into(), if met { "met" } else { "not met" }));
        self.met = Some(self.met.unwrap_or(true) && met);
        self
    }

    /// Returns the figure that the guard compares: the ratio, or the cost itself if the row has no reference.
    ///
    /// A figure far below its goal counts as a tenth of the goal, because very small figures may differ by a factor of ten.
    pub(crate) fn guarded(&self) -> f64 {
        match (self.ratio, self.goal) {
            (Some(ratio), _) => ratio.median,
            (None, Goal::Each(most)) => self.ours.median.max(most / 10.0),
            (None, _) => self.ours.median,
        }
    }

    pub(crate) fn goal_in_words(&self) -> String {
        self.goal.in_words(self.unit)
    }

    fn judged(mut self) -> Self {
        self.met = self.goal.is_met(&self);
        self
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |name: &str, spread: Spread, unit: &str| {
            format!(
                "    {name:<10} {:>9}  ({} .. {}) {unit}\n",
                figure(spread.median),
                figure(spread.min),
                figure(spread.max)
            )
        };
        writeln!(f, "{}: {}", self.id, self.workload)?;
        f.write_str(&line("ferrata", self.ours, self.unit))?;
        if let Some(theirs) = self.theirs {
            f.write_str(&line("reference", theirs, &format!("{}: {}", self.unit, self.reference)))?;
        }
        if let Some(ratio) = self.ratio {
            f.write_str(&line("ratio", ratio, ""))?;
        }
        if let Some(rate) = self.ratio.filter(|ratio| ratio.median < 1.0) {
            writeln!(f, "    {:<10} {:>9}", "rate", format!("{}x", figure(1.0 / rate.median)))?;
        }
        for note in &self.notes {
            writeln!(f, "    {note}")?;
        }
        let met = match self.met {
            Some(true) => "met",
            Some(false) => "NOT MET",
            None => return Ok(()),
        };
        let goal = format!("{} {met}", self.goal_in_words());
        writeln!(f, "    {:<10} {}", "goal", goal.trim_start())
    }
}

/// Formats a figure with three significant digits.
pub(crate) fn figure(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size < 0.1 => format!("{value:.4}"),
        size if size < 10.0 => format!("{value:.2}"),
        size if size < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ours: f64, theirs: f64, goal: Goal) -> Row {
        let pair = Pair {
            ours: Spread::one(ours),
            theirs: Spread::one(theirs),
            ratio: Spread::one(ours / theirs),
            extra: Spread::one(ours - theirs),
        };
        Row::pair("a", "work", "bare", "µs", pair, goal)
    }

    #[test]
    fn a_goal_is_held_against_the_right_figure() {
        assert_eq!(row(2.0, 1.0, Goal::Times(2.0)).met, Some(true));
        assert_eq!(row(2.1, 1.0, Goal::Times(2.0)).met, Some(false));
        assert_eq!(row(1.0, 3.0, Goal::Rate(3.0)).met, Some(true));
        assert_eq!(row(1.0, 2.9, Goal::Rate(3.0)).met, Some(false));
        assert_eq!(row(1.4, 1.0, Goal::Extra(0.3)).met, Some(false));
        assert_eq!(row(1.4, 1.0, Goal::Each(1.5)).met, Some(true));
        assert_eq!(row(1.4, 1.0, Goal::Most(1.3)).met, Some(false));
        assert_eq!(row(9.0, 1.0, Goal::None).met, None);
        assert_eq!(row(1.0, 3.0, Goal::Rate(3.0)).also("p99", false).met, Some(false));
    }
}
