//! Operations of people on runs, through any reachable process.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrata_core::ask::{Answer, QuestionKind};
use ferrata_core::record::{Resolution, RunStatus};
use ferrata_core::runtime::{RetentionPolicy, Runtime, SweepLimits};
use ferrata_core::state::{Context, Op, Patch};
use ferrata_core::store::RunHead;
use ferrata_core::{ErrorKind, Result, RunKey};

use super::nodes::{Ledger, Place};
use super::rules::Rules;
use super::workload::{Mix, Workload};
use crate::support::dice::Dice;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Deed {
    Start,
    Answer,
    Send,
    Pause,
    Unpause,
    Cancel,
    Retry,
    TakeOver,
    Purge,
    RetryLetters,
    Edit,
    Prune,
    Sweep,
}

/// An operation and its result. There is no result if the process died first.
pub(crate) struct Told {
    pub(crate) run: RunKey,
    pub(crate) deed: Deed,
    pub(crate) by: String,
    pub(crate) result: Option<Result<()>>,
}

pub(crate) struct Hands {
    pub(crate) dice: Arc<Dice>,
    pub(crate) rules: Arc<Rules>,
    pub(crate) ledger: Arc<Mutex<Ledger>>,
    pub(crate) workload: Arc<Workload>,
    pub(crate) told: Mutex<Vec<Told>>,
}

impl Deed {
    /// An operation that does not depend on the state of the run.
    pub(crate) fn draw(dice: &Dice, mix: Mix) -> Self {
        match dice.below(if mix == Mix::Pruned { 28 } else { 22 }) {
            0..4 => Self::Start,
            4..9 => Self::Answer,
            9..13 => Self::Send,
            13 => Self::Pause,
            14 | 15 => Self::Unpause,
            16 if dice.below(8) == 0 => Self::Cancel,
            16 | 17 => Self::Retry,
            20 => Self::Purge,
            21 => Self::RetryLetters,
            22..24 => Self::Edit,
            24..27 => Self::Prune,
            27 => Self::Sweep,
            _ => Self::TakeOver,
        }
    }

    /// The operation that a waiting run needs, or none if it waits for no person.
    pub(crate) fn needed(head: Option<&RunHead>) -> Option<Self> {
        match head.map(|head| head.status) {
            None => Some(Self::Start),
            Some(RunStatus::Failed) => Some(Self::Retry),
            Some(RunStatus::Interrupted) => Some(Self::Answer),
            Some(RunStatus::AwaitingInput) => Some(Self::Send),
            _ if head.is_some_and(RunHead::is_delivering) => Some(Self::RetryLetters),
            Some(_) => None,
        }
    }
}

impl Hands {
    /// Performs an operation and stores its result.
    pub(crate) async fn act(self: Arc<Self>, runtime: Runtime, run: RunKey, deed: Deed) {
        let number = {
            let mut told = self.told.lock().unwrap();
            let by = format!("{deed:?}-{}", told.len());
            told.push(Told { run: run.clone(), deed, by, result: None });
            told.len() - 1
        };
        let by = self.told.lock().unwrap()[number].by.clone();
        let result = self.try_to(&runtime, &run, deed, &by).await;
        let shown = result.as_ref().map_err(ferrata_core::Error::kind);
        self.rules.note(&format!("{by} on {run}: {shown:?}"));
        self.told.lock().unwrap()[number].result = Some(result);
    }

