//! Immutable facts from a run's start: workflow, parent, labels, and the hash of its input.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};

use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Fingerprint, HeadRef, RunKey, WorkflowName};

/// The maximum length of a label's key or value, a user or a version, in bytes: long enough for an address or a UUID, short enough for an index.
const MAX_TEXT: usize = 256;

/// The maximum number of labels of a run. Each label may cost the store an index entry.
const MAX_LABELS: usize = 32;

/// The times that RFC 3339 can express, in milliseconds.
const YEARS: std::ops::RangeInclusive<i64> = -62_167_219_200_000..=253_402_300_799_999;

/// Facts that the start of a run sets and that never change.
///
/// The store writes them with the first record and keeps them with the run's head, even after the first record is pruned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RunFacts {
    /// The workflow of the run.
    pub workflow: WorkflowName,
    /// The version of the workflow at the start.
    pub version: String,
    /// The fingerprint of the graph at the start.
    pub graph: Fingerprint,
    /// The hash of the start input. It distinguishes a repeated start from a different start of the same id.
    pub input: Fingerprint,
    /// The time of the start, by the starter's clock.
    pub created: Timestamp,
    /// The parent that the run was forked from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// The user for whom the run works.
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
    /// [`ErrorKind::Invalid`] if the version is empty, longer than 256 bytes or contains a control character.
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

    /// Checks facts from outside, such as those of an import, by the rules for facts that this process creates.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] as for [`new`](Self::new) and [`with_user`](Self::with_user), and if the time of the start is before the year 0 or
    /// after the year 9999.
    pub fn check(&self) -> Result<()> {
        check("version", &self.version)?;
        self.user.as_deref().map_or(Ok(()), |user| check("user", user))?;
        if !YEARS.contains(&self.created.unix_ms()) {
            let message = format!("the start time {} ms is not a valid date", self.created.unix_ms());
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        Ok(())
    }

    /// Sets the user for whom the run works.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the text is empty, longer than 256 bytes or contains a control character.
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

    /// Sets the parent that the run was forked from.
    #[must_use]
    pub fn with_parent(mut self, parent: Parent) -> Self {
        self.parent = Some(parent);
        self
    }
}

/// The run and the record from which a run was forked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// The run that was forked.
    pub run: RunKey,
    /// The record after which the fork begins.
    pub at: HeadRef,
}

/// Labels of a run, which listings can filter by: up to 32 pairs of key and value.
///
/// Keys and values hold any text of 1 to 256 bytes without control characters. Values may be empty. The store keeps them exactly.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Labels(
    /// Shared until it is changed: the log, the listing and the driver of a run each have a copy of its facts.
    Arc<BTreeMap<String, String>>,
);

impl Labels {
    /// Adds a label. Replaces an existing label with the same key.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if a text is too long or contains a control character. [`ErrorKind::TooLarge`] if the run would have more than 32
    /// labels.
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

    /// Returns the value of the label `key`.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// Iterates over the labels in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Returns whether there are no labels.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of labels.
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
