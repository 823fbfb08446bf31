//! The results of the graphs' nodes, written independently of their code.

use ferrata_core::record::FailureKind;
use serde_json::{Map, Value, json};

use super::plan::{End, Got};
use crate::graphs::{Bank, Family};

impl Family {
    /// The consequence of a resolved payment.
    pub(super) fn behind_payment(self) -> Vec<&'static str> {
        match self {
            Self::Beside => vec!["end"],
            Self::Payment => vec!["thank"],
            _ => vec![],
        }
    }

    /// Maximum number of replans of the run.
    pub(super) const REPLANS: u32 = 1;

    /// The end of the node with these results.
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
        match got.last() {
            Some(Got::Unreadable) => return End::Failed(FailureKind::Node),
            Some(Got::TimedOut) if self.is_external(node) => return End::Doubt,
            Some(Got::TimedOut) => return End::Failed(FailureKind::Timeout),
            Some(Got::Did(Bank::Breaks | Bank::Burns)) if self.is_external(node) => return End::Doubt,
            Some(Got::Did(Bank::Refuses)) if self.is_external(node) => return End::NotDone,
            Some(Got::Did(Bank::Closes)) if self.is_external(node) => return End::Closed,
            _ => {}
        }
        if got.contains(&Got::Rejected) || (late.is_none() && got.contains(&Got::Expired)) {
            // The first wait that was requested decides.
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
            (Self::Beside, "shaky") if rain => End::Failed(FailureKind::Node),
            (Self::Held, "fork") => done(vec![], &["work", "ask", "hear", "nap"]),
            (Self::Timed, "fork") => done(vec![], &["work", "ask", "hear"]),
            (Self::Gates, "fork") => done(vec![], &["left", "right"]),
            (Self::Beside, "fork") => done(vec![], &["shaky", "pay"]),
            (Self::Quorum, "fork") => done(vec![], &["quick", "asks"]),
            (Self::Held | Self::Timed, "work") => done(vec![("worked", json!(true))], &["end"]),
            (Self::Held | Self::Timed, "ask") => done(vec![("amount", value(0))], &["end"]),
            (Self::Held | Self::Timed, "hear") => done(vec![("heard", value(0))], &["end"]),
            (Self::Held | Self::Slow, "nap") => done(vec![("rested", json!(true))], &["end"]),
            (Self::Gates, "left") => done(vec![("left", value(0))], &["end"]),
            (Self::Gates, "right") => done(vec![("right", value(0))], &["end"]),
            (Self::Choice, "wait") => {
                let or = |at: usize, else_: &str| match &got[at] {
                    Got::Value(value) => value.clone(),
                    _ => json!(else_),
                };
                let set = vec![("first", or(0, "nobody")), ("second", or(1, "nothing")), ("sure", value(2))];
                done(set, &["end"])
            }
            (Self::Beside, "shaky") => done(vec![("sure", value(0))], &["end"]),
            (Self::Beside, "pay") => done(vec![("paid", json!(1))], &["end"]),
            (Self::Picky, "ask") => done(vec![("one", value(0))], &["late"]),
            (Self::Picky, "late") => done(vec![("two", value(0))], &["end"]),
            (Self::Errand, "go") => {
                done(vec![("one", value(0)), ("ticket", value(1)), ("two", value(2))], &["home"])
            }
            (Self::Errand, "home") => done(vec![("home", json!(true))], &["pay"]),
            (Self::Errand, "pay") => done(vec![], &[]),
            (Self::Quorum, "quick") => done(vec![("quick", json!(true))], &["first"]),
            (Self::Quorum, "asks") => done(vec![("late", value(0))], &["first"]),
            (Self::Quorum, "first") => done(vec![("firsts", json!(visit))], &["close"]),
            (Self::Quorum, "close") => done(vec![("closed", value(0))], &[]),
            (
                Self::Held
                | Self::Timed
                | Self::Gates
                | Self::Choice
                | Self::Slow
                | Self::Beside
                | Self::Picky,
                "end",
            ) => done(vec![("end", json!(true))], &[]),
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

    /// Three messages, ten minutes of silence, `/quit`, or the problem solved.
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
