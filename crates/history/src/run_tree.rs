//! Checks the relations that prevent the removal of a run: children that depend on it, and a parent that has not recorded its result.

use std::collections::{BTreeSet, VecDeque};

use crate::ask::Question;
use crate::engine::fold::{ReplayedRun, fold, missing};
use crate::engine::frontier::ActivationKey;
use crate::engine::machine::Machine;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{HeadRef, RunKey};
use crate::log_reader::folded_at;
use crate::questions::questions;
use crate::record::RunStatus;
use crate::record::child::{ActivationChild, ParentBond};
use crate::record::parent_link::{ParentLink, parent_link};
use crate::store::{At, CheckpointStore, RunHead};

/// The relation of a parent to its child.
#[derive(Debug)]
pub enum ParentRelation {
    /// The parent waits or may wait for the run. The fields say what the parent's log contains about the start of the run, and whether the parent is
    /// paused.
    Waits {
        began: bool,
        paused: bool,
    },
    /// The parent has recorded the run's result.
    Told,
    /// The parent's log is unreadable, so the relation is unknown.
    Unknown,
    /// The parent was purged, even if a new run has its id.
    Gone,
    Completed,
    Cancelled,
    /// The activation that started the run has ended, so the parent no longer waits.
    WentOn,
}

/// Returns the relation of the parent to a run.
///
/// # Errors
///
/// Returns the errors of the store. An unreadable log is not an error.
pub async fn parent_of(
    store: &dyn CheckpointStore,
    run: &RunKey,
    link: &ParentLink,
) -> Result<ParentRelation> {
    match store.head(&link.parent).await?.map(|head| head.status) {
        None => return Ok(ParentRelation::Gone),
        Some(RunStatus::Completed) => return Ok(ParentRelation::Completed),
        Some(RunStatus::Cancelled) => return Ok(ParentRelation::Cancelled),
        Some(_) => {}
    }
    let folded = match folded_at(store, &link.parent, At::Latest, None).await {
        Ok(folded) => folded,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(ParentRelation::Gone),
        Err(error) if is_unreadable(&error) => return Ok(ParentRelation::Unknown),
        Err(error) => return Err(error),
    };
    let machine = &folded.machine;
    if !link.start.starts_with(&machine.start_id().to_string()) {
        return Ok(ParentRelation::Gone);
    }
    let known = machine.child_that_is(&run.run);
    let known = known.filter(|(key, child)| machine.child_ref(&link.parent, *key, child).start == link.start);
    Ok(match known {
        Some((_, ActivationChild { told: Some(_), .. })) => ParentRelation::Told,
        Some((_, ActivationChild { began, .. })) => {
            ParentRelation::Waits { began, paused: machine.paused().is_some() }
        }
        None => ParentRelation::WentOn,
    })
}

/// Checks that no other run needs a run that will be removed: no active child depends on it, and its parent does not wait for its result. The caller
/// removes the runs in `before` first, so they are ignored.
///
/// # Errors
///
/// Returns [`ErrorKind::WrongStatus`], which names the run that blocks the removal, and the remedy. Also returns the errors of the store.
pub(crate) async fn check_removal(
    store: &dyn CheckpointStore,
    head: &RunHead,
    folded: Option<&ReplayedRun>,
    before: &BTreeSet<&RunKey>,
) -> Result<()> {
    let run = &head.run;
    let refuse = |message: String| Err(Error::new(ErrorKind::WrongStatus, message).with_run(run));
    if head.is_delivering() || folded.is_some_and(|folded| folded.machine.is_delivering()) {
        return refuse(
            "the run has undelivered outbox messages; run a process with their sink to deliver them, or drop them with \
             `Runtime::drop_outbox`".to_owned(),
        );
    }
    if let Some(child) = open_child(store, run, folded, before).await? {
        return refuse(format!(
            "its child {child} is active, and would lose its parent; cancel the run and wait for its end, or purge the child first"
        ));
    }
    let Some(link) = parent_link(run, &head.facts).filter(|link| link.bond != ParentBond::Detached) else {
        return Ok(());
    };
    let parent = &link.parent;
    if before.contains(parent) {
        return Ok(());
    }
    match parent_of(store, run, &link).await? {
        ParentRelation::Waits { .. } if head.status.is_finished() => refuse(format!(
            "its parent {parent} has not yet recorded its result; continue the parent and retry, or purge the parent first"
        )),
        ParentRelation::Waits { began: false, .. } => refuse(format!(
            "its parent {parent} has not yet recorded its start, and would start it again; continue the parent and retry, or cancel the run \
             and purge the parent first"
        )),
        _ => Ok(()),
    }
}

/// Returns an active child that ends with its parent, according to both logs.
///
/// # Errors
///
/// Returns the errors of [`folded_at`].
pub async fn active_child(store: &dyn CheckpointStore, run: &RunKey) -> Result<Option<RunKey>> {
    let folded = folded_at(store, run, At::Latest, None).await?;
    open_child(store, run, Some(&folded), &BTreeSet::new()).await
}

