//! The result of a node: a change of the state, and the output for later nodes.

use std::fmt;
use std::mem;
use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;

use super::contract::State;
use super::draft::Draft;
use super::hand_in::HandIn;
use super::node_notes::NodeNotes;
use super::strict;
use super::writer::PatchWriter;
use crate::error::{Error, ErrorKind, Result};

/// The result of a node: a change of the state, an output for the nodes after it, and notes for people.
///
/// Create an update from a [`Draft`], from a typed update such as `Review::update().draft("text")`, or from `()`. These conversions cannot fail. If a
/// value is invalid, the update stores the error, and the attempt fails when the update is applied.
///
/// # Examples
///
/// ```
/// use ferrata_core::state::{Context, PatchWriter, Update};
///
/// let update = Update::from(Context::update().set("title", "Ferrata")).with_output(3).with_notes("named it");
/// let mut state = Context::new();
/// update.apply(&mut state, &mut PatchWriter::touching())?;
/// assert_eq!(state.get::<String>("title")?.as_deref(), Some("Ferrata"));
/// assert_eq!(update.output().map(|output| output.get()), Some("3"));
/// # Ok::<(), ferrata_core::Error>(())
/// ```
pub struct Update<S: State> {
    /// Outbox messages of the update, if any.
    sent: Option<Box<Result<Vec<SentOut>>>>,
    /// Notes of the attempt, if any.
    noted: Option<Box<NodeNotes>>,
    change: Result<Option<StateChange<S>>>,
    output: Result<Option<Arc<RawValue>>>,
    notes: Option<String>,
    /// Whether the update ends a conversation without a message.
    leaves: bool,
}

impl<S: State> Update<S> {
    /// Adds a transaction to the update. The database commits it together with the record of the node's end.
    ///
    /// `NodeContext::transaction` begins such a transaction.
    #[must_use]
    pub fn commit_with(self, transaction: impl HandIn) -> Self {
        transaction.hand_in();
        self
    }

    /// Creates an update from a typed update. Derived code calls this function in its `From` implementation.
    #[doc(hidden)]
    pub fn new(change: S::Update) -> Self {
        Self { change: Ok(Some(StateChange::Own(change))), ..Self::default() }
    }

    /// Creates an update without changes.
    pub fn none() -> Self {
        Self::default()
    }

    /// Sets the output, which the fired edges carry to their target nodes.
    ///
    /// If the output is an object, it may have the text fields `outcome`, for the result of the work, and `failure_reason`. The history, the log and
    /// the report of the run show both fields, unless `outcome` is `success`. These fields do not make the node fail: the run continues as after any
    /// other success.
    #[must_use]
    pub fn with_output(mut self, output: impl Serialize) -> Self {
        self.output = strict::to_raw_value(&output).map(|text| Some(text.into()));
        self
    }

    /// Creates the update of a conversation that ends without a message.
    #[doc(hidden)]
    pub fn leaving(reason: impl Serialize) -> Self {
        Self { leaves: true, ..Self::none().with_output(reason) }
    }

    /// Returns whether the update ends a conversation without a message.
    #[doc(hidden)]
    pub fn ends_conversation(&self) -> bool {
        self.leaves
    }

    /// Adds a note for people who read the run's history.
    #[must_use]
    pub fn with_notes(mut self, notes: impl Into<String>) -> Self {
        self.notes = Some(notes.into());
        self
    }

    /// Adds an outbox message, which leaves the run. The record of the node's end contains the message.
    ///
    /// After the record is durable, the sink of the topic receives the message at least once, in the order in which the run sent messages to the
    /// topic. `RuntimeBuilder::sink` registers a sink. A topic has 1 to 128 bytes and no control character. If the topic or the payload is invalid,
    /// the attempt fails when the update is applied.
    #[must_use]
    pub fn send_out(mut self, topic: impl AsRef<str>, payload: impl Serialize) -> Self {
        let letter = SentOut::new(topic.as_ref(), &payload);
        let sent = self.sent.get_or_insert_with(|| Box::new(Ok(Vec::new())));
        match (&mut **sent, letter) {
            (Ok(letters), Ok(letter)) => letters.push(letter),
            (Ok(_), Err(error)) => **sent = Err(error),
            (Err(_), _) => {}
        }
        self
    }

