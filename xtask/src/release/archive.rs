//! The archive of a release: the static command for Linux with its completions, manual pages and licenses.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::version::ReleaseVersion;
use crate::cargo::{self, Cargo};
use crate::shell;

/// The shells, and the file name of the completion script of each.
const COMPLETIONS: [(&str, &str); 5] = [
    ("bash", "ferrata.bash"),
    ("elvish", "ferrata.elv"),
    ("fish", "ferrata.fish"),
    ("powershell", "_ferrata.ps1"),
    ("zsh", "_ferrata"),
];

/// A target for which the command can be linked statically.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StaticTarget {
    pub(super) triple: String,
    /// The flags of the compiler; empty if the target is static by default.
    flags: &'static str,
}

impl StaticTarget {
    /// Chooses musl if its standard library and C compiler are installed, and otherwise the static form of glibc.
    pub(super) fn choose(root: &Path) -> Result<Self> {
        let about = shell::read(root, "rustc", &["-vV"])?;
        let host = about.lines().find_map(|line| line.strip_prefix("host: "));
        let (architecture, rest) =
            host.and_then(|host| host.split_once('-')).context("rustc names no host")?;
        if !rest.contains("linux") {
            bail!("the archive is for Linux; release on a Linux machine");
        }
        let musl = format!("{architecture}-unknown-linux-musl");
        let library = shell::read(root, "rustc", &["--print", "target-libdir", "--target", &musl])?;
        let compiler =
            Command::new("musl-gcc").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        let has_musl = Path::new(&library).is_dir() && compiler.is_ok_and(|status| status.success());
        Ok(Self::of(architecture, has_musl))
    }

    fn of(architecture: &str, has_musl: bool) -> Self {
        if has_musl {
            Self { triple: format!("{architecture}-unknown-linux-musl"), flags: "" }
        } else {
            Self {
                triple: format!("{architecture}-unknown-linux-gnu"),
                flags: "-C target-feature=+crt-static",
            }
        }
    }

    /// Returns the call that builds the command.
    fn build(&self) -> Cargo {
        let line = format!(
            "build --release --locked --package ferrata-cli --target {} --config profile.release.strip=\"symbols\"",
            self.triple
        );
        match self.flags {
            "" => Cargo::new(&line),
            flags => Cargo::new(&line).env("RUSTFLAGS", flags),
        }
    }
}

/// Builds the command, and returns its path after a test that it is static and works.
pub(super) fn build_command(
    root: &Path,
    target_folder: &Path,
    target: &StaticTarget,
    version: &ReleaseVersion,
) -> Result<PathBuf> {
    let call = target.build();
    // No test runs with this build, so it does not depend on servers for them.
    let status = call.command(root).env_remove(cargo::SERVERS.0).status().context("cannot start cargo")?;
    if !status.success() {
        bail!("`{call}` failed ({status})");
    }
    let program = target_folder.join(&target.triple).join("release/ferrata");
    let path = text(&program)?;
    // `ldd` fails for some static programs, so only its output counts.
    let linked =
        Command::new("ldd").arg(&program).stdin(Stdio::null()).output().context("cannot start `ldd`")?;
    let linked = [linked.stdout, linked.stderr].concat();
    if !is_static(&String::from_utf8_lossy(&linked)) {
        bail!("{path} is not static:\n{}", String::from_utf8_lossy(&linked));
    }
    let said = shell::read(root, path, &["--version"])?;
    if said != format!("ferrata {version}") {
        bail!("{path} prints `{said}`, not the version {version}");
    }
    // The library of SQLite is linked into the command.
    let folder = tempfile::tempdir()?;
    let store = format!("sqlite:{}", folder.path().join("runs.db").display());
    shell::run(root, path, &["store", "check", "--setup", "--quiet", "--store", &store])?;
    Ok(program)
}

/// Whether the output of `ldd` is about a static program.
fn is_static(output: &str) -> bool {
    output.contains("statically linked") || output.contains("not a dynamic executable")
}

/// Writes the archive to `folder`, and returns its path. `texts` are further files, each with its name.
///
/// The archive depends only on its content: the names are sorted, and the times are those of the commit.
pub(super) fn write(
    root: &Path,
    folder: &Path,
    program: &Path,
    target: &StaticTarget,
    version: &ReleaseVersion,
    texts: &[(&str, &str)],
) -> Result<PathBuf> {
    let name = format!("ferrata-{version}-{}", target.triple);
    let content = folder.join(&name);
    if content.exists() {
        fs::remove_dir_all(&content)?;
    }
    let completions = content.join("completions");
    fs::create_dir_all(&completions)?;
    fs::copy(program, content.join("ferrata"))?;
    let program = text(program)?;
    for (shell_name, file) in COMPLETIONS {
        let script = shell::read(root, program, &["completions", shell_name])?;
        fs::write(completions.join(file), script + "\n")?;
    }
    let pages = content.join("man/man1");
    shell::run(root, program, &["man", "--quiet", "--to", text(&pages)?])?;
    for file in ["README.md", "LICENSE-MIT", "LICENSE-APACHE"] {
        fs::copy(root.join(file), content.join(file))?;
    }
    for (file, text) in texts {
        fs::write(content.join(file), text)?;
    }
    let archive = format!("{name}.tar.gz");
    let time = shell::read(root, "git", &["log", "-1", "--format=--mtime=@%ct"])?;
    let owner =
        ["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mode=u+rw,go=rX", "--format=gnu"];
    let compress = ["--use-compress-program=gzip -9n", "-cf", archive.as_str(), name.as_str()];
    let arguments: Vec<&str> = [time.as_str()].into_iter().chain(owner).chain(compress).collect();
    shell::run(folder, "tar", &arguments)?;
    fs::remove_dir_all(&content)?;
    Ok(folder.join(archive))
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is no Unicode", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn glibc_is_linked_statically_without_musl() {
        let musl = StaticTarget::of("x86_64", true);
        assert_eq!(musl.triple, "x86_64-unknown-linux-musl");
        assert!(!musl.build().to_string().contains("RUSTFLAGS"));
        let gnu = StaticTarget::of("aarch64", false);
        let call = gnu.build().to_string();
        assert!(
            call.starts_with("RUSTFLAGS='-C target-feature=+crt-static' cargo build --release"),
            "{call}"
        );
        assert!(call.contains("--target aarch64-unknown-linux-gnu"), "{call}");
    }

    #[test]
    fn shared_libraries_are_detected() {
        assert!(is_static("\tstatically linked\n"));
        assert!(is_static("\tnot a dynamic executable\n"));
        assert!(!is_static("\tlinux-vdso.so.1 (0x00)\n\tlibc.so.6 => /lib/libc.so.6 (0x00)\n"));
    }
}
