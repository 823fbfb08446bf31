//! Durable graphs of async code. Each run is checkpointed in an append-only log.
//!
//! ```
//! use ferrata::prelude::*;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let graph = Graph::<Context>::builder("greet")
//!     .node("hello", async |_cx, mut s| {
//!         s.set("text", "hello")?;
//!         Ok(s)
//!     })
//!     .entry("hello")
//!     .build()?;
//! let runtime = Runtime::builder_with(ferrata::connect("memory:")?).build().await?;
//! let run = runtime.start(&graph, Context::new()).id("first").await?;
//! let Outcome::Completed(state) = run.wait().await? else { panic!("not completed") };
//! assert_eq!(state.get::<String>("text")?.as_deref(), Some("hello"));
//! # Ok(())
//! # }
//! ```
//!
//! # State
//!
//! A run's state is a struct with `#[derive(State)]`. Each field is a *channel*, with a rule that combines an update with the value.
//!
//! ```
//! use std::collections::BTreeMap;
//!
//! use ferrata::prelude::*;
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Clone, Debug, Default, Serialize, Deserialize, State)]
//! struct Review {
//!     draft: String,
//!     #[state(append)]
//!     notes: Vec<String>,
//!     #[state(merge)]
//!     scores: BTreeMap<String, u32>,
//!     #[state(max)]
//!     attempts: u32,
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // `ann` and `bob` run concurrently. The rules combine their updates.
//! let graph = Graph::<Review>::builder("review")
//!     .node("write", async |_cx, mut s| {
//!         s.draft = "hello".into();
//!         Ok(s)
//!     })
//!     .node("ann", async |_cx, _s| Ok(Review::update().notes(["short"]).attempts(2)))
//!     .node("bob", async |_cx, _s| Ok(Review::update().notes(["clear"]).attempts(1)))
//!     .entry("write")
//!     .edge("write", ["ann", "bob"])
//!     .build()?;
//! let runtime = Runtime::builder_with(ferrata::connect("memory:")?).build().await?;
//! let state = runtime.start(&graph, Review::default()).await?.completed().await?;
//! assert_eq!((state.notes.len(), state.attempts), (2, 2));
//! # Ok(())
//! # }
//! ```
//!
//! # Stores
//!
//! [`connect()`] opens a store by its URL. Each kind of store except `memory:` needs a feature of this crate.
//!
//! | URL | store | feature |
//! |---|---|---|
//! | `memory:` | [`MemoryStore`], lost when the process ends | |
//! | `file:///path`, `file:relative` | `FsStore`, files on this machine | `fs`, enabled by default |
//! | `sqlite:///path`, `sqlite:relative` | `SqliteStore`, a database in a file on this machine | `sqlite` |
//! | `postgres://user@host/database` | `PostgresStore`, tables of a PostgreSQL database | `postgres` |
//! | `nats://host:port,host:port`, `tls://` with TLS | `NatsStore`, a stream of NATS JetStream | `nats` |
//! | `redis://host:port/db`, `rediss://` with TLS | `RedisStore`, one Redis or Valkey server | `redis` |
//! | `redis-cluster://host:port,host:port`, `rediss-cluster://` | `RedisStore`, a cluster | `redis` |
//! | `s3://bucket/prefix?endpoint=…&region=…&path_style=true` | `S3Store`, objects in a bucket | `s3` |
//! | `sharded:///path`, `sharded:relative` | `ShardedStore`, the stores that this file lists | `sharded`, enabled by default |
//!
//! # Guide
//!
//! The module [`guide`] leads from the first graph to a service in production.
//!
//! # Functions
//!
//! A durable function is one async function that runs without a graph: see the module [`flow`](mod@flow).
//!
//! # Large values
//!
//! With the feature `blobs`, a state can refer to large documents that are stored next to the records: see the module `blobs`.
//!
//! # Queues and limits
//!
//! With the feature `queue`, runs and nodes can wait for slots that all processes of a store share: see the module `queue`.
//!
//! # Schedules
//!
//! With the feature `schedule`, runs start at given times or intervals: see the module `schedule`.
//!
//! # Tests
//!
//! With the feature `testing`, tests of workflows need no real waiting and no servers: see the module `testing`.
//!
//! # Metrics
//!
//! A runtime reports metrics through the `metrics` facade; the module [`metrics`] lists them.
//!
//! # Traces
//!
//! With the feature `otel`, `OpenTelemetry` creates one trace for a run, across all processes that drive the run.

mod connect;
pub mod guide;
#[cfg(feature = "otel")]
mod otel;
pub mod prelude;

