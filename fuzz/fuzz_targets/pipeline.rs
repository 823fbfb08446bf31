//! Any bytes as a pipeline: what `crates/dot/tests/fuzz` checks, guided by coverage.
#![no_main]

#[path = "../../crates/dot/tests/fuzz/checks.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|source: &[u8]| {
    checks::exercise(source);
});
