//! The run that a manager supervises: where it comes from, how it stands, and how it is ended.

use ferrata_core::graph::Graph;
use ferrata_core::record::RunStatus;
use ferrata_core::runtime::{Outcome, Position, RunHandle, Runtime};
use ferrata_core::state::Context;
use ferrata_core::{Error, ErrorKind, RunId, RunKey};
use serde_json::{Map, Value as Json};
use tokio::sync::Mutex;

use super::{Manager, text};
use crate::compile::Compiler;
use crate::handler::{HandlerError, Stage};
use crate::pipeline::{Node, Pipeline};
use crate::run_dir::files;

/// How large the file of a child may be; the parser has a bound of its own.
const MAX_FILE: u64 = 64 << 20;

/// How deep managers may nest: a pipeline that is its own child would otherwise never end.
const MAX_DEPTH: u64 = 8;

/// Where a child finds how deep it is.
const DEPTH: &str = "stack.depth";

/// How a child stands.
#[derive(Debug)]
pub(super) enum Seen {
    /// It was not started.
    Absent,
    /// It has not ended, and stands like this.
    Open(RunStatus, Context),
    /// It has ended.
    Ended(Outcome<Context>),
}

impl Seen {
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

    /// Returns what the child knows, without what is only its own.
    pub(super) fn context(&self) -> Map<String, Json> {
        let own = |key: &str| ["internal.", "graph.", "stack."].iter().any(|prefix| key.starts_with(prefix));
        let shown = self.state().into_iter().flat_map(Context::iter).filter(|(key, _)| !own(key));
        shown.map(|(key, value)| (key.to_owned(), value.clone())).collect()
    }
}

/// The run of a child.
pub(super) struct Child<'a> {
    runtime: &'a Runtime,
    graph: Graph<Context>,
    key: RunKey,
    input: Context,
    parent: String,
    handle: Mutex<Option<RunHandle<Context>>>,
}

impl<'a> Child<'a> {
    pub(super) fn of(
        stage: &Stage,
        runtime: &'a Runtime,
        graph: Graph<Context>,
    ) -> Result<Self, HandlerError> {
        let cx = &stage.cx;
        let parent = cx.run();
        let id = RunId::new(format!("{}.{}.{}", parent.run, cx.node(), cx.visit())).map_err(|error| {
            HandlerError::permanent(format!("the child has no id: {error}; give the run a shorter one"))
        })?;
        let depth = stage.context.get_value(DEPTH).and_then(Json::as_u64).unwrap_or(0) + 1;
        if depth > MAX_DEPTH {
            let message = format!("managers nest more than {MAX_DEPTH} deep; is a pipeline its own child?");
            return Err(HandlerError::permanent(message));
        }
        let mut input = Context::new();
        let own = |key: &str| ["internal.", "graph.", "stack."].iter().any(|prefix| key.starts_with(prefix));
        for (key, value) in stage.context.iter().filter(|(key, value)| !own(key) && !value.is_null()) {
            input.set(key, value).map_err(HandlerError::of_runtime)?;
        }
        input.set(DEPTH, depth).map_err(HandlerError::of_runtime)?;
        let key = RunKey::new(parent.tenant.clone(), id);
        Ok(Self { runtime, graph, key, input, parent: parent.run.to_string(), handle: Mutex::new(None) })
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

    /// Starts the child if it is not there, and goes on with it if it has no driver.
    pub(super) async fn take_up(&self, start: bool) -> Result<(), Error> {
        let head = self.runtime.head(&self.key).await?;
        let handle = match head {
            None if start => {
                let request = self.runtime.start(&self.graph, self.input.clone());
                let request = request.id(&self.key.run).tenant(&self.key.tenant);
                Some(request.label("parent", &self.parent).await?)
            }
            None => None,
            Some(head) if head.status == RunStatus::InProgress => {
                match self.runtime.resume(&self.graph, &self.key).await {
                    Ok(handle) => Some(handle),
                    // It goes on, here or elsewhere, or has ended meanwhile.
                    Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::WrongStatus) => {
                        return Ok(());
                    }
                    Err(error) => return Err(error),
                }
            }
            Some(_) => None,
        };
        if let Some(handle) = handle.filter(RunHandle::is_driven_here) {
            *self.handle.lock().await = Some(handle);
        }
        Ok(())
    }

