//! The waits and successors of the graphs' nodes, written independently of their code.

use ferrata_core::record::FailureKind;
use serde_json::{Value, json};

use crate::graphs::{Bank, Family};

pub(super) const SECOND: u64 = 1_000;
pub(super) const MINUTE: u64 = 60 * SECOND;
pub(super) const HOUR: u64 = 60 * MINUTE;
pub(super) const DAY: u64 = 24 * HOUR;

/// A wait of a node. Times are in milliseconds.
#[derive(Clone, Debug)]
pub(super) enum Need {
    Ask {
        name: &'static str,
        fits: Fits,
        within: Option<u64>,
        default: Option<Value>,
    },
    Hear {
        fits: Fits,
        within: Option<u64>,
    },
    Sleep(u64),
    /// No wait, but an operation that is executed once.
    Step,
    /// External work that the run does not know, with its timeout.
    Work(Option<u64>),
}

/// The valid values of an answer or a message.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fits {
    Bool,
    Number,
    Text,
    OneOf(&'static [&'static str]),
    /// A number with a maximum that only the code of its type knows.
    Small,
}

impl Fits {
    pub(super) fn takes(self, value: &Value) -> bool {
        match self {
            Self::Bool => value.is_boolean(),
            Self::Number | Self::Small => value.as_u64().is_some_and(|n| u32::try_from(n).is_ok()),
            Self::Text => value.is_string(),
            Self::OneOf(texts) => value.as_str().is_some_and(|text| texts.contains(&text)),
        }
    }
}

/// The result of a wait.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Got {
    Value(Value),
    Rejected,
    Expired,
    /// No message arrived in time.
    Idle,
    Done,
    /// The result of external work.
    Did(Bank),
    /// The work exceeded its timeout.
    TimedOut,
    /// The type rejects the default.
    Unreadable,
}

impl Got {
    /// Whether it may end the node, whatever the node would wait for next.
    pub(super) fn is_bad(&self) -> bool {
        matches!(self, Self::TimedOut | Self::Unreadable | Self::Rejected | Self::Expired)
    }
}

