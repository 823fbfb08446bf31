//! Parses the file that lists shards and generations, and the URL of that file.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ferrata_store::{CheckpointStore, Error, ErrorKind, Result, url};

use crate::store::ShardedStore;

/// The maximum size of the file. It is enough for tens of thousands of shards, and limits the memory that a wrong file uses.
const MAX_FILE: u64 = 4 << 20;

impl ShardedStore {
    /// Reads the file that a URL names. Opens the store of each shard with `open`, which gets the URL of the shard.
    ///
    /// The URL is `sharded:///absolute/path` or `sharded:relative/path`. The file has a line for each shard and each generation. It may have empty
    /// lines, and comments that begin with `#`:
    ///
    /// ```text
    /// shard north postgres://db-north/runs
    /// shard south postgres://db-south/runs
    /// generation north south
    /// ```
    ///
    /// A relative `file:` URL in the file is relative to the folder of the file. The call reads the file once. It reads and writes no store.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::Invalid`]: the URL names no file, the file is unreadable, or one of its lines is wrong. The message names the file and the
    ///   line, and shows the correct form. No message shows the URL of a shard, because it may contain a password.
    /// - The error of `open`, with the file and the line.
    pub fn from_url(url: &str, open: impl Fn(&str) -> Result<Arc<dyn CheckpointStore>>) -> Result<Self> {
        let path = path_of_url(url)?;
        let refuse = |what: String| {
            let message = format!(
                "the shard file {} {what}; write a line for each shard and each generation",
                path.display()
            );
            Error::new(ErrorKind::Invalid, message)
        };
        let unread = |error: std::io::Error| refuse(format!("cannot be read ({error})"));
        if fs::metadata(&path).map_err(unread)?.len() > MAX_FILE {
            return Err(refuse("is larger than 4 MiB".to_owned()));
        }
        let text = fs::read_to_string(&path).map_err(unread)?;
        let file = ShardsFile::parse(&path, &text)?;
        let mut builder = Self::builder();
        for shard in &file.shards {
            let store = open(&shard.url).map_err(|error| {
                let what = format_args!("cannot open the store of the shard `{}`", shard.name);
                shard.line.error(error.kind(), what).with_source(error)
            })?;
            builder = builder.shard(shard.name, store);
        }
        for shards in &file.generations {
            builder = builder.generation(shards.iter().copied());
        }
        builder.build().map_err(|error| {
            Error::new(error.kind(), format!("{}: {}", path.display(), error.message())).with_source(error)
        })
    }
}

/// Parses the path of the URL.
fn path_of_url(url: &str) -> Result<PathBuf> {
    let bad = |why: &str| {
        let message =
            format!("the store's URL {why}; write sharded:///absolute/path or sharded:relative/path");
        Err(Error::new(ErrorKind::Invalid, message))
    };
    let Some((_, rest)) = url.split_once(':').filter(|(scheme, _)| is(scheme, "sharded")) else {
        return bad("does not begin with sharded:");
    };
    let path = match rest.strip_prefix("//") {
        Some(rest) if rest.starts_with('/') => rest,
        Some(_) => return bad("has a host; the file must be on this machine"),
        None => rest,
    };
    if path.contains(['?', '#']) {
        return bad("has a query or a fragment, which this store does not support");
    }
    match url::decode(path).map(String::from_utf8) {
        Some(Ok(path)) if !path.is_empty() && !path.contains('\0') => Ok(path.into()),
        Some(_) => bad("names no file"),
        None => bad("has a percent sign without two hex digits"),
    }
}

fn is(scheme: &str, known: &str) -> bool {
    scheme.eq_ignore_ascii_case(known)
}

/// A line of the file, for errors.
#[derive(Clone, Copy, Debug)]
struct FileLine<'a> {
    path: &'a Path,
    number: usize,
}

impl FileLine<'_> {
    fn error(self, kind: ErrorKind, what: impl fmt::Display) -> Error {
        Error::new(kind, format!("line {} of {}: {what}", self.number, self.path.display()))
    }

    fn wrong<T>(self, what: impl fmt::Display) -> Result<T> {
        Err(self.error(ErrorKind::Invalid, what))
    }
}

#[derive(Debug)]
struct ShardLine<'a> {
    line: FileLine<'a>,
    name: &'a str,
    url: Cow<'a, str>,
}