    /// Waits until the child that goes on here comes to rest or ends; for ever if it does not go on here.
    pub(super) async fn ended(&self) {
        let mut handle = self.handle.lock().await;
        match &*handle {
            Some(driven) => {
                // Why it stopped is seen at the next look.
                let _ = driven.wait().await;
                *handle = None;
            }
            None => std::future::pending().await,
        }
    }

    /// Looks how the child stands.
    pub(super) async fn look(&self) -> Result<Seen, Error> {
        let Some(head) = self.runtime.head(&self.key).await? else { return Ok(Seen::Absent) };
        if matches!(head.status, RunStatus::Completed | RunStatus::Failed | RunStatus::Cancelled) {
            // The handle of a run that has ended only reads.
            let checkpoint = self.runtime.checkpoint(&self.key, Position::Latest).await?;
            let state = self.runtime.state_at(&self.graph, &self.key, Position::Latest).await?;
            return Ok(Seen::Ended(match (checkpoint.status, checkpoint.failure) {
                (RunStatus::Completed, _) => Outcome::Completed(state),
                (RunStatus::Failed, Some(failure)) => Outcome::Failed { failure, state },
                _ => Outcome::Cancelled { reason: checkpoint.cancelled.unwrap_or_default(), state },
            }));
        }
        let state = self.runtime.state_at(&self.graph, &self.key, Position::Latest).await?;
        Ok(Seen::Open(head.status, state))
    }

    /// Cancels the child unless it has ended.
    pub(super) async fn end(&self, reason: &str) -> Result<(), HandlerError> {
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
        // A child that goes on here is let come to its end; the runtime gives it its grace.
        if let Some(driven) = self.handle.lock().await.take() {
            let _ = driven.wait().await;
        }
        Ok(())
    }
}

impl Manager {
    /// Reads the child's pipeline.
    pub(super) fn child_pipeline(&self, node: &Node, pipeline: &Pipeline) -> Result<Pipeline, Error> {
        let refuse = |message: String| {
            Error::new(ErrorKind::Invalid, format!("node {}: {message}", node.id()))
                .with_operation("dot.compile")
        };
        let named = text(node, pipeline, "stack.child_dotfile");
        // Fabro's name for it.
        let file = if named.is_empty() { text(node, pipeline, "stack.child_workflow") } else { named };
        if file.is_empty() {
            return Err(refuse("a manager has no child; name its file by `stack.child_dotfile`".to_owned()));
        }
        let mut path = self.inner.directory.clone().unwrap_or_default();
        path.push(text(node, pipeline, "stack.child_workdir"));
        path.push(&file);
        let source = files::read_any(&path, MAX_FILE).map_err(|error| match error.kind() {
            std::io::ErrorKind::FileTooLarge => {
                refuse(format!("the child `{file}` is too large; at most {MAX_FILE} bytes are read"))
            }
            _ => refuse(format!("the child `{file}` cannot be read: {error}")),
        })?;
        let mut child = Pipeline::parse(&source).map_err(|error| {
            refuse(format!("the child `{file}` cannot be read:\n{}", error.report(&file)))
        })?;
        self.inner.transforms.apply(&mut child)?;
        Ok(child)
    }

    /// Compiles the child.
    pub(super) fn child_graph(&self, node: &Node, pipeline: &Pipeline) -> Result<Graph<Context>, Error> {
        Compiler::new(self.registry()).compile(&self.child_pipeline(node, pipeline)?)
    }
}
