//! What is done for those whose turn has come, and for places whose holders are gone. Each can be done twice.

use std::time::Duration;

use ferrata_core::ask::Answer;
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::Runtime;
use ferrata_core::store::RunHead;
use ferrata_core::{Epoch, Error, ErrorKind, Result, RunKey, Timestamp};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use super::seen::Seen;
use super::{Command, closed};
use crate::cell::BY;
use crate::ledger::{Held, Kind, Late, Ledger, Life, Op, Replaced};

/// How long a run that is not there is waited for, in its place or to be cancelled: its starter makes the record next.
const MISSING: Duration = Duration::from_secs(300);

/// The same of a start in whose place another one's run is on record: mostly its process has died, and the place is wanted. It can be recorded no sooner
/// than that run is purged.
const OVERTAKEN: Duration = Duration::from_secs(30);

/// For how many looks a place is kept for a run that rests and was woken: a minute, unless looks were set.
const WOKEN: u32 = 60;

/// What is to be done for a run or a node.
pub(super) enum Act {
    /// Its turn has come while it rests.
    Wake { held: Box<Held>, question: String },
    /// Its turn has come while it is on hold.
    Begin { held: Box<Held> },
    /// It came too late.
    Cancel { late: Late },
    /// Another start has taken its place.
    Replace { replaced: Box<Replaced> },
}

/// Returns what is to be done.
pub(super) fn all_due(ledger: &Ledger) -> Vec<(String, Act)> {
    let held = ledger.held.iter().filter_map(|(id, held)| {
        let act = match &held.question {
            Some(_) if held.woken.is_some() => return None,
            Some(question) => Act::Wake { held: Box::new(held.clone()), question: question.clone() },
            None if held.on_hold => Act::Begin { held: Box::new(held.clone()) },
            None => return None,
        };
        Some((id.clone(), act))
    });
    let late = ledger.late.iter().map(|(id, late)| (id.clone(), Act::Cancel { late: late.clone() }));
    let replaced = ledger.replaced.iter().map(|(id, replaced)| {
        let replaced = Box::new(replaced.clone());
        (id.clone(), Act::Replace { replaced })
    });
    held.chain(late).chain(replaced).collect()
}

impl Act {
    /// Does it, and has it noted. What fails is done again at the next look.
    pub(super) async fn carry_out(
        self,
        runtime: Runtime,
        id: String,
        commands: UnboundedSender<Command>,
        seen: Seen,
    ) {
        let note = |op| drop(commands.send(Command::Do { op, reply: None }));
        match self {
            Self::Wake { held, question } => {
                let Ok(answer) = Answer::accept("its turn has come") else { return };
                match runtime.respond(&held.run, &question, answer).by(BY).await.map_err(|error| error.kind())
                {
                    Ok(()) | Err(ErrorKind::AlreadyExists) => note(Op::Woken { id, question }),
                    // It is about to ask, or does not any more.
                    Err(ErrorKind::NotFound)
                        if seen.for_longer(&id, held.at, runtime.pace().look.saturating_mul(WOKEN)) =>
                    {
                        note(Op::Gone { id, seen: held });
                    }
                    Err(kind) => {
                        tracing::debug!(run = %held.run, ?kind, "a run that waits for a place is not woken yet");
                        look_after(&runtime, vec![(id, *held)], &commands, &seen).await;
                    }
                }
            }
            Self::Begin { held } => match begin(&runtime, &id, &held, &commands).await {
                Ok(life) => note(Op::Begun { id, at: held.at, life }),
                // It goes on already, or has ended; then another start of its name may have come since.
                Err(error) if error.kind() == ErrorKind::WrongStatus => {
                    let Ok(Some(head)) = runtime.head(&held.run).await else { return };
                    let life = Life::of(&head.facts);
                    match head.status.is_finished() {
                        true => drop(commands.send(Command::Ended { id, life })),
                        false => note(Op::Begun { id, at: held.at, life }),
                    }
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    if let Some(op) = no_longer_of(id, *held, None, &seen) {
                        note(op);
                    }
                }
                // It is looked at again.
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                Err(error) => {
                    tracing::warn!(run = %held.run, %error, "a run whose turn has come cannot begin yet");
                }
            },
            Self::Replace { replaced } => {
                if let Some(op) = supersede(&runtime, id, &replaced, &commands, &seen).await {
                    note(op);
                }
            }
            Self::Cancel { late: Late { run, at } } => {
                let cancelled = async {
                    let head = due(&runtime, &id, &run, at, &commands).await?.head();
                    runtime.cancel(&run, "its turn did not come by its deadline").by(BY).at(head).await
                };
                match cancelled.await {
                    Ok(()) => note(Op::Forgotten { id, at }),
                    // It has ended.
                    Err(error) if error.kind() == ErrorKind::WrongStatus => note(Op::Forgotten { id, at }),
                    // Its starter makes the record next, or is no more.
                    Err(error) if error.kind() == ErrorKind::NotFound => {
                        if seen.for_longer(&id, at, MISSING) {
                            note(Op::Forgotten { id, at });
                        }
                    }
                    Err(error) if error.kind() == ErrorKind::Conflict => {}
                    Err(error) => {
                        tracing::warn!(%run, %error, "a run that came too late cannot be cancelled yet");
                    }
                }
            }
        }
    }
}

