//! Tells the tests whether there is a server: `cfg(store_test_postgres)`.

fn main() {
    let mut is_there = false;
    for variable in ["STORE_TEST_POSTGRES_URL", "REQUIRE_SERVICES"] {
        is_there |= std::env::var_os(variable).is_some();
        let line = format!("cargo::rerun-if-env-changed={variable}\n");
        write(&line);
    }
    write("cargo::rustc-check-cfg=cfg(store_test_postgres)\n");
    if is_there {
        write("cargo::rustc-cfg=store_test_postgres\n");
    }
}

fn write(line: &str) {
    use std::io::Write as _;
    std::io::stdout().write_all(line.as_bytes()).expect("cargo reads what a build script says");
}
