//! One server of each kind, for all tests of the workspace.

use std::thread;

use crate::error::{Result, ServerError};
use crate::program::{self, Program};
use crate::service::Service;
use crate::{
    MotoServer, NatsServer, NatsServerOptions, PostgresServer, PostgresServerOptions, RedisCluster,
    RedisServer, RedisServerOptions,
};

/// One private server for each [`Service`].
#[derive(Debug)]
pub struct Services {
    postgres: PostgresServer,
    redis: RedisServer,
    cluster: RedisCluster,
    moto: MotoServer,
    nats: NatsServer,
}

impl Services {
    /// Starts all servers at the same time: Postgres, a Redis server and a Redis Cluster of three masters with append-only files, a NATS server,
    /// and moto.
    ///
    /// Postgres does not sync to disk. The servers outlive every test, and with syncs the load of the disk would determine how long a test takes.
    /// In `docker-compose.yml` the data of Postgres is in memory for the same reason. A test that kills a server starts its own server.
    ///
    /// # Errors
    ///
    /// Returns [`ServerError::Missing`] with all programs that cannot be unpacked, or the reason of the first failed start. After an error, no
    /// server runs.
    pub fn start() -> Result<Self> {
        program::obtain(&Program::ALL, |_| {})?;
        let started = |name| {
            move |_| ServerError::Failed {
                name: String::from(name),
                what: "could not be started: the thread that starts it panicked".to_owned(),
                log: String::new(),
            }
        };
        thread::scope(|scope| {
            let postgres =
                scope.spawn(|| PostgresServer::start(PostgresServerOptions::default().with_fsync(false)));
            let redis = scope.spawn(|| RedisServer::start(RedisServerOptions::default()));
            let cluster = scope.spawn(|| RedisCluster::start(3));
            let nats = scope.spawn(|| NatsServer::start(NatsServerOptions::default()));
            let moto = MotoServer::start();
            Ok(Self {
                postgres: postgres.join().map_err(started("Postgres"))??,
                redis: redis.join().map_err(started("Redis"))??,
                cluster: cluster.join().map_err(started("Redis Cluster"))??,
                moto: moto?,
                nats: nats.join().map_err(started("NATS"))??,
            })
        })
    }

    /// Returns the environment variables for programs that use the servers: the variable of each service, with its URL.
    #[must_use]
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        self.urls().into_iter().map(|(service, url)| (service.variable(), url)).collect()
    }

    /// Returns each service with its URL.
    #[must_use]
    pub fn urls(&self) -> [(Service, String); 5] {
        [
            (Service::Postgres, self.postgres.url()),
            (Service::Redis, self.redis.url()),
            (Service::RedisCluster, self.cluster.url()),
            (Service::S3, self.moto.url()),
            (Service::Nats, self.nats.url()),
        ]
    }
}
