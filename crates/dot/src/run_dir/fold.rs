//! Replays the log of a run to get the results of its attempts and its events, for people.

use std::sync::Arc;

use ferrata_core::record::{Record, RecordHeader, RecordKind};
use ferrata_core::state::{Channels, Context, Op};
use ferrata_core::{Error, RunKey, Seq, Timestamp};
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::events::{self, ChosenRoute, event_name, line, line_at};
use super::log::{LoggedBody, StageEnd};
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
    /// The lines of JSON, each with the number of its record.
    pub(super) events: Vec<(Seq, String)>,
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
    pub(super) fn absorb(&mut self, records: &[Record]) -> Result<LogDelta, Error> {
        let mut news = LogDelta::default();
        for record in records {
            let body = LoggedBody::of(&self.run, record)?;
            let header = &record.header;
            let run = self.run.clone();
            let place = |error: Error| error.with_run(&run).with_seq(header.seq);
            match &body.base {
                Some(base) => {
                    self.channels = Channels::from_json(base.state.get()).map_err(place)?;
                }
                None => {
                    if let Some(patch) = &body.patch {
                        self.channels.apply(patch).map_err(place)?;
                    }
                }
            }
            self.first.get_or_insert(header.seq);
            self.fold_record(header, &body, &mut news).map_err(place)?;
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
        body: &LoggedBody,
        news: &mut LogDelta,
    ) -> Result<(), Error> {
        let mut event = |kind: &str, more: Json| {
            let run = self.run.run.as_str();
            news.events.push((header.seq, line(header, run, kind, more)));
        };
        let (node, visit) = (&body.node, body.visit);
        let at = |ms: i64| Timestamp::from_unix_ms(ms).to_string();
        match header.kind {
            RecordKind::Start => event("run.started", json!({})),
            RecordKind::Claim => {
                event("run.resumed", json!({"epoch": header.epoch, "executor": body.executor}))
            }
            RecordKind::Release => event("run.released", json!({"reason": body.reason})),
            RecordKind::Base => event("checkpoint.saved", json!({})),
            RecordKind::Edit => event("state.edited", json!({"by": body.by})),
            RecordKind::Intent => event("node.intended", json!({"node": node, "visit": visit})),
            RecordKind::Step => {
                event("node.noted", json!({"node": node, "visit": visit, "name": body.name}));
            }
            RecordKind::Attempt => {
                let why = body.failure.as_ref().map_or("", |why| &why.message);
                let told = json!({"node": node, "visit": visit, "attempt": body.failed, "reason": why,
                                  "retry_at": body.retry_at.map(at)});
                // Without a time for a retry, the node must not be repeated, and its outcome is unknown.
                let (kind, status) = match body.retry_at {
                    Some(_) => ("node.retrying", Status::Retry),
                    None => ("node.in_doubt", Status::Fail),
                };
                event(kind, told);
                let mut outcome = StageOutcome::new(status);
                outcome.failure_reason = why.to_owned();
                news.attempts.push(StageAttempt {
                    node: node.clone().unwrap_or_default(),
                    visit: visit.unwrap_or_default(),
                    attempt: body.failed,
                    outcome,
                    response: None,
                    output: None,
                    errors: None,
                });
            }
            RecordKind::Status | RecordKind::Signal => {
                let (word, more) = body.change_name();
                let (kind, more) = event_name(header, word, more, at);
                let mut more = more;
                if let (Some(by), Some(more)) = (body.change.get("by"), more.as_object_mut()) {
                    more.insert("by".to_owned(), by.clone());
                }
                event(kind, more);
            }
            RecordKind::Node => {
                for done in &body.done {
                    self.fold_end(header, body, done, news)?;
                }
            }
            // An event of a newer version appears under the name of its record.
            _ => event("record", json!({})),
        }
        Ok(())
    }

    fn fold_end(
        &mut self,
        header: &RecordHeader,
        body: &LoggedBody,
        done: &StageEnd,
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
        if let (1, Some(patch)) = (body.done.len(), &body.patch) {
            for (key, value) in changes(patch.ops()?, branch) {
                outcome.context_updates.insert(key, value);
            }
        }
        let kind = if done.failure.is_some() { "node.failed" } else { "node.finished" };
        let mut more = json!({"node": done.node, "visit": done.visit, "attempt": done.attempts,
            "outcome": outcome.status.as_str(), "ms": done.took_ms, "next": done.led_to()});
        if let (false, Some(more)) = (outcome.failure_reason.is_empty(), more.as_object_mut()) {
            more.insert("reason".to_owned(), outcome.failure_reason.clone().into());
        }
        let run = self.run.run.as_str();
        let began = before(header.at, done.took_ms);
        let start = json!({"node": done.node, "visit": done.visit, "attempt": done.attempts});
        news.events.push((header.seq, line_at(header, began, run, "node.started", start)));
        news.events.push((header.seq, line(header, run, kind, more)));
        let route = ChosenRoute {
            is_fork: sent.as_ref().is_some_and(|sent| sent.fork),
            edge: sent.as_ref().and_then(|sent| sent.edge),
            why: sent.as_ref().and_then(|sent| sent.why.as_deref()),
            results: outcome.context_updates.get(RESULTS).and_then(Json::as_array).map(Vec::as_slice),
        };
        let around = events::around_end(&self.pipeline, done, &route);
        news.events
            .extend(around.into_iter().map(|(kind, more)| (header.seq, line(header, run, kind, more))));
        for (to, reason) in done.replans() {
            let (from, visit, to) = (done.node.clone(), done.visit, to.to_owned());
            self.replans.push(ReplanView {
                from,
                visit,
                to,
                reason: reason.to_owned(),
                at: header.at.to_string(),
            });
        }
        if let Some(end) = &done.end {
            let (kind, more) = match end.get("failed") {
                Some(failure) => ("run.failed", json!({"reason": failure.get("message")})),
                None => ("run.completed", json!({})),
            };
            news.events.push((header.seq, line(header, self.run.run.as_str(), kind, more)));
        }
        // A node that an operator marked as done has no outcome of its own.
        let own = sent.as_ref().filter(|_| done.failure.is_none()).map(|sent| &sent.of_others);
        let text = |key: &str| {
            own.filter(|of_others| of_others.iter().all(|other| other != key))
                .and_then(|_| self.text(branch, key))
        };
        news.attempts.push(StageAttempt {
            node: done.node.clone(),
            visit: done.visit,
            attempt: done.attempts,
            response: text(&response_key(&done.node)),
            output: text("tool.output"),
            errors: text("tool.errors"),
            outcome: outcome.clone(),
        });
        self.history.push(EndedStage {
            node: done.node.clone(),
            visit: done.visit,
            attempts: done.attempts,
            outcome: outcome.status,
            at: header.at,
            took_ms: done.took_ms,
            reason: outcome.failure_reason.clone(),
        });
        self.outcome = Some(outcome);
        Ok(())
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
