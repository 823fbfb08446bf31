//! Checks the limits on child runs: the depth of the run tree, the children of one activation, and the children of one run.

use super::child_start::ChildSpec;
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::inner::RuntimeInner;
use crate::state::State;

impl<S: State> ChildSpec<S> {
    /// Returns an error if a child would be too deep in the run tree, or if its activation already has the maximum number of children.
    pub(super) fn check_limits(&self, shared: &RuntimeInner) -> Result<()> {
        let (depth, children) = (self.depth(), self.cx.count_children());
        let limits = &shared.limits;
        let refuse = |message: String| Err(Error::new(ErrorKind::Invalid, message).with_node(self.cx.node()));
        if depth > limits.max_depth {
            return refuse(format!(
                "the run is {} levels below {}, and children can be at most {} levels deep; check whether the workflow starts itself \
                 endlessly, or raise `max_depth`",
                depth - 1,
                self.cx.host().root,
                limits.max_depth
            ));
        }
        if children >= limits.max_children {
            return refuse(format!(
                "the activation already has its maximum of {children} children; start children of children, or raise `max_children`"
            ));
        }
        Ok(())
    }

    /// Counts a run before its start.
    pub(super) fn count_start(&self, shared: &RuntimeInner) -> Result<()> {
        let most = shared.limits.max_children_of_run;
        self.cx.count_start(most).map_err(|started| {
            let message = format!(
                "the nodes of the run have already started {started} runs, the maximum; check for an endless loop, start children of \
                 children, or raise `max_children_of_run`"
            );
            Error::new(ErrorKind::Invalid, message).with_run(self.cx.run()).with_node(self.cx.node())
        })
    }
}