/// The parsed contents of the file.
#[derive(Debug, Default)]
struct ShardsFile<'a> {
    shards: Vec<ShardLine<'a>>,
    generations: Vec<Vec<&'a str>>,
}

impl<'a> ShardsFile<'a> {
    fn parse(path: &'a Path, text: &'a str) -> Result<Self> {
        let mut file = Self::default();
        let mut last = FileLine { path, number: 1 };
        for (text, number) in text.lines().zip(1..) {
            let line = FileLine { path, number };
            let words: Vec<&str> = text.split_whitespace().collect();
            match words.as_slice() {
                [] => continue,
                [first, ..] if first.starts_with('#') => continue,
                ["shard", name, url] => file.shard(line, name, url)?,
                ["shard", ..] => return line.wrong("write only `shard`, its name and its URL"),
                ["generation", shards @ ..] => file.generation(line, shards)?,
                // Do not show the line, because it may contain a URL.
                _ => return line.wrong("begin the line with `shard`, `generation` or `#`"),
            }
            last = line;
        }
        if file.shards.is_empty() {
            return last.wrong("the file names no shard; add a line such as `shard north file:north`");
        }
        if file.generations.is_empty() {
            let names: Vec<&str> = file.shards.iter().map(|shard| shard.name).collect();
            let names = names.join(" ");
            return last.wrong(format_args!("the file has no generation; add the line `generation {names}`"));
        }
        for shard in &file.shards {
            if !file.generations.iter().any(|shards| shards.contains(&shard.name)) {
                let name = shard.name;
                let what = format_args!(
                    "the shard `{name}` is in no generation; add a generation with this shard at the end of the file"
                );
                return shard.line.wrong(what);
            }
        }
        Ok(file)
    }

    fn shard(&mut self, line: FileLine<'a>, name: &'a str, url: &'a str) -> Result<()> {
        let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
        if is(scheme, "sharded") {
            return line.wrong("a shard cannot be a sharded store; list its shards in this file");
        }
        let url = anchored(line.path, scheme, url);
        if let Some(other) = self.shards.iter().find(|other| other.name == name) {
            let other = other.line.number;
            return line.wrong(format_args!(
                "the shard `{name}` is already in line {other}; use a unique name for each shard"
            ));
        }
        // Each `memory:` URL opens a separate store, so it may occur more than once.
        if let Some(other) = self.shards.iter().find(|other| other.url == url && !is(scheme, "memory")) {
            let (number, other) = (other.line.number, other.name);
            return line.wrong(format_args!(
                "the shard `{other}` in line {number} has the same store; use a separate store for each shard"
            ));
        }
        self.shards.push(ShardLine { line, name, url });
        Ok(())
    }

    fn generation(&mut self, line: FileLine<'a>, shards: &[&'a str]) -> Result<()> {
        if shards.is_empty() {
            return line.wrong("the generation has no shard; name the shards for new runs");
        }
        for (place, name) in shards.iter().enumerate() {
            if !self.shards.iter().any(|shard| shard.name == *name) {
                return line.wrong(format_args!(
                    "no line before it names the shard `{name}`; add `shard {name}` and its URL above"
                ));
            }
            if shards[..place].contains(name) {
                return line.wrong(format_args!("the generation names the shard `{name}` twice; remove one"));
            }
        }
        self.generations.push(shards.to_vec());
        Ok(())
    }
}

/// Makes a relative `file:` URL relative to the folder of the file, whatever the working directory is.
fn anchored<'a>(path: &Path, scheme: &str, url: &'a str) -> Cow<'a, str> {
    let folder = path.parent().and_then(Path::to_str).filter(|folder| !folder.is_empty());
    match (folder, url.get(scheme.len() + 1..)) {
        (Some(folder), Some(rest)) if is(scheme, "file") && !rest.starts_with('/') && !rest.is_empty() => {
            let mut anchored = String::from("file:");
            for byte in folder.bytes() {
                match byte {
                    b'/' | b'.' | b'-' | b'_' | b'~' => anchored.push(byte.into()),
                    byte if byte.is_ascii_alphanumeric() => anchored.push(byte.into()),
                    // Writing into a string cannot fail.
                    byte => _ = write!(anchored, "%{byte:02X}"),
                }
            }
            anchored.push('/');
            anchored.push_str(rest);
            anchored.into()
        }
        _ => url.into(),
    }
}

#[cfg(test)]
mod tests;
