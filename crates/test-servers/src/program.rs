//! The programs that servers need, and their locations: installed, or unpacked from Debian's packages.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::debian::{self, Packages};
use crate::error::{Result, ServerError};
use crate::once::FilledFolder;
use crate::user::UnixUser;

/// A program that servers need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Program {
    /// PostgreSQL's server programs.
    Postgres,
    /// `redis-server`, or `valkey-server`.
    Redis,
    /// Python with `pip`, for moto.
    Python,
    /// `pgbouncer`.
    PgBouncer,
    /// `nats-server`.
    Nats,
}

/// A program with its location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundProgram {
    pub(crate) path: PathBuf,
    /// The root folder of the unpacked packages, with the program's libraries; `None` if the program is installed.
    root: Option<PathBuf>,
}

impl Program {
    /// All programs.
    pub const ALL: [Self; 5] = [Self::Postgres, Self::Redis, Self::Python, Self::PgBouncer, Self::Nats];

    /// Returns whether the program is installed or already unpacked.
    #[must_use]
    pub fn is_at_hand(self) -> bool {
        self.installed(self.main()).is_some() || self.once().made().is_some()
    }

    /// Finds the program with this name, installed or unpacked. Unpacks it if necessary.
    pub(crate) fn find(self, name: &str) -> Result<FoundProgram> {
        if let Some(path) = self.installed(name) {
            return Ok(FoundProgram { path, root: None });
        }
        let root = self.unpacked()?;
        let path = match self {
            Self::Postgres => newest(&root.join("usr/lib/postgresql"), name),
            Self::PgBouncer | Self::Nats => {
                Some(root.join("usr/sbin").join(name)).filter(|path| is_program(path))
            }
            _ => Some(root.join("usr/bin").join(name)).filter(|path| is_program(path)),
        };
        match path {
            Some(path) => Ok(FoundProgram { path, root: Some(root) }),
            // The packages contain only the programs that the machine lacked. Other programs are installed.
            None => in_path(name)
                .map(|path| FoundProgram { path, root: Some(root) })
                .ok_or_else(|| self.missing()),
        }
    }

    /// Returns the root folder of the unpacked packages. Unpacks them if necessary.
    fn unpacked(self) -> Result<PathBuf> {
        let once = self.once();
        if once.made().is_none() && !debian::is_here() {
            return Err(self.missing());
        }
        Ok(once.make(|folder| self.packages().unpack(folder))?.join("root"))
    }

    fn packages(self) -> Packages {
        let names: &[&str] = match self {
            Self::Postgres => &["postgresql"],
            Self::Redis => &["redis-server"],
            // This package contains pip as one file, which can install packages.
            Self::Python => &["python3", "python3-pip-whl"],
            Self::PgBouncer => &["pgbouncer"],
            Self::Nats => &["nats-server"],
        };
        Packages { names, suite: None }
    }

    fn once(self) -> FilledFolder {
        match self {
            Self::Postgres => FilledFolder::new("postgres").reachable_for(UnixUser::instead_of_root()),
            Self::Redis => FilledFolder::new("redis"),
            Self::Python => FilledFolder::new("python"),
            Self::PgBouncer => FilledFolder::new("pgbouncer").reachable_for(UnixUser::instead_of_root()),
            Self::Nats => FilledFolder::new("nats"),
        }
    }

    /// Returns the name of the program that shows whether this is installed.
    fn main(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Redis => "redis-server",
            Self::Python => "python3",
            Self::PgBouncer => "pgbouncer",
            Self::Nats => "nats-server",
        }
    }

    /// Finds the installed program with this name.
    fn installed(self, name: &str) -> Option<PathBuf> {
        match self {
            // Debian installs these programs outside of `PATH`, in a folder for each version.
            Self::Postgres => newest(Path::new("/usr/lib/postgresql"), name).or_else(|| in_path(name)),
            Self::Redis => in_path(name).or_else(|| in_path("valkey-server")),
            Self::Python => in_path(name).filter(|python| has_pip(python)),
            Self::PgBouncer | Self::Nats => in_path(name),
        }
    }

    fn missing(self) -> ServerError {
        ServerError::Missing { programs: vec![self] }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Postgres => "PostgreSQL (`initdb` and `postgres` of /usr/lib/postgresql/*/bin or of PATH)",
            Self::Redis => "Redis (`redis-server` or `valkey-server`)",
            Self::Python => "Python (`python3` with its module `pip`, for moto)",
            Self::PgBouncer => "PgBouncer (`pgbouncer`)",
            Self::Nats => "NATS (`nats-server`)",
        })
    }
}

