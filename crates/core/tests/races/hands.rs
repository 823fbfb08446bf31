//! The operations of the concurrent callers, and their permitted results.

use ferrata_core::ask::{Answer, QuestionKind};
use ferrata_core::runtime::Runtime;
use ferrata_core::state::{Op, Patch};
use ferrata_core::{Error, ErrorKind};

use super::world::World;

/// The operation of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Deed {
    Respond,
    Reject,
    Send,
    Pause,
    Unpause,
    Retry,
    Edit,
    Cancel,
    AnswerCancel,
    Resume,
    TakeOver,
    RetryLetters,
    DropLetters,
}

impl Deed {
    pub(crate) const ALL: [Self; 13] = [
        Self::Respond,
        Self::Reject,
        Self::Send,
        Self::Pause,
        Self::Unpause,
        Self::Retry,
        Self::Edit,
        Self::Cancel,
        Self::AnswerCancel,
        Self::Resume,
        Self::TakeOver,
        Self::RetryLetters,
        Self::DropLetters,
    ];

    /// Weight of each operation, in the order of `ALL`. Operations that end the run are rare.
    const WEIGHTS: [u64; 13] = [8, 2, 6, 3, 3, 4, 5, 1, 1, 3, 3, 2, 1];

    pub(crate) fn draw(world: &World) -> Self {
        let mut at = world.dice.below(Self::WEIGHTS.iter().sum());
        let drawn = Self::ALL.into_iter().zip(Self::WEIGHTS).find(|&(_, weight)| {
            let is_it = at < weight;
            at = at.wrapping_sub(weight);
            is_it
        });
        drawn.unwrap().0
    }

    /// The error kinds with which the operation may be refused.
    pub(crate) fn refusals(self) -> &'static [ErrorKind] {
        match self {
            Self::Respond | Self::Reject | Self::AnswerCancel => {
                &[ErrorKind::AlreadyExists, ErrorKind::WrongStatus, ErrorKind::NotFound]
            }
            Self::RetryLetters | Self::DropLetters => &[ErrorKind::NotFound],
            Self::Resume | Self::TakeOver => &[ErrorKind::Conflict, ErrorKind::WrongStatus],
            _ => &[ErrorKind::WrongStatus],
        }
    }

    /// Performs the operation. `by` is unique to this caller.
    pub(crate) async fn act(self, world: &World, runtime: &Runtime, by: &str) -> Result<(), Error> {
        let run = World::key();
        match self {
            Self::Respond | Self::Reject | Self::AnswerCancel => {
                let questions = runtime.questions(&run).await?;
                let (id, kind) = match questions.len() {
                    // No question is open, so the answer is refused.
                    0 => ("asks@1:one".to_owned(), QuestionKind::Asked),
                    _ => {
                        let question = world.dice.pick(&questions);
                        (question.id.clone(), question.kind)
                    }
                };
                world.dice.give_way(10).await;
                let answer = match self {
                    Self::Reject => Answer::reject("no"),
                    Self::AnswerCancel => Answer::cancel("never"),
                    _ if kind == QuestionKind::Asked => Answer::accept(world.dice.below(1_000)).unwrap(),
                    _ => Answer::accept(()).unwrap(),
                };
                runtime.respond(&run, &id, answer).by(by).await
            }
            Self::Send => runtime.send(&run, by).by(by).await,
            Self::Pause => runtime.pause(&run, by).by(by).await,
            Self::Unpause => runtime.unpause(&run).by(by).await,
            Self::Retry => runtime.retry(&run).by(by).await,
            Self::Cancel => runtime.cancel(&run, by).by(by).await,
            Self::Edit => {
                let side = world.dice.below(2).into();
                let ops = [Op::Append("edits".into(), vec![by.into()]), Op::Set("side".into(), side)];
                runtime.edit(&run, Patch::from_ops(&ops).unwrap()).check_with(&world.graph).by(by).await
            }
            Self::RetryLetters => runtime.retry_outbox(&run, &[]).by(by).await,
            Self::DropLetters => runtime.drop_outbox(&run, &[]).by(by).await,
            Self::Resume => world.follow(runtime.resume(&world.graph, "r").await?),
            Self::TakeOver => world.follow(runtime.resume(&world.graph, "r").take_over().await?),
        }
    }

    /// Whether the record contains the caller's name.
    pub(crate) fn is_signed(self) -> bool {
        !matches!(self, Self::Resume | Self::TakeOver)
    }
}