/// Lets a run go whose turn has come. Returns which start of its name it is of.
async fn begin(
    runtime: &Runtime,
    id: &str,
    held: &Held,
    commands: &UnboundedSender<Command>,
) -> Result<Option<Life>> {
    let head = due(runtime, id, &held.run, held.at, commands).await?;
    if head.epoch != Epoch::NEVER {
        // The caller that has paused it since lets it go.
        return Err(Error::new(ErrorKind::WrongStatus, "the run has begun").with_run(&held.run));
    }
    runtime.unpause(&held.run).by(BY).at(head.head()).await?;
    Ok(Life::of(&head.facts))
}

/// Returns the head of the run for which something is to be done since that moment, as it was before the queue said that this still is so: when a process
/// comes to it that was stopped, that run may have ended, and another may have its name.
async fn due(
    runtime: &Runtime,
    id: &str,
    run: &RunKey,
    at: Timestamp,
    commands: &UnboundedSender<Command>,
) -> Result<RunHead> {
    let missing = || Error::new(ErrorKind::NotFound, "the run is not on record yet").with_run(run);
    let head = runtime.head(run).await?.ok_or_else(missing)?;
    let (reply, said) = oneshot::channel();
    // The task of the queue ends with the runtime alone.
    let _ = commands.send(Command::IsDue { id: id.to_owned(), at, reply });
    match said.await.map_err(|_| closed())?? {
        true => Ok(head),
        false => Err(Error::new(ErrorKind::Conflict, "it is not due any more").with_run(run)),
    }
}

/// Cancels a run in whose place another is, as soon as that is recorded: a crash loses none of the two.
async fn supersede(
    runtime: &Runtime,
    id: String,
    replaced: &Replaced,
    commands: &UnboundedSender<Command>,
    seen: &Seen,
) -> Option<Op> {
    let Replaced { waiting, by, at } = replaced;
    let is_over = seen.for_longer(&id, *at, MISSING);
    let run = &waiting.run;
    // What cannot be read now is read at a later look.
    if runtime.head(run).await.ok()?.is_none() {
        // Its starter makes the record next, or is no more.
        return is_over.then_some(Op::Forgotten { id, at: *at });
    }
    if runtime.head(by).await.ok()?.is_none() {
        return is_over.then(|| Op::Restore { id, by: by.clone() });
    }
    let reason = format!("the start of {by} has taken its place");
    let cancelled = async {
        let head = due(runtime, &id, run, *at, commands).await?.head();
        runtime.cancel(run, reason).by(BY).at(head).await
    };
    match cancelled.await {
        Ok(()) => Some(Op::Forgotten { id, at: *at }),
        Err(error) if error.kind() == ErrorKind::WrongStatus => Some(Op::Forgotten { id, at: *at }),
        Err(error) if error.kind() == ErrorKind::Conflict => None,
        Err(error) => {
            tracing::warn!(%run, %error, "a run whose place was taken cannot be cancelled yet");
            None
        }
    }
}

/// Gives back the places of holders that are gone.
pub(super) async fn look_after(
    runtime: &Runtime,
    some: Vec<(String, Held)>,
    commands: &UnboundedSender<Command>,
    seen: &Seen,
) {
    for (id, held) in some {
        // What cannot be read now is read at a later look.
        let Ok(head) = runtime.head(&held.run).await else { continue };
        let woken = runtime.pace().look.saturating_mul(WOKEN);
        let op = match held.kind {
            Kind::Run => no_longer_of(id, held, head.as_ref(), seen),
            Kind::Node => {
                is_gone(&id, &held, head.as_ref(), woken, seen).then(|| Op::Gone { id, seen: Box::new(held) })
            }
        };
        if let Some(op) = op {
            drop(commands.send(Command::Do { op, reply: None }));
        }
    }
}

/// Returns what is to be noted of the place of a run: which starts are over that stand in it, and whose run is on record. One that is not is waited for.
fn no_longer_of(id: String, held: Held, head: Option<&RunHead>, seen: &Seen) -> Option<Op> {
    let has_ended = head.is_some_and(|head| head.status.is_finished());
    let found = head.map(|head| Life::of(&head.facts));
    if !held.has_lives() || found == Some(None) {
        let is_gone = has_ended || head.is_none() && seen.for_longer(&id, held.at, MISSING);
        return is_gone.then(|| Op::Gone { id, seen: Box::new(held) });
    }
    let found = found.flatten();
    let most = if found.is_some() { OVERTAKEN } else { MISSING };
    let is_over = |life: &&Life| match found == Some(**life) {
        true => has_ended,
        // Each has its own time: it may have come just now.
        false => seen.for_longer(&format!("{id} {life}"), held.at, most),
    };
    let gone: Vec<Life> = held.lives.iter().filter(is_over).copied().collect();
    let found = found.filter(|_| !has_ended);
    let is_known = found.is_none_or(|found| held.lives.contains(&found));
    (!gone.is_empty() || !is_known).then_some(Op::Settle { id, gone, found })
}

/// Tells whether the place of a node is not used any more.
fn is_gone(id: &str, held: &Held, head: Option<&RunHead>, woken: Duration, seen: &Seen) -> bool {
    let Some(head) = head else { return true };
    match &held.question {
        _ if head.status.is_finished() => true,
        // Its process died before the run rested: whoever takes it up asks anew.
        Some(_)
            if held.woken.is_none()
                && head.status == RunStatus::InProgress
                && head.owner.is_some()
                && !head.owner_alive =>
        {
            true
        }
        // Woken, and not come for its place. Until it is woken it is waited for: no other process would wake it.
        Some(_) => held.woken.is_some_and(|at| seen.for_longer(id, at, woken)),
        None => {
            head.status != RunStatus::InProgress || head.owner != Some(held.executor) || !head.owner_alive
        }
    }
}