impl FoundProgram {
    /// Returns the library path that the program needs in its environment.
    pub(crate) fn libraries(&self) -> Option<OsString> {
        self.root.as_deref().map(debian::libraries)
    }

    /// Returns the root folder of the unpacked packages if the program was unpacked.
    pub(crate) fn root(&self) -> Option<&Path> {
        self.root.as_deref()
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.envs(self.libraries().map(|libraries| (debian::LIBRARIES, libraries)));
        command
    }
}

impl From<PathBuf> for FoundProgram {
    /// Describes an installed program.
    fn from(path: PathBuf) -> Self {
        Self { path, root: None }
    }
}

/// Ensures that `programs` are available. Unpacks missing programs from Debian's packages.
///
/// Calls `telling` with each program before its download.
///
/// # Errors
///
/// Returns [`ServerError::Missing`] with all missing programs if Debian's package tools are missing. Otherwise returns the error of these tools.
pub fn obtain(programs: &[Program], mut telling: impl FnMut(Program)) -> Result<()> {
    let absent: Vec<Program> = programs.iter().copied().filter(|program| !program.is_at_hand()).collect();
    if !absent.is_empty() && !debian::is_here() {
        return Err(ServerError::Missing { programs: absent });
    }
    absent.into_iter().try_for_each(|program| {
        telling(program);
        program.unpacked().map(drop)
    })
}

/// Finds a program of the newest PostgreSQL version, in a folder that has a subfolder for each version.
fn newest(versions: &Path, name: &str) -> Option<PathBuf> {
    let programs = std::fs::read_dir(versions).into_iter().flatten().filter_map(|entry| {
        let folder = entry.ok()?.path();
        let version: u32 = folder.file_name()?.to_str()?.parse().ok()?;
        let program = folder.join("bin").join(name);
        program.is_file().then_some((version, program))
    });
    programs.max_by_key(|(version, _)| *version).map(|(_, program)| program)
}

fn has_pip(python: &Path) -> bool {
    let mut command = Command::new(python);
    command.args(["-c", "import pip"]);
    crate::once::run(&mut command).is_ok()
}

/// Finds a program in `PATH`.
pub(crate) fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        // Debian's folder for servers, which not every user has in `PATH`.
        .chain([PathBuf::from("/usr/sbin")])
        .map(|folder| folder.join(name))
        .find(|program| is_program(program))
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_programs_share_one_message_with_remedy() {
        let error = ServerError::Missing { programs: vec![Program::Postgres, Program::Python] };
        let text = error.to_string();
        assert!(
            text.contains("PostgreSQL") && text.contains("Python") && text.contains(" are missing"),
            "{text}"
        );
        assert!(text.contains("docker run"), "{text}");
        assert!(Program::Redis.missing().to_string().contains(" is missing"));
    }

    #[test]
    fn a_program_is_found_in_the_path() {
        assert!(in_path("sh").is_some_and(|path| path.is_absolute()));
        assert_eq!(in_path("no-such-program-exists"), None);
    }

    #[test]
    fn newest_version_with_program_is_chosen() {
        let folder = tempfile::tempdir().unwrap();
        for program in ["9/bin/initdb", "17/bin/initdb", "18/bin/psql", "old/bin/initdb"] {
            let path = folder.path().join(program);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        assert_eq!(newest(folder.path(), "initdb"), Some(folder.path().join("17/bin/initdb")));
        assert_eq!(newest(folder.path(), "postgres"), None);
    }
}