    /// Adds outbox messages that the attempt sent earlier, before the messages of the update.
    #[doc(hidden)]
    pub fn sent_before(mut self, letters: Vec<SentOut>) -> Self {
        match self.sent.as_deref_mut() {
            _ if letters.is_empty() => {}
            None => self.sent = Some(Box::new(Ok(letters))),
            Some(Ok(own)) => drop(own.splice(0..0, letters)),
            Some(Err(_)) => {}
        }
        self
    }

    /// Adds the artifacts and memory reads of the attempt.
    #[doc(hidden)]
    pub fn noting(mut self, noted: NodeNotes) -> Self {
        if !noted.is_empty() {
            self.noted = Some(Box::new(noted));
        }
        self
    }

    #[doc(hidden)]
    pub fn node_notes(&self) -> Option<&NodeNotes> {
        self.noted.as_deref()
    }

    /// Returns the outbox messages.
    #[doc(hidden)]
    pub fn sent_messages(&self) -> &[SentOut] {
        match self.sent.as_deref() {
            Some(Ok(letters)) => letters,
            _ => &[],
        }
    }

    /// Returns whether the update stores no error, so that only its change can fail when it is applied.
    #[doc(hidden)]
    pub fn has_nothing_to_report(&self) -> bool {
        self.output.is_ok() && self.sent.as_deref().is_none_or(Result::is_ok)
    }

    /// Returns the output, which the fired edges carry.
    pub fn output(&self) -> Option<&RawValue> {
        self.output.as_ref().ok()?.as_deref()
    }

    /// Returns the [`output`](Self::output) in shared form.
    #[doc(hidden)]
    pub fn shared_output(&self) -> Option<&Arc<RawValue>> {
        self.output.as_ref().ok()?.as_ref()
    }

    /// Returns the note for people.
    pub fn notes(&self) -> Option<&str> {
        self.notes.as_deref()
    }

    /// Returns whether the update certainly does not change the state. If it returns false, a typed update may still change nothing.
    pub fn is_none(&self) -> bool {
        matches!(self.change, Ok(None))
    }

    /// Converts the update to an update of another state type by the function `change`. Output and notes stay the same.
    #[doc(hidden)]
    pub fn map_change<O: State>(
        self,
        change: impl FnOnce(&S::Update) -> Result<Option<O::Update>>,
    ) -> Update<O> {
        let Self { sent, noted, change: own, output, notes, leaves } = self;
        let change = own.and_then(|own| own.map_or(Ok(None), |own| change(own.get())));
        let change = change.map(|change| change.map(StateChange::Own));
        Update { sent, noted, change, output, notes, leaves }
    }

    /// Applies the change to `state` and writes it to `patch`. If the call fails, both stay unchanged.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] with the channel's name if [`State::apply`] fails or an edited draft cannot be stored, and
    /// [`ErrorKind::Invalid`] if the output cannot be stored.
    #[doc(hidden)]
    pub fn apply(&self, state: &mut S, patch: &mut PatchWriter) -> Result<()> {
        if let Err(error) = &self.output {
            return Err(again(error, "output: "));
        }
        if let Some(Err(error)) = self.sent.as_deref() {
            return Err(again(error, "its outbox messages: "));
        }
        match &self.change {
            Ok(None) => Ok(()),
            Ok(Some(change)) => {
                let mark = patch.mark();
                state.apply(change.get(), patch).inspect_err(|_| patch.rewind(mark))
            }
            Err(error) => Err(again(error, "")),
        }
    }
}

impl<S: State> Update<S> {
    /// Returns the update in a form that another activation may reuse. Returns `None` if the update contains more than a change, an output and notes,
    /// or if it stores an error.
    #[doc(hidden)]
    pub fn make_reusable(&mut self) -> Option<KeptUpdate<S>> {
        if self.sent.is_some() || self.noted.is_some() || self.leaves {
            return None;
        }
        let output = self.output.as_ref().ok()?.clone();
        let change = match mem::replace(&mut self.change, Ok(None)) {
            Ok(change) => change.map(StateChange::shared),
            Err(error) => {
                self.change = Err(error);
                return None;
            }
        };
        self.change = Ok(change.clone().map(StateChange::Shared));
        Some(KeptUpdate { change, output, notes: self.notes.clone() })
    }
}

/// An update that other activations may reuse.
#[doc(hidden)]
#[allow(missing_debug_implementations, reason = "the user's type may not show itself")]
pub struct KeptUpdate<S: State> {
    change: Option<Arc<S::Update>>,
    output: Option<Arc<RawValue>>,
    notes: Option<String>,
}

