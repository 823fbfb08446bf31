//! Captures the output of a command. The memory is bounded. If the attempt has a directory for it, a file stores the complete output.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ferrata_core::wording::count;

use crate::run_dir::files::HashedFile;

/// Maximum size of the file for a long output. The maximum equals the limit of an artifact.
const MAX_WHOLE: u64 = 64 << 20;

/// The part of a long output that stays in memory.
#[derive(Clone, Copy, Debug)]
pub(super) enum KeepPolicy {
    /// Keeps this many bytes, half from the beginning and half from the end, because a tool prints useful information at both ends.
    BothEnds(usize),
    /// Keeps this many bytes from the beginning, because the text of an answer must not have a gap.
    Beginning(usize),
}

impl KeepPolicy {
    const fn limits(self) -> (usize, usize) {
        match self {
            Self::BothEnds(bytes) => (bytes / 2, bytes - bytes / 2),
            Self::Beginning(bytes) => (bytes, 0),
        }
    }
}

impl Default for KeepPolicy {
    fn default() -> Self {
        Self::BothEnds(0)
    }
}

/// The location for the complete output, if an output exceeds its limit in memory.
#[derive(Clone, Debug)]
pub(super) struct WholePlace {
    /// The root directory. The code follows no link below it.
    pub(super) root: PathBuf,
    /// The directory of the files, inside the root.
    pub(super) directory: PathBuf,
    /// Whether the directory contains the artifacts of the run, which the context names.
    pub(super) is_artifact: bool,
}

/// The file of a complete output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WholeOutput {
    /// The path of the file. The path is relative to the root for an artifact, and absolute otherwise.
    pub(super) path: String,
    pub(super) bytes: u64,
    /// Whether the output was longer than the maximum size of the file.
    pub(super) is_cut: bool,
    pub(super) is_artifact: bool,
}

/// The standard output or standard error of a command that has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CapturedOutput {
    /// The captured text. Bytes that are not UTF-8 become `U+FFFD`. If bytes are missing, a line states their number.
    pub(crate) text: String,
    /// The number of bytes that are missing in the text.
    pub(super) left_out: u64,
    /// The file of the complete output, if the text is incomplete.
    pub(super) whole: Option<WholeOutput>,
    /// The reason why no file was written.
    pub(super) problem: Option<String>,
}

impl CapturedOutput {
    /// Describes the missing bytes and names the file with the complete output; `None` if the text is complete.
    pub(super) fn note(&self, what: &str) -> Option<String> {
        if self.left_out == 0 {
            return None;
        }
        let lacks = format!("{what} lacks {}", count(self.left_out, "byte"));
        Some(match (&self.whole, &self.problem) {
            (Some(whole), _) if whole.is_cut => {
                format!("{lacks}; the first {} bytes of it are {}", whole.bytes, whole.path)
            }
            (Some(whole), _) => format!("{lacks}; all of it is {}", whole.path),
            (None, Some(problem)) => format!("{lacks}; the full text could not be stored: {problem}"),
            (None, None) => format!("{lacks}; only a run directory keeps all of it"),
        })
    }
}

/// Collects the standard output or the standard error.
#[derive(Debug, Default)]
struct OutputCollector {
    policy: KeepPolicy,
    place: Option<WholePlace>,
    head: Vec<u8>,
    tail: Vec<u8>,
    left_out: u64,
    file: Option<(HashedFile, WholePlace)>,
    problem: Option<String>,
}

impl OutputCollector {
    fn push(&mut self, bytes: &[u8]) {
        let (first, last) = self.policy.limits();
        if self.head.len() + self.tail.len() + bytes.len() > first + last {
            self.begin_file();
        }
        self.write(bytes);
        let room = first.saturating_sub(self.head.len()).min(bytes.len());
        self.head.extend_from_slice(&bytes[..room]);
        self.tail.extend_from_slice(&bytes[room..]);
        // Cut rarely, because each cut moves the remaining bytes.
        if self.tail.len() > 2 * last + 4096 {
            self.cut(last);
        }
    }

    fn cut(&mut self, last: usize) {
        let over = self.tail.len().saturating_sub(last);
        self.tail.drain(..over);
        self.left_out += over as u64;
    }