/// The end of a node.
#[derive(Debug)]
pub(super) enum End {
    Done {
        set: Vec<(&'static str, Value)>,
        next: Vec<&'static str>,
    },
    /// A replan to the node.
    Revisit {
        set: Vec<(&'static str, Value)>,
        to: &'static str,
    },
    Failed(FailureKind),
    /// The outcome of the work is unknown.
    Doubt,
    /// Nothing was done, and the node starts again if attempts remain.
    NotDone,
    /// Nothing was done, and the node does not start again.
    Closed,
}

impl Family {
    pub(crate) fn entry(self) -> &'static str {
        match self {
            Self::Approval => "approve",
            Self::Parallel
            | Self::Mixed
            | Self::Held
            | Self::Gates
            | Self::Beside
            | Self::Timed
            | Self::Quorum => "fork",
            Self::Choice => "wait",
            Self::Errand => "go",
            Self::Picky => "ask",
            Self::Talk => "talk",
            Self::Journey | Self::Slow => "nap",
            Self::Flaky => "walk",
            Self::Guarded => "build",
            Self::Replan => "plan",
            Self::Payment => "prepare",
        }
    }

    /// The waits of the node: groups in sequence, and the waits of a group concurrently.
    pub(super) fn needs(self, node: &str) -> Vec<Vec<Need>> {
        let ask = |name, fits, within, default| Need::Ask { name, fits, within, default };
        match (self, node) {
            (Self::Approval, "approve") => vec![vec![ask("gate", Fits::Number, Some(DAY), Some(json!(3)))]],
            (Self::Approval, "sign") => vec![vec![ask("gate", Fits::Bool, Some(2 * HOUR), None)]],
            (Self::Parallel, "left") => vec![vec![
                ask("one", Fits::Bool, None, None),
                ask("two", Fits::OneOf(&["red", "green"]), Some(10 * MINUTE), None),
            ]],
            (Self::Parallel, "right") => vec![vec![ask("third", Fits::Number, None, None)]],
            (Self::Talk, "talk") => vec![vec![Need::Hear { fits: Fits::Text, within: Some(10 * MINUTE) }]],
            (Self::Talk, "after") => vec![vec![Need::Hear { fits: Fits::Number, within: Some(DAY) }]],
            (Self::Journey, "nap") => {
                vec![vec![Need::Sleep(30 * SECOND)], vec![Need::Sleep(3 * DAY)], vec![Need::Step]]
            }
            (Self::Flaky, "walk") => vec![vec![Need::Step]],
            (Self::Replan, "draft") => vec![vec![ask("good", Fits::Bool, None, None)]],
            (Self::Payment, "pay") => vec![vec![Need::Work(Some(2 * MINUTE))]],
            (Self::Beside, "pay") | (Self::Held | Self::Timed, "work") => vec![vec![Need::Work(None)]],
            (Self::Beside, "shaky") => vec![vec![ask("sure", Fits::Bool, None, None)]],
            (Self::Held | Self::Timed, "ask") => vec![vec![ask("amount", Fits::Number, None, None)]],
            (Self::Held | Self::Timed, "hear") => vec![vec![Need::Hear { fits: Fits::Text, within: None }]],
            (Self::Held, "nap") => vec![vec![Need::Sleep(30 * SECOND)]],
            (Self::Gates, "left" | "right") => vec![vec![ask("gate", Fits::Bool, None, None)]],
            (Self::Choice, "wait") => vec![
                vec![ask("first", Fits::Text, None, None), Need::Sleep(10 * MINUTE)],
                vec![Need::Hear { fits: Fits::Text, within: None }, Need::Sleep(HOUR)],
                vec![ask("sure", Fits::Bool, None, None)],
            ],
            (Self::Slow, "nap") => vec![vec![Need::Sleep(30 * SECOND)], vec![Need::Work(Some(45 * SECOND))]],
            (Self::Picky, "ask") => vec![vec![ask("one", Fits::Small, None, None)]],
            (Self::Picky, "late") => vec![vec![ask("two", Fits::Small, Some(HOUR), Some(json!(9)))]],
            (Self::Errand, "go") => vec![
                vec![Need::Hear { fits: Fits::Text, within: None }],
                vec![Need::Step],
                vec![Need::Hear { fits: Fits::Text, within: None }],
            ],
            (Self::Errand, "pay") => vec![vec![Need::Work(None)]],
            (Self::Quorum, "asks") => vec![vec![ask("late", Fits::Bool, None, None)]],
            (Self::Quorum, "close") => vec![vec![ask("close", Fits::Bool, None, None)]],
            (Self::Mixed, "ask") => vec![vec![ask("amount", Fits::Number, Some(HOUR), None)]],
            (Self::Mixed, "hear") => vec![vec![Need::Hear { fits: Fits::Text, within: None }]],
            (Self::Mixed, "nap") => vec![vec![Need::Sleep(30 * SECOND)], vec![Need::Sleep(2 * DAY)]],
            _ => Vec::new(),
        }
    }

    /// The index of the node in its graph.
    pub(super) fn place(self, node: &str) -> usize {
        let nodes: &[&str] = match self {
            Self::Approval => &["approve", "sign", "pay", "refuse"],
            Self::Parallel => &["fork", "left", "right", "both"],
            Self::Talk => &["talk", "after"],
            Self::Journey => &["nap", "home"],
            Self::Flaky => &["walk", "home"],
            Self::Guarded => &["build", "ship"],
            Self::Replan => &["plan", "draft", "print"],
            Self::Payment => &["prepare", "pay", "thank"],
            Self::Mixed => &["fork", "ask", "hear", "nap", "end"],
            Self::Held => &["fork", "work", "ask", "hear", "nap", "end"],
            Self::Timed => &["fork", "work", "ask", "hear", "end"],
            Self::Gates => &["fork", "left", "right", "end"],
            Self::Choice => &["wait", "end"],
            Self::Slow => &["nap", "end"],
            Self::Beside => &["fork", "shaky", "pay", "end"],
            Self::Picky => &["ask", "late", "end"],
            Self::Errand => &["go", "home", "pay"],
            Self::Quorum => &["fork", "quick", "asks", "first", "close"],
        };
        nodes.iter().position(|name| *name == node).unwrap()
    }

    /// Whether the next node asks.
    pub(super) fn asks_before(self, node: &str) -> bool {
        matches!((self, node), (Self::Guarded, "build" | "ship"))
    }

    /// Whether a person is asked after the node.
    pub(super) fn asks_behind(self, node: &str) -> bool {
        matches!((self, node), (Self::Guarded, "build"))
    }

    /// Whether the node is `External`.
    pub(super) fn is_external(self, node: &str) -> bool {
        matches!((self, node), (Self::Payment | Self::Beside | Self::Errand, "pay"))
    }

    /// Whether no part of it depends on when its records become durable.
    pub(crate) fn may_hang(self) -> bool {
        matches!(self, Self::Journey | Self::Flaky | Self::Timed | Self::Held)
    }

    /// Whether the node continues with the first wait of a group that ends.
    pub(super) fn chooses(self, node: &str) -> bool {
        matches!((self, node), (Self::Choice, "wait"))
    }

    /// Whether the first branch starts the node, and the other branches are late.
    pub(super) fn takes_first(self, node: &str) -> bool {
        matches!((self, node), (Self::Quorum, "first"))
    }

    /// The node that follows such a node.
    pub(super) fn behind_first(self) -> &'static str {
        "close"
    }

    /// The deadline of a run.
    pub(super) fn deadline(self) -> Option<u64> {
        (self == Self::Timed).then_some(2 * HOUR)
    }

    /// The delays after the failed attempts of the node that are retried.
    pub(super) fn delays(self, node: &str) -> &'static [u64] {
        match (self, node) {
            (Self::Flaky, "walk") => &[20 * SECOND, 10 * MINUTE],
            (Self::Payment | Self::Beside, "pay") => &[20 * SECOND],
            _ => &[],
        }
    }

    /// Number of branches that the node joins.
    pub(super) fn branches(self, node: &str) -> usize {
        match (self, node) {
            (Self::Parallel, "both") => 2,
            (Self::Mixed | Self::Timed, "end") => 3,
            (Self::Held, "end") => 4,
            (Self::Beside | Self::Gates, "end") | (Self::Quorum, "close") => 2,
            _ => 1,
        }
    }

    /// The node that handles the failure of this one.
    pub(super) fn catcher(self, node: &str) -> Option<&'static str> {
        matches!((self, node), (Self::Approval, "sign")).then_some("refuse")
    }
}
