//! What keeps a run from being removed: children that go on with it, and a parent that has not noted what came of it.

use std::collections::{BTreeSet, VecDeque};

use super::questions;
use super::walk::folded_at;
use crate::ask::Question;
use crate::engine::fold::{ReplayedRun, fold, missing};
use crate::engine::frontier::ActivationKey;
use crate::engine::machine::Machine;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{HeadRef, RunKey};
use crate::record::RunStatus;
use crate::record::child::{Child, ParentBond};
use crate::record::parent_link::{ParentLink, parent_link};
use crate::store::{At, CheckpointStore, RunHead};

/// How the parent of a run stands to it.
#[derive(Debug)]
pub(crate) enum Parent {
    /// It waits for the run, or may, and knows whether it was started; it may be paused.
    Waits {
        began: bool,
        paused: bool,
    },
    /// It has noted what came of the run.
    Told,
    /// Its log cannot be read.
    Unknown,
    /// It was purged, also if another run bears its name now.
    Gone,
    Completed,
    Cancelled,
    /// The activation that started the run has ended.
    WentOn,
}

/// Tells how the parent of a run stands to it.
///
/// # Errors
///
/// What the store says. A log that cannot be read is no error.
pub(crate) async fn parent_of(
    store: &dyn CheckpointStore,
    run: &RunKey,
    link: &ParentLink,
) -> Result<Parent> {
    match store.head(&link.parent).await?.map(|head| head.status) {
        None => return Ok(Parent::Gone),
        Some(RunStatus::Completed) => return Ok(Parent::Completed),
        Some(RunStatus::Cancelled) => return Ok(Parent::Cancelled),
        Some(_) => {}
    }
    let folded = match folded_at(store, &link.parent, At::Latest, None).await {
        Ok(folded) => folded,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Parent::Gone),
        Err(error) if is_unreadable(&error) => return Ok(Parent::Unknown),
        Err(error) => return Err(error),
    };
    let machine = &folded.machine;
    if !link.start.starts_with(&machine.life().to_string()) {
        return Ok(Parent::Gone);
    }
    let known = machine.child_that_is(&run.run);
    let known = known.filter(|(key, child)| machine.child_ref(&link.parent, *key, child).start == link.start);
    Ok(match known {
        Some((_, Child { told: Some(_), .. })) => Parent::Told,
        Some((_, Child { began, .. })) => Parent::Waits { began, paused: machine.paused().is_some() },
        None => Parent::WentOn,
    })
}

/// Checks that no run needs one that is to be removed: no child goes on that would be without a parent, and its parent does not wait to
/// note what came of it. A run in `before` is removed before it, and needs nothing.
///
/// # Errors
///
/// [`ErrorKind::WrongStatus`] naming the run that stands in the way, and what to do. What the store says.
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
            "it has letters that are not delivered; let a process with their outlet deliver them, or drop them with \
             `Runtime::drop_letters`".to_owned(),
        );
    }
    if let Some(child) = open_child(store, run, folded, before).await? {
        return refuse(format!(
            "its child {child} goes on, and would be without a parent; cancel the run and wait for its end, or purge the child before it"
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
        Parent::Waits { .. } if head.status.is_finished() => refuse(format!(
            "its parent {parent} has not noted yet what came of it; let the parent go on, and try again, or purge the parent before it"
        )),
        Parent::Waits { began: false, .. } => refuse(format!(
            "its parent {parent} has not noted yet that it was started, and would start it again; let the parent go on, and try again, \
             or cancel the run and purge the parent before it"
        )),
        _ => Ok(()),
    }
}

/// Finds a child that is active and ends with its parent, as the logs of both say.
///
/// # Errors
///
/// As [`folded_at`].
pub(crate) async fn active_child(store: &dyn CheckpointStore, run: &RunKey) -> Result<Option<RunKey>> {
    let folded = folded_at(store, run, At::Latest, None).await?;
    open_child(store, run, Some(&folded), &BTreeSet::new()).await
}

/// Finds a child that goes on and ends with its parent.
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

/// Checks, of a run that is to be removed by hand after those in `before`, what [`check_removal`] does, as far as its log can be read. Returns
/// the head for which that holds, if it can be.
///
/// # Errors
///
/// As [`check_removal`].
pub(crate) async fn check_purge(
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
        // Nothing of it is in flight, so it has no children any more.
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

/// What a run and its descendants ask.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct OpenQuestions {
    /// The questions, those of the run itself first.
    pub questions: Vec<Question>,
    /// Why descendants could not be read: their questions are not among the others. Each error names its [run](Error::run).
    pub unreadable: Vec<Error>,
}

/// Lists the questions that a run waits for, and those of its descendants that go on, each with the way down to it.
///
/// # Errors
///
/// What the store says, and as [`fold`] of the run itself.
pub(crate) async fn questions_of_all(store: &dyn CheckpointStore, run: &RunKey) -> Result<OpenQuestions> {
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
        let below = |question: Question| Question {
            id: format!("{path}{}", question.id),
            asked_by: asked_by.cloned(),
            ..question
        };
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

/// Finds the descendant that a question is of, and what the question is called there; `None` if the question names none.
///
/// # Errors
///
/// As [`questions_of_all`].
pub(crate) async fn who_asks(
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

/// Names one level on the way to a descendant.
fn step_to(machine: &Machine, (node, visit): ActivationKey, child: &Child) -> String {
    format!("{}@{visit}:{}/", machine.name(node), child.name)
}

async fn machine_of(store: &dyn CheckpointStore, run: &RunKey) -> Result<Machine> {
    let records = store.load(run, At::Latest).await?.ok_or_else(|| missing(run))?;
    Ok(fold(run, &records, None)?.machine)
}

/// Whether a log is damaged, or of a newer version: a purge is the remedy, and looks no further.
fn is_unreadable(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported)
}
