//! The programs that are needed, where they are, and how Debian installs them.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::error::{Result, ServerError};
use crate::venv;

/// Something that must be installed on the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Program {
    /// PostgreSQL's server programs.
    Postgres,
    /// `redis-server`, or `valkey-server`.
    Redis,
    /// `moto_server`, or Python with what it takes to install it.
    Moto,
}

impl Program {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Postgres, Self::Redis, Self::Moto];

    /// Returns Debian's package.
    #[must_use]
    pub fn package(self) -> &'static str {
        match self {
            Self::Postgres => "postgresql",
            Self::Redis => "redis-server",
            Self::Moto => "python3-venv",
        }
    }

    /// Tells whether it is installed.
    #[must_use]
    pub fn is_installed(self) -> bool {
        match self {
            Self::Postgres => postgres("postgres").is_ok(),
            Self::Redis => redis().is_ok(),
            Self::Moto => venv::is_possible(),
        }
    }

    pub(crate) fn missing(self) -> ServerError {
        ServerError::Missing { programs: vec![self] }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Postgres => "PostgreSQL (`initdb` and `postgres` of /usr/lib/postgresql/*/bin or of PATH)",
            Self::Redis => "Redis (`redis-server` or `valkey-server`)",
            Self::Moto => "Python (`python3` with its modules `venv` and `ensurepip`, for moto)",
        })
    }
}

/// Checks that all of `programs` are installed.
///
/// # Errors
///
/// [`ServerError::Missing`] with every one that is not, and one command for all of them.
pub fn missing(programs: &[Program]) -> Result<()> {
    let programs: Vec<Program> = programs.iter().copied().filter(|program| !program.is_installed()).collect();
    if programs.is_empty() { Ok(()) } else { Err(ServerError::Missing { programs }) }
}

/// Returns the line that installs `programs` on Debian.
pub(crate) fn install_command(programs: &[Program]) -> String {
    let packages: Vec<&str> = programs.iter().map(|program| program.package()).collect();
    format!("sudo apt-get install --yes --no-install-recommends {}", packages.join(" "))
}

/// Finds a program of the newest PostgreSQL: Debian keeps them out of the path, a folder for each version.
pub(crate) fn postgres(name: &str) -> Result<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().filter_map(|entry| {
        let folder = entry.ok()?.path();
        let version: u32 = folder.file_name()?.to_str()?.parse().ok()?;
        let program = folder.join("bin").join(name);
        program.is_file().then_some((version, program))
    });
    let newest = versions.max_by_key(|(version, _)| *version).map(|(_, program)| program);
    newest.or_else(|| in_path(name)).ok_or_else(|| Program::Postgres.missing())
}

/// Finds the server of Redis, or of Valkey.
pub(crate) fn redis() -> Result<PathBuf> {
    in_path("redis-server").or_else(|| in_path("valkey-server")).ok_or_else(|| Program::Redis.missing())
}

/// Finds a program in `PATH`.
pub(crate) fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        // Where Debian keeps servers, which is not in the path of every user.
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
    fn all_that_is_missing_is_one_message_with_one_command() {
        let error = ServerError::Missing { programs: vec![Program::Postgres, Program::Moto] };
        let text = error.to_string();
        assert!(
            text.contains("PostgreSQL") && text.contains("Python") && text.contains(" are missing"),
            "{text}"
        );
        assert!(text.ends_with("install --yes --no-install-recommends postgresql python3-venv"), "{text}");
        assert!(Program::Redis.missing().to_string().contains(" is missing"));
    }

    #[test]
    fn a_program_is_found_in_the_path() {
        assert!(in_path("sh").is_some_and(|path| path.is_absolute()));
        assert_eq!(in_path("no-such-program-exists"), None);
    }
}
