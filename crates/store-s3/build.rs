//! Tells the tests whether there is a server of S3 for them, and whether the one in their process is to stand for it.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(store_test_s3, store_test_in_process)");
    let is_set = |variable| {
        println!("cargo::rerun-if-env-changed={variable}");
        std::env::var_os(variable).is_some()
    };
    let has_server = ["STORE_TEST_S3_URL", "REQUIRE_SERVICES"].map(is_set).contains(&true);
    if has_server {
        println!("cargo::rustc-cfg=store_test_s3");
    }
    // Some 70 s of processor time: where a real server is asked the same, only on request.
    if is_set("FERRATA_CONFORMANCE") || !has_server {
        println!("cargo::rustc-cfg=store_test_in_process");
    }
}
