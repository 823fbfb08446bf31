//! Replays the log of a run to get the results of its attempts and its events, for people.

use std::sync::Arc;

use ferrata_core::record::RecordHeader;
use ferrata_core::record::body::{AttemptFailed, NodeDone, NodesDone, RecordBody, RecordEvent, RunEnd};
use ferrata_core::state::{Channels, Context, Op};
use ferrata_core::{Error, RunKey, Seq, Timestamp};
use serde::Deserialize;
use serde_json::Value as Json;

use super::events::{ChosenRoute, EventLine, LogEvent, NodeEnd, route_events};
use super::view::ReplanView;
use crate::handler::{RESULTS, response_key};
use crate::outcome::{StageOutcome, Status};
use crate::pipeline::Pipeline;

/// The result of replaying the records that were read so far.
#[derive(Debug)]
pub(super) struct LogFold {
    run: RunKey,
    /// The number of the first record that was read. `seen` is the header of the last.
    pub(super) first: Option<Seq>,
    pub(super) seen: Option<RecordHeader>,
    pub(super) channels: Channels,
    /// The activations that have ended, in the order of their ends.
    pub(super) history: Vec<EndedStage>,
    /// The outcome of the last activation that has ended.
    pub(super) outcome: Option<StageOutcome>,
    /// The places where the run returned to an earlier node on purpose.
    pub(super) replans: Vec<ReplanView>,
    pipeline: Arc<Pipeline>,
}

/// An activation that has ended.
#[derive(Clone, Debug)]
pub(super) struct EndedStage {
    pub(super) node: String,
    pub(super) visit: u32,
    pub(super) attempts: u32,
    pub(super) outcome: Status,
    /// The time at which the activation ended. `took_ms` is the duration of its last attempt.
    pub(super) at: Timestamp,
    pub(super) took_ms: u64,
    /// The reason of its failure; empty if it did not fail.
    pub(super) reason: String,
}

impl EndedStage {
    /// Returns the time at which the last attempt began.
    pub(super) fn started(&self) -> Timestamp {
        before(self.at, self.took_ms)
    }
}

fn before(at: Timestamp, ms: u64) -> Timestamp {
    Timestamp::from_unix_ms(at.unix_ms().saturating_sub_unsigned(ms))
}

/// The events and attempts in the records that were read last.
#[derive(Debug, Default)]
pub(super) struct LogDelta {
    /// The events, as lines of JSON.
    pub(super) events: String,
    pub(super) attempts: Vec<StageAttempt>,
}

/// An attempt that has ended.
#[derive(Debug)]
pub(super) struct StageAttempt {
    pub(super) node: String,
    pub(super) visit: u32,
    pub(super) attempt: u32,
    pub(super) outcome: StageOutcome,
    /// The response that is stored in the context, if this is the last attempt of its activation.
    pub(super) response: Option<String>,
    pub(super) output: Option<String>,
    pub(super) errors: Option<String>,
}

/// The output that a node of a pipeline sends along its edges.
#[derive(Debug, Deserialize)]
struct StageUpdate {
    outcome: Status,
    #[serde(default)]
    own_outcome: String,
    #[serde(default)]
    preferred_label: String,
    #[serde(default)]
    suggested_next_ids: Vec<String>,
    #[serde(default)]
    failure_reason: String,
    #[serde(default)]
    branch: Option<String>,
    #[serde(default)]
    fork: bool,
    #[serde(default)]
    edge: Option<usize>,
    #[serde(default)]
    why: Option<String>,
    /// Older versions did not record this field.
    #[serde(default)]
    of_others: Vec<String>,
}

/// Keys that the engine itself sets after each node.
const ENGINE: [&str; 4] = ["current_node", "outcome", "preferred_label", "failure_reason"];

impl LogFold {
    pub(super) fn new(run: RunKey, pipeline: Arc<Pipeline>) -> Self {
        Self {
            run,
            first: None,
            seen: None,
            channels: Channels::new(),
            history: Vec::new(),
            outcome: None,
            replans: Vec::new(),
            pipeline,
        }
    }

