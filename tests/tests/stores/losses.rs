//! Streams without a working notice connection: missing chunks are counted and reported, and nothing fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ferrata_core::graph::Graph;
use ferrata_core::node::NodeContext;
use ferrata_core::runtime::{Runtime, Watch, WatchEventKind};
use ferrata_core::state::{Context, Draft};
use ferrata_core::{Clock as _, ErrorKind, RunKey, SystemClock};
use ferrata_test_servers::{RedisServer, RedisServerOptions, Service, service_url};
use ferrata_tests::{Space, StoreKind};
use sqlx::{Connection as _, PgConnection};

/// Interval of the chunks.
const PACE: Duration = Duration::from_millis(20);

/// A node that streams numbers until it is stopped.
fn speaker(ends: &Arc<AtomicBool>) -> Graph<Context> {
    let ends = Arc::clone(ends);
    let speak = move |cx: NodeContext, s: Draft<Context>| {
        let ends = Arc::clone(&ends);
        async move {
            let mut tokens = cx.stream("tokens")?;
            for number in 0_u64.. {
                tokens.send(number).await?;
                SystemClock::new().sleep(PACE).await;
                if ends.load(Ordering::Relaxed) {
                    break;
                }
            }
            tokens.finish().await?;
            Ok(s)
        }
    };
    Graph::<Context>::builder("speaker").node("speak", speak).entry("speak").build().unwrap()
}

/// Returns the number of the next chunk, and the count of missing chunks before it. Returns none if the run has ended.
async fn chunk(watch: &mut Watch) -> Option<(u64, u64)> {
    let mut missing = 0;
    while let Some(event) = watch.next().await.unwrap() {
        if let WatchEventKind::Lagged { missed } = event.what {
            missing += missed;
        }
        if let Some(chunk) = event.chunks().next() {
            assert_eq!(chunk.data.get(), chunk.number.to_string());
            return Some((chunk.number, missing));
        }
    }
    None
}

/// Receives chunks of another process, until the notice connections were cut three times, each time with a loss.
async fn losses_are_told(space: &Space, cut: impl AsyncFn()) {
    let runtime = Runtime::builder_with(space.open()).build().await.unwrap();
    let other = Runtime::builder_with(space.open()).operator();
    let mut watch = other.watch(&RunKey::try_from("r").unwrap()).before_start().await.unwrap();
    let ends = Arc::new(AtomicBool::new(false));
    let run = runtime.start(&speaker(&ends), Context::new()).id("r").await.unwrap();
    let (clock, mut losses) = (SystemClock::new(), 0);
    let (mut last, _) = chunk(&mut watch).await.unwrap();
    while losses < 3 {
        cut().await;
        let since = clock.monotonic();
        // With chunks every 20 ms, a reconnect within 100 ms may lose none. So wait for a loss only for some time.
        while clock.monotonic() - since < Duration::from_secs(2) {
            let (number, missing) = chunk(&mut watch).await.unwrap();
            assert_eq!(number, last + missing + 1, "each chunk must be received or counted");
            last = number;
            if missing > 0 {
                losses += 1;
                break;
            }
        }
    }
    ends.store(true, Ordering::Relaxed);
    while let Some((number, missing)) = chunk(&mut watch).await {
        assert_eq!((number, missing), (last + 1, 0), "the following chunks must be live");
        last = number;
    }
    run.completed().await.unwrap();
    runtime.shutdown(Duration::ZERO).await.unwrap();
}

#[tokio::test]
async fn chunks_lost_with_connection_are_counted_on_postgres() {
    Space::within(StoreKind::Server(Service::Postgres), async |space| {
        let (_, schema) = space.url().split_once("schema=").unwrap();
        let schema = schema.split('&').next().unwrap().to_owned();
        losses_are_told(space, async || {
            let mut connection = PgConnection::connect(&service_url(Service::Postgres)).await.unwrap();
            let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                WHERE starts_with(query, format('LISTEN \"%s.runs\"', $1))";
            sqlx::query(sql).bind(&schema).execute(&mut connection).await.unwrap();
            connection.close().await.unwrap();
        })
        .await;
    })
    .await;
}

/// The test has its own server, so every listening connection belongs to it.
#[tokio::test]
async fn chunks_lost_with_connection_are_counted_on_redis() {
    let server = RedisServer::start(RedisServerOptions::default()).unwrap();
    let url = server.url();
    Space::within_server(StoreKind::Server(Service::Redis), url.clone(), async |space| {
        losses_are_told(space, async || command(&url, "CLIENT KILL TYPE pubsub").await).await;
    })
    .await;
}

async fn command(url: &str, words: &str) {
    let mut connection = redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap();
    let mut words = words.split(' ');
    let mut command = redis::cmd(words.next().unwrap());
    for word in words {
        command.arg(word);
    }
    command.exec_async(&mut connection).await.unwrap();
}

/// The database user of an older installation may lack access to the second channel. Nothing else fails, and no call waits for it.
///
/// Guarantees: REDIS-16.
#[tokio::test]
async fn user_without_stream_channel_lacks_chunks_on_redis() {
    let server = RedisServer::start(RedisServerOptions::default()).unwrap();
    Space::within_server(StoreKind::Server(Service::Redis), server.url(), async |space| {
        let (_, prefix) = space.url().split_once("prefix=").unwrap();
        let prefix = prefix.split('&').next().unwrap();
        let grant = format!("ACL SETUSER old on >word ~* +@all resetchannels &{prefix}:notices");
        command(&server.url(), &grant).await;
        let old = space.url().replacen("redis://", "redis://old:word@", 1);
        let (new, old) = (|| space.open(), || ferrata::connect(&old).unwrap());
        let refused = old().relay().unwrap().listen().await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
        assert!(refused.to_string().contains(&format!("{prefix}:said")), "{refused}");

        let speak = async |cx: NodeContext, s: Draft<Context>| {
            let mut tokens = cx.stream("tokens")?;
            let mut kept = cx.stream("kept")?.durable();
            for number in 0..9 {
                tokens.send(number).await?;
                kept.send(number).await?;
            }
            tokens.finish().await?;
            kept.finish().await?;
            Ok(s)
        };
        let graph = Graph::<Context>::builder("two").node("speak", speak).entry("speak").build().unwrap();
        for (id, writer, reader) in [("a", old(), new()), ("b", new(), old()), ("c", old(), old())] {
            let runtime = Runtime::builder_with(writer).build().await.unwrap();
            let other = Runtime::builder_with(reader).operator();
            let mut watch = other.watch(&RunKey::try_from(id).unwrap()).before_start().await.unwrap();
            let run = runtime.start(&graph, Context::new()).id(id).await.unwrap();
            let mut heard = Vec::new();
            while let Some(event) = watch.next().await.unwrap() {
                heard.extend(event.chunks().map(|chunk| (chunk.stream.to_owned(), chunk.number)));
            }
            run.completed().await.unwrap();
            assert_eq!(heard, (0..9).map(|number| ("kept".to_owned(), number)).collect::<Vec<_>>(), "{id}");
            runtime.shutdown(Duration::ZERO).await.unwrap();
        }
    })
    .await;
}
