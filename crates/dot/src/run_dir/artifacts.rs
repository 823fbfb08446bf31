//! Large values in a run directory. Each value is stored once, under the hash of its content, and a reference replaces the value where it was.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};

use super::files;
use super::fold::StageAttempt;
use super::view::AttemptArtifact;

/// Size in bytes from which a value is stored in its own file: the 100 kB of the specification.
const LARGE: usize = 100_000;

/// The large values and texts of a run directory.
#[derive(Debug)]
pub(super) struct ArtifactStore {
    root: PathBuf,
}

impl ArtifactStore {
    pub(super) fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Stores content under its hash. Returns the path of the file, relative to the root of the directory.
    fn store(&self, content: &[u8]) -> io::Result<String> {
        let path = format!("artifacts/{}", blake3::hash(content).to_hex());
        files::write(&self.root, &self.root.join(&path), content)?;
        Ok(path)
    }

    /// Stores a text of an attempt and adds it to the list of files. A small text goes into the directory of the attempt, and a large text into its
    /// own artifact.
    pub(super) fn keep(
        &self,
        directory: &Path,
        name: &str,
        content: &str,
        attempt: &StageAttempt,
        listed: &mut Vec<AttemptArtifact>,
    ) -> io::Result<()> {
        let own = directory.join(name);
        let path = if content.len() > LARGE {
            let path = self.store(content.as_bytes())?;
            // The artifact is enough, and the status of the attempt contains its path, so remove the copy.
            files::remove(&self.root, &own)?;
            path
        } else {
            files::write(&self.root, &own, content.as_bytes())?;
            own.strip_prefix(&self.root).unwrap_or(&own).display().to_string()
        };
        listed.push(AttemptArtifact {
            node: attempt.node.clone(),
            visit: attempt.visit,
            attempt: attempt.attempt,
            name: name.to_owned(),
            path,
            bytes: content.len() as u64,
        });
        Ok(())
    }

    /// Stores a large value and returns a reference to it; `None` if the value is not large.
    pub(super) fn shortened(&self, value: &Json) -> io::Result<Option<Json>> {
        let text = match value {
            Json::Null | Json::Bool(_) | Json::Number(_) => return Ok(None),
            Json::String(text) if text.len() <= LARGE => return Ok(None),
            Json::String(text) => text.clone(),
            other => other.to_string(),
        };
        if text.len() <= LARGE {
            return Ok(None);
        }
        let path = self.store(text.as_bytes())?;
        Ok(Some(json!({"artifact": path, "bytes": text.len()})))
    }
}