    /// Replays the next records.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Corrupt`](ferrata_core::ErrorKind::Corrupt) if a record is damaged.
    pub(super) fn absorb(&mut self, records: &[(RecordHeader, RecordBody)]) -> Result<LogDelta, Error> {
        let mut news = LogDelta::default();
        for (header, body) in records {
            self.fold_record(header, body, &mut news)
                .map_err(|error| error.with_run(&self.run).with_seq(header.seq))?;
            self.first.get_or_insert(header.seq);
            self.seen = Some(header.clone());
        }
        Ok(news)
    }

    /// Returns the attributes of the graph that are in the context.
    pub(super) fn graph_attributes(&self) -> Context {
        let mut graph = Context::new();
        for (key, value) in self.channels.iter().filter(|(key, _)| key.starts_with("graph.")) {
            // A value from a context always fits into one.
            let _ = graph.set(key.clone(), value);
        }
        graph
    }

    /// Returns a value as a branch sees it. The branch's own value overrides the value of the enclosing branches.
    fn value(&self, branch: Option<&str>, key: &str) -> Option<&Json> {
        let mut inner = branch;
        while let Some(name) = inner {
            let of_branch = self.channels.get(&format!("internal.branch.{name}"));
            if let Some(value) = of_branch.and_then(|set| set.get(key)) {
                return Some(value);
            }
            inner = name.rsplit_once('/').map(|(around, _)| around);
        }
        self.channels.get(key)
    }

    fn text(&self, branch: Option<&str>, key: &str) -> Option<String> {
        self.value(branch, key).and_then(Json::as_str).map(str::to_owned)
    }

    fn fold_record(
        &mut self,
        header: &RecordHeader,
        body: &RecordBody,
        news: &mut LogDelta,
    ) -> Result<(), Error> {
        match (&body.base, body.event.patch()) {
            (Some(base), _) => self.channels = Channels::from_json(base.state.get())?,
            (None, Some(patch)) => self.channels.apply(patch)?,
            (None, None) => {}
        }
        let mut by = None;
        let event = match &body.event {
            RecordEvent::Node(nodes) => {
                return nodes.done.iter().try_for_each(|done| self.fold_end(header, nodes, done, news));
            }
            RecordEvent::Attempt(attempt) => {
                news.attempts.push(failed_attempt(attempt));
                LogEvent::of_attempt(attempt)
            }
            RecordEvent::Start(_) => LogEvent::RunStarted,
            RecordEvent::Intent(intent) => LogEvent::NodeIntended { node: &intent.node, visit: intent.visit },
            RecordEvent::Step(step) => {
                LogEvent::NodeNoted { node: &step.node, visit: step.visit, name: &step.name }
            }
            RecordEvent::Status(change) => LogEvent::of_status(header.status, change),
            RecordEvent::Signal(signal) => {
                by = signal.by.as_deref();
                LogEvent::of_signal(header.status, &signal.what)
            }
            RecordEvent::Claim(claim) => {
                LogEvent::RunResumed { epoch: header.epoch, executor: claim.executor }
            }
            RecordEvent::Release(release) => LogEvent::RunReleased { reason: &release.reason },
            RecordEvent::Edit(edit) => {
                by = edit.by.as_deref();
                LogEvent::StateEdited
            }
            RecordEvent::Base => LogEvent::CheckpointSaved,
        };
        EventLine::new(header, &self.run.run, event).by(by).write(&mut news.events)
    }

