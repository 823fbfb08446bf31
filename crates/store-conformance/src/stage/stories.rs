//! Small values that properties are told with: keys, facts, labels and queries.

use ferrata_store::{Fingerprint, Labels, RunFacts, RunKey, RunQuery, TenantId, Timestamp, WorkflowName};

use super::key_in;

/// Makes a key in the default tenant.
pub(crate) fn key(run: &str) -> RunKey {
    key_in(TenantId::default().as_str(), run)
}

/// Makes a tenant.
pub(crate) fn tenant(tenant: &str) -> TenantId {
    TenantId::new(tenant).expect("the suite's tenants are valid")
}

/// Makes the facts of a run of `workflow`, created at this time.
pub(crate) fn facts(workflow: &str, created_ms: i64) -> RunFacts {
    let workflow = WorkflowName::new(workflow).expect("the suite's workflows are valid");
    let (graph, input) = (Fingerprint::of(b"graph"), Fingerprint::of(b"input"));
    RunFacts::new(workflow, "1", graph, input, Timestamp::from_unix_ms(created_ms))
        .expect("the suite's versions are valid")
}

/// Adds a label to facts.
pub(crate) fn label(facts: RunFacts, key: &str, value: &str) -> RunFacts {
    let mut labels: Labels = facts.labels.clone();
    labels.insert(key, value).expect("the suite's labels are valid");
    facts.with_labels(labels)
}

/// Makes a query.
pub(crate) fn query(set: impl FnOnce(&mut RunQuery)) -> RunQuery {
    let mut query = RunQuery::default();
    set(&mut query);
    query
}
