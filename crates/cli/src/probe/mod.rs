//! Probes a store: writes records of a temporary run, and runs the conformance suite in a temporary location next to the store.

mod heartbeat_probe;

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ferrata::record::{FORMAT, Record, RecordHeader, RecordKind, RunFacts, RunStatus};
use ferrata::store::{Page, RunAppend, RunQuery};
use ferrata::{
    CheckpointStore, Clock, Epoch, Fingerprint, IdSource, RandomIds, RecordId, RunId, RunKey, Seq, TenantId,
    WorkflowName,
};
use ferrata_store_conformance::{Group, PROPERTIES, Property, Space, StoreFactory, check_on};
use serde::Serialize;

use crate::context::CommandContext;
use crate::failure::CommandFailure;
use heartbeat_probe::{Executors, HeartbeatProbe};

/// The tenant of the temporary runs that probe a store.
const TENANT: &str = "ferrata-check";

/// Creates appends of one record each, for a temporary run.
pub(crate) fn records(
    context: &CommandContext,
    count: u32,
) -> Result<(RunKey, Vec<RunAppend>), CommandFailure> {
    let ids = RandomIds::new();
    let now = context.now();
    let run = RunKey::new(TenantId::new(TENANT)?, RunId::new(ids.next(now).to_string())?);
    let workflow = WorkflowName::new("ferrata-store-check")?;
    let facts = RunFacts::new(workflow, "1", Fingerprint::of(b"check"), Fingerprint::of(b""), now)?;
    let mut appends = Vec::new();
    let mut head = None;
    for seq in 0..u64::from(count) {
        let header = RecordHeader {
            format: FORMAT,
            seq: Seq::new(seq),
            id: RecordId::from_uuid(ids.next(now)),
            prev: head.map(|head: ferrata::HeadRef| head.id),
            kind: if seq == 0 { RecordKind::Start } else { RecordKind::Base },
            // The run has ended, so that no process that serves runs tries to claim it.
            status: RunStatus::Cancelled,
            node: None,
            visit: None,
            epoch: Epoch::new(1),
            owner: None,
            wake_at: None,
            at: now,
            base: true,
            body_len: 0,
            body_crc: 0,
        };
        let record = Record::seal(header, b"{}".to_vec().into())?;
        let expected = head.replace(record.header.head());
        let facts = (seq == 0).then(|| facts.clone());
        appends.push(RunAppend { run: run.clone(), expected, records: vec![record], facts });
    }
    Ok((run, appends))
}

/// The result of the conformance suite.
#[derive(Debug, Serialize)]
pub(crate) struct Conformance {
    /// The location in which the suite ran.
    pub(crate) place: String,
    /// The number of properties that hold.
    pub(crate) held: usize,
    /// The properties that do not hold.
    pub(crate) failed: Vec<FailedProperty>,
    /// The groups of properties that were not tested, because they need access to the store from outside.
    pub(crate) left_out: Vec<String>,
    /// The duration of the suite in milliseconds.
    pub(crate) took_ms: u64,
}

/// A property that does not hold.
#[derive(Debug, Serialize)]
pub(crate) struct FailedProperty {
    /// The sentence of the contract that describes the property.
    pub(crate) property: String,
    /// The behavior that was observed.
    pub(crate) why: String,
}

/// Runs the conformance suite in a temporary location next to the store.
pub(crate) async fn conformance(context: &CommandContext) -> Result<Conformance, CommandFailure> {
    let url = beside(&context.global.store, &RandomIds::new().next(context.now()).simple().to_string())?;
    let store = ferrata::connect(&url)?;
    let promises = store.capabilities();
    store.setup().await?;
    drop(store);
    let out_of_reach = |group: Group| match group {
        Group::Core => false,
        Group::Instances => !promises.shared,
        Group::Durable => !promises.durable,
        Group::Notices => !promises.notices,
        // The other groups change the store from outside.
        _ => true,
    };
    let mut left_out: Vec<String> = Vec::new();
    let mut tried: Vec<&'static Property> = Vec::new();
    for property in PROPERTIES {
        if out_of_reach(property.group()) {
            let group = format!("{:?}", property.group()).to_lowercase();
            if !left_out.contains(&group) {
                left_out.push(group);
            }
        } else {
            tried.push(property);
        }
    }
    let before = context.clock.monotonic();
    let (place, out) = (url.clone(), context.out);
    // Each property creates an async runtime, which is not allowed inside a task of another.
    let run = tokio::task::spawn_blocking(move || try_all(&place, &tried, |text| out.note(text)));
    let (held, failed) =
        run.await.map_err(|error| CommandFailure::internal("the conformance suite panicked", &error))??;
    let took = context.clock.monotonic().saturating_sub(before);
    Ok(Conformance {
        place: crate::store::redact_url(&url),
        held,
        failed,
        left_out,
        took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
    })
}

