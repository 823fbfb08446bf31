//! Small values for properties: keys, labels and queries.

use ferrata_store::{Labels, RunFacts, RunKey, RunQuery, TenantId};

use super::key_in;

/// Creates a key in the default tenant.
pub(crate) fn key(run: &str) -> RunKey {
    key_in(TenantId::default().as_str(), run)
}

/// Creates a tenant.
pub(crate) fn tenant(tenant: &str) -> TenantId {
    TenantId::new(tenant).expect("the suite's tenants are valid")
}

/// Adds a label to facts.
pub(crate) fn label(facts: RunFacts, key: &str, value: &str) -> RunFacts {
    let mut labels: Labels = facts.labels.clone();
    labels.insert(key, value).expect("the suite's labels are valid");
    facts.with_labels(labels)
}

/// Creates a query.
pub(crate) fn query(set: impl FnOnce(&mut RunQuery)) -> RunQuery {
    let mut query = RunQuery::default();
    set(&mut query);
    query
}
