//! The one command that writes: what clippy, rustfmt and the checks can put right without a person.

use std::path::Path;

use anyhow::Result;

use crate::cargo::Cargo;
use crate::steps::{self, Step};
use crate::tidy;

/// Applies clippy's suggestions, then formats: a suggestion may leave a line that rustfmt would break. Then writes what
/// tidy makes from the repository.
pub(crate) fn run(root: &Path) -> Result<()> {
    let clippy =
        Cargo::new("clippy --fix --allow-dirty --allow-staged --workspace --all-targets --all-features");
    steps::run(root, &[Step::cargo("clippy", clippy), Step::cargo("format", Cargo::new("fmt --all"))])?;
    tidy::write(root)
}
