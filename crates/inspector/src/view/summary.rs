//! The head of a run for lists.

use ferrata_core::RunKey;
use ferrata_core::runtime::{RunOrigin, is_internal_label};
use ferrata_core::store::RunHead;
use serde_json::{Value, json};

use crate::access::Viewer;

/// Writes the name of a run as JSON.
pub(crate) fn key(run: &RunKey) -> Value {
    json!({ "tenant": run.tenant, "id": run.run })
}

/// Writes the head of a run as JSON.
pub(crate) fn summary(head: &RunHead, viewer: &Viewer) -> Value {
    let facts = &head.facts;
    let labels: serde_json::Map<String, Value> = facts
        .labels
        .iter()
        .filter(|(name, _)| !is_internal_label(name))
        .map(|(name, value)| (name.to_owned(), Value::from(value)))
        .collect();
    let source = facts.parent.as_ref().filter(|parent| viewer.sees(&parent.run));
    json!({
        "tenant": head.run.tenant,
        "id": head.run.run,
        "workflow": facts.workflow,
        "version": facts.version,
        "status": head.status,
        "created": facts.created,
        "updated": head.updated,
        "seq": head.seq,
        "first": head.first,
        "head": head.id,
        "kind": head.kind,
        "epoch": head.epoch,
        "owner": head.owner,
        "owner_alive": head.owner_alive,
        "queued": head.is_queued(),
        "wake_at": head.wake_at,
        "user": facts.user,
        "labels": labels,
        "forked_from": source.map(|parent| json!({ "run": key(&parent.run), "seq": parent.at.seq })),
        "started_by": origin(head),
    })
}

/// Returns the node that started this run, and the run of that node. The other run has the same tenant.
pub(crate) fn origin(head: &RunHead) -> Option<Value> {
    let origin = RunOrigin::of(head)?;
    Some(json!({ "run": key(&origin.parent), "at": origin.at, "name": origin.name, "bond": origin.bond }))
}

/// Returns the label that all children of a run have.
pub(crate) fn label_of_children(run: &RunKey) -> (String, String) {
    (RunOrigin::PARENT_LABEL.to_owned(), run.run.to_string())
}