fn try_all(
    url: &str,
    properties: &[&'static Property],
    note: impl Fn(&str),
) -> Result<(usize, Vec<FailedProperty>), CommandFailure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .map_err(|error| CommandFailure::internal("cannot start threads", &error))?;
    let factory = ProbeFactory { url: url.to_owned() };
    let (mut held, mut failed) = (0, Vec::new());
    // The report contains the message of a failed property, so the panic hook prints nothing.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    for (at, property) in properties.iter().enumerate() {
        note(&format!("{}/{} {}: {}", at + 1, properties.len(), property.topic(), property.name()));
        let tried = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            check_on(&runtime, &factory, property);
        }));
        match tried {
            Ok(()) => held += 1,
            Err(panic) => {
                let why = panic
                    .downcast_ref::<String>()
                    .cloned()
                    .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
                let property = format!("{}: {}", property.topic(), property.name());
                failed.push(FailedProperty { property, why: why.unwrap_or_default() });
            }
        }
    }
    std::panic::set_hook(hook);
    Ok((held, failed))
}

/// Returns a temporary location next to the store: a folder, a schema or a prefix.
fn beside(url: &str, id: &str) -> Result<String, CommandFailure> {
    let (main, query) = url.split_once('?').map_or((url, ""), |(main, query)| (main, query));
    let name = format!("ferrata_check_{}", &id[id.len().saturating_sub(12)..]);
    let with = |key: &str| {
        let kept = query.split('&').filter(|part| !part.is_empty() && !part.starts_with(&format!("{key}=")));
        let mut parts: Vec<String> = kept.map(str::to_owned).collect();
        parts.push(format!("{key}={name}"));
        format!("{main}?{}", parts.join("&"))
    };
    let scheme = url.split(':').next().unwrap_or_default();
    match scheme {
        "memory" => Ok(url.to_owned()),
        "file" => Ok(format!("{}-{name}", main.trim_end_matches('/'))),
        "postgres" | "postgresql" => Ok(with("schema")),
        "nats" | "tls" => Ok(with("namespace")),
        "redis" | "rediss" | "redis-cluster" | "rediss-cluster" => Ok(with("prefix")),
        "s3" => {
            let query = if query.is_empty() { String::new() } else { format!("?{query}") };
            Ok(format!("{}/{name}{query}", main.trim_end_matches('/')))
        }
        "sharded" => Err(CommandFailure::usage(
            "cannot check a sharded store as a whole; check each store by its own URL",
            "ferrata store check --conformance --store URL",
        )),
        _ => Err(CommandFailure::usage(
            "cannot create an empty copy next to this store",
            "ferrata store check",
        )),
    }
}

/// A factory of stores in one temporary location. The location is emptied after each property.
struct ProbeFactory {
    url: String,
}

#[async_trait]
impl StoreFactory for ProbeFactory {
    async fn fresh(&self) -> Box<dyn Space> {
        Box::new(ProbeSpace { url: self.url.clone(), executors: Executors::default() })
    }
}

struct ProbeSpace {
    url: String,
    executors: Executors,
}

#[async_trait]
impl Space for ProbeSpace {
    async fn open(&self) -> Arc<dyn CheckpointStore> {
        let store = ferrata::connect(&self.url).expect("the URL was opened before the suite began");
        Arc::new(HeartbeatProbe { store, executors: Arc::clone(&self.executors) })
    }

    async fn remove(&self) {
        let store = self.open().await;
        let executors = self.executors.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for executor in &executors {
            store.heartbeat(executor, Duration::ZERO).await.expect("a heartbeat can be ended");
        }
        loop {
            let found = store.runs(&RunQuery::default(), Page::first(Page::MAX)).await;
            let found = found.expect("what the suite wrote can be listed");
            if found.items.is_empty() {
                return;
            }
            for head in found.items {
                store.purge(&head.run, None).await.expect("what the suite wrote can be removed");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probe_url_keeps_other_store_options() {
        let id = "0123456789abcdef0123456789abcdef";
        for (url, expected) in [
            ("file:runs/", "file:runs-ferrata_check_456789abcdef"),
            (
                "postgres://a/b?schema=x&connections=2",
                "postgres://a/b?connections=2&schema=ferrata_check_456789abcdef",
            ),
            ("nats://a/?namespace=b", "nats://a/?namespace=ferrata_check_456789abcdef"),
            ("redis://a", "redis://a?prefix=ferrata_check_456789abcdef"),
            ("s3://b/p?region=x", "s3://b/p/ferrata_check_456789abcdef?region=x"),
        ] {
            assert_eq!(beside(url, id).unwrap(), expected);
        }
        let refused = beside("sharded:fleet", id).unwrap_err();
        assert_eq!(refused.next(), "ferrata store check --conformance --store URL");
    }
}