impl<S: State> KeptUpdate<S> {
    pub fn into_update(self) -> Update<S> {
        let Self { change, output, notes } = self;
        let change = Ok(change.map(StateChange::Shared));
        Update { change, output: Ok(output), notes, ..Update::none() }
    }
}

impl<S: State> Clone for KeptUpdate<S> {
    fn clone(&self) -> Self {
        Self { change: self.change.clone(), output: self.output.clone(), notes: self.notes.clone() }
    }
}

/// The typed change: owned by this activation, or shared with others.
enum StateChange<S: State> {
    Own(S::Update),
    Shared(Arc<S::Update>),
}

impl<S: State> StateChange<S> {
    fn get(&self) -> &S::Update {
        match self {
            Self::Own(change) => change,
            Self::Shared(change) => change,
        }
    }

    fn shared(self) -> Arc<S::Update> {
        match self {
            Self::Own(change) => Arc::new(change),
            Self::Shared(change) => change,
        }
    }
}

impl<S: State> fmt::Debug for StateChange<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

/// An outbox message.
#[derive(Clone, Debug)]
#[doc(hidden)]
pub struct SentOut {
    pub topic: Arc<str>,
    pub payload: Arc<RawValue>,
}

impl SentOut {
    /// Creates an outbox message with its payload as JSON.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] if the topic is not valid, or the payload cannot be expressed in JSON.
    pub fn new(topic: &str, payload: &impl Serialize) -> Result<Self> {
        if topic.is_empty() || topic.len() > 128 || topic.chars().any(char::is_control) {
            let message = "a topic has 1 to 128 bytes and no control character";
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        Ok(Self { topic: topic.into(), payload: strict::to_raw_value(payload)?.into() })
    }
}

/// Copies an error, because an update may be applied more than once.
fn again(error: &Error, before: &str) -> Error {
    Error::new(error.kind(), format!("{before}{}", error.message()))
}

/// A type that a node may return: its draft, a typed update, an [`Update`], or `()`.
///
/// `#[derive(State)]` implements this trait for the typed update of the state.
#[diagnostic::on_unimplemented(
    message = "a node over the state `{S}` cannot return `{Self}`",
    label = "not an update of `{S}`",
    note = "return the draft of the node, as in `Ok(s)`; a typed update with the changes, as in `Ok({S}::update())`; or `Ok(())`",
    note = "a value for the next nodes is an output: `Ok(Update::none().with_output(value))`"
)]
pub trait IntoUpdate<S: State>: Sized {
    /// Converts the value to an update.
    fn into_update(self) -> Update<S>;

    /// Converts the value to an update, with [an output](Update::with_output).
    ///
    /// # Examples
    ///
    /// ```
    /// use ferrata_core::state::{Context, IntoUpdate as _};
    ///
    /// let update = Context::update().set("rows", 3).with_output(["one", "two", "three"]);
    /// assert!(update.output().is_some());
    /// ```
    fn with_output(self, output: impl Serialize) -> Update<S> {
        self.into_update().with_output(output)
    }

    /// Converts the value to an update, with [a note for people](Update::with_notes).
    fn with_notes(self, notes: impl Into<String>) -> Update<S> {
        self.into_update().with_notes(notes)
    }

    /// Converts the value to an update, with [an outbox message](Update::send_out).
    fn send_out(self, topic: impl AsRef<str>, payload: impl Serialize) -> Update<S> {
        self.into_update().send_out(topic, payload)
    }
}

impl<S: State> IntoUpdate<S> for Update<S> {
    fn into_update(self) -> Self {
        self
    }
}

impl<S: State> IntoUpdate<S> for Draft<S> {
    fn into_update(self) -> Update<S> {
        self.into()
    }
}

impl<S: State> IntoUpdate<S> for () {
    fn into_update(self) -> Update<S> {
        self.into()
    }
}

impl<S: State> Default for Update<S> {
    fn default() -> Self {
        Self { sent: None, noted: None, change: Ok(None), output: Ok(None), notes: None, leaves: false }
    }
}

impl<S: State> From<Draft<S>> for Update<S> {
    fn from(draft: Draft<S>) -> Self {
        Self { change: draft.into_changes().map(|change| change.map(StateChange::Own)), ..Self::default() }
    }
}

impl<S: State> From<()> for Update<S> {
    fn from((): ()) -> Self {
        Self::default()
    }
}

impl<S: State> fmt::Debug for Update<S> {
    /// Shows the changed channels without payloads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Update")
            .field("change", &self.change)
            .field("has_output", &self.output().is_some())
            .finish_non_exhaustive()
    }
}
