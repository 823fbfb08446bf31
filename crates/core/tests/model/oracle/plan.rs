//! What the nodes of the graphs wait for and lead to, as their authors would tell it.

use ferrata_core::record::FailureKind;
use serde_json::{Map, Value, json};

use crate::graphs::Family;

pub(super) const SECOND: u64 = 1_000;
pub(super) const MINUTE: u64 = 60 * SECOND;
pub(super) const HOUR: u64 = 60 * MINUTE;
pub(super) const DAY: u64 = 24 * HOUR;

/// Something that a node waits for. Times are in milliseconds.
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
    /// Not a wait, but done once.
    Step,
    /// Something outside, of which the run knows nothing.
    Bank,
}

/// What fits an answer or a message.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fits {
    Bool,
    Number,
    Text,
    OneOf(&'static [&'static str]),
}

impl Fits {
    pub(super) fn takes(self, value: &Value) -> bool {
        match self {
            Self::Bool => value.is_boolean(),
            Self::Number => value.as_u64().is_some_and(|n| u32::try_from(n).is_ok()),
            Self::Text => value.is_string(),
            Self::OneOf(texts) => value.as_str().is_some_and(|text| texts.contains(&text)),
        }
    }
}

/// What came of a wait.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Got {
    Value(Value),
    Rejected,
    Expired,
    /// No message came in time.
    Idle,
    Done,
}

