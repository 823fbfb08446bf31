//! Viewers: the result of the service's own authentication of a request.

use std::fmt;
use std::sync::Arc;

use axum::http::request::Parts;
use ferrata_core::{RunKey, TenantId};

/// The sender of a request, as the hook of [`Inspector::access`](crate::Inspector::access) identifies it.
///
/// Create one with [`Viewer::new`]: it sees every tenant and may act if the inspector [allows acts](crate::Inspector::allow_writes).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Viewer {
    name: Option<String>,
    tenant: Option<TenantId>,
    reads_only: bool,
    sees_secrets: bool,
}

impl Viewer {
    /// Creates a viewer without a name.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the viewer's name, which is recorded with each act.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Restricts the viewer to the runs of one tenant. Other tenants are invisible.
    pub fn of_tenant(mut self, tenant: TenantId) -> Self {
        self.tenant = Some(tenant);
        self
    }

    /// Forbids acts.
    pub fn reading(mut self) -> Self {
        self.reads_only = true;
        self
    }

    /// Shows the values of secret channels in states and differences; other viewers see `…`.
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

    /// Returns whether the viewer may know of a run.
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
