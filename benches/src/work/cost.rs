//! Measures what a step costs a server: processor time, log, disk and requests. docs/how-to/scaling.md uses these figures.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use ferrata::graph::Effect;
use ferrata::{Clock as _, Runtime, S3Options, S3Store, SystemClock};
use sqlx::{AssertSqlSafe, Executor as _, Row as _};

use super::{Table, runs};
use crate::graphs;
use crate::measure::Spread;
use crate::row::{Goal, Row};
use crate::space::{Kind, Space};

/// Time without work after which a Postgres process has published its counters (`PGSTAT_IDLE_INTERVAL`, plus a second).
const TOLD: Duration = Duration::from_secs(11);

/// Number of repetitions of the work.
const ROUNDS: usize = 5;

/// Returns the number of concurrent steps. The number is that of a busy process. If a server answers one request at a time, it is smaller, because
/// the counted figures do not depend on it.
fn width(kind: Kind) -> usize {
    if kind == Kind::S3 { 64 } else { 256 }
}

/// What is counted, in the order of [`count`]: name, description, unit.
const POSTGRES: [(&str, &str, &str); 2] = [
    ("cpu", "processor time of the server", "µs/step"),
    ("wal", "bytes of its write-ahead log", "bytes/step"),
];
const SYNCS: (&str, &str) = ("syncs", "syncs of that log");
const REDIS: [(&str, &str, &str); 1] = [("cpu", "processor time of the server", "µs/step")];
const S3: [(&str, &str, &str); 1] = [("requests", "requests of all kinds", "per step")];
const OWN: (&str, &str, &str) = ("own-cpu", "processor time of this process", "µs/step");

/// Measures the rows of costs, for servers on this machine and for a bucket anywhere.
pub(crate) async fn measure(table: &mut Table, server: &str) -> Result<()> {
    let kind = Kind::of(server)?;
    let counted: &[_] = match kind {
        Kind::Postgres => &POSTGRES,
        Kind::Redis => &REDIS,
        Kind::S3 => &S3,
        Kind::Files | Kind::Sqlite | Kind::Nats => return Ok(()),
    };
    let ids = counted.iter().chain([&OWN]);
    let ids: Vec<String> = ids.map(|(name, ..)| format!("{}/{name}", kind.name())).collect();
    if table.args.quick || !ids.iter().any(|id| table.wants(id)) {
        return Ok(());
    }
    let space = Space::make(server).await?;
    let bucket = match kind {
        Kind::S3 => Some(S3Store::from_url(&space.url(), S3Options::default())?),
        _ => None,
    };
    let runtime = match &bucket {
        Some(bucket) => Runtime::builder_with(Arc::new(bucket.clone())).build().await?,
        None => super::runtime(&space).await?,
    };
    let graph = graphs::chain(runs::NODES, Effect::Write)?;
    let width = width(kind);
    runs::all(&runtime, &graph, width).await?;
    let mut found = vec![Vec::new(); ids.len()];
    let syncs_before = syncs(&space).await?;
    for _ in 0..ROUNDS {
        let before = count(&space, bucket.as_ref()).await?;
        runs::all(&runtime, &graph, width).await?;
        let after = count(&space, bucket.as_ref()).await?;
        for (figures, (after, before)) in found.iter_mut().zip(after.into_iter().zip(before)) {
            figures.push((after - before) / (width * runs::NODES) as f64);
        }
    }
    for ((id, (_, words, unit)), figures) in ids.into_iter().zip(counted.iter().chain([&OWN])).zip(found) {
        let workload = format!("{width} runs of {} `Write` nodes, {}: {words}", runs::NODES, kind.name());
        table.push(Row::alone(id, workload, unit, Spread::of(figures), Goal::None));
    }
    if let (Some(before), Some(after)) = (syncs_before, syncs(&space).await?) {
        let (id, words) = SYNCS;
        let workload = format!("{width} runs of {} `Write` nodes, {}: {words}", runs::NODES, kind.name());
        let each = (after - before) / (width * runs::NODES * ROUNDS) as f64;
        let id = format!("{}/{id}", kind.name());
        table.push(Row::alone(id, workload, "per step", Spread::of(vec![each]), Goal::None));
    }
    space.remove().await
}

/// Returns the number of times that Postgres has synced its log, once all its processes have published their counters.
async fn syncs(space: &Space) -> Result<Option<f64>> {
    if space.kind != Kind::Postgres {
        return Ok(None);
    }
    SystemClock::new().sleep(TOLD).await;
    let mut connection = space.postgres().await?;
    let row = connection.fetch_one("SELECT wal_sync::float8 FROM pg_stat_wal").await?;
    Ok(Some(row.get(0)))
}

/// Returns all counters since the start of the server.
async fn count(space: &Space, bucket: Option<&S3Store>) -> Result<Vec<f64>> {
    let mut counts = match space.kind {
        Kind::Postgres => {
            let mut connection = space.postgres().await?;
            let sql = "SELECT pg_backend_pid(), (pg_current_wal_lsn() - '0/0')::float8";
            let row = connection.fetch_one(AssertSqlSafe(sql)).await?;
            let backend: i32 = row.get(0);
            vec![family_cpu(backend)?, row.get(1)]
        }
        Kind::S3 => vec![bucket.context("it was opened")?.requests() as f64],
        _ => {
            let info: String = redis::cmd("INFO").arg("cpu").query_async(&mut space.redis().await?).await?;
            let of = |name: &str| -> Result<f64> {
                let line = info.lines().find_map(|line| line.strip_prefix(name)).context("no such line")?;
                Ok(line.trim_start_matches(':').trim().parse::<f64>()? * 1e6)
            };
            vec![of("used_cpu_user")? + of("used_cpu_sys")?]
        }
    };
    counts.push(cpu("self")?.0);
    Ok(counts)
}

/// Returns the processor time of a process in microseconds, including its ended children, and the id of its parent.
fn cpu(process: &str) -> Result<(f64, i32)> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name of the process is in parentheses and may contain any character.
    let (_, rest) = stat.rsplit_once(") ").context("no name")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    let ticks: u64 =
        fields.get(11..15).context("too short")?.iter().filter_map(|text| text.parse::<u64>().ok()).sum();
    // A tick is a hundredth of a second on Linux, independent of the kernel's own clock.
    Ok((ticks as f64 * 10_000.0, fields.get(1).context("no parent")?.parse()?))
}

/// Returns the processor time of a process's parent and of all children of this parent.
fn family_cpu(child: i32) -> Result<f64> {
    let (_, parent) = cpu(&child.to_string()).context("the server of these rows must run on this machine")?;
    let mut sum = cpu(&parent.to_string())?.0;
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        // A process that ends in between is counted with its parent the next time.
        if let Some((time, of)) = name.parse::<i32>().ok().and_then(|_| cpu(&name).ok()) {
            sum += if of == parent { time } else { 0.0 };
        }
    }
    Ok(sum)
}
