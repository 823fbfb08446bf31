//! Helpers that run the command, and compare its output with a file.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use ferrata::CheckpointStore;
use ferrata_tests::Space;
use tempfile::TempDir;

/// A folder with a store.
pub(crate) struct Place {
    pub(crate) folder: TempDir,
    /// A store elsewhere, and the environment variables for the command.
    elsewhere: Option<Elsewhere>,
    url: String,
}

/// A store, and the environment of programs that get its URL.
type Elsewhere = (Arc<dyn CheckpointStore>, Vec<(&'static str, String)>);

/// The result of one call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("file:{}", folder.path().join("runs").display());
        Self { folder, elsewhere: None, url }
    }

    /// A folder, with the store of a space.
    pub(crate) fn on(space: &Space) -> Self {
        let elsewhere = Some((space.open(), space.environment()));
        // By default, a command gives up sooner than a busy machine connects.
        let patience = if space.url().starts_with("postgres") { "&acquire_timeout_ms=10000" } else { "" };
        Self { folder: tempfile::tempdir().unwrap(), elsewhere, url: format!("{}{patience}", space.url()) }
    }

    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    /// Opens the store in this process.
    pub(crate) fn open(&self) -> Arc<dyn CheckpointStore> {
        match &self.elsewhere {
            Some((store, _)) => Arc::clone(store),
            None => ferrata::connect(&self.url).unwrap(),
        }
    }

    /// Runs the command in the folder, on its store.
    pub(crate) fn call(&self, line: &[&str]) -> Said {
        self.call_with(line, "", &[("FERRATA_STORE", &self.url())])
    }

    /// Runs a line in a shell that finds the command.
    pub(crate) fn shell(&self, line: &str) -> Said {
        let binary = Path::new(env!("CARGO_BIN_EXE_ferrata")).parent().unwrap().to_path_buf();
        let paths = std::env::var_os("PATH").unwrap_or_default();
        let path =
            std::env::join_paths(std::iter::once(binary).chain(std::env::split_paths(&paths))).unwrap();
        let elsewhere = self.elsewhere.iter().flat_map(|(_, environment)| environment.clone());
        let mut shell = Command::new("sh");
        shell
            .args(["-c", line])
            .current_dir(self.folder.path())
            .env("PATH", path)
            .env("FERRATA_STORE", self.url());
        shell.envs(elsewhere).stdin(Stdio::null());
        let output = shell.output().unwrap();
        Said {
            code: output.status.code().expect("the command must exit"),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    pub(crate) fn call_with(&self, line: &[&str], input: &str, env: &[(&str, &str)]) -> Said {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ferrata"));
        for name in ["FERRATA_STORE", "FERRATA_TENANT", "FERRATA_BY", "NO_COLOR"] {
            command.env_remove(name);
        }
        let elsewhere = self.elsewhere.iter().flat_map(|(_, environment)| environment.clone());
        command.args(line).current_dir(self.folder.path()).envs(elsewhere).envs(env.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A command that does not read its input may have exited already.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        Said {
            code: output.status.code().expect("the command must exit"),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Runs the command, which must succeed, and returns its output.
    pub(crate) fn ok(&self, line: &[&str]) -> String {
        let said = self.call(line);
        assert_eq!(said.code, 0, "{line:?}: {said:?}");
        said.out
    }

    pub(crate) fn json(&self, line: &[&str]) -> serde_json::Value {
        let out = self.ok(&[line, &["-o", "json"]].concat());
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{line:?}: {error}: {out}"))
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Returns the text without its variable parts: ids, times and this folder.
    pub(crate) fn normal(&self, text: &str) -> String {
        let text = text.replace(&self.folder.path().display().to_string(), "FOLDER");
        let mut normal = String::new();
        let mut word = String::new();
        for c in text.chars() {
            if c.is_ascii_alphanumeric() || c == '-' {
                word.push(c);
            } else {
                normal.push_str(named(&word));
                word.clear();
                normal.push(c);
            }
        }
        normal.push_str(named(&word));
        normal
    }
}

/// Returns a word, or a placeholder for a variable word.
fn named(word: &str) -> &str {
    let hex = |text: &str| text.chars().all(|c| c.is_ascii_hexdigit());
    let dashes = word.char_indices().filter(|(_, c)| *c == '-').map(|(at, _)| at).collect::<Vec<_>>();
    if word.len() == 36 && dashes == [8, 13, 18, 23] && hex(&word.replace('-', "")) {
        "UUID"
    } else if word.len() == 13 && word.starts_with(['1', '2']) && word.chars().all(|c| c.is_ascii_digit()) {
        "TIME"
    } else {
        word
    }
}

/// Compares a text with `expected/NAME`. With `FERRATA_UPDATE=1`, writes the file instead, for review and commit.
pub(crate) fn expect(name: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/expected").join(name);
    if std::env::var_os("FERRATA_UPDATE").is_some() {
        std::fs::write(&path, found).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(expected, found, "{} differs; FERRATA_UPDATE=1 writes it again", path.display());
}

/// Returns a document with all measured durations replaced by one value.
pub(crate) fn timeless(mut value: serde_json::Value) -> serde_json::Value {
    fn level(value: &mut serde_json::Value) {
        match value {
            serde_json::Value::Object(fields) => {
                for (name, value) in fields {
                    match name.as_str() {
                        "took_ms" => *value = 0.into(),
                        // Checksums and lengths depend on times and ids.
                        "crc" | "len" | "bytes" => *value = 1.into(),
                        _ => level(value),
                    }
                }
            }
            serde_json::Value::Array(items) => items.iter_mut().for_each(level),
            _ => {}
        }
    }
    level(&mut value);
    value
}