    /// Starts to write the output to a file, once the text in memory can no longer be complete.
    fn begin_file(&mut self) {
        let Some(place) = self.place.take() else { return };
        match HashedFile::create(&place.root, &place.directory) {
            Ok(file) => {
                self.file = Some((file, place));
                let (head, tail) = (std::mem::take(&mut self.head), std::mem::take(&mut self.tail));
                self.write(&head);
                self.write(&tail);
                (self.head, self.tail) = (head, tail);
            }
            Err(error) => self.problem = Some(error.to_string()),
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        let Some((file, _)) = &mut self.file else { return };
        let room = usize::try_from(MAX_WHOLE.saturating_sub(file.bytes())).unwrap_or(usize::MAX);
        if let Err(error) = file.write(&bytes[..room.min(bytes.len())]) {
            self.problem = Some(error.to_string());
            // Dropping the file removes it.
            self.file = None;
        }
    }

    fn finish(&mut self) -> CapturedOutput {
        let (_, last) = self.policy.limits();
        self.cut(last);
        let total = (self.head.len() + self.tail.len()) as u64 + self.left_out;
        let mut whole = None;
        if let Some((file, place)) = self.file.take() {
            let bytes = file.bytes();
            match file.finish() {
                Ok(path) => {
                    let shown = path.strip_prefix(&place.root).ok().filter(|_| place.is_artifact);
                    let path = shown.unwrap_or(&path).display().to_string();
                    whole = Some(WholeOutput {
                        path,
                        bytes,
                        is_cut: bytes < total,
                        is_artifact: place.is_artifact,
                    });
                }
                Err(error) => self.problem = Some(error.to_string()),
            }
        }
        let mut captured = CapturedOutput {
            left_out: self.left_out,
            whole,
            problem: self.problem.take(),
            ..CapturedOutput::default()
        };
        let head = std::mem::take(&mut self.head);
        if self.left_out == 0 {
            captured.text = text_of([head, std::mem::take(&mut self.tail)].concat());
            return captured;
        }
        let place = match &captured.whole {
            Some(whole) if whole.is_cut => format!("; {} has the first {} bytes", whole.path, whole.bytes),
            Some(whole) => format!("; {} has all", whole.path),
            None => String::new(),
        };
        let (mut head, tail) = (text_of(head), text_of(std::mem::take(&mut self.tail)));
        // The cut may have split a character.
        if head.ends_with(char::REPLACEMENT_CHARACTER) {
            head.pop();
        }
        captured.text = format!("{head}\n[.. {} left out{place} ..]\n{tail}", count(self.left_out, "byte"));
        captured
    }
}

/// Converts bytes to text, without a copy if they are UTF-8.
fn text_of(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// The kind of node whose command printed the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutputSource {
    Tool,
    Backend,
}

/// The output of an attempt's command so far. Clones share it, so the code that ends the attempt can read this output.
#[derive(Clone, Debug, Default)]
pub(crate) struct AttemptOutput(Arc<Mutex<OutputState>>);

#[derive(Debug, Default)]
struct OutputState {
    source: Option<OutputSource>,
    output: OutputCollector,
    errors: OutputCollector,
    /// Both outputs, once they have been requested.
    captured: Option<CommandOutputs>,
    is_taken: bool,
    /// Problems that occurred while writing the files.
    problems: Vec<String>,
}

/// The standard output and the standard error of a command.
#[derive(Clone, Debug)]
pub(crate) struct CommandOutputs {
    pub(super) source: OutputSource,
    pub(super) output: CapturedOutput,
    pub(crate) errors: CapturedOutput,
}

impl CommandOutputs {
    /// Returns whether the output comes from a task. Of a task, the context stores only the answer.
    pub(crate) fn is_task(&self) -> bool {
        self.source == OutputSource::Backend
    }
}

impl AttemptOutput {
    fn state(&self) -> MutexGuard<'_, OutputState> {
        // No code panics while it holds this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts to capture the output of an attempt's command.
    pub(super) fn begin(&self, source: OutputSource, policy: KeepPolicy, place: Option<&WholePlace>) {
        let collector = || OutputCollector { policy, place: place.cloned(), ..OutputCollector::default() };
        *self.state() = OutputState {
            source: Some(source),
            output: collector(),
            errors: collector(),
            ..OutputState::default()
        };
    }

    pub(super) fn push_output(&self, bytes: &[u8]) {
        self.state().output.push(bytes);
    }

    pub(super) fn push_errors(&self, bytes: &[u8]) {
        self.state().errors.push(bytes);
    }

