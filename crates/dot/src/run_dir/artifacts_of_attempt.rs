//! Files that a command leaves for later nodes. The files are stored in the directory of the run, under the hash of their content.

use std::ffi::OsString;
use std::path::Path;

use ferrata_core::state::{Artifact, Context};
use serde_json::{Value as Json, json};

use super::files;
use crate::outcome::StageOutcome;

/// Prefix of the context keys that describe these files.
const ARTIFACT: &str = "artifact.";

/// The directory for these files, inside the working directory of the command.
const LEFT: &str = "artifacts";

/// Maximum number of files of one attempt. The next constant is the maximum size of a file.
const MOST: usize = 100;
pub(super) const MOST_BYTES: u64 = 64 << 20;

/// Maximum length of the name of a file.
const MOST_NAME: usize = 100;

/// Returns the context key of an artifact.
pub(crate) fn key(name: &str) -> String {
    format!("{ARTIFACT}{name}")
}

/// Removes the files of an interrupted attempt. Otherwise another attempt in the same directory would report these files as its own.
pub(crate) fn clear(stage: &Path) -> std::io::Result<()> {
    files::remove_whole(&stage.join(LEFT))
}

/// Stores the files that a command left. The outcome of the command gets the path and size of each file, under `artifact.` and the name of the file.
/// If a file cannot be stored, the outcome gets a note, because the work itself is done.
pub(super) fn collect(root: &Path, stage: &Path, outcome: &mut StageOutcome) {
    let left = stage.join(LEFT);
    if !outcome.status.is_success() || !std::fs::symlink_metadata(&left).is_ok_and(|about| about.is_dir()) {
        return;
    }
    let mut names: Vec<OsString> =
        std::fs::read_dir(&left).into_iter().flatten().flatten().map(|entry| entry.file_name()).collect();
    names.sort();
    let mut untaken = Vec::new();
    for name in &names {
        let shown = name.to_string_lossy();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let named = !shown.starts_with('.') && shown.len() <= MOST_NAME && shown.chars().all(is_plain);
        let kept = || {
            let content = files::read(root, &left.join(name), MOST_BYTES)?;
            let path = format!("artifacts/{}", blake3::hash(&content).to_hex());
            files::write(root, &root.join(&path), &content)?;
            Ok::<_, std::io::Error>(json!({"path": path, "bytes": content.len()}))
        };
        let taken = outcome.context_updates.keys().filter(|key| key.starts_with(ARTIFACT)).count();
        match (named && taken < MOST).then(kept) {
            Some(Ok(told)) => {
                outcome.context_updates.insert(key(&shown), told);
            }
            Some(Err(error)) => untaken.push(format!("`{}`: {error}", shown.escape_debug())),
            None => untaken.push(format!("`{}`", shown.escape_debug())),
        }
    }
    if !untaken.is_empty() {
        let more = untaken.len().saturating_sub(5);
        untaken.truncate(5);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        outcome.add_note(&format!("not stored as artifacts: {}{more}", untaken.join(", ")));
    }
}

/// Returns the stored files that an outcome lists, in the form in which the log and its checkpoints contain them.
pub(crate) fn listed_artifacts(outcome: &StageOutcome) -> impl Iterator<Item = Artifact> {
    outcome.context_updates.iter().filter_map(|(key, value)| {
        let (name, path, bytes) = artifact_of_key(key, value)?;
        let hash = path.rsplit('/').next()?;
        Some(Artifact::new(name, path).with_bytes(bytes).with_hash(format!("blake3:{hash}")))
    })
}

/// Returns environment variables with the paths of earlier nodes' artifacts, for example `FERRATA_ARTIFACT_report_md`.
pub(crate) fn variables(root: &Path, context: &Context) -> Vec<(OsString, OsString)> {
    let mut told: Vec<(OsString, OsString)> = Vec::new();
    for (key, value) in context.iter() {
        let Some((name, path, _)) = artifact_of_key(key, value) else { continue };
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let variable: String = "FERRATA_ARTIFACT_".chars().chain(name.chars().map(plain)).collect();
        if told.len() < MOST && told.iter().all(|(known, _)| *known != *variable) {
            told.push((variable.into(), root.join(path).into()));
        }
    }
    told
}

/// Returns the paths of the artifacts that a context names. The contexts of its branches count too.
pub(super) fn artifact_paths(context: &Json) -> impl Iterator<Item = &str> {
    context.as_object().into_iter().flatten().flat_map(|(key, value)| {
        let branch = value.as_object().filter(|_| key.starts_with("internal.branch."));
        let all = std::iter::once((key, value)).chain(branch.into_iter().flatten());
        all.filter_map(|(key, value)| artifact_of_key(key, value).map(|(_, path, _)| path))
    })
}

/// Returns the name, path and size of the artifact that a context key describes. The path can only lead to an artifact, even if someone else set the
/// key.
pub(super) fn artifact_of_key<'a>(key: &'a str, value: &'a Json) -> Option<(&'a str, &'a str, u64)> {
    let path = value.get("path")?.as_str()?;
    let hash = path.strip_prefix("artifacts/")?;
    files::is_hash(hash).then_some((key.strip_prefix(ARTIFACT)?, path, value.get("bytes")?.as_u64()?))
}
