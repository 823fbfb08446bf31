//! Tells the tests what is there: `cfg(store_test_postgres)` for a server, `cfg(store_test_small_disk)` for a small disk.

fn main() {
    let tells = [
        ("store_test_postgres", ["STORE_TEST_POSTGRES_URL", "REQUIRE_SERVICES"].as_slice()),
        ("store_test_small_disk", ["STORE_TEST_SMALL_DISK"].as_slice()),
    ];
    for (name, variables) in tells {
        write(&format!("cargo::rustc-check-cfg=cfg({name})\n"));
        for variable in variables {
            write(&format!("cargo::rerun-if-env-changed={variable}\n"));
        }
        if variables.iter().any(|variable| std::env::var_os(variable).is_some()) {
            write(&format!("cargo::rustc-cfg={name}\n"));
        }
    }
}

fn write(line: &str) {
    use std::io::Write as _;
    std::io::stdout().write_all(line.as_bytes()).expect("cargo reads what a build script says");
}
