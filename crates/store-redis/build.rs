//! Tells the tests whether there are servers to run on: without an address they show as ignored, with the variable to set.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(store_test_redis)");
    println!("cargo::rustc-check-cfg=cfg(store_test_redis_cluster)");
    println!("cargo::rerun-if-env-changed=REQUIRE_SERVICES");
    let is_required = std::env::var_os("REQUIRE_SERVICES").is_some();
    for (variable, cfg) in [
        ("STORE_TEST_REDIS_URL", "store_test_redis"),
        ("STORE_TEST_REDIS_CLUSTER_URL", "store_test_redis_cluster"),
    ] {
        println!("cargo::rerun-if-env-changed={variable}");
        if is_required || std::env::var_os(variable).is_some() {
            println!("cargo::rustc-cfg={cfg}");
        }
    }
}
