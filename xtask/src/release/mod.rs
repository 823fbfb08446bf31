//! Prepares a release up to the tag. The two steps that others see, the push and the publication, are printed as commands for a person.
#![expect(clippy::print_stdout, reason = "progress and the next commands are what a person watches")]

mod archive;
mod changelog;
mod licenses;
mod sbom;
mod version;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use self::archive::StaticTarget;
use self::changelog::{CHANGELOG, FRAGMENTS, Fragment};
use self::sbom::Materials;
pub(crate) use self::version::ReleaseVersion;
use crate::args::{ReleaseOptions, Tests};
use crate::cargo::Cargo;
use crate::{gate, shell, tidy};

/// The branch that releases are made from.
const BRANCH: &str = "main";
const REPOSITORY: &str = "https://github.com/ferrata-rs/ferrata";

/// A release that is being prepared.
struct Release<'a> {
    root: &'a Path,
    options: &'a ReleaseOptions,
    /// The target folder of cargo.
    target_folder: PathBuf,
    /// The folder of the files that the release offers.
    folder: PathBuf,
}

/// Checks, builds and tags a release. Prints the commands that publish it.
///
/// Each step can be repeated: after a failure, the same command continues, because a folded changelog stays as it is.
pub(crate) fn run(root: &Path, options: &ReleaseOptions) -> Result<()> {
    let target_folder = target_folder(root)?;
    let folder = target_folder.join("release-files").join(options.version.to_string());
    let release = Release { root, options, target_folder, folder };
    release.check()?;
    release.pass_gate()?;
    let changelog = release.fold_changelog()?;
    release.check_api()?;
    release.package()?;
    let files = release.write_files(&changelog)?;
    release.tag()?;
    release.print_commands(&files);
    Ok(())
}

