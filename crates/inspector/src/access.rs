//! Viewers: the senders of requests, as the service's own authentication identifies them.

use std::fmt;
use std::sync::Arc;

use axum::http::request::Parts;
use ferrata_core::{RunKey, TenantId};

/// The sender of a request, as the hook of [`Inspector::access`](crate::Inspector::access) identifies it.
///
/// [`Viewer::new`] creates a viewer that sees every tenant. The viewer may act if the inspector [allows acts](crate::Inspector::allow_writes).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Viewer {
    name: Option<String>,
    tenant: Option<TenantId>,
    reads_only: bool,
    sees_secrets: bool,
}

impl Viewer {
    /// Creates a viewer that has no name and sees every tenant.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the viewer's name. The record of each act contains this name.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Restricts the viewer to the runs of one tenant. The viewer cannot see other tenants.
    pub fn of_tenant(mut self, tenant: TenantId) -> Self {
        self.tenant = Some(tenant);
        self
    }

    /// Restricts the viewer to reading: the inspector refuses every act of this viewer.
    pub fn reading(mut self) -> Self {
        self.reads_only = true;
        self
    }

    /// Shows this viewer the values of secret channels in states and differences. Other viewers see `…` instead.
    pub fn seeing_secrets(mut self) -> Self {
        self.sees_secrets = true;
        self
    }

    pub(crate) fn sees_secrets(&self) -> bool {
        self.sees_secrets
    }

    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    pub(crate) fn tenant(&self) -> Option<&TenantId> {
        self.tenant.as_ref()
    }

    pub(crate) fn may_write(&self) -> bool {
        !self.reads_only
    }

    /// Returns whether the viewer may know that a run exists.
    pub(crate) fn sees(&self, run: &RunKey) -> bool {
        self.tenant.as_ref().is_none_or(|tenant| *tenant == run.tenant)
    }
}

type Hook = dyn Fn(&Parts) -> Option<Viewer> + Send + Sync;

/// The hook that identifies viewers.
#[derive(Clone)]
pub(crate) struct ViewerHook(Arc<Hook>);

impl ViewerHook {
    pub(crate) fn new(hook: impl Fn(&Parts) -> Option<Viewer> + Send + Sync + 'static) -> Self {
        Self(Arc::new(hook))
    }

    pub(crate) fn viewer(&self, parts: &Parts) -> Option<Viewer> {
        (self.0)(parts)
    }
}

impl Default for ViewerHook {
    /// Accepts every client that passes the guard.
    fn default() -> Self {
        Self::new(|_| Some(Viewer::new()))
    }
}

impl fmt::Debug for ViewerHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Access")
    }
}
