//! A row of the table: a workload, its reference, what was measured, and the goal.

use std::fmt;

use serde::Serialize;

use crate::measure::{Pair, Spread};

/// What is wanted.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) enum Goal {
    /// At most so many times the reference.
    Times(f64),
    /// At least so many times the reference's rate.
    Rate(f64),
    /// At most so much more than the reference.
    Extra(f64),
    /// At most so much, whatever the reference.
    Each(f64),
    /// At most so much in every measurement.
    Most(f64),
    /// None of its own: for comparison, or the notes have goals.
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

    /// Says it in words, with the unit of its row.
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

/// A row.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// Names it in files and on the command line.
    pub(crate) id: String,
    pub(crate) workload: String,
    pub(crate) reference: String,
    pub(crate) unit: &'static str,
    pub(crate) ours: Spread,
    pub(crate) theirs: Option<Spread>,
    /// Ours over theirs.
    pub(crate) ratio: Option<Spread>,
    /// Ours less theirs.
    pub(crate) extra: Option<Spread>,
    pub(crate) goal: Goal,
    /// What else was found.
    pub(crate) notes: Vec<String>,
    /// Whether every goal is met, that of the notes among them.
    pub(crate) met: Option<bool>,
}

impl Row {
    /// Makes a row of two workloads measured in turn.
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

    /// Makes a row without a reference.
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

    /// Adds a finding without a goal.
    #[must_use]
    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// Adds a finding with a goal of its own: the row is met if both are.
    #[must_use]
    pub(crate) fn also(mut self, note: impl Into<String>, met: bool) -> Self {
        self.notes.push(format!("{} ({})", note.into(), if met { "met" } else { "not met" }));
        self.met = Some(self.met.unwrap_or(true) && met);
        self
    }

    /// What the guard compares: the ratio, or the figure itself where there is no reference.
    ///
    /// A figure far below its goal counts as a tenth of it: next to nothing may be ten times next to nothing.
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

/// Writes a figure with three digits that say something.
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
