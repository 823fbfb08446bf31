//! Finds the server that was started for all tests of a store.

/// A server that tests share; each test has its own schema, prefix or bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Service {
    /// Postgres. The URL is that of a database in which tests may create schemas.
    Postgres,
    /// A single Redis server with an append-only file.
    Redis,
    /// A Redis Cluster. The URL is that of one of its nodes.
    RedisCluster,
    /// S3. The URL is an endpoint, such as `http://127.0.0.1:5000`, where tests may create buckets.
    S3,
    /// A NATS server with JetStream.
    Nats,
}

impl Service {
    /// All services.
    pub const ALL: [Self; 5] = [Self::Postgres, Self::Redis, Self::RedisCluster, Self::S3, Self::Nats];

    /// Returns the environment variable with the URL of the service.
    #[must_use]
    pub fn variable(self) -> &'static str {
        match self {
            Self::Postgres => "STORE_TEST_POSTGRES_URL",
            Self::Redis => "STORE_TEST_REDIS_URL",
            Self::RedisCluster => "STORE_TEST_REDIS_CLUSTER_URL",
            Self::S3 => "STORE_TEST_S3_URL",
            Self::Nats => "STORE_TEST_NATS_URL",
        }
    }
}

/// Returns the URL of the server for tests of `service`.
///
/// # Panics
///
/// Panics if the environment variable of the service is not set. A test without its server must fail, so that it never seems to pass.
#[must_use]
#[track_caller]
pub fn service_url(service: Service) -> String {
    required(service.variable(), std::env::var(service.variable()).ok())
}

#[track_caller]
fn required(variable: &str, url: Option<String>) -> String {
    let url = url.filter(|url| !url.is_empty());
    url.unwrap_or_else(|| {
        panic!(
            "{variable} is not set, and this test needs the server that it names; \
             `cargo xtask test` starts one and sets it"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_server_variable_fails_test_with_remedy() {
        assert_eq!(required("A", Some("redis://127.0.0.1".to_owned())), "redis://127.0.0.1");
        for unset in [None, Some(String::new())] {
            let panic = std::panic::catch_unwind(|| required("STORE_TEST_A_URL", unset)).unwrap_err();
            let message = panic.downcast::<String>().unwrap();
            assert!(
                message.contains("STORE_TEST_A_URL") && message.contains("`cargo xtask test`"),
                "{message}"
            );
        }
    }
}
