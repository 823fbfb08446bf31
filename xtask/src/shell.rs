//! Calls of other programs, such as `git` and `tar`.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Runs a program at `root`, and returns its trimmed output.
pub(crate) fn read(root: &Path, program: &str, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root).stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output().with_context(|| format!("cannot start `{program}`"))?;
    if !output.status.success() {
        bail!("`{program} {}` failed ({})", arguments.join(" "), output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Runs a program at `root` with the output of this process.
pub(crate) fn run(root: &Path, program: &str, arguments: &[&str]) -> Result<()> {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root).stdin(Stdio::null());
    let status = command.status().with_context(|| format!("cannot start `{program}`"))?;
    if !status.success() {
        bail!("`{program} {}` failed ({status})", arguments.join(" "));
    }
    Ok(())
}

/// Returns the SHA-256 of a file, in hexadecimal digits.
pub(crate) fn sha256(file: &Path) -> Result<String> {
    let path = file.to_str().context("the path of the file is no Unicode")?;
    let line = read(Path::new("."), "sha256sum", &["--", path])?;
    Ok(line.split_whitespace().next().unwrap_or_default().trim_start_matches('\\').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_program_is_named_with_its_arguments() {
        assert_eq!(read(Path::new("."), "sh", &["-c", "echo a; echo b"]).unwrap(), "a\nb");
        let error = read(Path::new("."), "sh", &["-c", "exit 3"]).unwrap_err().to_string();
        assert!(error.starts_with("`sh -c exit 3` failed (exit status: 3"), "{error}");
        assert!(
            run(Path::new("."), "no-such-program", &[]).unwrap_err().to_string().contains("no-such-program")
        );
    }

    #[test]
    fn sha256_matches_the_known_hash() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("abc");
        std::fs::write(&file, "abc").unwrap();
        assert_eq!(
            sha256(&file).unwrap(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
