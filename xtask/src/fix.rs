//! Writes all corrections that clippy, rustfmt and the tidy checks can make without a person.

use std::path::Path;

use anyhow::Result;

use crate::cargo::Cargo;
use crate::steps::{self, Step};
use crate::tidy;

/// Applies the suggestions of clippy and then formats the code, because a suggestion may leave a line that is not formatted. Then writes the texts
/// that tidy generates from the repository.
pub(crate) fn run(root: &Path) -> Result<()> {
    let clippy =
        Cargo::new("clippy --fix --allow-dirty --allow-staged --workspace --all-targets --all-features");
    steps::run(root, &[Step::cargo("clippy", clippy), Step::cargo("format", Cargo::new("fmt --all"))])?;
    tidy::write(root)
}
