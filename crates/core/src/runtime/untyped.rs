//! What an operator does to a run without the code it runs: changing its state, and branching off it.

use std::collections::BTreeSet;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use super::amend::{Writer, amend};
use super::edit::{check_status, misfit};
use super::fork::{Told, origin, same};
use super::load::missing;
use super::log::too_large;
use super::past::Position;
use super::runtime::Runtime;
use super::shared::{Control, Shared};
use super::tasks::finish;
use crate::engine::fold::Folded;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{RunId, RunKey};
use crate::record::body::Event;
use crate::record::codec;
use crate::record::pause::Edited;
use crate::state::Patch;

impl Runtime {
    /// Changes the state of a run without the type of its state; as [`edit`](Self::edit) otherwise.
    ///
    /// Nobody checks that the changed state can be read by the application: if it cannot, the run stops where it is with
    /// everything recorded, until another edit puts it right. So look at [`state`](Self::checkpoint) first.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::NotFound`]: there is no such run. [`ErrorKind::WrongStatus`]: it is completed or cancelled.
    /// - [`ErrorKind::Invalid`]: the patch does not fit the channels: an append to what is no list, a merge into what is no object.
    /// - [`ErrorKind::TooLarge`]: the state would be larger than is allowed.
    ///
    /// The run is untouched then.
    pub fn edit_untyped(&self, run: &RunKey, patch: Patch) -> UntypedEditRequest {
        UntypedEditRequest { shared: Arc::clone(self.shared()), run: run.clone(), patch, by: None }
    }

    /// Makes a new run that goes on from some place in the log of another one, without its graph: it is written and not driven,
    /// and whoever serves its workflow takes it up as any run that nobody drives. As [`fork`](Self::fork) otherwise.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::NotFound`]: no such run, place or node; nodes are known if the run's log or graph named them.
    /// - [`ErrorKind::AlreadyExists`]: the new id is another run's. Forking alike under the same id is the same fork.
    /// - [`ErrorKind::Invalid`]: an edit does not fit the channels, or nothing was left to run there.
    ///
    /// Nothing was written then.
    pub fn fork_untyped(&self, source: &RunKey, at: impl Into<Position>) -> UntypedForkRequest {
        UntypedForkRequest {
            shared: Arc::clone(self.shared()),
            source: source.clone(),
            at: at.into(),
            id: None,
            edits: Vec::new(),
            nodes: Vec::new(),
            labels: Vec::new(),
        }
    }
}

/// A change of a run's state that is about to be made; `.await` makes it, and comes back when it is durable.
///
/// # Cancel safety
///
/// Cancel safe: once polled it is carried out, whoever drops it.
#[must_use = "nothing is changed before it is awaited"]
pub struct UntypedEditRequest {
    shared: Arc<Shared>,
    run: RunKey,
    patch: Patch,
    by: Option<String>,
}

impl UntypedEditRequest {
    /// Says who changes it; it is recorded.
    pub fn by(mut self, who: impl Into<String>) -> Self {
        self.by = Some(who.into());
        self
    }

    async fn edit(self) -> Result<()> {
        let Self { shared, run, patch, by } = self;
        let message = |reply| Control::Edit { patch: patch.clone(), by: by.clone(), reply };
        amend(&shared, &run, Writer::Signaller(&message), |tip| {
            check_status(tip)?;
            tip.folded.channels.apply(&patch).map_err(misfit)?;
            checked_size(&shared, &tip.folded)?;
            Ok(vec![Event::Edit(Edited { patch: patch.clone(), by: by.clone() })])
        })
        .await
        .map(|_| ())
    }
}

/// A fork that is being prepared; `.await` writes the new run and returns its key.
///
/// # Cancel safety
///
/// Cancel safe: once polled it is carried out, whoever drops it. Fork again with the same id to learn of it.
#[must_use = "a fork does nothing until it is awaited"]
pub struct UntypedForkRequest {
    shared: Arc<Shared>,
    source: RunKey,
    at: Position,
    id: Option<Result<RunId>>,
    edits: Vec<Patch>,
    nodes: Vec<String>,
    labels: Vec<(String, String)>,
}