pub use connect::connect;
#[cfg(feature = "blobs")]
pub use ferrata_blobs as blobs;
pub use ferrata_core::ask::{self, Answer, AnswerShape, Ask, AskError};
pub use ferrata_core::graph::{
    self, CachePolicy, CheckpointFrequency, CheckpointPolicy, Effect, Graph, GraphError, Join, Lens,
    RetryPolicy, Route,
};
pub use ferrata_core::metrics;
pub use ferrata_core::node::{self, Conversation, FatalExt, Node, NodeContext, NodeError, NodeResult};
pub use ferrata_core::record::{self, RunStatus};
pub use ferrata_core::runtime::{self, Event, Outcome, Position, RetentionPolicy, RunHandle, Runtime};
pub use ferrata_core::state::{self, Context, Draft, Patch, State, Update};
pub use ferrata_core::store::{self, CheckpointStore, MemoryStore};
pub use ferrata_core::{
    Clock, Epoch, Error, ErrorKind, ExecutorId, Fingerprint, HeadRef, IdSource, NodeName, RandomIds,
    RecordId, Result, RunId, RunKey, Seq, SystemClock, TenantId, Timestamp, Visit, WorkflowName,
};
pub use ferrata_flow as flow;
pub use ferrata_macros::{AnswerShape, State};
#[cfg(feature = "queue")]
pub use ferrata_queue as queue;
#[cfg(feature = "schedule")]
pub use ferrata_schedule as schedule;
#[cfg(feature = "envelope")]
pub use ferrata_store_envelope::{
    CachedKeys, EnvelopeOptions, EnvelopeStore, Key, KeyProvider, KeyUsage, Keyring, LabelKey, RekeyOptions,
    RekeyReport, key_usage,
};
#[cfg(feature = "fs")]
pub use ferrata_store_fs::{FsOptions, FsStore};
#[cfg(feature = "nats")]
pub use ferrata_store_nats::{NatsOptions, NatsStore};
#[cfg(all(feature = "blobs", feature = "postgres"))]
pub use ferrata_store_postgres::PostgresObjects;
#[cfg(feature = "postgres")]
pub use ferrata_store_postgres::{Postgres, PostgresOptions, PostgresStore, PostgresTransaction};
#[cfg(feature = "redis")]
pub use ferrata_store_redis::{Persistence, RedisOptions, RedisStore};
#[cfg(feature = "s3")]
pub use ferrata_store_s3::{S3Options, S3Store};
#[cfg(feature = "sharded")]
pub use ferrata_store_sharded::{ShardedStore, ShardedStoreBuilder};
#[cfg(feature = "sqlite")]
pub use ferrata_store_sqlite::{Sqlite, SqliteOptions, SqliteStore, SqliteTransaction, Synchronous};
#[cfg(feature = "testing")]
pub use ferrata_testing as testing;
#[cfg(feature = "otel")]
pub use otel::OpenTelemetry;

/// The tests compile and run the program of the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The tests compile the program of the crate's own page.
#[cfg(all(doctest, feature = "fs"))]
#[doc = include_str!("../README.md")]
struct CrateReadme;

/// The tests also compile the programs of the pages.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../docs/how-to/replanning.md")]
    struct Replanning;

    #[doc = include_str!("../../../docs/how-to/questions.md")]
    struct Questions;

    #[doc = include_str!("../../../docs/how-to/conversations.md")]
    struct Conversations;

    #[doc = include_str!("../../../docs/how-to/steps.md")]
    struct Steps;

    #[doc = include_str!("../../../docs/how-to/timers.md")]
    struct Timers;

    #[doc = include_str!("../../../docs/how-to/events.md")]
    struct Events;

    #[doc = include_str!("../../../docs/how-to/control.md")]
    struct Control;

    #[doc = include_str!("../../../docs/how-to/durability.md")]
    struct Durability;

    #[doc = include_str!("../../../docs/how-to/history.md")]
    struct History;

    #[doc = include_str!("../../../docs/how-to/sharding.md")]
    struct Sharding;

    #[doc = include_str!("../../../docs/how-to/sagas.md")]
    struct Sagas;

    #[doc = include_str!("../../../docs/how-to/functions.md")]
    struct FunctionsPage;

    #[cfg(feature = "blobs")]
    #[doc = include_str!("../../../docs/how-to/blobs.md")]
    struct Blobs;

    #[cfg(feature = "queue")]
    #[doc = include_str!("../../../docs/how-to/queues.md")]
    struct Queues;

    #[cfg(feature = "schedule")]
    #[doc = include_str!("../../../docs/how-to/schedules.md")]
    struct Schedules;

    #[cfg(feature = "otel")]
    #[doc = include_str!("../../../docs/how-to/tracing.md")]
    struct Tracing;
}
