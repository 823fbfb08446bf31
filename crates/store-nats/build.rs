//! Tells the tests whether there is a server to run on: without an address they show as ignored, with the variable to set.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(store_test_nats)");
    println!("cargo::rerun-if-env-changed=REQUIRE_SERVICES");
    println!("cargo::rerun-if-env-changed=STORE_TEST_NATS_URL");
    let is_named = |variable| std::env::var_os(variable).is_some();
    if is_named("REQUIRE_SERVICES") || is_named("STORE_TEST_NATS_URL") {
        println!("cargo::rustc-cfg=store_test_nats");
    }
}
