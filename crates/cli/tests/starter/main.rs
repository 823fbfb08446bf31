//! `ferrata init`: the files that it writes, and the tests of the crate that they make.
//!
//! The crate of the template compiles here as modules of this test, so that its tests run without a build of their own.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

// The template names its own crate so.
extern crate self as starter;

#[path = "../../template/tests/crash.rs"]
mod crash;
#[path = "../../template/src/main.rs"]
#[expect(dead_code, clippy::print_stdout, reason = "it is a program that the tests only compile")]
mod program;
#[path = "../../template/src/lib.rs"]
mod template;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub use template::order;

fn init(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferrata"));
    command.env_remove("FERRATA_STORE").current_dir(folder).arg("init").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Guarantees: CLI-26.
#[test]
fn init_writes_renamed_template() {
    let folder = tempfile::tempdir().unwrap();
    let made = init(folder.path(), &["my-orders"]);
    assert!(made.status.success(), "{made:?}");
    assert!(text(&made.stderr).contains("next: cd my-orders && cargo test\n"), "{made:?}");
    let read = |path: &str| std::fs::read_to_string(folder.path().join("my-orders").join(path)).unwrap();
    let manifest = read("Cargo.toml");
    assert!(manifest.starts_with("[package]\nname = \"my-orders\"\n"), "{manifest}");
    let readme =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md")).unwrap();
    let source = readme.split("cargo add ferrata --git ").nth(1).unwrap().split(['`', ' ']).next().unwrap();
    assert!(manifest.contains(&format!("git = \"{source}\"")), "{manifest}");
    let crash = read("tests/crash.rs");
    assert_eq!(crash.replace("my_orders", "starter"), include_str!("../../template/tests/crash.rs"));
    assert!(crash.contains("my_orders::order") && read("src/main.rs").contains("my_orders::order"));
    assert_eq!(read("src/lib.rs"), include_str!("../../template/src/lib.rs"));
}

/// Guarantees: CLI-26.
#[test]
fn init_changes_no_used_folder() {
    let folder = tempfile::tempdir().unwrap();
    let code = |arguments: &[&str]| {
        let made = init(folder.path(), arguments);
        assert!(
            made.status.success() || text(&made.stderr).ends_with("next: ferrata init my-orders\n"),
            "{made:?}"
        );
        made.status.code().unwrap()
    };
    std::fs::create_dir_all(folder.path().join("used/.git")).unwrap();
    assert_eq!(code(&["used"]), 0, "a folder with only `.git` is empty");
    assert_eq!(code(&["used"]), 8);
    std::fs::write(folder.path().join("file"), "text").unwrap();
    assert_eq!(code(&["file"]), 70);
    for name in ["test", "7up", "a b", "ferrata", "é"] {
        assert_eq!(code(&[name]), 2, "{name}");
        assert!(!folder.path().join(name).exists(), "{name}");
    }
}

/// Builds the crate with a cargo of its own and runs its tests.
#[test]
#[ignore = "builds a crate with all dependencies, which takes minutes"]
fn initialized_crate_passes_its_tests() {
    let folder = tempfile::tempdir().unwrap();
    assert!(init(folder.path(), &["my-orders"]).status.success());
    let repository = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let made = folder.path().join("my-orders");
    let manifest = std::fs::read_to_string(made.join("Cargo.toml")).unwrap();
    let path = format!("path = \"{}\"", repository.join("crates/ferrata").display());
    let local = manifest.replace("git = \"https://github.com/ferrata-rs/ferrata\"", &path);
    assert_ne!(local, manifest);
    std::fs::write(made.join("Cargo.toml"), local).unwrap();
    std::fs::copy(repository.join("Cargo.lock"), made.join("Cargo.lock")).unwrap();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("init");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "--offline"]).current_dir(&made).env("CARGO_TARGET_DIR", target);
    let tested = cargo.output().unwrap();
    assert!(tested.status.success(), "{}\n{}", text(&tested.stdout), text(&tested.stderr));
}
