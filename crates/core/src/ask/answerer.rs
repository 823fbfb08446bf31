//! Who answers questions without a person: automatically, by a function, from a queue; and a record of what was answered.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};

use super::{Answer, Question};
use crate::id::RunKey;

/// Answers the questions of the runs that go on in this process: see
/// [`RuntimeBuilder::answerer`](crate::runtime::RuntimeBuilder::answerer).
///
/// A question goes to the answerer when it is asked, and once more whenever its run is taken up while it is open. As long as the
/// answerer has not decided, the run stays in memory. Questions about activations in doubt are for people and never go to it.
#[async_trait]
pub trait Answerer: fmt::Debug + Send + Sync + 'static {
    /// Answers, or leaves the question open for somebody else with `None`. An answer that does not fit leaves it open as well.
    ///
    /// # Cancel safety
    ///
    /// The future is dropped when somebody else answers first, or when the run is left.
    async fn answer(&self, question: &Asking) -> Option<Answer>;

    /// Returns what is recorded as the author of the answers.
    fn name(&self) -> String;
}

/// A question and the run that asks it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Asking {
    /// The run.
    pub run: RunKey,
    /// The question.
    pub question: Question,
}

/// Answers by itself: with the default of the question, with its first choice, or with `true`, whichever fits first; leaves
/// other questions open. For tests, and for runs that nobody attends.
#[derive(Clone, Copy, Debug, Default)]
pub struct Automatic;

#[async_trait]
impl Answerer for Automatic {
    async fn answer(&self, asking: &Asking) -> Option<Answer> {
        let question = &asking.question;
        let expects = question.expects.as_ref()?;
        let default = question.default.as_deref().map(str::to_owned);
        let first = expects.options().first().and_then(|choice| serde_json::to_string(choice).ok());
        let fitting = [default, first, Some("true".to_owned()), Some("null".to_owned())];
        let text = fitting.into_iter().flatten().find(|text| expects.check(text).is_ok())?;
        RawValue::from_string(text).ok().map(Answer::Accept)
    }

    fn name(&self) -> String {
        "automatic".into()
    }
}

/// Answers by a function.
pub struct Callback<F>(F);

impl<F, Fut> Callback<F>
where
    F: Fn(Asking) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Option<Answer>> + Send,
{
    /// Makes an answerer of a function.
    pub fn new(answer: F) -> Self {
        Self(answer)
    }
}

impl<F> fmt::Debug for Callback<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Callback")
    }
}

#[async_trait]
impl<F, Fut> Answerer for Callback<F>
where
    F: Fn(Asking) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Option<Answer>> + Send,
{
    async fn answer(&self, asking: &Asking) -> Option<Answer> {
        (self.0)(asking.clone()).await
    }

    fn name(&self) -> String {
        "callback".into()
    }
}

/// Makes an answerer that hands every question to whoever holds the other end.
pub fn queue() -> (Queue, Pending) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (Queue { sender }, Pending { receiver })
}

/// The answerer of [`queue`]: questions go into the queue and wait there for their answer.
#[derive(Clone, Debug)]
pub struct Queue {
    sender: mpsc::UnboundedSender<Exchange>,
}

/// The questions in a queue.
#[derive(Debug)]
pub struct Pending {
    receiver: mpsc::UnboundedReceiver<Exchange>,
}

impl Pending {
    /// Takes the next question, waiting for one; `None` when the answerer is gone.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: no question is lost by dropping the future.
    pub async fn next(&mut self) -> Option<Exchange> {
        self.receiver.recv().await
    }
}

/// A question in a queue and the way to answer it. Dropping it leaves the question open.
#[derive(Debug)]
pub struct Exchange {
    asking: Asking,
    reply: oneshot::Sender<Answer>,
}

impl Exchange {
    /// Returns the question.
    pub fn asking(&self) -> &Asking {
        &self.asking
    }

    /// Answers. Returns false if nobody waits any more: somebody else answered, or the run was left.
    pub fn answer(self, answer: Answer) -> bool {
        self.reply.send(answer).is_ok()
    }
}

#[async_trait]
impl Answerer for Queue {
    async fn answer(&self, asking: &Asking) -> Option<Answer> {
        let (reply, answer) = oneshot::channel();
        self.sender.send(Exchange { asking: asking.clone(), reply }).ok()?;
        answer.await.ok()
    }

    fn name(&self) -> String {
        "queue".into()
    }
}

/// Questions and what was answered to each; none if it was left open.
type Kept = Mutex<VecDeque<(Asking, Option<Answer>)>>;

/// Asks another answerer and keeps what it said, the last thousand times.
#[derive(Debug)]
pub struct Recording<A> {
    inner: A,
    kept: Arc<Kept>,
}

impl<A> Recording<A> {
    const MOST: usize = 1_000;

    /// Records what `inner` answers.
    pub fn new(inner: A) -> Self {
        Self { inner, kept: Arc::default() }
    }

    /// Returns a look at what was answered, which stays valid when the answerer is given away.
    pub fn record(&self) -> Record {
        Record(Arc::clone(&self.kept))
    }
}

/// What a [`Recording`] kept.
#[derive(Clone, Debug)]
pub struct Record(Arc<Kept>);

impl Record {
    /// Returns the questions and what was answered to each, the oldest first.
    pub fn all(&self) -> Vec<(Asking, Option<Answer>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

#[async_trait]
impl<A: Answerer> Answerer for Recording<A> {
    async fn answer(&self, asking: &Asking) -> Option<Answer> {
        let answer = self.inner.answer(asking).await;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == Self::MOST {
            kept.pop_front();
        }
        kept.push_back((asking.clone(), answer.clone()));
        answer
    }

    fn name(&self) -> String {
        self.inner.name()
    }
}
