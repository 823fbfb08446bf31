//! Tests the program as a user calls it: it measures, writes its results, and fails if they differ much from the committed ratios.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;
use std::process::{Command, Output};

/// Measures the bytes of the file store. Only these rows are the same each time.
fn bench(folder: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bench"));
    command.env("FERRATA_BENCH_STORES", format!("file:{}", folder.join("store").display()));
    command.current_dir(folder).args(["--quick", "fs/bytes"]).args(more).output().unwrap()
}

#[test]
fn a_row_that_is_an_order_of_magnitude_off_fails_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let output = bench(folder.path(), &["--json", "found.json", "--markdown", "found.md"]);
    assert!(output.status.success(), "{output:?}");
    let found: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.path().join("found.json")).unwrap()).unwrap();
    let rows = found["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2, "{found}");
    let table = std::fs::read_to_string(folder.path().join("found.md")).unwrap();
    assert!(table.contains("| `fs/bytes` |"), "{table}");

    let ratios = |factor: f64| {
        let lines = rows.iter().map(|row| {
            let figure = row["ours"]["median"].as_f64().unwrap() * factor;
            format!("{} = {figure:?}\n", row["id"])
        });
        std::fs::write(folder.path().join("ratios.toml"), format!("[ratios]\n{}", lines.collect::<String>()))
    };
    ratios(0.2).unwrap();
    let output = bench(folder.path(), &["--guard", "ratios.toml"]);
    assert!(output.status.success(), "five times off is noise: {output:?}");

    ratios(0.05).unwrap();
    let output = bench(folder.path(), &["--guard", "ratios.toml"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "twenty times off is no noise: {output:?}");
    assert!(said.contains("fs/bytes-1-mib: ") && said.contains("x off"), "{said}");
}
