//! Measures what a queue costs: a start through a queue with free slots, in turn with a plain start. Also measures how fast a slot is handed from one
//! run to the next.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use ferrata::graph::{Effect, Graph};
use ferrata::node::{NodeContext, NodeError};
use ferrata::queue::{NodeQueueExt as _, RuntimeQueueExt as _, StartQueueExt as _};
use ferrata::state::Draft;
use ferrata::{Outcome, Runtime};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};
use tokio::task::JoinSet;

use super::Table;
use super::runs::all;
use crate::bare::Bare;
use crate::graphs::{self, Small};
use crate::measure::{Rounds, in_turn};
use crate::row::{Goal, Row};
use crate::space::Space;

/// Number of concurrent runs.
const WIDTH: usize = 64;

/// Approximate size of the body of a hand-over record, which names the run that releases the slot and the run that gets it.
const BODY: usize = 400;

/// Measures the rows of queues.
pub(crate) async fn measure(table: &mut Table, server: &str) -> Result<()> {
    let rows = ["queued-64", "hand-over", "jobs"].map(|row| table.wants(&format!("postgres/{row}")));
    if rows.contains(&true) {
        let space = Space::make(server).await?;
        let runtime = super::runtime(&space).await?;
        if rows[0] {
            with_room(table, &runtime).await?;
        }
        if rows[1] {
            hand_over(table, &runtime, &space).await?;
        }
        if rows[2] {
            jobs(table, &runtime, &space).await?;
        }
        drop(runtime);
        space.remove().await?;
    }
    Ok(())
}

async fn with_room(table: &mut Table, runtime: &Runtime) -> Result<()> {
    let graph = graphs::chain(1, Effect::Write)?;
    runtime.queue("mail").at_once(1_000).declare().await?;
    let rounds = Rounds::warm(table.args.scaled(21, 5));
    let ours = async || queued(runtime, &graph).await;
    let theirs = async || all(runtime, &graph, WIDTH).await.map(|_: Vec<Duration>| ());
    let pair = in_turn(rounds, [WIDTH as f64; 2], ours, theirs).await?;
    let workload =
        format!("{WIDTH} runs of one `Write` node, started through a queue that has room, postgres");
    let reference = "the same, started without a queue";
    table.push(Row::pair("postgres/queued-64", workload, reference, "µs/run", pair, Goal::Times(1.3)));
    Ok(())
}