impl Release<'_> {
    /// Checks the state of the repository, and that the version is new.
    fn check(&self) -> Result<()> {
        step("check the branch, the tree and the version");
        let version = &self.options.version;
        let branch = self.git(&["branch", "--show-current"])?;
        self.require(branch == BRANCH, &format!("the branch is `{branch}`; check out `{BRANCH}`"))?;
        let changed = self.git(&["status", "--porcelain"])?;
        self.require(
            changed.is_empty(),
            &format!("the tree has uncommitted changes; commit them:\n{changed}"),
        )?;
        version.check_manifest(&self.read("Cargo.toml")?)?;
        if !self.git(&["tag", "--list", &version.tag()])?.is_empty() {
            bail!(
                "the tag {} exists; a release is never replaced, so choose the next version",
                version.tag()
            );
        }
        Ok(())
    }

    /// Fails without `condition`; a dry run only prints the message.
    fn require(&self, condition: bool, message: &str) -> Result<()> {
        match condition {
            true => {}
            false if self.options.is_dry_run => println!("a release would fail: {message}"),
            false => bail!("{message}"),
        }
        Ok(())
    }

    fn pass_gate(&self) -> Result<()> {
        if self.options.skips_gate {
            step("gate: skipped by --skip-gate");
            return Ok(());
        }
        step("gate");
        gate::run(self.root, Tests::Run)?;
        let deny = Cargo::new("deny --all-features --locked check advisories");
        if Cargo::new("deny --version").succeeds_quietly(self.root) {
            return deny.run(self.root);
        }
        self.require(false, "cargo-deny is not installed; run `cargo install --locked cargo-deny`")
    }

    /// Moves the fragments into the changelog and commits it, and returns the new text. A dry run only computes the text.
    fn fold_changelog(&self) -> Result<String> {
        step("fold the fragments into the changelog");
        let fragments = Fragment::read_all(self.root)?;
        let old = self.read(CHANGELOG)?;
        let date = shell::read(self.root, "date", &["-u", "+%Y-%m-%d"])?;
        let new = changelog::fold(&old, &self.options.version, &date, &fragments)?;
        println!("{} fragments", fragments.len());
        if self.options.is_dry_run || new == old {
            return Ok(new);
        }
        fs::write(self.root.join(CHANGELOG), &new)?;
        for fragment in &fragments {
            fs::remove_file(&fragment.path)?;
        }
        // Its links must lead to files, as on every page.
        tidy::run(self.root)
            .context("restore with `git checkout CHANGELOG.md changes`, and correct the fragments")?;
        shell::run(self.root, "git", &["add", "--all", CHANGELOG, FRAGMENTS])?;
        let subject = format!("release: {}", self.options.version);
        shell::run(self.root, "git", &["commit", "--quiet", "--message", &subject])?;
        Ok(new)
    }

    /// Compares the public API with the last release.
    fn check_api(&self) -> Result<()> {
        step("compare the public API with the last release");
        let last = self.git(&["tag", "--list", "v*", "--sort=-version:refname"])?;
        let Some(last) = last.lines().next() else {
            println!("skipped: this is the first release");
            return Ok(());
        };
        if !Cargo::new("semver-checks --version").succeeds_quietly(self.root) {
            let install =
                "cargo-semver-checks is not installed; run `cargo install --locked cargo-semver-checks`";
            return self.require(false, install);
        }
        let line = format!("semver-checks {} --baseline-rev {last}", gate::published());
        Cargo::new(&line).run(self.root)
    }

    /// Packs each published crate, and builds it from its package. The crates that it needs are taken from their packages, too.
    fn package(&self) -> Result<()> {
        if self.options.skips_packages {
            step("packages: skipped by --skip-packages");
            return Ok(());
        }
        step("pack each published crate, and build it from its package");
        let dirty = if self.options.is_dry_run { " --allow-dirty" } else { "" };
        Cargo::new(&format!("package {} --locked{dirty}", gate::published())).run(self.root)
    }

    /// Writes the archive, the bill of materials, the notes and the checksums, and returns their paths.
    fn write_files(&self, changelog: &str) -> Result<Vec<PathBuf>> {
        let version = &self.options.version;
        let notes = changelog::notes(changelog, version, REPOSITORY)?;
        fs::create_dir_all(&self.folder)?;
        let target = StaticTarget::choose(self.root)?;
        step("write the bill of materials and the licenses");
        let metadata = metadata(self.root, &target.triple)?;
        let materials = Materials::collect(&metadata)?;
        let lock = self.read("Cargo.lock")?.parse().context("Cargo.lock is not TOML")?;
        let time = self.git(&["log", "-1", "--date=format-local:%Y-%m-%dT%H:%M:%SZ", "--format=%cd"])?;
        let bill = materials.bill(&lock, &version.to_string(), &target.triple, &time);
        let bill = serde_json::to_string_pretty(&bill)? + "\n";
        let external = materials.external();
        let licenses = licenses::text(&external)?;
        println!("{} crates from outside of the repository", external.len());
        step(&format!("build the static command for {}", target.triple));
        let program = archive::build_command(self.root, &self.target_folder, &target, version)?;
        step("write the archive and the checksums");
        let bill_name = format!("ferrata-{version}.cdx.json");
        let texts = [
            (CHANGELOG, changelog),
            (bill_name.as_str(), bill.as_str()),
            ("THIRD-PARTY-LICENSES.txt", licenses.as_str()),
        ];
        let archive = archive::write(self.root, &self.folder, &program, &target, version, &texts)?;
        let bill_path = self.folder.join(bill_name);
        fs::write(&bill_path, &bill)?;
        let mut sums = String::new();
        for path in [&archive, &bill_path] {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            sums.push_str(&format!("{}  {name}\n", shell::sha256(path)?));
        }
        print!("{sums}");
        let sums_path = self.folder.join("SHA256SUMS");
        fs::write(&sums_path, sums)?;
        fs::write(self.notes_path(), notes)?;
        Ok(vec![archive, bill_path, sums_path])
    }

    fn notes_path(&self) -> PathBuf {
        self.folder.join("NOTES.md")
    }

    /// Tags the commit; signs the tag if git has a key.
    fn tag(&self) -> Result<()> {
        let tag = self.options.version.tag();
        if self.options.is_dry_run {
            step(&format!("tag {tag}: skipped by --dry-run"));
            return Ok(());
        }
        let key = shell::read(self.root, "git", &["config", "--default", "", "--get", "user.signingkey"])?;
        let kind = if key.is_empty() { "--annotate" } else { "--sign" };
        step(&format!("tag {tag} ({kind})"));
        let message = format!("Ferrata {}", self.options.version);
        shell::run(self.root, "git", &["tag", kind, &tag, "--message", &message])
    }

    fn print_commands(&self, files: &[PathBuf]) {
        let tag = self.options.version.tag();
        let shown: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        println!("\nThe release is prepared. These commands publish it, in this order:\n");
        println!("    git push --atomic origin {BRANCH} {tag}");
        println!("    cargo publish {} --locked", gate::published());
        println!(
            "    gh release create {tag} --verify-tag --title {tag} --notes-file {} {}",
            self.notes_path().display(),
            shown.join(" ")
        );
    }

    fn git(&self, arguments: &[&str]) -> Result<String> {
        shell::read(self.root, "env", &[&["TZ=UTC", "git"], arguments].concat())
    }

    fn read(&self, file: &str) -> Result<String> {
        fs::read_to_string(self.root.join(file)).with_context(|| format!("cannot read {file}"))
    }
}