    async fn try_to(&self, runtime: &Runtime, run: &RunKey, deed: Deed, by: &str) -> Result<()> {
        // These operations also apply to a child, whose graph is not known here.
        match deed {
            Deed::Unpause => return runtime.unpause(run).by(by).await,
            Deed::RetryLetters => return runtime.retry_outbox(run, &[]).by(by).await,
            _ => {}
        }
        let graph = self.workload.graph_of(run);
        match deed {
            Deed::Start => {
                let start = runtime.start(graph, Context::new()).id(run.run.as_str());
                start.checkpoints(Workload::policy(&self.dice)).await.map(drop)
            }
            Deed::TakeOver => {
                let resume = runtime.resume(graph, run.clone()).take_over();
                resume.checkpoints(Workload::policy(&self.dice)).await.map(drop)
            }
            Deed::Purge => runtime.purge(run).await.map(drop),
            Deed::Send => runtime.send(run, by).by(by).await,
            Deed::Pause => runtime.pause(run, "a pause").by(by).await,
            Deed::Unpause | Deed::RetryLetters => Ok(()),
            Deed::Edit => {
                let patch = Patch::from_ops(&[Op::Append("edits".into(), vec![by.into()])]).unwrap();
                runtime.edit(run, patch).check_with(graph).by(by).await
            }
            Deed::Prune => {
                let kept = 1 + u32::try_from(self.dice.below(4)).unwrap();
                runtime.apply_retention(run, &RetentionPolicy::keep_all().keep_last(kept)).await.map(drop)
            }
            Deed::Sweep => self.sweep(runtime).await,
            Deed::Cancel => runtime.cancel(run, "enough").by(by).await,
            Deed::Retry => runtime.retry(run).by(by).await,
            Deed::Answer => self.answer(runtime, run, by).await,
        }
    }

    /// Prunes all runs, and purges those that have ended.
    async fn sweep(&self, runtime: &Runtime) -> Result<()> {
        let age = Duration::from_secs(5);
        let ended = [RunStatus::Completed, RunStatus::Cancelled];
        let policy = ended
            .into_iter()
            .fold(RetentionPolicy::keep_all().keep_last(3), |policy, status| policy.purge_after(status, age));
        let report = runtime.sweep(&policy, SweepLimits::default(), false).await?;
        let failed = report.failed.into_iter().find(|(_, error)| !error.is_retryable());
        if let Some((run, error)) = failed {
            self.rules.seen().broken.push(format!("{run}: a sweep failed: {error:?}"));
        }
        Ok(())
    }

    /// Answers one of the questions. A run without a question is paused, and gets an unpause.
    async fn answer(&self, runtime: &Runtime, run: &RunKey, by: &str) -> Result<()> {
        let questions = runtime.questions(run).await?;
        if questions.is_empty() {
            return runtime.unpause(run).by(by).await;
        }
        let question = self.dice.pick(&questions);
        // The run may be purged and restarted before the answer arrives.
        let place = self.place(run, &question.id);
        let answer = match question.kind {
            QuestionKind::Doubt => self.resolve(place.clone(), question.node.as_str()),
            _ => Answer::accept(self.dice.below(1_000))?,
        };
        let is_retry = answer == Resolution::Retry.into();
        let result = runtime.respond(run, &question.id, answer).by(by).await;
        if is_retry && result.as_ref().is_err_and(|error| error.kind() != ErrorKind::Indeterminate) {
            self.ledger.lock().unwrap().retried.entry(place).and_modify(|times| *times -= 1);
        }
        match result {
            // The run is also paused.
            Err(error) if error.kind() == ErrorKind::WrongStatus => runtime.unpause(run).by(by).await,
            answered => answered,
        }
    }

    /// The key of an activation of the current run in the ledger.
    fn place(&self, run: &RunKey, at: &str) -> Place {
        let life = self.rules.seen().logs.get(run).map_or_else(String::new, |log| log.life.clone());
        (run.clone(), life, at.to_owned())
    }

    /// Resolves an unknown outcome by the ledger, as a careful operator does.
    fn resolve(&self, place: Place, node: &str) -> Answer {
        let mut ledger = self.ledger.lock().unwrap();
        if !ledger.has(&place) {
            // A process that is suspended between intent and effect may still perform the effect. The operator accepts this with a retry.
            *ledger.retried.entry(place).or_default() += 1;
            return Resolution::Retry.into();
        }
        let done = Op::Append("trace".into(), vec![place.2.into()]);
        match self.dice.below(3) {
            0 => Resolution::Fail(format!("{node} is in doubt")).into(),
            _ => Resolution::Supply(Patch::from_ops(&[done]).unwrap()).into(),
        }
    }
}
