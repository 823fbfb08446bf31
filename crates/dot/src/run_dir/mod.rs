//! The directory of a run, for people and programs that read files. Its files are views of the log, which are written again if they are lost.

mod artifacts;
pub(crate) mod artifacts_of_attempt;
mod events;
pub(crate) mod files;
mod fold;
mod recorder;
mod restore;
mod view;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ferrata_core::log_reader::records_after;
use ferrata_core::runtime::Runtime;
use ferrata_core::{Error, ErrorKind, RunKey};

use self::artifacts::ArtifactStore;
use self::fold::{LogDelta, LogFold, StageAttempt};
use crate::handler::{Registry, response_key};
use crate::outcome::Status;
use crate::pipeline::{Node, Pipeline, SHAPES};
use crate::variable::expand;

pub use self::restore::RestorePoint;
pub use self::view::{AttemptArtifact, Manifest, ReplanView, Snapshot, VisitedNode};

/// The directory of the log itself, if it is inside the run directory. No node has a name with a dot, so the name is free.
const STORE: &str = ".ferrata";

/// The directory for the views of other runs in the same store.
const BESIDE: &str = ".runs";

/// Maximum size of a manifest in bytes.
const MOST_MANIFEST: u64 = 1 << 20;

/// Maximum number of bytes that are read from a file that commands can write. No such file should be larger.
const MOST_READ: u64 = 256 << 20;

/// The directory with the files of one run.
///
/// ```text
/// checkpoint.json              how the run stands, as of its last durable record: a Snapshot
/// manifest.json                what was started, when and with what: a Manifest
/// pipeline.dot                 the source, byte by byte
/// events.jsonl                 what happened, a line per event
/// artifacts/{blake3}           what is larger than 100 kB
/// {node}/{visit}.{attempt}/    prompt.md, response.md, status.json; of tools command.txt, output.txt, errors.txt;
///                              stage/: where a command works, and leaves its own status.json and artifacts/
/// ```
///
/// # Guarantees
///
/// - The log has the data, and these files are views of it. [`refresh`](Self::refresh) writes missing, outdated and damaged views again, and does not
///   touch correct ones.
/// - Each file appears completely or not at all. The exception is `events.jsonl`, which grows at its end.
/// - The files of every node are inside the directory, whatever the name of the node is. If a command creates a link in the directory, it is replaced
///   and never followed.
///
/// The files with data that is not in the log cannot be written again: the output of failed attempts, and prompts that contained the history of the
/// run. The attempts write these files themselves.
#[derive(Debug)]
pub struct RunDirectory {
    root: PathBuf,
    pipeline: Arc<Pipeline>,
    artifacts: ArtifactStore,
    state: Option<DirectoryState>,
}

/// The state of the views of the directory's run.
#[derive(Debug)]
struct DirectoryState {
    run: RunKey,
    fold: LogFold,
    listed: Vec<AttemptArtifact>,
    /// The length of the correct part of `events.jsonl` in bytes.
    events: Option<u64>,
}

impl RunDirectory {
    /// Creates a value for the directory of a run. `pipeline` is the compiled pipeline, after the transforms. The call writes no file.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] if the path cannot be made absolute.
    pub fn new(root: impl AsRef<Path>, pipeline: Arc<Pipeline>) -> Result<Self, Error> {
        let root =
            std::path::absolute(root.as_ref()).map_err(|source| failed("name", root.as_ref(), source))?;
        let artifacts = ArtifactStore::new(&root);
        Ok(Self { root, pipeline, artifacts, state: None })
    }

    /// Returns the path of the directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the path for a file store that contains only this run, so that the run directory contains everything about the run.
    pub fn store_directory(root: impl AsRef<Path>) -> PathBuf {
        root.as_ref().join(STORE)
    }

    /// Returns the path of the copy of the pipeline's source.
    pub fn source_path(root: impl AsRef<Path>) -> PathBuf {
        root.as_ref().join("pipeline.dot")
    }

