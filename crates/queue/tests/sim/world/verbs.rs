//! Operations of operators on runs of a queue.

use std::sync::Arc;

use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{Position, Runtime};
use ferrata_core::{Result, RunKey};
use ferrata_testing::SeqIds;

use super::super::mix::RUNS;
use super::{World, now};

/// A verb that makes a run active, or another run of it.
#[derive(Clone, Copy, Debug)]
enum Verb {
    Retry,
    GoTo,
    Fork,
    RetryAll,
    Import,
    Purge,
}

impl Verb {
    const ALL: [Self; 6] = [Self::Retry, Self::GoTo, Self::Fork, Self::RetryAll, Self::Import, Self::Purge];

    fn name(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::GoTo => "go_to",
            Self::Fork => "fork",
            Self::RetryAll => "retry_all",
            Self::Import => "import",
            Self::Purge => "purge",
        }
    }

    /// Returns whether the verb changed something.
    async fn carry_out(self, runtime: &Runtime, run: &RunKey, copy: RunKey) -> Result<bool> {
        match self {
            Self::Retry => runtime.retry(run).await.map(|()| true),
            Self::GoTo => runtime.go_to(run, "work", "once more").await.map(|()| true),
            Self::Fork => runtime.fork(run, Position::Latest).id(copy.run.as_str()).await.map(|_| true),
            Self::RetryAll => {
                let report = runtime.runs().label("queue", "mail").retry_all().await?;
                Ok(!report.done.is_empty())
            }
            Self::Import => {
                let text = runtime.export(run).await?;
                runtime.import(&text, Some(copy)).await.map(|_| true)
            }
            // The caller starts the run again.
            Self::Purge => {
                let head = runtime.head(run).await?.filter(|head| head.status == RunStatus::Failed);
                let Some(head) = head else { return Ok(false) };
                runtime.purge_at(run, head.head()).await.map(|_| true)
            }
        }
    }
}

impl World {
    /// Lets an operator use a verb: in a process that is up, or with a tool without queues.
    pub(super) fn revive(&mut self, number: u64) {
        let run = self.mix.run(number);
        if self.head(&run).is_none() {
            // It was purged, or its start has an unknown outcome.
            self.start(number);
            return;
        }
        let verb = *self.dice.pick(&Verb::ALL);
        let copy = RunKey::try_from(format!("copy-{:03}", self.forks.len()).as_str()).unwrap();
        if matches!(verb, Verb::Fork | Verb::Import) {
            if self.forks.len() as u64 >= RUNS {
                return;
            }
            self.inside.lock().unwrap().failures.insert(copy.clone(), self.dice.below(2));
            self.forks.insert(copy.clone());
        }
        let (rules, revived) = (Arc::clone(&self.rules), Arc::clone(&self.revived));
        let carry_out = move |runtime: Runtime| async move {
            let done = verb.carry_out(&runtime, &run, copy).await;
            let shown = done.as_ref().map_err(ferrata_core::Error::kind);
            rules.note(&format!("{} of {run}: {shown:?}", verb.name()));
            *revived.lock().unwrap().entry(verb.name()).or_default() += u64::from(done.unwrap_or(false));
        };
        let up: Vec<_> = self.processes.iter().filter(|process| process.is_up()).collect();
        if up.is_empty() || self.dice.below(3) == 0 {
            let clock = Arc::new(self.clock.clone());
            let ids = Arc::new(SeqIds::new(1_000_000 + self.stirred));
            now(carry_out(Runtime::builder_with(Arc::clone(&self.store)).clock(clock).ids(ids).operator()));
            self.stirred += 1;
        } else {
            let process = *self.dice.pick(&up);
            process.tasks.spawn(carry_out(process.runtime().unwrap().0.clone()));
        }
    }
}
