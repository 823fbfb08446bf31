//! What is done for those whose turn has come, and for places whose holders are gone. Each can be done twice.

use std::time::Duration;

use ferrata_core::ask::Answer;
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::Runtime;
use ferrata_core::store::RunHead;
use ferrata_core::{ErrorKind, RunKey, Timestamp};
use tokio::sync::mpsc::UnboundedSender;

use super::{Command, give_back};
use crate::cell::BY;
use crate::ledger::{Held, Kind, Ledger, Op};

/// How long a place is kept for a run that is not there: its starter has the place and makes the record next.
const MISSING: Duration = Duration::from_secs(300);

/// For how many looks a place is kept for a run that rests and was woken: a minute, unless looks were set.
const WOKEN: u32 = 60;

/// What is to be done for somebody.
pub(super) enum Act {
    /// Its turn has come while it rests.
    Wake { held: Box<Held>, question: String },
    /// Its turn has come while it is on hold.
    Begin { run: RunKey, at: Timestamp },
    /// It came too late.
    Cancel { run: RunKey },
}

/// Returns what is to be done.
pub(super) fn due(ledger: &Ledger) -> Vec<(String, Act)> {
    let held = ledger.held.iter().filter_map(|(id, held)| {
        let run = held.run.clone();
        let act = match &held.question {
            Some(_) if held.woken.is_some() => return None,
            Some(question) => Act::Wake { held: Box::new(held.clone()), question: question.clone() },
            None if held.on_hold => Act::Begin { run, at: held.at },
            None => return None,
        };
        Some((id.clone(), act))
    });
    let late = ledger.late.iter().map(|(id, run)| (id.clone(), Act::Cancel { run: run.clone() }));
    held.chain(late).collect()
}

impl Act {
    /// Does it, and has it noted. What fails is done again at the next look.
    pub(super) async fn carry_out(self, runtime: Runtime, id: String, commands: UnboundedSender<Command>) {
        let note = |op| drop(commands.send(Command::Do { op, reply: None }));
        match self {
            Self::Wake { held, question } => {
                let Ok(answer) = Answer::accept("its turn has come") else { return };
                match runtime.respond(&held.run, &question, answer).by(BY).await.map_err(|error| error.kind())
                {
                    Ok(()) | Err(ErrorKind::AlreadyExists) => note(Op::Woken(id)),
                    // It is about to ask, or does not any more.
                    Err(ErrorKind::NotFound)
                        if runtime.clock().now().since(held.at)
                            > runtime.pace().look.saturating_mul(WOKEN) =>
                    {
                        note(Op::Gone { id, executor: held.executor, at: held.at });
                    }
                    Err(kind) => {
                        tracing::debug!(run = %held.run, ?kind, "a run that waits for a place is not woken yet");
                        look_after(&runtime, vec![(id, *held)], &commands).await;
                    }
                }
            }
            Self::Begin { run, at } => match runtime.unpause(&run).by(BY).await {
                Ok(()) => note(Op::Begun(id)),
                // It goes on already, or has ended.
                Err(error) if error.kind() == ErrorKind::WrongStatus => {
                    note(Op::Begun(id));
                    give_back(&runtime, &run).await;
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    if runtime.clock().now().since(at) > MISSING {
                        note(Op::Leave(id));
                    }
                }
                Err(error) => tracing::warn!(%run, %error, "a run whose turn has come cannot begin yet"),
            },
            Self::Cancel { run } => {
                match runtime.cancel(&run, "its turn did not come by its deadline").by(BY).await {
                    Ok(()) => note(Op::Forgotten(id)),
                    // It has ended, or was never recorded.
                    Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::WrongStatus) => {
                        note(Op::Forgotten(id));
                    }
                    Err(error) => {
                        tracing::warn!(%run, %error, "a run that came too late cannot be cancelled yet");
                    }
                }
            }
        }
    }
}

/// Gives back the places of holders that are gone.
pub(super) async fn look_after(
    runtime: &Runtime,
    some: Vec<(String, Held)>,
    commands: &UnboundedSender<Command>,
) {
    for (id, held) in some {
        // What cannot be read now is read at a later look.
        let Ok(head) = runtime.head(&held.run).await else { continue };
        if is_gone(&held, head.as_ref(), runtime.clock().now(), runtime.pace().look.saturating_mul(WOKEN)) {
            let op = Op::Gone { id, executor: held.executor, at: held.at };
            drop(commands.send(Command::Do { op, reply: None }));
        }
    }
}

/// Tells whether nobody uses a place any more.
fn is_gone(held: &Held, head: Option<&RunHead>, now: Timestamp, woken: Duration) -> bool {
    let Some(head) = head else {
        return held.kind == Kind::Node || now.since(held.at) > MISSING;
    };
    match held.kind {
        _ if head.status.is_finished() => true,
        Kind::Run => false,
        // Woken, and not come for its place. Until it is woken it is waited for: nobody else would wake it.
        Kind::Node if held.question.is_some() => held.woken.is_some_and(|at| now.since(at) > woken),
        Kind::Node => {
            head.status != RunStatus::InProgress || head.owner != Some(held.executor) || !head.owner_alive
        }
    }
}
