//! Immutable facts from a run's start: workflow, parent, labels, and the hash of its input.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};

use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Fingerprint, HeadRef, RunKey, WorkflowName};

/// The longest key, value, user or version, in bytes: long enough for an address or a UUID, short enough for an index.
const MAX_TEXT: usize = 256;

/// The most labels of one run: each may cost the store an index entry.
const MAX_LABELS: usize = 32;

/// The moments that RFC 3339 can name, in milliseconds.
const YEARS: std::ops::RangeInclusive<i64> = -62_167_219_200_000..=253_402_300_799_999;

/// Facts that a run's start sets and that never change.
///
/// The store writes them with the first record and keeps them with the run's head, even after the first record is pruned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RunFacts {
    /// The workflow it is a run of.
    pub workflow: WorkflowName,
    /// The version of the workflow it was started with.
    pub version: String,
    /// The fingerprint of the graph it was started with.
    pub graph: Fingerprint,
    /// The hash of the input it was started with: what tells a repeated start from a different one.
    pub input: Fingerprint,
    /// When it was started, by the starter's clock.
    pub created: Timestamp,
    /// The run it was forked from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// For whom it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Labels for filters.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
}

impl RunFacts {
    /// Creates the facts of a run without parent, user or labels.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the version is empty, longer than 256 bytes or holds a control character.
    pub fn new(
        workflow: WorkflowName,
        version: impl Into<String>,
        graph: Fingerprint,
        input: Fingerprint,
        created: Timestamp,
    ) -> Result<Self> {
        let version = version.into();
        check("version", &version)?;
        Ok(Self {
            workflow,
            version,
            graph,
            input,
            created,
            parent: None,
            user: None,
            labels: Labels::default(),
        })
    }

    /// Checks external facts by the rules for facts that this process creates.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] as for [`new`](Self::new) and [`with_user`](Self::with_user), and if the run was started before
    /// the year 0 or after the year 9999.
    pub fn check(&self) -> Result<()> {
        check("version", &self.version)?;
        self.user.as_deref().map_or(Ok(()), |user| check("user", user))?;
        if !YEARS.contains(&self.created.unix_ms()) {
            let message = format!("the start time {} ms is not a valid date", self.created.unix_ms());
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        Ok(())
    }

    /// Sets for whom the run is.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the text is empty, longer than 256 bytes or holds a control character.
    pub fn with_user(mut self, user: impl Into<String>) -> Result<Self> {
        let user = user.into();
        check("user", &user)?;
        self.user = Some(user);
        Ok(self)
    }

    /// Sets the labels.
    #[must_use]
    pub fn with_labels(mut self, labels: Labels) -> Self {
        self.labels = labels;
        self
    }

    /// Sets the run it was forked from.
    #[must_use]
    pub fn with_parent(mut self, parent: Parent) -> Self {
        self.parent = Some(parent);
        self
    }
}

/// Where a run was forked from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// The run it was forked from.
    pub run: RunKey,
    /// The record after which it was forked.
    pub at: HeadRef,
}

/// Labels for filters of runs: up to 32 pairs of text.
///
/// Keys and values hold 1 to 256 bytes (values may be empty) of any text without control characters, and are stored exactly.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Labels(
    /// Shared until it is changed: the facts of a run are copied for its log, its place and its driver.
    Arc<BTreeMap<String, String>>,
);

impl Labels {
    /// Adds a label, replacing one of the same key.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if a text is too long or holds a control character, [`ErrorKind::TooLarge`] over 32 labels.
    pub fn insert(&mut self, key: impl Into<String>, value: impl Into<String>) -> Result<()> {
        let (key, value) = (key.into(), value.into());
        check("label key", &key)?;
        if !value.is_empty() {
            check("label value", &value)?;
        }
        if self.0.len() >= MAX_LABELS && !self.0.contains_key(&key) {
            return Err(Error::new(
                ErrorKind::TooLarge,
                format!("a run holds at most {MAX_LABELS} labels; use fewer"),
            ));
        }
        Arc::make_mut(&mut self.0).insert(key, value);
        Ok(())
    }

    /// Returns the value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// Iterates in the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns how many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut labels = Self::default();
        for (key, value) in BTreeMap::<String, String>::deserialize(deserializer)? {
            labels.insert(key, value).map_err(serde::de::Error::custom)?;
        }
        Ok(labels)
    }
}

fn check(what: &str, text: &str) -> Result<()> {
    let refuse = |why: String| Err(Error::new(ErrorKind::Invalid, format!("the {what} {why}")));
    if text.is_empty() {
        return refuse("is empty; set a text, or remove it".into());
    }
    if text.len() > MAX_TEXT {
        return refuse(format!("has {} bytes; use at most {MAX_TEXT}", text.len()));
    }
    match text.chars().find(|c| c.is_control()) {
        Some(bad) => refuse(format!("contains the control character {bad:?}; remove it")),
        None => Ok(()),
    }
}
