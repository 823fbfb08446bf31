//! The bare reference for notices between processes: a text that is sent from one connection of a server to another, listening connection.

use anyhow::{Context as _, Result, bail};
use futures_util::StreamExt as _;
use redis::aio::{MultiplexedConnection, PubSub};
use sqlx::PgConnection;
use sqlx::postgres::PgListener;

use crate::measure::{micros, now};
use crate::space::{Kind, Space};

/// Two connections of one server.
pub(crate) enum Notice {
    Postgres { speaker: PgConnection, listener: PgListener, channel: String },
    Redis { speaker: MultiplexedConnection, listener: PubSub, channel: String },
}

impl Notice {
    /// Opens both connections.
    pub(crate) async fn open(space: &Space) -> Result<Self> {
        let channel = format!("{}_bare", space.name());
        match space.kind {
            Kind::Postgres => {
                let mut listener = space.listener().await?;
                listener.listen(&channel).await?;
                Ok(Self::Postgres { speaker: space.postgres().await?, listener, channel })
            }
            Kind::Redis => {
                let mut listener = space.pubsub().await?;
                listener.subscribe(&channel).await?;
                Ok(Self::Redis { speaker: space.redis().await?, listener, channel })
            }
            other => bail!("{} passes nothing on", other.name()),
        }
    }

    /// Describes in words what [`pass`](Self::pass) does.
    pub(crate) fn in_words(&self) -> &'static str {
        match self {
            Self::Postgres { .. } => "`NOTIFY` to a connection that listens",
            Self::Redis { .. } => "`PUBLISH` to a connection that listens",
        }
    }

    /// Sends a text. Returns the number of microseconds until it was received.
    pub(crate) async fn pass(&mut self, text: &str) -> Result<f64> {
        let begun = now();
        match self {
            Self::Postgres { speaker, listener, channel } => {
                let sql = sqlx::query("SELECT pg_notify($1, $2)").bind(&*channel).bind(text);
                sql.execute(speaker).await?;
                listener.recv().await?;
            }
            Self::Redis { speaker, listener, channel } => {
                redis::cmd("PUBLISH").arg(&*channel).arg(text).exec_async(speaker).await?;
                listener.on_message().next().await.context("the connection that listens was lost")?;
            }
        }
        Ok(micros(begun.elapsed()))
    }
}
