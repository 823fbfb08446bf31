//! The head of a run, as lists show it.

use ferrata_core::store::RunHead;
use ferrata_core::{RunId, RunKey};
use serde_json::{Value, json};

use crate::access::Viewer;

/// The labels by which a child says where it belongs; applications cannot set them.
const PARENT: &str = "ferrata.parent";
const CHILD: &str = "ferrata.child";
const BOND: &str = "ferrata.bond";

/// What begins the labels that the library sets.
const OWN: &str = "ferrata.";

/// Writes the name of a run.
pub(crate) fn key(run: &RunKey) -> Value {
    json!({ "tenant": run.tenant, "id": run.run })
}

/// Writes the head of a run.
pub(crate) fn summary(head: &RunHead, viewer: &Viewer) -> Value {
    let facts = &head.facts;
    let labels: serde_json::Map<String, Value> = facts
        .labels
        .iter()
        .filter(|(name, _)| !name.starts_with(OWN))
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

/// Reads where a node of another run started this one; the parent is of the same tenant.
pub(crate) fn origin(head: &RunHead) -> Option<Value> {
    let label = |key: &str| head.facts.labels.get(key);
    let parent = RunKey::new(head.run.tenant.clone(), RunId::new(label(PARENT)?).ok()?);
    // The life of the parent, the node, the visit and the name.
    let mut parts = label(CHILD)?.splitn(4, ':').skip(1);
    let (node, visit, name) = (parts.next()?, parts.next()?, parts.next()?);
    Some(json!({ "run": key(&parent), "at": format!("{node}@{visit}"), "name": name, "bond": label(BOND)? }))
}

/// Returns the label that the children of a run have.
pub(crate) fn label_of_children(run: &RunKey) -> (String, String) {
    (PARENT.to_owned(), run.run.to_string())
}