/// Returns the crates and their dependencies on a target.
fn metadata(root: &Path, target: &str) -> Result<Value> {
    let line = format!("metadata --format-version 1 --locked --all-features --filter-platform {target}");
    let output = Cargo::new(&line).command(root).output().context("cannot start cargo")?;
    if !output.status.success() {
        bail!("`cargo {line}` failed:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    serde_json::from_slice(&output.stdout).context("`cargo metadata` printed no JSON")
}

fn target_folder(root: &Path) -> Result<PathBuf> {
    let output = Cargo::new("metadata --format-version 1 --locked --no-deps").command(root).output()?;
    let metadata: Value =
        serde_json::from_slice(&output.stdout).context("`cargo metadata` printed no JSON")?;
    Ok(metadata["target_directory"].as_str().context("cargo names no target folder")?.into())
}

fn step(name: &str) {
    println!("\n==> {name}");
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = "[workspace.package]\nversion = \"0.2.0\"\n[workspace.dependencies]\n";

    fn options(version: &str, is_dry_run: bool) -> ReleaseOptions {
        let version = ReleaseVersion::parse(version).unwrap();
        ReleaseOptions { version, is_dry_run, skips_gate: true, skips_packages: true }
    }

    fn check(root: &Path, options: &ReleaseOptions) -> Result<()> {
        Release { root, options, target_folder: PathBuf::new(), folder: PathBuf::new() }.check()
    }

    /// Each crate from outside has a license and a checksum.
    #[test]
    fn bill_of_this_repository_is_complete() {
        let root = crate::root().unwrap();
        let metadata = metadata(root, "x86_64-unknown-linux-musl").unwrap();
        let materials = Materials::collect(&metadata).unwrap();
        let lock = fs::read_to_string(root.join("Cargo.lock")).unwrap().parse().unwrap();
        let bill = materials.bill(&lock, "0.1.0", "x86_64-unknown-linux-musl", "2026-01-01T00:00:00Z");
        let components = bill["components"].as_array().unwrap();
        let own = |row: &&Value| row["name"].as_str().unwrap().starts_with("ferrata");
        assert!(components.iter().any(|row| row["name"] == "libsqlite3-sys"));
        assert!(components.iter().all(|row| row["name"] != "proptest" && row["name"] != "ferrata-tests"));
        for row in components.iter().filter(|row| !own(row)) {
            assert!(row["licenses"][0]["expression"].is_string(), "{row}");
            assert_eq!(row["hashes"][0]["content"].as_str().map(str::len), Some(64), "{row}");
        }
        let licenses = licenses::text(&materials.external()).unwrap();
        assert!(licenses.contains("tokio 1.") && licenses.contains("Permission is hereby granted"));
    }

    #[test]
    fn release_needs_clean_main_and_new_version() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let git = |arguments: &[&str]| {
            let own = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"];
            shell::run(root, "git", &[&own, arguments].concat()).unwrap();
        };
        git(&["init", "--quiet", "--initial-branch", BRANCH]);
        fs::write(root.join("Cargo.toml"), MANIFEST).unwrap();
        git(&["add", "--all"]);
        git(&["commit", "--quiet", "--message", "first"]);
        let message = |options: &ReleaseOptions| check(root, options).map_err(|error| error.to_string());
        message(&options("0.2.0", false)).unwrap();
        assert!(message(&options("0.3.0", true)).unwrap_err().contains("workspace.package 0.2.0"));

        fs::write(root.join("new"), "").unwrap();
        assert!(message(&options("0.2.0", false)).unwrap_err().contains("uncommitted changes"));
        message(&options("0.2.0", true)).unwrap();
        fs::remove_file(root.join("new")).unwrap();

        git(&["checkout", "--quiet", "-b", "other"]);
        assert!(message(&options("0.2.0", false)).unwrap_err().contains("check out `main`"));
        message(&options("0.2.0", true)).unwrap();
        git(&["checkout", "--quiet", BRANCH]);

        git(&["tag", "v0.2.0"]);
        for is_dry_run in [false, true] {
            assert!(message(&options("0.2.0", is_dry_run)).unwrap_err().contains("v0.2.0 exists"));
        }
    }
}
