//! Real servers for tests. They are private, use free loopback ports, and end with the test, even if the test crashes.
//!
//! ```no_run
//! use ferrata_test_servers::{RedisServer, RedisServerOptions};
//!
//! let redis = RedisServer::start(RedisServerOptions::default())?;
//! println!("{}", redis.url());
//! redis.kill()?; // as `kill -9`; its data stay
//! redis.restart()?; // on the same port, with the same data
//! # Ok::<(), ferrata_test_servers::ServerError>(())
//! ```
//!
//! - [`PostgresServer`], [`RedisServer`], [`RedisCluster`], [`NatsServer`], [`NatsCluster`] and [`MotoServer`] (S3) start programs that are
//!   installed on this machine. If a program is missing, it is unpacked once from Debian's packages into the target folder; this needs no root and
//!   no container.
//! - [`PgBouncer`] shares connections to a Postgres server by transaction.
//! - [`RadosgwServer`] is a real distributed S3 server. It needs root, and a separate test run.
//! - Each of them is a [`Server`], with methods that cause faults: kill, stop, restart, suspend, resume. A cluster consists of several servers.
//! - [`Proxy`] forwards connections to a server, and cuts, resets, delays or refuses connections at chosen points.
//! - [`RefusingPort`] is an address that refuses connections.
//! - [`Services`] starts one server of each kind. [`service_url`] returns the address of the servers that `cargo xtask test` started for all tests
//!   of stores.
//!
//! A server ends when its value is dropped, even by a panic. If the test process is killed, a watchdog process ends the server and removes its
//! folder. All calls block, so make them outside of async code, or in a blocking task.

mod children;
mod cluster;
mod debian;
mod error;
mod folder;
mod moto;
mod nats;
mod nobody;
mod once;
mod pgbouncer;
mod port;
mod postgres;
mod program;
mod proxy;
mod python;
mod radosgw;
mod redis;
mod resp;
mod running;
mod server;
mod service;
mod services;
mod user;
mod wait;
mod watchdog;

pub use crate::cluster::RedisCluster;
pub use crate::error::{Result, ServerError};
pub use crate::moto::MotoServer;
pub use crate::nats::{NatsCluster, NatsServer, NatsServerOptions};
pub use crate::nobody::RefusingPort;
pub use crate::pgbouncer::PgBouncer;
pub use crate::postgres::{PostgresServer, PostgresServerOptions};
pub use crate::program::{Program, obtain};
pub use crate::proxy::{
    ConnectionCut, FaultEffect, FaultPosition, FaultTrigger, FiredFault, Proxy, ProxyFault,
};
pub use crate::radosgw::RadosgwServer;
pub use crate::redis::{AppendFsync, RedisServer, RedisServerOptions};
pub use crate::server::Server;
pub use crate::service::{Service, service_url};
pub use crate::services::Services;
