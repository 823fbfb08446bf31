//! Notes that a node records but that are not part of the state: artifacts, and reads from a memory.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A reference to data that a node created outside of the run, such as a file, an object in an object store or a web page.
///
/// `NodeContext::artifact` records the reference. A checkpoint of the run lists the artifacts of each node.
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
    /// The name of the artifact.
    pub name: String,
    /// The location of the data: a path, a URL, or the name of a blob.
    pub reference: String,
    /// The size in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The media type, such as `application/pdf`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// The hash of the content, with the name of the hash function, such as `sha256:..`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
}

impl Artifact {
    /// Creates an artifact with a name and a location.
    pub fn new(name: impl Into<String>, reference: impl Into<String>) -> Self {
        let (name, reference) = (name.into(), reference.into());
        Self { name, reference, bytes: None, media_type: None, hash: None }
    }

    /// Sets the size in bytes.
    #[must_use]
    pub fn with_bytes(mut self, bytes: u64) -> Self {
        self.bytes = Some(bytes);
        self
    }

    /// Sets the media type.
    #[must_use]
    pub fn with_media_type(mut self, media_type: impl Into<String>) -> Self {
        self.media_type = Some(media_type.into());
        self
    }

    /// Sets the hash of the content, with the name of the hash function, such as `sha256:..`.
    #[must_use]
    pub fn with_hash(mut self, hash: impl Into<String>) -> Self {
        self.hash = Some(hash.into());
        self
    }
}

/// A value that a node read from a memory, such as a vector database.
///
/// `NodeContext::remember_read` records the value. A checkpoint of the run then shows what the node read, without access to the memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MemoryRead {
    /// The id of the value in the memory.
    pub trace_id: String,
    /// The content of the value.
    pub content: String,
    /// The strength with which the memory rated the value.
    pub strength: f64,
    /// Additional fields of the entry.
    #[serde(flatten)]
    pub extra: BTreeMap<String, Value>,
}

impl MemoryRead {
    /// Creates an entry for a value that was read.
    pub fn new(trace_id: impl Into<String>, content: impl Into<String>, strength: f64) -> Self {
        let (trace_id, content) = (trace_id.into(), content.into());
        Self { trace_id, content, strength, extra: BTreeMap::new() }
    }

    /// Adds an additional field. The name must not be that of a field of this type.
    #[must_use]
    pub fn with(mut self, field: impl Into<String>, value: impl Into<Value>) -> Self {
        let field = field.into();
        if !["trace_id", "content", "strength"].contains(&&*field) {
            self.extra.insert(field, value.into());
        }
        self
    }
}

/// The artifacts and memory reads of an attempt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[doc(hidden)]
pub struct NodeNotes {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<Artifact>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<MemoryRead>,
}

impl NodeNotes {
    /// Returns the approximate size of the notes in a record, in bytes.
    pub fn bytes(&self) -> usize {
        serde_json::to_vec(self).map_or(0, |text| text.len())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.artifacts.is_empty() && self.reads.is_empty()
    }
}
