//! Installations that the first user makes once, into a folder that outlives the test.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{Result, ServerError};
use crate::user::UnixUser;

/// A folder that is filled only once.
#[derive(Debug)]
pub(crate) struct FilledFolder {
    folder: PathBuf,
}

impl FilledFolder {
    /// Returns the folder with this name. It is in the target folder of this program's build, or in the user's cache.
    pub(crate) fn new(name: &str) -> Self {
        let name = format!("test-servers/{name}");
        let program = std::env::current_exe().unwrap_or_default();
        // Cargo marks its target folder with this file.
        let target = program.ancestors().skip(1).find(|folder| folder.join("CACHEDIR.TAG").is_file());
        let folder = target.map_or_else(|| cache().join("ferrata").join(&name), |target| target.join(&name));
        Self { folder }
    }

    /// Uses a folder that `user` may read instead, if necessary: a target folder below root's own folder is closed to every other user.
    pub(crate) fn reachable_for(self, user: Option<UnixUser>) -> Self {
        match user {
            Some(user) if !user.can_reach(&self.folder) => {
                let name = self.folder.file_name().unwrap_or_default();
                Self { folder: Path::new("/var/cache/ferrata/test-servers").join(name) }
            }
            _ => self,
        }
    }

    /// Returns the folder if it was filled completely.
    pub(crate) fn made(&self) -> Option<PathBuf> {
        self.folder.join("complete").is_file().then(|| self.folder.clone())
    }

    /// Returns the folder. Fills it with `fill` first, unless it is full already.
    ///
    /// If several test programs run at the same time, one of them fills the folder and the others wait.
    pub(crate) fn make(&self, fill: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
        let folder = &self.folder;
        fs::create_dir_all(folder).map_err(ServerError::io("make", folder))?;
        // The lock ends when the file is closed.
        let path = folder.with_extension("lock");
        let lock = File::create(&path).map_err(ServerError::io("write", &path))?;
        lock.lock().map_err(ServerError::io("lock", &path))?;
        if self.made().is_none() {
            fill(folder)?;
            let complete = folder.join("complete");
            fs::write(&complete, "").map_err(ServerError::io("write", &complete))?;
        }
        Ok(folder.clone())
    }
}

/// Runs a command to its end, and returns its output.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_owned();
    let output = command.stdin(Stdio::null()).output().map_err(ServerError::io("start", &name))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let arguments: Vec<_> = command.get_args().map(|argument| argument.to_string_lossy()).collect();
    Err(ServerError::Failed {
        name: format!("`{} {}`", name.display(), arguments.join(" ")),
        what: format!("failed ({})", output.status),
        log: String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned(),
    })
}

fn cache() -> PathBuf {
    let folder = |variable| std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    folder("XDG_CACHE_HOME")
        .or_else(|| Some(folder("HOME")?.join(".cache")))
        .unwrap_or_else(std::env::temp_dir)
}
