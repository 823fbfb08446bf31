//! Measures what the layers around a store cost: encryption in time, compression and large values in bytes.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use ferrata::blobs::{Blob, Blobs};
use ferrata::record::Record;
use ferrata::store::{At, RunAppend};
use ferrata::{
    CheckpointStore, EnvelopeOptions, EnvelopeStore, Graph, IdSource as _, Key, Keyring, MemoryStore,
    Position, RandomIds, RecordId, RunKey, Runtime,
};

use super::{Table, bytes};
use crate::graphs::{self, Small};
use crate::measure::{Pair, Rounds, Spread, in_turn};
use crate::row::{Goal, Row};
use crate::space::{Kind, file_bytes};

const MB: usize = 1_000_000;
const MIB: usize = 1024 * 1024;

/// Number of steps that append prose. The next constant is the number of bytes that they append in all.
const STEPS: usize = 1_600;

/// Number of steps that count, in a state with a constant value.
const COUNTED: usize = 1_600;

/// Number of values that a state names.
const NAMES: usize = 1_000;

/// Measures the rows that need no server. A quick run skips them, because the time of an unoptimized cipher means nothing.
pub(crate) async fn in_memory(table: &mut Table) -> Result<()> {
    if table.args.quick {
        return Ok(());
    }
    for (id, records, body, unit) in
        [("core/encrypt-200", 10_000, 200, "µs/record"), ("core/encrypt-large", 8, 4 * MB, "µs/MB")]
    {
        if !table.wants(id) {
            continue;
        }
        let run = Written::of(records, body).await?;
        let ring = Keyring::new("k", &Key::from_bytes([7; 32]))?;
        let options = EnvelopeOptions::default().with_keys(ring).with_compress_from(None);
        let encrypted = async || run.append_to(EnvelopeStore::new(MemoryStore::new(), options.clone())).await;
        let plain = async || run.append_to(MemoryStore::new()).await;
        let (units, goal) = match unit {
            "µs/MB" => ((records * body / MB) as f64, 1_000.0),
            _ => (records as f64, 1.5),
        };
        let pair = in_turn(Rounds::warm(21), [units; 2], encrypted, plain).await?;
        let workload = format!("append {records} records of {body} bytes to memory, encrypted");
        table.push(Row::pair(id, workload, "without keys", unit, pair, Goal::Extra(goal)));
    }
    let id = "core/load-1000-blobs";
    if table.wants(id) {
        let blobs = Blobs::in_memory();
        let mut names = Vec::new();
        for at in 0..NAMES {
            names.push(blobs.put(format!("{at} {}", "x".repeat(64 << 10))).await?);
        }
        let named = Loaded::with(names.iter().map(Blob::to_string)).await?;
        let short = Loaded::with(names.iter().map(|name| "x".repeat(name.to_string().len()))).await?;
        let pair =
            in_turn(Rounds::warm(31), [1.0; 2], async || named.load().await, async || short.load().await);
        let workload = format!("load a state that names {NAMES} values of 64 KiB, from memory");
        let reference = "a state with texts as long as the names";
        table.push(Row::pair(id, workload, reference, "µs", pair.await?, Goal::Times(1.2)));
    }
    Ok(())
}

