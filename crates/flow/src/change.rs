//! The error of a function that requests other operations than its run has recorded.

use std::error::Error as StdError;
use std::fmt;
use std::panic::Location;

use crate::entry::OperationKind;

/// The error of a flow whose code does not fit the records of its run: the code was changed, or it is not deterministic.
///
/// The run fails with this error, and no step is executed. Deploy the code with which the run was started, or declare the change with
/// [`patched`](crate::FlowContext::patched) or [`retired`](crate::FlowContext::retired). Then retry the run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CodeChange {
    /// The recorded operation that the function did not request, such as ``step `pay` ``.
    pub recorded: Option<String>,
    /// The operation that the function requested instead; `None` if the function ended.
    pub requested: Option<String>,
    /// The file and line of that request.
    pub location: Option<&'static Location<'static>>,
    pub(crate) detail: Option<String>,
}

impl CodeChange {
    pub(crate) fn new(
        recorded: Option<(OperationKind, &str)>,
        requested: Option<(OperationKind, &str)>,
    ) -> Self {
        let text =
            |operation: Option<(OperationKind, &str)>| operation.map(|(kind, key)| format!("{kind} `{key}`"));
        Self { recorded: text(recorded), requested: text(requested), location: None, detail: None }
    }

    pub(crate) fn at(mut self, location: &'static Location<'static>) -> Self {
        self.location = Some(location);
        self
    }

    pub(crate) fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }
}

/// The first words of the message, also in the log.
pub(crate) const PREFIX: &str = "the function does not fit the records of the run: ";

impl fmt::Display for CodeChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        if let Some(recorded) = &self.recorded {
            write!(f, "{recorded} is recorded, but ")?;
        }
        match (&self.requested, self.location) {
            (Some(requested), Some(location)) => write!(f, "{location} asked for {requested}")?,
            (Some(requested), None) => write!(f, "the function asked for {requested}")?,
            (None, _) => f.write_str("the function ended without it")?,
        }
        if let Some(detail) = &self.detail {
            write!(f, " ({detail})")?;
        }
        f.write_str(
            "; deploy the code that the run was started with, or declare the change with `cx.patched` or `cx.retired`, and retry the run",
        )
    }
}

impl StdError for CodeChange {}