    fn fold_end(
        &mut self,
        header: &RecordHeader,
        nodes: &NodesDone,
        done: &NodeDone,
        news: &mut LogDelta,
    ) -> Result<(), Error> {
        let sent: Option<StageUpdate> =
            done.output.as_ref().and_then(|sent| serde_json::from_str(sent.get()).ok());
        let branch = sent.as_ref().and_then(|sent| sent.branch.clone());
        let branch = branch.as_deref();
        let mut outcome = match (&done.failure, &sent) {
            (Some(why), _) => StageOutcome::fail(&*why.message),
            (None, Some(sent)) => {
                let mut outcome = StageOutcome::new(sent.outcome);
                outcome.own_outcome.clone_from(&sent.own_outcome);
                outcome.preferred_label.clone_from(&sent.preferred_label);
                outcome.suggested_next_ids.clone_from(&sent.suggested_next_ids);
                outcome.failure_reason.clone_from(&sent.failure_reason);
                outcome
            }
            // An operator marked the work as done.
            (None, None) => StageOutcome::success(),
        };
        outcome.notes = done.notes.clone().unwrap_or_default();
        if nodes.done.len() == 1 {
            for (key, value) in changes(nodes.patch.ops()?, branch) {
                outcome.context_updates.insert(key, value);
            }
        }
        let (node, visit, attempt) = (&done.node, done.visit, done.attempts);
        let end = NodeEnd {
            node,
            visit,
            attempt,
            outcome: outcome.status,
            ms: done.took_ms,
            next: done.fired.iter().map(|fired| &fired.to).collect(),
            reason: &outcome.failure_reason,
        };
        let end =
            if done.failure.is_some() { LogEvent::NodeFailed(end) } else { LogEvent::NodeFinished(end) };
        let route = ChosenRoute {
            is_fork: sent.as_ref().is_some_and(|sent| sent.fork),
            edge: sent.as_ref().and_then(|sent| sent.edge),
            why: sent.as_ref().and_then(|sent| sent.why.as_deref()),
            results: outcome.context_updates.get(RESULTS).and_then(Json::as_array).map(Vec::as_slice),
        };
        let run_end = done.end.as_ref().map(|end| match end {
            RunEnd::Completed => LogEvent::RunCompleted,
            RunEnd::Failed(failure) => LogEvent::RunFailed { reason: &failure.message },
        });
        let run = &self.run.run;
        EventLine::new(header, run, LogEvent::NodeStarted { node, visit, attempt })
            .at(before(header.at, done.took_ms))
            .write(&mut news.events)?;
        for event in [end].into_iter().chain(route_events(&self.pipeline, done, &route)).chain(run_end) {
            EventLine::new(header, run, event).write(&mut news.events)?;
        }
        for fired in &done.fired {
            self.replans.extend(fired.reason.as_ref().map(|reason| ReplanView {
                from: node.to_string(),
                visit: visit.get(),
                to: fired.to.to_string(),
                reason: reason.clone(),
                at: header.at.to_string(),
            }));
        }
        // A node that an operator marked as done has no outcome of its own.
        let own = sent.as_ref().filter(|_| done.failure.is_none()).map(|sent| &sent.of_others);
        let text = |key: &str| {
            own.filter(|of_others| of_others.iter().all(|other| other != key))
                .and_then(|_| self.text(branch, key))
        };
        news.attempts.push(StageAttempt {
            node: node.to_string(),
            visit: visit.get(),
            attempt,
            response: text(&response_key(node.as_str())),
            output: text("tool.output"),
            errors: text("tool.errors"),
            outcome: outcome.clone(),
        });
        self.history.push(EndedStage {
            node: node.to_string(),
            visit: visit.get(),
            attempts: attempt,
            outcome: outcome.status,
            at: header.at,
            took_ms: done.took_ms,
            reason: outcome.failure_reason.clone(),
        });
        self.outcome = Some(outcome);
        Ok(())
    }
}

/// Returns an attempt that failed before its activation ended.
fn failed_attempt(failed: &AttemptFailed) -> StageAttempt {
    // Without a time for a retry, the node must not be repeated, and its outcome is unknown.
    let status = if failed.retry_at.is_some() { Status::Retry } else { Status::Fail };
    let mut outcome = StageOutcome::new(status);
    outcome.failure_reason.clone_from(&failed.failure.message);
    StageAttempt {
        node: failed.node.to_string(),
        visit: failed.visit.get(),
        attempt: failed.failed,
        outcome,
        response: None,
        output: None,
        errors: None,
    }
}

/// Returns the keys that a patch sets or removes, as a branch sees them, except the keys that the engine sets itself.
fn changes(ops: Vec<Op>, branch: Option<&str>) -> Vec<(String, Json)> {
    let own = branch.map(|branch| format!("internal.branch.{branch}"));
    let mut changes: Vec<(String, Json)> = Vec::new();
    for op in ops {
        match op {
            Op::Merge(channel, entries) if own.as_ref() == Some(&channel) => changes.extend(entries),
            Op::Set(channel, value) => changes.push((channel, value)),
            Op::Merge(channel, entries) => changes.push((channel, Json::Object(entries))),
            Op::Append(channel, items) => changes.push((channel, Json::Array(items))),
            Op::Remove(channel, keys) if keys.is_empty() => changes.push((channel, Json::Null)),
            Op::Remove(..) => {}
        }
    }
    changes.retain(|(key, _)| {
        !key.starts_with("internal.") && !key.starts_with("graph.") && !ENGINE.contains(&&**key)
    });
    changes
}

