//! A draft: the state that a node's attempt can edit. The state is copied at the first edit.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::contract::State;
use super::hand_in::HandIn;
use super::update::Update;
use crate::error::Result;

/// The state that an attempt of a node receives and can edit. It dereferences to `S`. The state is copied at the first write.
///
/// When the node returns the draft, it becomes an [`Update`]: the runtime compares the fields with the original state. If the node never wrote to the
/// draft, the update is empty and nothing is compared.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use ferrata_core::state::{Context, Draft};
///
/// let mut draft = Draft::new(Arc::new(Context::new()));
/// assert!(!draft.is_written());
/// draft.set("title", "Ferrata")?;
/// assert!(draft.is_written());
/// # Ok::<(), ferrata_core::Error>(())
/// ```
pub struct Draft<S> {
    before: Arc<S>,
    // Boxed, because drafts live in the futures of nodes.
    after: Option<Box<S>>,
}

impl<S> Draft<S> {
    /// Creates a draft of `state`. The state is shared until the first write.
    pub fn new(state: Arc<S>) -> Self {
        Self { before: state, after: None }
    }

    /// Returns the state that the attempt received, without its edits.
    pub fn original(&self) -> &S {
        &self.before
    }

    /// Returns whether the draft was ever borrowed mutably.
    pub fn is_written(&self) -> bool {
        self.after.is_some()
    }
}

impl<S: State> Draft<S> {
    /// Returns the draft as the result of the node, together with a transaction. The database commits the result and the transaction together, or
    /// neither of them.
    ///
    /// `NodeContext::transaction` begins such a transaction.
    ///
    /// # Errors
    ///
    /// Never returns an error. The return type is the type that a node returns.
    pub fn commit_with<T: HandIn>(self, transaction: T) -> Result<Update<S>, T::Error> {
        Ok(Update::from(self).commit_with(transaction))
    }

    /// Returns the changes as a typed update, or `None` if the draft is unwritten.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`State::diff`].
    pub(crate) fn into_changes(self) -> Result<Option<S::Update>> {
        self.after.map(|after| S::diff(&self.before, *after)).transpose()
    }
}

impl<S> Deref for Draft<S> {
    type Target = S;

    fn deref(&self) -> &S {
        self.after.as_deref().unwrap_or(&self.before)
    }
}

impl<S: Clone> DerefMut for Draft<S> {
    fn deref_mut(&mut self) -> &mut S {
        self.after.get_or_insert_with(|| Box::new(S::clone(&self.before)))
    }
}

impl<S> From<Arc<S>> for Draft<S> {
    fn from(state: Arc<S>) -> Self {
        Self::new(state)
    }
}

impl<S: fmt::Debug> fmt::Debug for Draft<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Draft").field("written", &self.is_written()).field("state", &**self).finish()
    }
}
