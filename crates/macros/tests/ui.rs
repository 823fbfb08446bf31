//! What the derive says about mistakes: each message names the remedy.
//!
//! Here and not beside the other tests of the derive: `trybuild` builds the package of its test anew with the same features, and the
//! facade with all stores takes it five minutes of processor time.

#[test]
fn mistakes_are_explained() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/*.rs");
}