/// Starts all runs through the queue at once, and waits for their ends.
async fn queued(runtime: &Runtime, graph: &Graph<Small>) -> Result<()> {
    let mut tasks = JoinSet::new();
    for _ in 0..WIDTH {
        let start = runtime.start(graph, Small::default()).queue("mail");
        tasks.spawn(async move {
            match start.await?.wait().await? {
                Outcome::Completed(_) => Ok(()),
                outcome => bail!("a run that is measured must complete: {outcome:?}"),
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}

/// Measures jobs from their enqueue to their completion, in turn with a hand-made table of jobs.
async fn jobs(table: &mut Table, runtime: &Runtime, space: &Space) -> Result<()> {
    let graph = Graph::<Small>::builder("job")
        .node("work", async |_cx, s: Draft<Small>| Ok(s))
        .effect(Effect::Write)
        .entry("work")
        .build()?;
    runtime.serve(&graph)?;
    let width = u32::try_from(WIDTH)?;
    runtime.queue("jobs").at_once(width).max_waiting(100_000).declare().await?;
    let count: usize = table.args.scaled(2_000, 128);
    let mut bare = BareJobs::open(space, WIDTH).await?;
    let rounds = Rounds::warm(table.args.scaled(5, 2));
    let ours = async || {
        let requests = (0..count).map(|_| runtime.start(&graph, Small::default()).queue("jobs"));
        for started in runtime.start_many(requests).await {
            started?.completed().await?;
        }
        Ok(())
    };
    let theirs = async || bare.work(count).await;
    let pair = in_turn(rounds, [count as f64; 2], ours, theirs).await?;
    bare.close().await?;
    let workload = format!(
        "{count} jobs of one `Write` node, from `start_many` through a queue of {WIDTH} slots to their ends, postgres"
    );
    let reference = format!(
        "a table of jobs: {WIDTH} clients insert, claim with `FOR UPDATE SKIP LOCKED`, and mark one job at a time"
    );
    table.push(Row::pair("postgres/jobs", workload, reference, "µs/job", pair, Goal::Times(1.0)));
    Ok(())
}

/// A hand-made table of jobs, as services write it: a job is inserted, claimed and marked as done, each in a commit of its own.
struct BareJobs {
    clients: Vec<PgConnection>,
    table: String,
}

impl BareJobs {
    async fn open(space: &Space, clients: usize) -> Result<Self> {
        let table = format!("{}.jobs", space.name());
        let mut first = space.postgres().await?;
        let sql = format!(
            "CREATE TABLE {table} (id bigserial PRIMARY KEY, state smallint NOT NULL DEFAULT 0, body bytea NOT NULL); \
             CREATE INDEX ON {table} (id) WHERE state = 0"
        );
        first.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await?;
        let mut all = vec![first];
        while all.len() < clients {
            all.push(space.postgres().await?);
        }
        Ok(Self { clients: all, table })
    }

    /// Inserts `count` jobs, then works on them until none is left.
    async fn work(&mut self, count: usize) -> Result<()> {
        let sql: [Arc<str>; 3] = [
            format!("INSERT INTO {} (body) VALUES ($1)", self.table).into(),
            format!(
                "UPDATE {0} SET state = 1 WHERE id = \
                 (SELECT id FROM {0} WHERE state = 0 ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id",
                self.table
            )
            .into(),
            format!("UPDATE {} SET state = 2 WHERE id = $1", self.table).into(),
        ];
        let (mut tasks, clients) = (JoinSet::new(), self.clients.len());
        for (at, mut client) in self.clients.drain(..).enumerate() {
            let [insert, claim, finish] = sql.clone();
            let mine = count / clients + usize::from(at < count % clients);
            tasks.spawn(async move {
                for _ in 0..mine {
                    let job = sqlx::query(AssertSqlSafe(Arc::clone(&insert))).bind(vec![b'x'; BODY]);
                    client.execute(job).await?;
                }
                let next = || sqlx::query_scalar::<_, i64>(AssertSqlSafe(Arc::clone(&claim)));
                while let Some(id) = next().fetch_optional(&mut client).await? {
                    client.execute(sqlx::query(AssertSqlSafe(Arc::clone(&finish))).bind(id)).await?;
                }
                anyhow::Ok(client)
            });
        }
        while let Some(ended) = tasks.join_next().await {
            self.clients.push(ended??);
        }
        Ok(())
    }

    async fn close(self) -> Result<()> {
        for client in self.clients {
            client.close().await?;
        }
        Ok(())
    }
}

async fn hand_over(table: &mut Table, runtime: &Runtime, space: &Space) -> Result<()> {
    runtime.queue("hot").at_once_per_key(1).declare().await?;
    let places: usize = table.args.scaled(20, 3);
    let graph = Graph::<Small>::builder("hot")
        .node("work", move |cx: NodeContext, s: Draft<Small>| async move {
            for _ in 0..places {
                cx.acquire("hot", 1).key("one").await?.release().await?;
            }
            Ok::<_, NodeError>(s)
        })
        .entry("work")
        .build()?;
    let mut bare = Bare::open(space, 1, BODY).await?;
    let rounds = Rounds::warm(table.args.scaled(11, 3));
    let ours = async || {
        let spans = all(runtime, &graph, WIDTH).await?;
        ensure!(spans.len() == WIDTH, "every run has its turns");
        Ok(())
    };
    let theirs = async || bare.commits(WIDTH * places).await;
    let pair = in_turn(rounds, [(WIDTH * places) as f64; 2], ours, theirs).await?;
    bare.close().await?;
    let workload = format!(
        "{WIDTH} runs that take turns at the one place of a key, {places} times each, in one process, postgres"
    );
    let reference = format!("{}, one for each hand-over", Bare::in_words(space.kind, 1));
    // A thousand hand-overs per second, however long a commit takes.
    let goal = Goal::Each(1_000.0);
    table.push(Row::pair("postgres/hand-over", workload, reference, "µs/place", pair, goal));
    Ok(())
}
