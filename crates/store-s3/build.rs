//! Tells the tests whether there is a server of S3 for them.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(store_test_s3)");
    for variable in ["STORE_TEST_S3_URL", "REQUIRE_SERVICES"] {
        println!("cargo::rerun-if-env-changed={variable}");
        if std::env::var_os(variable).is_some() {
            println!("cargo::rustc-cfg=store_test_s3");
        }
    }
}
