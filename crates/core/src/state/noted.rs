//! What a node notes beside the state: what it made elsewhere, and what it read from a memory.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Something that a node made outside of the run, by reference: a file, an object, a page.
///
/// Noted with [`NodeContext::artifact`](crate::node::NodeContext::artifact); a checkpoint lists them by node.
///
/// # Examples
///
/// ```
/// use ferrata_core::state::Artifact;
///
/// let report = Artifact::new("report", "s3://reports/7.pdf").with_bytes(73_112).with_media_type("application/pdf");
/// assert_eq!(report.bytes, Some(73_112));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Artifact {
    /// What it is called.
    pub name: String,
    /// Where it is: a path, a URL, or the name of a blob.
    pub reference: String,
    /// How large it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// What it is, such as `application/pdf`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// The hash of its content, with the name of the function: `sha256:..`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
}

impl Artifact {
    /// Names an artifact by where it is.
    pub fn new(name: impl Into<String>, reference: impl Into<String>) -> Self {
        let (name, reference) = (name.into(), reference.into());
        Self { name, reference, bytes: None, media_type: None, hash: None }
    }

    /// Says how large it is.
    #[must_use]
    pub fn with_bytes(mut self, bytes: u64) -> Self {
        self.bytes = Some(bytes);
        self
    }

    /// Says what it is.
    #[must_use]
    pub fn with_media_type(mut self, media_type: impl Into<String>) -> Self {
        self.media_type = Some(media_type.into());
        self
    }

    /// Says the hash of its content, with the name of the function: `sha256:..`.
    #[must_use]
    pub fn with_hash(mut self, hash: impl Into<String>) -> Self {
        self.hash = Some(hash.into());
        self
    }
}

/// What a node read from a memory.
///
/// Noted with [`NodeContext::remember_read`](crate::node::NodeContext::remember_read): a checkpoint has what its nodes knew, without asking
/// the memory again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MemoryRead {
    /// What the memory calls it.
    pub trace_id: String,
    /// What it said.
    pub content: String,
    /// How strongly it was remembered.
    pub strength: f64,
    /// What else is to be kept of it.
    #[serde(flatten)]
    pub extra: BTreeMap<String, Value>,
}

impl MemoryRead {
    /// Says what was read.
    pub fn new(trace_id: impl Into<String>, content: impl Into<String>, strength: f64) -> Self {
        let (trace_id, content) = (trace_id.into(), content.into());
        Self { trace_id, content, strength, extra: BTreeMap::new() }
    }

    /// Keeps something else of it. A field of its own is not replaced.
    #[must_use]
    pub fn with(mut self, field: impl Into<String>, value: impl Into<Value>) -> Self {
        let field = field.into();
        if !["trace_id", "content", "strength"].contains(&&*field) {
            self.extra.insert(field, value.into());
        }
        self
    }
}

/// What an attempt noted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct NodeNotes {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) artifacts: Vec<Artifact>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) reads: Vec<MemoryRead>,
}

impl NodeNotes {
    /// Returns about how many bytes it takes in a record.
    pub(crate) fn bytes(&self) -> usize {
        serde_json::to_vec(self).map_or(0, |text| text.len())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.artifacts.is_empty() && self.reads.is_empty()
    }
}