/// Returns an active child that ends with its parent.
async fn open_child(
    store: &dyn CheckpointStore,
    run: &RunKey,
    folded: Option<&ReplayedRun>,
    before: &BTreeSet<&RunKey>,
) -> Result<Option<RunKey>> {
    let Some(ReplayedRun { machine, .. }) = folded else { return Ok(None) };
    for (key, child) in machine.all_children().filter(|(_, child)| child.ends_with_parent()) {
        let child = machine.child_ref(run, key, &child);
        let goes_on = |head: &RunHead| child.is(&head.facts) && !head.status.is_finished();
        if !before.contains(&child.run) && store.head(&child.run).await?.as_ref().is_some_and(goes_on) {
            return Ok(Some(child.run));
        }
    }
    Ok(None)
}

/// Performs the checks of `check_removal` for a manual purge after the runs in `before`, if the log is readable. Returns the head that was
/// checked.
///
/// # Errors
///
/// Returns the errors of `check_removal`.
pub async fn check_purge(
    store: &dyn CheckpointStore,
    run: &RunKey,
    before: &BTreeSet<&RunKey>,
) -> Result<Option<HeadRef>> {
    let head = match store.head(run).await {
        Ok(Some(head)) => head,
        Ok(None) => return Ok(None),
        Err(error) if is_unreadable(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    if matches!(head.status, RunStatus::Completed | RunStatus::Cancelled) {
        // No activation is in flight, so the run has no open children.
        check_removal(store, &head, None, before).await?;
        return Ok(Some(head.head()));
    }
    let folded = match folded_at(store, run, At::Latest, None).await {
        Ok(folded) => Some(folded),
        Err(error) if is_unreadable(&error) || error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    check_removal(store, &head, folded.as_ref(), before).await?;
    Ok(folded.map(|_| head.head()))
}

/// The open questions of a run and its descendants.
#[derive(Debug, Default)]
#[non_exhaustive]
#[doc(hidden)]
pub struct OpenQuestions {
    /// The questions. The run's own questions come first.
    pub questions: Vec<Question>,
    /// The errors of unreadable descendants. Their questions are missing. Each error names its [run](Error::run).
    pub unreadable: Vec<Error>,
}

/// Lists the open questions of a run and its active descendants, each with its path.
///
/// # Errors
///
/// Returns the errors of the store, and the errors of [`fold`] for the run itself.
pub async fn questions_of_all(store: &dyn CheckpointStore, run: &RunKey) -> Result<OpenQuestions> {
    let mut found = OpenQuestions::default();
    let mut left = VecDeque::from([(run.clone(), String::new())]);
    while let Some((asking, path)) = left.pop_front() {
        let is_first = path.is_empty();
        let machine = match machine_of(store, &asking).await {
            Ok(machine) => machine,
            Err(error) if !is_first && error.kind() == ErrorKind::NotFound => continue,
            Err(error) if !is_first && is_unreadable(&error) => {
                tracing::warn!(run = %asking, %error, "cannot read the questions of a descendant");
                found.unreadable.push(if error.run().is_none() { error.with_run(&asking) } else { error });
                continue;
            }
            Err(error) => return Err(error),
        };
        let asked_by = (!is_first).then_some(&asking);
        let below = |question: Question| question.below(&path, asked_by.cloned());
        found.questions.extend(questions(&machine).into_iter().map(below));
        for (key, child) in machine.all_children().filter(|(_, child)| child.is_open()) {
            let (step, child) = (step_to(&machine, key, &child), machine.child_ref(&asking, key, &child));
            let goes_on = |head: &RunHead| child.is(&head.facts) && !head.status.is_finished();
            if store.head(&child.run).await?.as_ref().is_some_and(goes_on) {
                left.push_back((child.run, format!("{path}{step}")));
            }
        }
    }
    Ok(found)
}

/// Returns the descendant that asks a question, and the question's name there. Returns `None` if the question names no descendant.
///
/// # Errors
///
/// Returns the errors of [`questions_of_all`].
pub async fn find_asker(
    store: &dyn CheckpointStore,
    run: &RunKey,
    question: &str,
) -> Result<Option<(RunKey, String)>> {
    let mut found: Option<(RunKey, String)> = None;
    loop {
        let (run, question) = found.as_ref().map_or((run, question), |(run, question)| (run, question));
        if !question.contains('/') {
            return Ok(found);
        }
        let machine = machine_of(store, run).await?;
        let below = machine.all_children().filter(|(_, child)| child.is_open()).find_map(|(key, child)| {
            let rest = question.strip_prefix(&step_to(&machine, key, &child))?;
            Some((machine.child_ref(run, key, &child).run, rest.to_owned()))
        });
        match below {
            Some(below) => found = Some(below),
            None => return Ok(found),
        }
    }
}

/// Returns the name of one step on the path to a descendant.
fn step_to(machine: &Machine, (node, visit): ActivationKey, child: &ActivationChild) -> String {
    format!("{}@{visit}:{}/", machine.name(node), child.name)
}

async fn machine_of(store: &dyn CheckpointStore, run: &RunKey) -> Result<Machine> {
    let records = store.load(run, At::Latest).await?.ok_or_else(|| missing(run))?;
    Ok(fold(run, &records, None)?.machine)
}

/// Returns whether a log is damaged or has a newer version. A run with such a log may be purged without a further check, because a purge is the only
/// remedy.
fn is_unreadable(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported)
}
