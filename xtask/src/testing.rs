//! How the workspace's tests are run: one call of cargo, made here and nowhere else.

use std::path::Path;

use anyhow::Result;

use crate::cargo::Cargo;

/// Returns the call that builds and runs every test, with `filter` handed on to the test programs.
///
/// Without a selection of targets, `cargo test` builds the example programs, too, and runs the examples in the documentation.
/// It needs nothing but Rust. A test that wants a server finds its address in the environment of this call.
pub(crate) fn command(filter: &[String]) -> Cargo {
    let call = Cargo::new("test --workspace --all-features --no-fail-fast --locked");
    if filter.is_empty() { call } else { call.args(&["--".to_owned()]).args(filter) }
}

/// Builds and runs the tests.
pub(crate) fn run(root: &Path, filter: &[String]) -> Result<()> {
    command(filter).run(root)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_reaches_the_test_programs() {
        assert!(command(&["resume".to_owned()]).to_string().ends_with(" -- resume"));
        assert!(!command(&[]).to_string().contains(" -- "));
    }
}
