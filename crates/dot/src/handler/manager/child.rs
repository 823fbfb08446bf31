//! The child run that a manager supervises: where its pipeline comes from, its status, and its end.

use std::time::Duration;

use ferrata_core::graph::Graph;
use ferrata_core::node::NodeContext;
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{ChildError, ChildHandle, Outcome, Position, Runtime};
use ferrata_core::state::Context;
use ferrata_core::{Error, ErrorKind, RunId, RunKey};
use serde_json::{Map, Value as Json};

use super::{Manager, text};
use crate::compile::Compiler;
use crate::handler::{HandlerError, Stage};
use crate::pipeline::{Node, Pipeline};
use crate::run_dir::files;

/// Maximum size of a child's pipeline file in bytes. The parser has further limits.
const MAX_FILE: u64 = 64 << 20;

/// The name of the manager's wait for its child.
const NAME: &str = "child";

/// Maximum time that a manager waits for the end of a child that it has cancelled. If the process of the child has died, the child ends only when
/// another process claims it, and the manager does not wait for that.
const END: Duration = Duration::from_secs(30);

/// The status of a child.
#[derive(Debug)]
pub(super) enum ChildStatus {
    /// The child was not started.
    Absent,
    /// The child has not ended. Contains its status and its context.
    Open(RunStatus, Context),
    /// The child has ended, with this outcome.
    Ended(Outcome<Context>),
}

impl ChildStatus {
    pub(super) fn status(&self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Open(RunStatus::Interrupted, _) => "interrupted",
            Self::Open(RunStatus::AwaitingInput, _) => "awaiting_input",
            Self::Open(..) => "in_progress",
            Self::Ended(Outcome::Completed(_)) => "completed",
            Self::Ended(Outcome::Cancelled { .. }) => "cancelled",
            Self::Ended(_) => "failed",
        }
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self, Self::Open(..))
    }

    fn state(&self) -> Option<&Context> {
        match self {
            Self::Open(_, context)
            | Self::Ended(
                Outcome::Completed(context)
                | Outcome::Failed { state: context, .. }
                | Outcome::Cancelled { state: context, .. },
            ) => Some(context),
            _ => None,
        }
    }

    pub(super) fn value(&self, key: &str) -> Option<Json> {
        self.state()?.get_value(key).cloned()
    }

    /// Returns the context of the child without private keys.
    pub(super) fn context(&self) -> Map<String, Json> {
        let own = |key: &str| ["internal.", "graph.", "stack."].iter().any(|prefix| key.starts_with(prefix));
        let shown = self.state().into_iter().flat_map(Context::iter).filter(|(key, _)| !own(key));
        shown.map(|(key, value)| (key.to_owned(), value.clone())).collect()
    }
}

/// A child run that a manager supervises.
pub(super) struct ManagedChild<'a> {
    runtime: &'a Runtime,
    graph: Graph<Context>,
    key: RunKey,
    /// The handle to the child that this node started; `None` if another process must start the child.
    handle: Option<ChildHandle<Context>>,
    /// A suffix of the child's id that distinguishes the child from earlier children; empty for the first child.
    round: String,
}

impl<'a> ManagedChild<'a> {
    /// Starts the child of a node, or finds it if it exists. If `autostart` is false, the method only determines its id.
    pub(super) async fn of(
        stage: &Stage,
        runtime: &'a Runtime,
        graph: Graph<Context>,
        autostart: bool,
    ) -> Result<Self, HandlerError> {
        let cx = &stage.cx;
        let parent = cx.run();
        let id = RunId::new(format!("{}.{}.{}", parent.run, cx.node(), cx.visit())).map_err(|error| {
            HandlerError::permanent(format!("cannot form the id of the child: {error}; use a shorter run id"))
        })?;
        if !autostart {
            let key = RunKey::new(parent.tenant.clone(), id);
            return Ok(Self { runtime, graph, key, handle: None, round: String::new() });
        }
        let mut input = Context::new();
        let own = |key: &str| ["internal.", "graph.", "stack."].iter().any(|prefix| key.starts_with(prefix));
        for (key, value) in stage.context.iter().filter(|(key, value)| !own(key) && !value.is_null()) {
            input.set(key, value).map_err(HandlerError::of_runtime)?;
        }
        let started = cx.child(&graph, input).name(NAME).id(&id).start().await;
        let handle = started.map_err(|error| match error {
            ChildError::Refused(error) => HandlerError::of_runtime(error),
            error => HandlerError::permanent(error.to_string()),
        })?;
        let key = handle.run().clone();
        let round = key.run.as_str().strip_prefix(id.as_str()).unwrap_or_default().to_owned();
        Ok(Self { runtime, graph, key, handle: Some(handle), round })
    }

    /// Returns a name that is unique to this child, so that records about an earlier child do not apply to this child.
    pub(super) fn named(&self, what: &str) -> String {
        format!("{what}{}", self.round)
    }