    /// Returns a copy of the output so far; `None` if no command has started.
    pub(crate) fn captured(&self) -> Option<CommandOutputs> {
        let mut state = self.state();
        let source = state.source?;
        if state.captured.is_none() {
            let (output, errors) = (state.output.finish(), state.errors.finish());
            state.captured = Some(CommandOutputs { source, output, errors });
        }
        state.captured.clone()
    }

    /// Stores a problem. The attempt reports it when it ends.
    pub(crate) fn add_problem(&self, problem: String) {
        self.state().problems.push(problem);
    }

    /// Returns the reason why the attempt has no outcome, followed by other problems.
    pub(crate) fn explain(&self, error: &dyn std::fmt::Display) -> String {
        let problems = std::mem::take(&mut self.state().problems);
        problems.into_iter().fold(error.to_string(), |text, problem| format!("{text}; {problem}"))
    }

    /// Removes and returns the output; `None` if no command has started, or if the output was already removed.
    pub(crate) fn take(&self) -> Option<CommandOutputs> {
        let captured = self.captured()?;
        let was_taken = std::mem::replace(&mut self.state().is_taken, true);
        (!was_taken).then_some(captured)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn captured(policy: KeepPolicy, parts: &[&[u8]]) -> CapturedOutput {
        let mut collector = OutputCollector { policy, ..OutputCollector::default() };
        parts.iter().for_each(|part| collector.push(part));
        collector.finish()
    }

    #[test]
    fn tool_output_keeps_both_ends() {
        let text = |keep, parts: &[&str]| {
            let parts: Vec<&[u8]> = parts.iter().map(|part| part.as_bytes()).collect();
            captured(KeepPolicy::BothEnds(keep), &parts).text
        };
        assert_eq!(text(10, &["abc", "", "defghij"]), "abcdefghij");
        assert_eq!(text(10, &["abcdefghijk"]), "abcde\n[.. 1 byte left out ..]\nghijk");
        let long = "x".repeat(100_000);
        assert_eq!(
            text(10, &["start", &long, &long, "the end"]),
            "start\n[.. 200002 bytes left out ..]\ne end"
        );
        assert_eq!(text(0, &["abc"]), "\n[.. 3 bytes left out ..]\n");
    }

    #[test]
    fn answer_keeps_its_beginning() {
        let found = captured(KeepPolicy::Beginning(5), &[b"abc", "dé".as_bytes(), b"fgh"]);
        // The character of two bytes does not fit completely.
        assert_eq!(found.text, "abcd\n[.. 4 bytes left out ..]\n");
        assert_eq!(
            found.note("the answer").as_deref(),
            Some("the answer lacks 4 bytes; only a run directory keeps all of it")
        );
        assert_eq!(captured(KeepPolicy::Beginning(5), &[b"abcde"]).note("the answer"), None);
    }

    /// A complete output becomes the artifact of its hash, and no other file remains.
    #[test]
    fn long_output_is_kept_whole() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_owned();
        let place = WholePlace { root: root.clone(), directory: root.join("artifacts"), is_artifact: true };
        let mut collector = OutputCollector {
            policy: KeepPolicy::BothEnds(4),
            place: Some(place),
            ..OutputCollector::default()
        };
        [&b"ab"[..], b"cd", b"ef", b"gh"].iter().for_each(|part| collector.push(part));
        let found = collector.finish();
        let whole = found.whole.unwrap();
        assert_eq!(whole.path, format!("artifacts/{}", blake3::hash(b"abcdefgh").to_hex()));
        assert_eq!(std::fs::read(root.join(&whole.path)).unwrap(), b"abcdefgh");
        assert_eq!(found.text, format!("ab\n[.. 4 bytes left out; {} has all ..]\ngh", whole.path));
        assert_eq!(std::fs::read_dir(root.join("artifacts")).unwrap().count(), 1);
        // An output that is dropped before its end leaves no file.
        let place = WholePlace { root: root.clone(), directory: root.join("artifacts"), is_artifact: true };
        let mut collector = OutputCollector {
            policy: KeepPolicy::BothEnds(4),
            place: Some(place),
            ..OutputCollector::default()
        };
        collector.push(b"too long");
        drop(collector);
        assert_eq!(std::fs::read_dir(root.join("artifacts")).unwrap().count(), 1);
    }
}
