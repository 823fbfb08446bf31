//! Measures transactional nodes on Postgres, in turn with bare transactions that do the same: change a row, insert a record, commit.

use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use ferrata::graph::{Effect, Graph};
use ferrata::{Draft, FatalExt as _, NodeContext, Outcome, Postgres, Runtime, Update};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};
use tokio::task::JoinSet;

use super::Table;
use crate::bare;
use crate::graphs::Small;
use crate::measure::{Rounds, in_turn};
use crate::row::{Goal, Row};
use crate::space::Space;

/// A workload: a number of runs and nodes, over a number of connections, and the number of bare clients that are useful as a reference.
#[derive(Clone, Copy)]
struct Load {
    id: &'static str,
    runs: usize,
    nodes: usize,
    connections: usize,
    rounds: u32,
    goal: Goal,
}

/// Measures the rows of one run, and of 64 runs with one connection for each and with the store's default number of connections.
pub(crate) async fn measure(table: &mut Table, server: &str) -> Result<()> {
    let (rounds, nodes) = table.args.scaled((9, 200), (2, 50));
    let one =
        Load { id: "postgres/transaction", runs: 1, nodes, connections: 10, rounds, goal: Goal::Times(1.3) };
    row(table, server, one).await?;
    let (rounds, goal) = (table.args.scaled(7, 2), Goal::Rate(1.0));
    let many = Load { id: "postgres/transactions-64", runs: 64, nodes: 20, connections: 64, rounds, goal };
    row(table, server, many).await?;
    row(table, server, Load { id: "postgres/transactions-64-over-10", connections: 10, ..many }).await
}

async fn row(table: &mut Table, server: &str, load: Load) -> Result<()> {
    let Load { id, runs, nodes, connections, rounds, goal } = load;
    if !table.wants(id) {
        return Ok(());
    }
    let space = Space::make(server).await?;
    let url = format!("{}&connections={connections}", space.url());
    let runtime = Runtime::builder_with(ferrata::connect(&url)?).build().await?;
    let width = runs.min(connections);
    let accounts = Accounts::make(&space, runs).await?;
    let graph = accounts.graph(nodes)?;
    let probe = runtime.start(&graph, account(0)).await?;
    probe.wait().await?;
    let body = super::body_bytes(&runtime, probe.run()).await?;
    let mut clients = Clients::open(&space, &accounts, width, body).await?;
    let ours = async || all(&runtime, &graph, runs).await;
    let theirs = async || clients.transactions(runs * nodes / width).await;
    let units = [(runs * nodes) as f64; 2];
    let pair = in_turn(Rounds::warm(rounds), units, ours, theirs).await?;
    let done = accounts.sum(&space).await?;
    ensure!(done >= (runs * nodes) as i64 * i64::from(2 * rounds), "a transaction changed no row");
    let of = format!("of {nodes} `Transactional` nodes of one `UPDATE`, postgres");
    let (workload, by) = match runs {
        1 => (format!("one run {of}"), String::new()),
        _ => (format!("{runs} runs {of}"), format!(" by {width} clients")),
    };
    let reference = format!("`BEGIN; UPDATE; INSERT; COMMIT`{by}");
    let row = Row::pair(id, workload, reference, "µs/node", pair, goal);
    table
        .push(row.note(format!("the store has {connections} connections; a record's body has {body} bytes")));
    drop(runtime);
    clients.close().await?;
    space.remove().await
}

/// A table with a row for each run and each client, so that none waits for the row of another.
struct Accounts {
    update: Arc<str>,
    table: String,
}

impl Accounts {
    async fn make(space: &Space, rows: usize) -> Result<Self> {
        let table = format!("{}.accounts", space.name());
        let sql = format!(
            "CREATE TABLE {table} (id bigint PRIMARY KEY, balance bigint NOT NULL); \
             INSERT INTO {table} SELECT id, 0 FROM generate_series(0, {rows}) id"
        );
        let mut connection = space.postgres().await?;
        connection.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await?;
        connection.close().await?;
        let update = format!("UPDATE {table} SET balance = balance + 1 WHERE id = $1").into();
        Ok(Self { update, table })
    }