    /// Starts a timer of this child. The timers of the first child are numbered in the order of the calls.
    pub(super) fn sleep<'b>(
        &self,
        cx: &'b NodeContext,
        what: &str,
        time: Duration,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<'b> {
        let numbered = self.round.is_empty().then(|| cx.sleep(time));
        let name = self.named(what);
        async move {
            match numbered {
                Some(timer) => timer.await,
                None => cx.sleep_as(name, time).await,
            }
        }
    }

    pub(super) fn key(&self) -> &RunKey {
        &self.key
    }

    pub(super) fn runtime(&self) -> &Runtime {
        self.runtime
    }

    pub(super) fn graph(&self) -> &Graph<Context> {
        &self.graph
    }

    /// Continues a child that no process drives, for example after an answer or after its process died.
    pub(super) async fn continue_run(&self) -> Result<(), Error> {
        let Some(head) = self.runtime.head(&self.key).await? else { return Ok(()) };
        if self.handle.is_none() || head.status != RunStatus::InProgress {
            return Ok(());
        }
        match self.runtime.resume(&self.graph, &self.key).await {
            // The child is already active in some process, or has ended.
            Err(error) if !matches!(error.kind(), ErrorKind::Conflict | ErrorKind::WrongStatus) => Err(error),
            _ => Ok(()),
        }
    }

    /// Waits until the parent has recorded the end of the child. Waits forever if another process had to start the child.
    pub(super) async fn wait_for_end(&self) {
        match &self.handle {
            // The next read of the status gets the result.
            Some(handle) => drop(handle.result().await),
            None => std::future::pending().await,
        }
    }

    /// Reads the status of the child.
    pub(super) async fn read_status(&self) -> Result<ChildStatus, Error> {
        let Some(head) = self.runtime.head(&self.key).await? else { return Ok(ChildStatus::Absent) };
        if matches!(head.status, RunStatus::Completed | RunStatus::Failed | RunStatus::Cancelled) {
            // A handle to an ended run can only read.
            let checkpoint = self.runtime.checkpoint(&self.key, Position::Latest).await?;
            let state = self.runtime.state_at(&self.graph, &self.key, Position::Latest).await?;
            return Ok(ChildStatus::Ended(match (checkpoint.status, checkpoint.failure) {
                (RunStatus::Completed, _) => Outcome::Completed(state),
                (RunStatus::Failed, Some(failure)) => Outcome::Failed { failure, state },
                _ => Outcome::Cancelled { reason: checkpoint.cancelled.unwrap_or_default(), state },
            }));
        }
        let state = self.runtime.state_at(&self.graph, &self.key, Position::Latest).await?;
        Ok(ChildStatus::Open(head.status, state))
    }

    /// Cancels the child if it has not ended, and waits for its end.
    pub(super) async fn end(&self, reason: &str, cx: &NodeContext) -> Result<(), HandlerError> {
        let head = self.runtime.head(&self.key).await.map_err(HandlerError::of_runtime)?;
        let open = |status| {
            matches!(status, RunStatus::InProgress | RunStatus::Interrupted | RunStatus::AwaitingInput)
        };
        if !head.is_some_and(|head| open(head.status)) {
            return Ok(());
        }
        match self.runtime.cancel(&self.key, reason).await {
            Err(error) if error.kind() != ErrorKind::WrongStatus => {
                return Err(HandlerError::of_runtime(error));
            }
            _ => {}
        }
        self.continue_run().await.map_err(HandlerError::of_runtime)?;
        if self.handle.is_some() {
            tokio::select! {
                () = self.wait_for_end() => {}
                () = cx.clock().sleep(END) => {}
            }
        }
        Ok(())
    }
}

impl Manager {
    /// Reads and parses the pipeline of the child.
    pub(super) fn child_pipeline(&self, node: &Node, pipeline: &Pipeline) -> Result<Pipeline, Error> {
        let refuse = |message: String| {
            Error::new(ErrorKind::Invalid, format!("node {}: {message}", node.id()))
                .with_operation("dot.compile")
        };
        let file = text(node, pipeline, "stack.child_dotfile");
        if file.is_empty() {
            return Err(refuse(
                "the manager has no child; set `stack.child_dotfile` to the child's file".to_owned(),
            ));
        }
        let mut path = self.inner.directory.clone().unwrap_or_default();
        path.push(text(node, pipeline, "stack.child_workdir"));
        path.push(&file);
        let source = files::read_any(&path, MAX_FILE).map_err(|error| match error.kind() {
            std::io::ErrorKind::FileTooLarge => {
                refuse(format!("the child `{file}` is too large; the maximum is {MAX_FILE} bytes"))
            }
            _ => refuse(format!("cannot read the child `{file}`: {error}")),
        })?;
        let mut child = Pipeline::parse(&source)
            .map_err(|error| refuse(format!("cannot parse the child `{file}`:\n{}", error.report(&file))))?;
        self.inner.transforms.apply(&mut child)?;
        Ok(child)
    }

    /// Compiles the pipeline of the child.
    pub(super) fn child_graph(&self, node: &Node, pipeline: &Pipeline) -> Result<Graph<Context>, Error> {
        Compiler::new(self.registry()).compile(&self.child_pipeline(node, pipeline)?)
    }
}
