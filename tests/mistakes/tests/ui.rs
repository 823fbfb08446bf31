//! Error messages of the derives: each names the remedy.

use std::process::Command;

/// Compiler flags that `trybuild` uses. `trybuild` builds the dependencies without the last of these flags, and then the cases with it.
const FLAGS: (&str, &str) = (
    "CARGO_ENCODED_RUSTFLAGS",
    "--cfg\u{1f}trybuild\u{1f}--verbose\u{1f}-A\u{1f}dead_code\u{1f}--diagnostic-width=140",
);

/// Runs this test again in a process with the flags, because a process cannot set its own environment.
#[test]
fn mistakes_are_explained() {
    if std::env::var(FLAGS.0).is_ok_and(|flags| flags == FLAGS.1) {
        let cases = trybuild::TestCases::new();
        cases.compile_fail("tests/ui/*.rs");
        return;
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "mistakes_are_explained", "--nocapture"]).env(FLAGS.0, FLAGS.1);
    let output = child.output().unwrap();
    let (said, wrong) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("1 passed"), "{said}{wrong}");
}