/// How a node ends.
#[derive(Debug)]
pub(super) enum End {
    Done {
        set: Vec<(&'static str, Value)>,
        next: Vec<&'static str>,
    },
    /// Back to the node on purpose.
    Revisit {
        set: Vec<(&'static str, Value)>,
        to: &'static str,
    },
    Failed(FailureKind),
}

impl Family {
    pub(super) fn entry(self) -> &'static str {
        match self {
            Self::Approval => "approve",
            Self::Parallel | Self::Mixed => "fork",
            Self::Talk => "talk",
            Self::Journey => "nap",
            Self::Flaky => "walk",
            Self::Guarded => "build",
            Self::Replan => "plan",
            Self::Payment => "prepare",
        }
    }

    /// What the node waits for: one group after the other, the waits of a group together.
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
            (Self::Payment, "pay") => vec![vec![Need::Bank]],
            (Self::Mixed, "ask") => vec![vec![ask("amount", Fits::Number, Some(HOUR), None)]],
            (Self::Mixed, "hear") => vec![vec![Need::Hear { fits: Fits::Text, within: None }]],
            (Self::Mixed, "nap") => vec![vec![Need::Sleep(30 * SECOND)], vec![Need::Sleep(2 * DAY)]],
            _ => Vec::new(),
        }
    }

    /// Where the node stands among those of its graph.
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
        };
        nodes.iter().position(|name| *name == node).unwrap()
    }

    /// Whether somebody is asked before the node.
    pub(super) fn asks_before(self, node: &str) -> bool {
        matches!((self, node), (Self::Guarded, "build" | "ship"))
    }

    /// Whether somebody is asked behind the node.
    pub(super) fn asks_behind(self, node: &str) -> bool {
        matches!((self, node), (Self::Guarded, "build"))
    }

    /// Whether the node must not be repeated.
    pub(super) fn is_external(self, node: &str) -> bool {
        matches!((self, node), (Self::Payment, "pay"))
    }

    /// How long the node waits after each failed attempt that another follows.
    pub(super) fn delays(self, node: &str) -> &'static [u64] {
        match (self, node) {
            (Self::Flaky, "walk") => &[20 * SECOND, 10 * MINUTE],
            _ => &[],
        }
    }

    /// How many branches meet at the node.
    pub(super) fn branches(self, node: &str) -> usize {
        match (self, node) {
            (Self::Parallel, "both") => 2,
            (Self::Mixed, "end") => 3,
            _ => 1,
        }
    }

    /// Which node takes the failure of this one.
    pub(super) fn catcher(self, node: &str) -> Option<&'static str> {
        matches!((self, node), (Self::Approval, "sign")).then_some("refuse")
    }

    /// How often the run goes back on purpose.
    pub(super) const REPLANS: u32 = 1;

    /// How the node ends after it got all it waited for.
    pub(super) fn end(
        self,
        node: &str,
        visit: u32,
        got: &[Got],
        state: &Map<String, Value>,
        rain: bool,
    ) -> End {
        let late = match self {
            Self::Parallel => Some(json!("none")),
            Self::Mixed => Some(json!(0)),
            _ => None,
        };
        if got.contains(&Got::Rejected) || (late.is_none() && got.contains(&Got::Expired)) {
            // The first that was asked for decides.
            let decides =
                |got: &&Got| matches!(got, Got::Rejected) || late.is_none() && matches!(got, Got::Expired);
            let bad = got.iter().find(decides);
            return End::Failed(match bad {
                Some(Got::Rejected) => FailureKind::Rejected,
                _ => FailureKind::Expired,
            });
        }
        let value = |at: usize| match &got[at] {
            Got::Value(value) => value.clone(),
            Got::Expired if late.is_some() => late.clone().unwrap_or_default(),
            other => unreachable!("{other:?}"),
        };
        let done =
            |set: Vec<(&'static str, Value)>, next: &[&'static str]| End::Done { set, next: next.to_vec() };
        match (self, node) {
            (Self::Approval, "approve") => done(vec![("amount", value(0))], &["sign"]),
            (Self::Approval, "sign") => done(vec![("signed", value(0))], &["pay"]),
            (Self::Approval, "pay") => done(vec![("n", json!(2 * state["n"].as_i64().unwrap()))], &[]),
            (Self::Approval, "refuse") => done(vec![("refused", json!(true))], &[]),
            (Self::Parallel, "fork") => done(vec![], &["left", "right"]),
            (Self::Parallel, "left") => done(vec![("one", value(0)), ("two", value(1))], &["both"]),
            (Self::Parallel, "right") => done(vec![("third", value(0))], &["both"]),
            (Self::Parallel, "both") => done(vec![("done", json!(true))], &[]),
            (Self::Talk, "talk") => Self::end_of_talk(visit, &got[0], state),
            (Self::Talk, "after") => {
                done(vec![("stars", if got[0] == Got::Idle { json!(0) } else { value(0) })], &[])
            }
            (Self::Journey, "nap") => done(vec![("ticket", value(2))], &["home"]),
            (Self::Flaky, "walk") if rain => End::Failed(FailureKind::Node),
            (Self::Flaky, "walk") => done(vec![("hat", value(0))], &["home"]),
            (Self::Journey | Self::Flaky, "home") => done(vec![("home", json!(true))], &[]),
            (Self::Guarded, "build") => done(vec![("built", json!(true))], &["ship"]),
            (Self::Guarded, "ship") => done(vec![("shipped", json!(true))], &[]),
            (Self::Replan, "plan") => done(vec![("plan", json!(visit))], &["draft"]),
            (Self::Replan, "draft") if value(0) == json!(true) => done(vec![("good", value(0))], &["print"]),
            (Self::Replan, "draft") => End::Revisit { set: vec![("good", value(0))], to: "plan" },
            (Self::Replan, "print") => done(vec![("printed", json!(true))], &[]),
            (Self::Payment, "prepare") => done(vec![("prepared", json!(true))], &["pay"]),
            (Self::Payment, "pay") => done(vec![("paid", json!(1))], &["thank"]),
            (Self::Payment, "thank") => done(vec![("thanked", json!(true))], &[]),
            (Self::Mixed, "fork") => done(vec![], &["ask", "hear", "nap"]),
            (Self::Mixed, "ask") => done(vec![("amount", value(0))], &["end"]),
            (Self::Mixed, "hear") => done(vec![("heard", value(0))], &["end"]),
            (Self::Mixed, "nap") => done(vec![("rested", json!(true))], &["end"]),
            (Self::Mixed, "end") => done(vec![("end", json!(true))], &[]),
            (family, node) => unreachable!("{family:?} has no node {node}"),
        }
    }

    /// Three turns, ten minutes without a word, `/quit`, or the problem solved.
    fn end_of_talk(visit: u32, got: &Got, state: &Map<String, Value>) -> End {
        let Got::Value(text) = got else { return End::Done { set: vec![], next: vec!["after"] } };
        if text == "/quit" {
            return End::Done { set: vec![], next: vec!["after"] };
        }
        let mut said = state.get("said").and_then(Value::as_array).cloned().unwrap_or_default();
        said.push(text.clone());
        let mut set = vec![("said", Value::Array(said))];
        let solved = text == "solved" || state.contains_key("solved");
        if text == "solved" {
            set.push(("solved", json!(true)));
        }
        End::Done { set, next: vec![if solved || visit >= 3 { "after" } else { "talk" }] }
    }
}