    /// Reads the manifest, which names the run of the directory; `None` if there is no manifest.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] if `manifest.json` is not a manifest.
    pub fn manifest(root: impl AsRef<Path>) -> Result<Option<Manifest>, Error> {
        let root = root.as_ref();
        let path = root.join("manifest.json");
        let corrupt = |why: String| {
            let message = format!("cannot read the run id from {}: {why}", path.display());
            Error::new(ErrorKind::Corrupt, message).with_operation("dot.run_dir")
        };
        match files::read(root, &path, MOST_MANIFEST) {
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|error| corrupt(error.to_string())),
            Err(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
                ) =>
            {
                Ok(None)
            }
            Err(error) => Err(corrupt(error.to_string())),
        }
    }

    /// Returns the directory for the views of another run of the same store, for example of a fork. So the views of the directory's own run stay
    /// unchanged.
    pub fn beside(root: impl AsRef<Path>, run: &RunKey) -> PathBuf {
        let name = if *run == RunKey::from(run.run.clone()) { run.run.to_string() } else { run.to_string() };
        root.as_ref().join(BESIDE).join(files::component(&name))
    }

    /// Removes the views of a run: the files of the directory, the files of these nodes' attempts, and then the directory if it is empty. The
    /// function removes nothing outside of the directory, and only views, because a user may have stored other files there.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unavailable`] with the path that could not be removed.
    pub fn remove<'a>(root: impl AsRef<Path>, nodes: impl IntoIterator<Item = &'a str>) -> Result<(), Error> {
        let root = root.as_ref();
        files::remove_views(root, nodes).map_err(|(path, error)| failed("remove", &path, error))
    }

    /// Returns the directory of an attempt, for code that writes files into this directory during the attempt.
    pub fn attempt(root: &Path, node: &str, visit: u32, attempt: u32) -> PathBuf {
        root.join(files::component(node)).join(format!("{visit}.{attempt}"))
    }

    /// Stores a copy of the pipeline's source, unchanged.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unavailable`] if the source cannot be written.
    pub fn keep_source(&self, source: &[u8]) -> Result<(), Error> {
        let path = Self::source_path(&self.root);
        files::write(&self.root, &path, source).map_err(|error| failed("write", &path, error))
    }

    /// Copies the artifacts that a context names into this directory, if the directory `from` of another run has them. A fork needs this, because its
    /// artifacts are in the directory of the run from which it was forked. Returns whether all artifacts are now in this directory.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Unavailable`] with the path that could not be written.
    pub fn take_over(&self, context: &serde_json::Value, from: impl AsRef<Path>) -> Result<bool, Error> {
        let from = from.as_ref();
        let mut all = true;
        for name in artifacts_of_attempt::artifact_paths(context) {
            let path = self.root.join(name);
            if files::size(&self.root, &path).is_some() {
                continue;
            }
            match files::read(from, &from.join(name), artifacts_of_attempt::MOST_BYTES) {
                Ok(content) => {
                    files::write(&self.root, &path, &content)
                        .map_err(|error| failed("write", &path, error))?;
                }
                Err(_) => all = false,
            }
        }
        Ok(all)
    }

    /// Makes tools and tasks store their output in this directory while they run. The output of failed attempts is stored too.
    #[must_use]
    pub fn record(&self, registry: Registry) -> Registry {
        let root: Arc<Path> = Arc::from(&*self.root);
        registry.wrapped(|handler| Arc::new(recorder::OutputRecorder::new(handler, Arc::clone(&root))))
    }

    /// Updates the files from the log. The first call reads the whole log, and later calls read only new records.
    ///
    /// # Errors
    ///
    /// The errors of [`Runtime::checkpoint`], and [`ErrorKind::Unavailable`] with the path if a file cannot be written. The next call tries again.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: each file has either its old or its new content.
    pub async fn refresh(&mut self, runtime: &Runtime, run: &RunKey) -> Result<(), Error> {
        if self.state.as_ref().is_some_and(|state| state.run != *run || !self.is_untouched(state)) {
            self.state = None;
        }
        let head = runtime.head(run).await?;
        let known = self.state.as_ref().and_then(|state| state.fold.seen.as_ref());
        if known
            .is_some_and(|seen| head.as_ref().is_some_and(|head| (head.seq, head.id) == (seen.seq, seen.id)))
        {
            return Ok(());
        }
        // If something fails in between, the state stays removed, so that the next call starts from the beginning.
        let mut state = self.state.take().unwrap_or_else(|| DirectoryState {
            run: run.clone(),
            fold: LogFold::new(run.clone(), Arc::clone(&self.pipeline)),
            listed: Vec::new(),
            events: None,
        });
        let seen = state.fold.seen.as_ref().map(|seen| seen.seq);
        let records = records_after(&**runtime.store(), run, seen).await?;
        let LogDelta { events, attempts } = state.fold.absorb(&records)?;
        for attempt in &attempts {
            self.keep_attempt(attempt, &state.fold, &mut state.listed)?;
        }
        self.keep_events(&mut state, &events)?;
        if let Some(seen) = &state.fold.seen {
            let at = ferrata_core::store::At::Seq(seen.seq);
            let checkpoint = runtime.checkpoint(run, at).await?;
            self.write_json("manifest.json", &Manifest::of(&checkpoint, &self.pipeline))?;
            let snapshot = Snapshot::of(&checkpoint, &state.fold, &self.pipeline, &state.listed, |value| {
                self.artifacts.shortened(value)
            });
            let snapshot = snapshot.map_err(|(path, error)| failed("write", &path, error))?;
            self.write_json("checkpoint.json", &snapshot)?;
        }
        self.state = Some(state);
        Ok(())
    }

    fn write_json(&self, name: &str, value: &impl serde::Serialize) -> Result<(), Error> {
        let path = self.root.join(name);
        let mut text = serde_json::to_vec_pretty(value).map_err(|source| {
            Error::new(ErrorKind::Invalid, format!("cannot write {name} as JSON")).with_source(source)
        })?;
        text.push(b'\n');
        files::write(&self.root, &path, &text).map_err(|error| failed("write", &path, error))
    }

    /// Writes the files of an attempt.
    fn keep_attempt(
        &self,
        attempt: &StageAttempt,
        fold: &LogFold,
        listed: &mut Vec<AttemptArtifact>,
    ) -> Result<(), Error> {
        let directory = Self::attempt(&self.root, &attempt.node, attempt.visit, attempt.attempt);
        let node = self.pipeline.node(&attempt.node);
        let kind = node.map(kind_of).unwrap_or_default();
        let mut keep = |name: &str, content: &str| {
            self.artifacts
                .keep(&directory, name, content, attempt, listed)
                .map_err(|error| failed("write", &directory.join(name), error))
        };
        if let Some(node) = node.filter(|node| asks_backend(node, &kind)) {
            let path = directory.join("prompt.md");
            // The attempt wrote its own prompt, which may contain more than the prompt of the node.
            match files::read(&self.root, &path, MOST_READ).map(String::from_utf8) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    let prompt = node.attributes.text("prompt");
                    let prompt = if prompt.is_empty() { node.label() } else { prompt };
                    // Of all variables in the prompt, only the attributes of the graph still have the same values.
                    let graph = fold.graph_attributes();
                    keep("prompt.md", &expand(&prompt, &graph).unwrap_or(prompt.clone()))?;
                }
                Ok(Ok(prompt)) => keep("prompt.md", &prompt)?,
                // The file has other content, which an attempt or a user wrote.
                _ => {}
            }
        }
        if let (Some(response), true) = (&attempt.response, attempt.outcome.status != Status::Retry) {
            keep("response.md", response)?;
        }
        if let (Some(node), "tool") = (node, &*kind) {
            keep("command.txt", &node.attributes.text("tool_command"))?;
            for (name, text) in [("output.txt", &attempt.output), ("errors.txt", &attempt.errors)] {
                if let Some(text) = text {
                    keep(name, text)?;
                }
            }
        }
        for (key, value) in &attempt.outcome.context_updates {
            if let Some((name, path, bytes)) = artifacts_of_attempt::artifact_of_key(key, value) {
                let (name, path) = (name.to_owned(), path.to_owned());
                let (visit, attempt_no) = (attempt.visit, attempt.attempt);
                listed.push(AttemptArtifact {
                    node: attempt.node.clone(),
                    visit,
                    attempt: attempt_no,
                    name,
                    path,
                    bytes,
                });
            }
        }
        let mut outcome = attempt.outcome.clone();
        for value in outcome.context_updates.values_mut() {
            let short = self.artifacts.shortened(value);
            if let Some(short) = short.map_err(|error| failed("write", &directory, error))? {
                *value = short;
            }
        }
        let path = directory.join("status.json");
        let mut text = serde_json::to_vec_pretty(&outcome).map_err(|source| {
            Error::new(ErrorKind::Invalid, "cannot write the outcome as JSON").with_source(source)
        })?;
        text.push(b'\n');
        files::write(&self.root, &path, &text).map_err(|error| failed("write", &path, error))
    }

    /// Returns whether the file of events is unchanged. If it is not, all files are checked again.
    fn is_untouched(&self, state: &DirectoryState) -> bool {
        files::size(&self.root, &self.root.join("events.jsonl")) == state.events
    }

    /// Appends events to the file. If the file has other content than expected, writes all events again.
    fn keep_events(&self, state: &mut DirectoryState, lines: &str) -> Result<(), Error> {
        let path = self.root.join("events.jsonl");
        let wrong = |error| failed("write", &path, error);
        if let Some(right) = state.events {
            files::append(&self.root, &path, lines.as_bytes()).map_err(wrong)?;
            state.events = Some(right + lines.len() as u64);
            return Ok(());
        }
        let mut whole = String::new();
        let before = || String::from_utf8(files::read(&self.root, &path, MOST_READ).ok()?).ok();
        if let Some(first) = state.fold.first.filter(|first| first.get() > 0)
            && let Some(before) = before()
        {
            // The earlier records were pruned, so keep their events in the file.
            let of = |line: &str| serde_json::from_str::<serde_json::Value>(line).ok()?.get("seq")?.as_u64();
            let older = before.lines().filter(|line| of(line).is_some_and(|seq| seq < first.get()));
            older.for_each(|line| {
                whole.push_str(line);
                whole.push('\n');
            });
        }
        whole.push_str(lines);
        files::write(&self.root, &path, whole.as_bytes()).map_err(wrong)?;
        state.events = Some(whole.len() as u64);
        Ok(())
    }
}

/// Returns the context keys of the texts that the directory of an attempt shows.
pub(crate) fn attempt_keys(node: &Node) -> Vec<String> {
    match &*kind_of(node) {
        "tool" => vec!["tool.output".to_owned(), "tool.errors".to_owned()],
        _ => vec![response_key(node.id())],
    }
}

/// Returns whether a node gives a prompt to the backend.
fn asks_backend(node: &Node, kind: &str) -> bool {
    matches!(kind, "codergen" | "prompt") || kind == "parallel.fan_in" && node.attributes.is_own("prompt")
}

/// Returns the handler type of a node, by the rules of the dialect.
fn kind_of(node: &Node) -> String {
    node.handler_type(|name| SHAPES.iter().any(|(_, known)| *known == name)).into_owned()
}

fn failed(verb: &str, path: &Path, source: std::io::Error) -> Error {
    let message = format!("cannot {verb} {}: {source}", path.display());
    Error::new(ErrorKind::Unavailable, message).with_operation("dot.run_dir").with_source(source)
}
