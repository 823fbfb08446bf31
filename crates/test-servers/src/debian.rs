//! Debian's packages, unpacked into a folder instead of installed. This needs no root, and changes nothing else on the machine.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Result, ServerError};
use crate::once::run;
use crate::program::in_path;

/// The environment variable with a program's library path.
pub(crate) const LIBRARIES: &str = "LD_LIBRARY_PATH";

/// The file that lists the installed packages of the machine.
const STATUS: &str = "/var/lib/dpkg/status";

/// Unpacks every archive of a folder. If a folder is a link in one package and a real folder in another, it stays a link.
const UNPACK: &str = r#"set -e; for package in "$1"/*.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar --extract --directory "$2" --keep-directory-symlink; done"#;

/// Packages and their dependencies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packages {
    /// The names of the packages.
    pub(crate) names: &'static [&'static str],
    /// The Debian release from which the packages and all their dependencies come. By default they come from the package sources of the machine,
    /// and packages that are installed are not unpacked.
    pub(crate) suite: Option<&'static str>,
}

/// Returns whether this machine has Debian's package tools.
pub(crate) fn is_here() -> bool {
    ["apt-get", "dpkg-deb", "tar", "bash"].iter().all(|tool| in_path(tool).is_some())
}

impl Packages {
    /// Downloads the packages with a separate package list, and unpacks them into `folder/root`.
    pub(crate) fn unpack(&self, folder: &Path) -> Result<()> {
        let [root, state] = ["root", "apt"].map(|name| folder.join(name));
        // An interrupted call may have left partial files, which cannot be used.
        if state.exists() {
            fs::remove_dir_all(&state).map_err(ServerError::io("remove", &state))?;
        }
        for path in [state.join("lists/partial"), state.join("cache/archives/partial"), root.clone()] {
            fs::create_dir_all(&path).map_err(ServerError::io("make", path))?;
        }
        let apt = Apt { state: &state };
        apt.configure("")?;
        let listed = run(apt.get().arg("update"));
        if let Some(suite) = self.suite {
            apt.write("status", "")?;
            let key = "signed-by=/usr/share/keyrings/debian-archive-keyring.gpg";
            apt.write("sources.list", &format!("deb [{key}] {} {suite} main\n", apt.repository()?))?;
            apt.configure("Dir::Etc::sourcelist \"{state}/sources.list\"; Dir::Etc::sourceparts \"-\";")?;
            run(apt.get().arg("update"))?;
        } else if Path::new(STATUS).is_file() {
            // Use a copy, because apt locks files next to the original.
            fs::copy(STATUS, state.join("status")).map_err(ServerError::io("copy", STATUS))?;
        } else {
            apt.write("status", "")?;
        }
        let loaded = run(apt.get().args(["install", "--yes", "--download-only"]).args(self.names));
        // If a package source of the machine cannot be reached, the update fails. That matters only if a package comes from that source.
        loaded.map_err(|error| listed.err().unwrap_or(error))?;
        run(Command::new("bash")
            .args(["-o", "pipefail", "-c", UNPACK, "unpack"])
            .arg(state.join("cache/archives"))
            .arg(&root))?;
        fs::remove_dir_all(&state).map_err(ServerError::io("remove", &state))
    }
}

/// The package tools, with a separate folder for all files that they write.
struct Apt<'a> {
    state: &'a Path,
}

impl Apt<'_> {
    fn get(&self) -> Command {
        let mut command = Command::new("apt-get");
        command.arg("--config-file").arg(self.state.join("conf")).env("DEBIAN_FRONTEND", "noninteractive");
        command
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.state.join(name);
        fs::write(&path, text).map_err(ServerError::io("write", path))
    }

    /// Writes the settings of the tools, followed by `more`.
    fn configure(&self, more: &str) -> Result<()> {
        let text = "Dir::State \"{state}\"; Dir::State::lists \"{state}/lists\"; Dir::State::status \"{state}/status\"; \
                    Dir::Cache \"{state}/cache\"; Dir::Cache::archives \"{state}/cache/archives\"; \
                    APT::Install-Recommends \"false\"; APT::Sandbox::User \"root\";\n";
        let state = self.state.display().to_string();
        self.write("conf", &format!("{more}{text}").replace("{state}", &state))
    }

    /// Returns the package source that the machine uses for Debian's packages.
    fn repository(&self) -> Result<String> {
        let format = "$(ORIGIN) $(LABEL) $(REPO_URI)";
        let said = run(self.get().args(["indextargets", "--format", format, "Created-By: Packages"]))?;
        let mut found = said.lines().filter_map(|line| line.strip_prefix("Debian Debian "));
        found.next().map(str::to_owned).ok_or_else(|| ServerError::Failed {
            name: "`apt-get indextargets`".to_owned(),
            what: "names no repository of Debian".to_owned(),
            log: said,
        })
    }
}

/// Returns the library path below `root` for a program there. Without it, the program finds no libraries.
pub(crate) fn libraries(root: &Path) -> OsString {
    let places = ["usr/lib", "lib"].map(|place| root.join(place));
    let is_of_an_architecture =
        |path: &PathBuf| path.to_string_lossy().contains("-linux-gnu") && path.is_dir();
    let folders = places.iter().flat_map(|place| fs::read_dir(place).into_iter().flatten());
    let folders: Vec<PathBuf> =
        folders.filter_map(|entry| Some(entry.ok()?.path())).filter(is_of_an_architecture).collect();
    // If a path contains a colon, use no library path: the colon would also break every other path.
    std::env::join_paths(folders).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unpacked_program_finds_libraries_of_its_architecture() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        for folder in ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu", "usr/lib/python3"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        let expected = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"].map(|name| root.join(name));
        let found = libraries(root);
        assert_eq!(std::env::split_paths(&found).collect::<Vec<_>>(), expected);
        assert_eq!(libraries(&root.join("absent")), "");
    }
}