    /// Creates a chain of nodes. Each changes the row that the state names.
    fn graph(&self, nodes: usize) -> Result<Graph<Small>> {
        let mut builder = Graph::<Small>::builder("transactions").entry("n0");
        for at in 0..nodes {
            let update = Arc::clone(&self.update);
            let node = move |cx: NodeContext, s: Draft<Small>| {
                let update = Arc::clone(&update);
                async move {
                    let account: i64 = s.blob.parse().fatal()?;
                    let mut tx = cx.transaction::<Postgres>().await?;
                    sqlx::query(AssertSqlSafe(update)).bind(account).execute(&mut *tx).await?;
                    Ok(Update::from(Small::update().count(1u64)).commit_with(tx))
                }
            };
            builder = builder.node(format!("n{at}"), node).effect(Effect::Transactional);
            if at > 0 {
                builder = builder.edge(format!("n{}", at - 1), format!("n{at}"));
            }
        }
        Ok(builder.build()?)
    }

    async fn sum(&self, space: &Space) -> Result<i64> {
        let mut connection = space.postgres().await?;
        let sql = format!("SELECT sum(balance)::int8 FROM {}", self.table);
        let sum = sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&mut connection).await?;
        connection.close().await?;
        Ok(sum)
    }
}

/// The input of a run that changes this row.
fn account(number: usize) -> Small {
    Small { blob: number.to_string(), ..Small::default() }
}

/// Starts `runs` runs at once, and waits for their ends.
async fn all(runtime: &Runtime, graph: &Graph<Small>, runs: usize) -> Result<()> {
    let mut tasks = JoinSet::new();
    for number in 0..runs {
        let (runtime, graph) = (runtime.clone(), graph.clone());
        tasks.spawn(async move {
            match runtime.start(&graph, account(number)).await?.wait().await? {
                Outcome::Completed(_) => anyhow::Ok(()),
                outcome => bail!("a run that is measured must complete: {outcome:?}"),
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}

/// Bare clients. Each has a connection and a row of its own.
struct Clients {
    clients: Vec<Client>,
}

struct Client {
    connection: PgConnection,
    update: Arc<str>,
    insert: Arc<str>,
    number: i64,
    seq: i64,
    body: Arc<[u8]>,
}

impl Clients {
    async fn open(space: &Space, accounts: &Accounts, number: usize, body: usize) -> Result<Self> {
        let table = bare::table(space).await?;
        let insert: Arc<str> = format!("INSERT INTO {table} (run, seq, body) VALUES ($1, $2, $3)").into();
        let body: Arc<[u8]> = vec![b'x'; body].into();
        let mut clients = Vec::new();
        for number in 0..number {
            let (update, insert, body) =
                (Arc::clone(&accounts.update), Arc::clone(&insert), Arc::clone(&body));
            let (connection, number) = (space.postgres().await?, i64::try_from(number)?);
            clients.push(Client { connection, update, insert, number, seq: 0, body });
        }
        Ok(Self { clients })
    }

    /// Makes each client commit `each` transactions, one after the other. The clients work concurrently.
    async fn transactions(&mut self, each: usize) -> Result<()> {
        let mut tasks = JoinSet::new();
        for mut client in self.clients.drain(..) {
            tasks.spawn(async move {
                for _ in 0..each {
                    client.transaction().await?;
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
            client.connection.close().await?;
        }
        Ok(())
    }
}

impl Client {
    async fn transaction(&mut self) -> Result<()> {
        self.seq += 1;
        let (update, insert) = (Arc::clone(&self.update), Arc::clone(&self.insert));
        let mut tx = self.connection.begin().await?;
        sqlx::query(AssertSqlSafe(update)).bind(self.number).execute(&mut *tx).await?;
        let insert = sqlx::query(AssertSqlSafe(insert)).bind(self.number).bind(self.seq).bind(&*self.body);
        insert.execute(&mut *tx).await?;
        tx.commit().await?;
        Ok(())
    }
}