impl UntypedForkRequest {
    /// Sets the new run's id: the same id with the same fork is the same run, however often it is made.
    pub fn id(mut self, id: impl AsRef<str>) -> Self {
        self.id = Some(RunId::new(id));
        self
    }

    /// Changes the state that the new run goes on with.
    pub fn edit(mut self, patch: Patch) -> Self {
        self.edits.push(patch);
        self
    }

    /// Has the new run begin with these nodes instead of where the source was.
    pub fn start_at(mut self, nodes: impl crate::graph::NodeNames) -> Self {
        self.nodes = nodes.into_names();
        self
    }

    /// Adds a label to those of the source, or replaces one.
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.push((key.into(), value.into()));
        self
    }

    async fn fork(self) -> Result<RunKey> {
        let (shared, source) = (&self.shared, &self.source);
        let now = shared.clock.now();
        let head = shared.store.head(source).await?.ok_or_else(|| missing(source))?;
        let mut folded = origin(&*shared.store, source, &self.at, None, !self.nodes.is_empty()).await?;
        let at = folded.last.head();
        let place = |error: Error| error.with_run(source).with_seq(at.seq);
        folded.machine.branch_off(shared.ids.next(now), None);
        self.place(&mut folded).map_err(place)?;
        let edited = self.edits.iter().try_for_each(|patch| folded.channels.apply(patch));
        edited.map_err(misfit).map_err(place)?;
        checked_size(shared, &folded).map_err(place)?;
        let text = codec::to_raw(&folded.channels)?;
        let id = match &self.id {
            Some(id) => id.clone()?,
            None => RunId::new(shared.ids.next(now).to_string())?,
        };
        let run = RunKey::new(source.tenant.clone(), id);
        let told = Told { source, at, nodes: &self.nodes, labels: &self.labels, state: text.get() };
        let graph = (head.facts.workflow.clone(), head.facts.version.clone(), head.facts.graph);
        let facts = told.facts(&head, graph, now)?;
        let mut log = shared.log_writer(&run);
        log.state_version = folded.version;
        let append = log.begin(&Event::Base, &folded.machine, text, true, facts.clone())?;
        match shared.committer.append(append, None).await {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Conflict => same(shared, &run, &facts).await?,
            Err(error) => return Err(error.with_run(&run)),
        }
        Ok(run)
    }

    /// Puts the new run where it is to begin.
    fn place(&self, folded: &mut Folded) -> Result<()> {
        if !self.nodes.is_empty() {
            if let Some(stranger) = self.nodes.iter().find(|name| folded.machine.find(name).is_none()) {
                let message = format!("the run knows no node `{stranger}` to start at");
                return Err(Error::new(ErrorKind::NotFound, message));
            }
            let names: BTreeSet<&str> = self.nodes.iter().map(String::as_str).collect();
            folded.machine.begin_at(names);
        }
        if folded.machine.is_over() {
            let message =
                "nothing was left to run there; fork at an earlier record, or name nodes to start at";
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        Ok(())
    }
}

/// Refuses a state that the record of a base could not hold.
fn checked_size(shared: &Shared, folded: &Folded) -> Result<()> {
    let text = codec::to_raw(&folded.channels)?;
    let most = shared.limits.max_body;
    if text.get().len() > most { Err(too_large(&text, most)) } else { Ok(()) }
}

impl IntoFuture for UntypedEditRequest {
    type Output = Result<()>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(finish(self.edit()))
    }
}

impl IntoFuture for UntypedForkRequest {
    type Output = Result<RunKey>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(finish(self.fork()))
    }
}

impl std::fmt::Debug for UntypedEditRequest {
    /// Never shows the values.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UntypedEditRequest")
            .field("run", &self.run)
            .field("by", &self.by)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for UntypedForkRequest {
    /// Never shows values.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UntypedForkRequest")
            .field("source", &self.source)
            .field("at", &self.at)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