/// Measures the number of bytes that a store uses with the layers.
pub(crate) async fn measure(table: &mut Table, server: &str) -> Result<()> {
    let kind = Kind::of(server)?;
    let plain = |store| store;
    let compressed = |store| -> Arc<dyn CheckpointStore> {
        Arc::new(EnvelopeStore::new(store, EnvelopeOptions::default()))
    };
    for (name, payload) in [("prose", 200), ("prose-4-kib", 4_096)] {
        let id = format!("{}/{name}", kind.name());
        if !table.wants(&id) || !matches!(kind, Kind::Postgres | Kind::Files) {
            continue;
        }
        let steps = table.args.scaled(STEPS * 200 / payload, 100);
        let graph = graphs::prose(steps, payload)?;
        let each = |bytes: u64| bytes as f64 / steps as f64;
        let ours = each(bytes::stored(server, &compressed, 1, &graph, &Small::default()).await?);
        let theirs = each(bytes::stored(server, &plain, 1, &graph, &Small::default()).await?);
        let workload =
            format!("{steps} steps each append {payload} bytes of prose, compressed, {}", kind.name());
        let pair = Pair::of(&[(ours, theirs)]);
        table.push(Row::pair(id, workload, "as it is", "bytes/step", pair, Goal::Times(0.5)));
    }
    let id = format!("{}/blob-1-mib", kind.name());
    if table.wants(&id) {
        let steps = table.args.scaled(COUNTED, 100);
        let folder = tempfile::tempdir()?;
        let blob = Blobs::in_folder(folder.path())?.put("x".repeat(MIB)).await?;
        let input = Small { blob: blob.to_string(), ..Small::default() };
        let records = bytes::stored(server, &plain, 1, &graphs::notes(steps, 0)?, &input).await?;
        let value = file_bytes(folder.path())?;
        let mb = (records + value) as f64 / MB as f64;
        let workload = format!("a constant blob of 1 MiB beside a counter, {steps} steps, {}", kind.name());
        let row = Row::alone(id, workload, "MB in all", Spread::one(mb), Goal::Each(1.3));
        table.push(row.note(format!("the value takes {value} bytes, the records {records}")));
    }
    Ok(())
}

/// A run that can be written to a store repeatedly: its first record, and appends of one record each.
struct Written(Vec<RunAppend>);

impl Written {
    /// Creates a run of `records` records with bodies of `body` bytes.
    async fn of(records: usize, body: usize) -> Result<Self> {
        let store = MemoryStore::new();
        let runtime = Runtime::builder(store.clone()).build().await?;
        let run = runtime.start(&graphs::notes(1, 0)?, Small::default()).await?;
        run.wait().await?;
        let facts = store.head(run.run()).await?.context("the run is there")?.facts;
        let kept = store.load(run.run(), At::Latest).await?.context("the run is there")?;
        let mut last = kept.first().context("a run begins with a record")?.clone();
        let begin = RunAppend {
            run: run.run().clone(),
            expected: None,
            records: vec![last.clone()],
            facts: Some(facts),
        };
        let mut appends = vec![begin];
        let (ids, body) = (RandomIds::new(), vec![b'x'; body]);
        for _ in 0..records {
            let mut header = last.header.clone();
            let expected = Some(header.head());
            (header.seq, header.prev, header.base) = (header.seq.next(), Some(header.id), false);
            header.id = RecordId::from_uuid(ids.next(header.at));
            last = Record::seal(header, body.clone().into())?;
            let records = vec![last.clone()];
            appends.push(RunAppend { run: run.run().clone(), expected, records, facts: None });
        }
        Ok(Self(appends))
    }

    async fn append_to(&self, store: impl CheckpointStore) -> Result<()> {
        for append in &self.0 {
            for answer in store.append(vec![append.clone()]).await {
                answer?;
            }
        }
        Ok(())
    }
}

/// A run whose state contains texts.
struct Loaded {
    runtime: Runtime,
    graph: Graph<Small>,
    run: RunKey,
    texts: usize,
}

impl Loaded {
    async fn with(texts: impl Iterator<Item = String>) -> Result<Self> {
        let runtime = Runtime::builder(MemoryStore::new()).build().await?;
        let graph = graphs::notes(1, 0)?;
        let input = Small { notes: texts.collect(), ..Small::default() };
        let texts = input.notes.len();
        let run = runtime.start(&graph, input).await?;
        run.wait().await?;
        Ok(Self { run: run.run().clone(), runtime, graph, texts })
    }

    async fn load(&self) -> Result<()> {
        let state = self.runtime.state_at(&self.graph, &self.run, Position::Latest).await?;
        ensure!(state.notes.len() == self.texts, "the state is not whole");
        Ok(())
    }
}
