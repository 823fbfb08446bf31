//! The command line of the survey.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

pub(crate) const USAGE: &str = "\
usage: survey [DIR] [--id ID] [--store URL] [--out FILE]

  DIR          the directory to survey (default: .)
  --id ID      the run; the same id goes on where it was stopped (default: made of the directory)
  --store URL  where runs are recorded (default: file:.ferrata)
  --out FILE   where the report goes (default: report.md)";

/// The parsed command line, with the defaults of missing arguments.
pub(crate) struct Args {
    /// The directory without links, so that it is always named in the same way.
    pub(crate) dir: String,
    pub(crate) id: String,
    pub(crate) store: String,
    pub(crate) out: String,
    /// The arguments as the user gave them.
    given: Vec<String>,
}

impl Args {
    /// Reads the arguments; `None` if they ask for help.
    pub(crate) fn parse(args: impl Iterator<Item = OsString>) -> Result<Option<Self>, String> {
        let given = args
            .map(|arg| arg.into_string().map_err(|arg| format!("{arg:?} is not UTF-8")))
            .collect::<Result<Vec<_>, _>>()?;
        let (mut dir, mut id, mut store, mut out) = (None, None, None, None);
        let mut rest = given.iter();
        while let Some(arg) = rest.next() {
            let place = match arg.as_str() {
                "-h" | "--help" => return Ok(None),
                "--id" => &mut id,
                "--store" => &mut store,
                "--out" => &mut out,
                option if option.starts_with('-') => return Err(format!("there is no option `{option}`")),
                _ => &mut dir,
            };
            let value = if arg.starts_with("--") { rest.next() } else { Some(arg) };
            let value = value.ok_or_else(|| format!("`{arg}` needs a value"))?;
            if place.replace(value.clone()).is_some() {
                return Err(format!("`{value}` is one too many"));
            }
        }
        let dir = directory(Path::new(dir.as_deref().unwrap_or(".")))?;
        let id = id.unwrap_or_else(|| format!("survey-{}", &blake3::hash(dir.as_bytes()).to_hex()[..16]));
        let out = file(Path::new(out.as_deref().unwrap_or("report.md")))?;
        let store = store.unwrap_or_else(|| "file:.ferrata".to_owned());
        Ok(Some(Self { dir, id, store, out, given }))
    }

    /// Returns the command that continues this run.
    pub(crate) fn command(&self) -> String {
        let quoted = |arg: &String| format!(" '{}'", arg.replace('\'', r"'\''"));
        format!(
            "cargo run --release --example survey --{}",
            self.given.iter().map(quoted).collect::<String>()
        )
    }
}

fn directory(path: &Path) -> Result<String, String> {
    let full = path.canonicalize().map_err(|error| format!("cannot survey {}: {error}", path.display()))?;
    if !full.is_dir() {
        return Err(format!("{} is not a directory", path.display()));
    }
    utf8(full)
}

fn file(path: &Path) -> Result<String, String> {
    let Some(name) = path.file_name() else { return Err(format!("{} is not a file's name", path.display())) };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder =
        folder.canonicalize().map_err(|error| format!("no report in {}: {error}", folder.display()))?;
    utf8(folder.join(name))
}

fn utf8(path: PathBuf) -> Result<String, String> {
    path.into_os_string().into_string().map_err(|path| format!("{path:?} is not UTF-8; use another path"))
}
