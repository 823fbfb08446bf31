//! The operations on a run.

use ferrata_core::ErrorKind;
use proptest::prelude::prop;
use serde_json::{Value, json};

use crate::graphs::{Bank, Family};
use crate::weather::Fault;

/// Number of concurrent processes.
pub(crate) const SLOTS: usize = 2;

/// One operation, by the process in its slot, if it needs one.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Start {
        slot: usize,
        same: bool,
    },
    Resume {
        slot: usize,
        take_over: bool,
        graph: Which,
        allow: bool,
    },
    Respond {
        slot: usize,
        whom: Whom,
        answer: Kind,
        fits: bool,
        by: Option<&'static str>,
    },
    Send {
        slot: usize,
        body: Body,
        /// Distinguishes the message. A message with a key has the same text whenever it is sent.
        key: Option<u8>,
        by: Option<&'static str>,
    },
    Cancel {
        slot: usize,
    },
    Pause {
        slot: usize,
    },
    Unpause {
        slot: usize,
    },
    Retry {
        slot: usize,
    },
    Edit {
        slot: usize,
        fits: bool,
    },
    Advance {
        ms: u64,
    },
    /// The process crashes, and another one replaces it.
    Crash {
        slot: usize,
    },
    Shutdown {
        slot: usize,
    },
    Rain(bool),
    Bank(Bank),
    /// The largest valid `Small` from now on.
    Most(u32),
    /// The next fault between a process and the store.
    Weather {
        slot: usize,
        fault: Fault,
    },
    /// The next append that time causes gets no answer.
    Hang {
        slot: usize,
        done: bool,
        ms: u64,
    },
    /// The run is forked at its entry, and the fork replaces it.
    Fork {
        slot: usize,
    },
}

/// The graph with which a run is resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// The graph of the start.
    First,
    /// A graph with other code in every node.
    Second,
    /// A graph with the state in another form.
    Third,
    /// A graph of another workflow.
    Other,
}

impl Which {
    pub(crate) fn revision(self) -> &'static str {
        match self {
            Self::Second => "2",
            Self::Third => "3",
            Self::First | Self::Other => "1",
        }
    }
}

/// The question that is answered, and the form of its id.
#[derive(Clone, Debug)]
pub(crate) enum Whom {
    Open(prop::sample::Index),
    /// By the node alone.
    Node(prop::sample::Index),
    /// By node and visit.
    Visit(prop::sample::Index),
    /// A question that was answered or has expired.
    Old(prop::sample::Index),
    Unknown,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Accept(bool),
    Reject,
    Cancel,
    Resolve(Resolving),
}

/// The resolution of an activation with unknown outcome.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Resolving {
    Retry,
    Supply,
    Skip,
    Fail,
}

/// An answer, for the oracle.
#[derive(Clone, Debug)]
pub(crate) enum Answering {
    Accept(Value),
    Reject(String),
    Cancel(String),
    Resolve(Resolving),
}

/// The body of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Body {
    Text,
    Solved,
    Quit,
    Number,
    /// Larger than the maximum size of a record.
    Huge,
    /// A value that JSON cannot represent.
    NotJson,
}

impl Body {
    /// The body of the n-th message.
    pub(crate) fn value(self, n: u32) -> Value {
        match self {
            Self::Text => json!(format!("hello {n}")),
            Self::Solved => json!("solved"),
            Self::Quit => json!("/quit"),
            Self::Number | Self::NotJson => json!(4),
            Self::Huge => json!("x".repeat(crate::world::MAX_BODY + 1)),
        }
    }
}

/// The options of a resume, for the oracle.
#[derive(Debug)]
pub(crate) struct Choice {
    pub(crate) take_over: bool,
    pub(crate) revision: &'static str,
    pub(crate) allow: bool,
    pub(crate) family: Family,
}

/// The reason of a refusal, and the text that the error must contain.
#[derive(Debug, PartialEq)]
pub(crate) struct Refused {
    pub(crate) kind: ErrorKind,
    pub(crate) says: String,
}

impl Refused {
    /// The question was answered before.
    pub(crate) fn answered(by: Option<&str>) -> Self {
        let says = by.map_or_else(|| "answered at".to_owned(), |by| format!("answered by {by} at"));
        Self { kind: ErrorKind::AlreadyExists, says }
    }
}

impl From<ErrorKind> for Refused {
    fn from(kind: ErrorKind) -> Self {
        Self { kind, says: String::new() }
    }
}

pub(crate) type Outcome = Result<(), Refused>;

/// A valid answer to the question, or one that is valid for few questions.
pub(crate) fn answer_to(id: &str, kind: Kind, fits: bool) -> Answering {
    match kind {
        Kind::Accept(yes) if fits => {
            Answering::Accept(match id.rsplit_once(':').map_or("", |(_, name)| name) {
                "gate" if id.starts_with("approve") => json!(7),
                "one" | "two" if id.starts_with("ask@") || id.starts_with("late@") => {
                    json!(if yes { 8 } else { 3 })
                }
                "two" => json!("red"),
                "first" => json!("hi"),
                "third" | "amount" => json!(7),
                _ => json!(yes),
            })
        }
        Kind::Accept(yes) => Answering::Accept(if yes { json!(-7) } else { json!("blue") }),
        Kind::Reject => Answering::Reject("no".into()),
        Kind::Cancel => Answering::Cancel("never mind".into()),
        Kind::Resolve(resolving) => Answering::Resolve(resolving),
    }
}
