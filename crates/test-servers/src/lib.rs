//! Real servers for tests: private ones on free loopback ports, which end with the test however it ends.
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
//! - [`PostgresServer`], [`RedisServer`], [`RedisCluster`], [`NatsServer`], [`NatsCluster`] and [`MotoServer`] (S3) start the installed programs of this machine. Missing
//!   ones are unpacked from Debian's packages, once, into the target folder: no root, no container.
//! - [`PgBouncer`] shares connections to a Postgres server by transaction.
//! - [`RadosgwServer`] is a real distributed S3 server; it needs root, and a test run of its own.
//! - Each is a [`Server`] (a cluster consists of three), with methods for faults: kill, stop, restart, suspend, resume.
//! - [`Proxy`] forwards between a client and a server, and cuts, resets, delays or refuses connections at chosen points.
//! - [`RefusingPort`] is an address where connections are refused.
//! - [`Services`] starts one of each, and [`service_url`] returns the address of those that `cargo xtask test` started for all tests of stores.
//!
//! A server ends with its value, even when a panic unwinds. When the process of the test is killed, a watchdog at the other end of a pipe ends the
//! server and removes its folder. Calls block; use them outside async code or in a blocking task.

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
