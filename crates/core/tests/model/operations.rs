//! What is done to a run, and how a random sequence of it is drawn.

use ferrata_core::ErrorKind;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::graphs::Family;

/// How many processes there are at a time.
pub(crate) const SLOTS: usize = 2;

/// One operation, by the process in this slot where there is one.
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
    /// The process ends without a word, and another takes its place.
    Crash {
        slot: usize,
    },
    Shutdown {
        slot: usize,
    },
    Rain(bool),
    Bank(bool),
}

/// With which graph a run is resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// That of the start.
    First,
    /// With other code in every node.
    Second,
    /// That of another workflow.
    Other,
}

/// Which question is answered, and how it is named.
#[derive(Clone, Debug)]
pub(crate) enum Whom {
    Open(prop::sample::Index),
    /// By the node alone.
    Node(prop::sample::Index),
    /// By node and visit.
    Visit(prop::sample::Index),
    /// One that was answered or has expired.
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

/// What became of an activation in doubt.
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

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Body {
    Text,
    Solved,
    Quit,
    Number,
    /// More than a record may hold.
    Huge,
    /// Nothing that JSON can hold.
    NotJson,
}

impl Body {
    pub(crate) fn value(self) -> Value {
        match self {
            Self::Text => json!("hello"),
            Self::Solved => json!("solved"),
            Self::Quit => json!("/quit"),
            Self::Number | Self::NotJson => json!(4),
            Self::Huge => json!("x".repeat(crate::world::MAX_BODY + 1)),
        }
    }
}

/// On which terms a run is resumed, for the oracle.
#[derive(Debug)]
pub(crate) struct Choice {
    pub(crate) take_over: bool,
    pub(crate) revision: &'static str,
    pub(crate) allow: bool,
    pub(crate) family: Family,
}

/// Why something was refused, and what the error must say.
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

/// An answer to the question that it expects, or one that fits few questions.
pub(crate) fn answer_to(id: &str, kind: Kind, fits: bool) -> Answering {
    match kind {
        Kind::Accept(yes) if fits => {
            Answering::Accept(match id.rsplit_once(':').map_or("", |(_, name)| name) {
                "gate" if id.starts_with("approve") => json!(7),
                "two" => json!("red"),
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

const SECONDS: u64 = 1_000;
const TIMES: [u64; 8] = [
    3 * SECONDS,
    6 * SECONDS,
    20 * SECONDS,
    60 * SECONDS,
    601 * SECONDS,
    2 * 3_600 * SECONDS,
    86_400 * SECONDS,
    4 * 86_400 * SECONDS,
];

/// A graph and what is done to a run of it. Nearly all begin with a start.
pub(crate) fn cases() -> impl Strategy<Value = (Family, Vec<Op>)> {
    let family = prop::sample::select(Family::ALL.to_vec());
    (family, prop::bool::weighted(0.95), prop::collection::vec(ops(), 1..48)).prop_map(
        |(family, starts, mut ops)| {
            if starts {
                ops.insert(0, Op::Start { slot: 0, same: true });
            }
            (family, ops)
        },
    )
}

fn ops() -> impl Strategy<Value = Op> {
    let slot = || 0..SLOTS;
    let by = || prop::sample::select(vec![None, Some("ann"), Some("bob")]);
    let which = prop_oneof![8 => Just(Which::First), 2 => Just(Which::Second), 1 => Just(Which::Other)];
    prop_oneof![
        3 => (slot(), prop::bool::weighted(0.8)).prop_map(|(slot, same)| Op::Start { slot, same }),
        20 => (slot(), prop::bool::weighted(0.2), which, prop::bool::weighted(0.4))
            .prop_map(|(slot, take_over, graph, allow)| Op::Resume { slot, take_over, graph, allow }),
        18 => (slot(), whom(), kinds(), prop::bool::weighted(0.85), by())
            .prop_map(|(slot, whom, answer, fits, by)| Op::Respond { slot, whom, answer, fits, by }),
        8 => (slot(), bodies(), by()).prop_map(|(slot, body, by)| Op::Send { slot, body, by }),
        1 => slot().prop_map(|slot| Op::Cancel { slot }),
        2 => slot().prop_map(|slot| Op::Pause { slot }),
        3 => slot().prop_map(|slot| Op::Unpause { slot }),
        3 => slot().prop_map(|slot| Op::Retry { slot }),
        2 => (slot(), prop::bool::weighted(0.7)).prop_map(|(slot, fits)| Op::Edit { slot, fits }),
        10 => prop::sample::select(TIMES.to_vec()).prop_map(|ms| Op::Advance { ms }),
        3 => slot().prop_map(|slot| Op::Crash { slot }),
        2 => slot().prop_map(|slot| Op::Shutdown { slot }),
        2 => any::<bool>().prop_map(Op::Rain),
        3 => any::<bool>().prop_map(Op::Bank),
    ]
}

fn whom() -> impl Strategy<Value = Whom> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        8 => index().prop_map(Whom::Open),
        2 => index().prop_map(Whom::Node),
        1 => index().prop_map(Whom::Visit),
        1 => index().prop_map(Whom::Old),
        1 => Just(Whom::Unknown),
    ]
}

fn kinds() -> impl Strategy<Value = Kind> {
    let resolving = vec![Resolving::Retry, Resolving::Supply, Resolving::Skip, Resolving::Fail];
    prop_oneof![
        8 => prop::bool::weighted(0.6).prop_map(Kind::Accept),
        3 => Just(Kind::Reject),
        1 => Just(Kind::Cancel),
        4 => prop::sample::select(resolving).prop_map(Kind::Resolve),
    ]
}

fn bodies() -> impl Strategy<Value = Body> {
    prop_oneof![
        6 => Just(Body::Text),
        2 => Just(Body::Solved),
        2 => Just(Body::Quit),
        3 => Just(Body::Number),
        1 => Just(Body::Huge),
        1 => Just(Body::NotJson),
    ]
}