#[cfg(test)]
mod tests {
    use ferrata_core::RunId;
    use ferrata_core::record::body::{SignalKind, StatusChange};
    use ferrata_core::record::outbox::LetterChange;
    use ferrata_core::record::{RecordKind, codec};
    use ferrata_testing::Log;

    use super::*;

    /// Returns an event of the next kind. From `None`, the steps reach every kind.
    fn next_kind(event: Option<&RecordEvent>) -> Option<(RecordKind, &'static str)> {
        use RecordKind::{Attempt, Base, Claim, Edit, Intent, Node, Release, Signal, Start, Status, Step};
        Some(match event {
            None => (Start, r#"{"entry":"a","graph":{},"start_id":"01a1fd03-d218-7c6f-8bd8-2729cbdecbda"}"#),
            Some(RecordEvent::Start(_)) => (
                Node,
                r#"{"done":[{"node":"a","visit":1,"fired":["a"]},{"node":"a","visit":2,"end":"completed"}]}"#,
            ),
            Some(RecordEvent::Node(_)) => (
                Attempt,
                r#"{"node":"a","visit":1,"failed":1,"failure":{"kind":"node","message":"no"},"retry_at":5}"#,
            ),
            Some(RecordEvent::Attempt(attempt)) if attempt.retry_at.is_some() => {
                (Attempt, r#"{"node":"a","visit":1,"failed":2,"failure":{"kind":"node","message":"no"}}"#)
            }
            Some(RecordEvent::Attempt(_)) => (Intent, r#"{"node":"a","visit":1}"#),
            Some(RecordEvent::Intent(_)) => (Step, r#"{"node":"a","visit":1,"name":"s","what":"idle"}"#),
            Some(RecordEvent::Step(_)) => (Claim, r#"{"executor":"01a1fd03-d1fb-7969-afb4-8bba6abc8fcf"}"#),
            Some(RecordEvent::Claim(_)) => (Release, r#"{"reason":"deploy"}"#),
            Some(RecordEvent::Release(_)) => (Edit, r#"{"patch":[{"set":["k",1]}],"by":"ana"}"#),
            Some(RecordEvent::Edit(_)) => (Base, "{}"),
            Some(RecordEvent::Base) => (Status, r#"{"change":"interrupted"}"#),
            Some(RecordEvent::Status(change)) => match change {
                StatusChange::Interrupted => {
                    (Status, r#"{"change":{"failed":{"kind":"deadline","message":"late"}}}"#)
                }
                StatusChange::Failed(_) => (Status, r#"{"change":"cancelled"}"#),
                StatusChange::Cancelled => (
                    Status,
                    r#"{"change":{"asked":{"node":"a","visit":1,"name":"q","ask":{"question":"Q?","expects":"any"}}}}"#,
                ),
                StatusChange::Asked(_) => {
                    (Status, r#"{"change":{"expired":{"node":"a","visit":1,"name":"q","at":5}}}"#)
                }
                StatusChange::Expired(_) => (Status, r#"{"change":{"rested":{"status":"awaiting_input"}}}"#),
                StatusChange::Rested(_) => {
                    (Signal, r#"{"change":{"what":{"respond":{"question":"a@1","resolution":"skip"}}}}"#)
                }
            },
            Some(RecordEvent::Signal(signal)) => (
                Signal,
                match &signal.what {
                    SignalKind::Respond { .. } => {
                        r#"{"change":{"what":{"answer":{"question":"a@1:q","answer":{"accept":true}}},"by":"bob"}}"#
                    }
                    SignalKind::Answer { .. } => r#"{"change":{"what":{"message":{"body":1}}}}"#,
                    SignalKind::Message { .. } => r#"{"change":{"what":{"pin":{"seq":3}}}}"#,
                    SignalKind::Pin { .. } => r#"{"change":{"what":{"unpin":{"seq":3}}}}"#,
                    SignalKind::Unpin { .. } => r#"{"change":{"what":{"pause":{"reason":"lunch"}}}}"#,
                    SignalKind::Pause { .. } => r#"{"change":{"what":"unpause"}}"#,
                    SignalKind::Unpause => r#"{"change":{"what":{"cancel":{"reason":"old"}}}}"#,
                    SignalKind::Cancel { .. } => r#"{"change":{"what":{"letters":{"change":"taken"}}}}"#,
                    SignalKind::Letters { change, .. } => match &**change {
                        LetterChange::Taken => {
                            r#"{"change":{"what":{"letters":{"change":{"delivered":{"numbers":[0]}}}}}}"#
                        }
                        LetterChange::Delivered { .. } => {
                            r#"{"change":{"what":{"letters":{"change":{"failed":{"number":1,"tries":2,"why":"down"}}}}}}"#
                        }
                        LetterChange::Failed { .. } => {
                            r#"{"change":{"what":{"letters":{"change":{"retry":{"numbers":[]}}}}}}"#
                        }
                        LetterChange::Retry { .. } => {
                            r#"{"change":{"what":{"letters":{"change":{"drop":{"numbers":[1]}}}}}}"#
                        }
                        LetterChange::Drop { .. } => {
                            r#"{"change":{"what":{"go_to":{"nodes":["a"],"reason":"again"}}}}"#
                        }
                    },
                    SignalKind::GoTo { .. } => r#"{"change":{"what":{"retry":{}}}}"#,
                    SignalKind::Retry { .. } => return None,
                },
            ),
        })
    }

    #[test]
    fn each_kind_of_record_has_its_line() {
        let pipeline = Pipeline::parse(b"digraph G { a -> a }").unwrap();
        let log = Log::new(RunId::new("r").unwrap());
        let mut fold = LogFold::new(log.key.clone(), Arc::new(pipeline));
        let (mut event, mut lines) = (None, String::new());
        while let Some((kind, body)) = next_kind(event.as_ref()) {
            let mut append = log.next_as(1, body, |header| (header.kind, header.base) = (kind, false));
            let record = append.records.remove(0);
            let body = codec::decode(&log.key, &record).unwrap();
            lines.push_str(&fold.absorb(&[(record.header, body.clone())]).unwrap().events);
            event = Some(body.event);
        }
        let start = r#"{"v":1,"seq":0,"ts":"2020-09-13T12:26:40.000Z","run":"r","type":"#;
        let fields: Vec<&str> =
            lines.lines().map(|line| line.strip_prefix(start).unwrap_or_else(|| panic!("{line}"))).collect();
        let expected = r#"
"run.started"}
"node.started","node":"a","visit":1,"attempt":1}
"node.finished","node":"a","visit":1,"attempt":1,"outcome":"success","ms":0,"next":["a"]}
"node.started","node":"a","visit":2,"attempt":1}
"node.finished","node":"a","visit":2,"attempt":1,"outcome":"success","ms":0,"next":[]}
"run.completed"}
"node.retrying","node":"a","visit":1,"attempt":1,"reason":"no","retry_at":"1970-01-01T00:00:00.005Z"}
"node.in_doubt","node":"a","visit":1,"attempt":2,"reason":"no"}
"node.intended","node":"a","visit":1}
"node.noted","node":"a","visit":1,"name":"s"}
"run.resumed","epoch":1,"executor":"01a1fd03-d1fb-7969-afb4-8bba6abc8fcf"}
"run.released","reason":"deploy"}
"state.edited","by":"ana"}
"checkpoint.saved"}
"run.waiting","status":"in_progress"}
"run.failed","reason":"late"}
"run.cancelled"}
"question.asked","question":"a@1:q","text":"Q?"}
"question.timed_out","question":"a@1:q"}
"run.waiting","status":"in_progress"}
"question.answered","question":"a@1","answer":"skip"}
"question.answered","question":"a@1:q","answer":{"accept":true},"by":"bob"}
"message.sent"}
"run.pinned","record":3}
"run.unpinned","record":3}
"run.paused","reason":"lunch"}
"run.unpaused"}
"run.cancelling","reason":"old"}
"outbox.taken"}
"outbox.delivered","numbers":[0]}
"outbox.failed","number":1,"tries":2,"reason":"down"}
"outbox.retried","numbers":[]}
"outbox.dropped","numbers":[1]}
"run.moved","to":["a"],"reason":"again"}
"run.retried"}
"#;
        assert_eq!(fields.join("\n"), expected.trim());
    }
}
