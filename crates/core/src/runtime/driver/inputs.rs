//! Values that start an activation or end it without its node: the inputs of an activation, the answer to a question about an unknown outcome, and a
//! patch of the state.

use super::RunDriver;
use crate::ask::Resolution;
use crate::engine::frontier::{ActivationKey, Token};
use crate::error::Result;
use crate::graph::node_set::NodeIx;
use crate::node::{Input, Inputs};
use crate::record::{Failure, FailureKind};
use crate::state::{Channels, Patch, State, Update};

impl<S: State> RunDriver<S> {
    /// Returns the joined inputs of an activation, ordered by edge, and within one edge by item.
    pub(super) fn inputs(&self, key: ActivationKey) -> Inputs {
        let Some(activation) = self.machine.in_flight().get(&key) else { return Inputs::default() };
        let input = |token: &Token| Input {
            from: self.machine.name(token.from).clone(),
            visit: token.visit,
            output: token.output.clone(),
        };
        if let [token] = &*activation.inputs {
            return Inputs::One([input(token)]);
        }
        let to = NodeIx::new(key.0);
        let order = |token: &Token| {
            let edges = self.machine.index(token.from).map(|from| &self.plan.node(from).outgoing);
            let edge = edges.and_then(|edges| edges.iter().find(|&&edge| self.plan.edge(edge).to == to));
            (edge.copied().is_none(), edge.copied(), token.visit)
        };
        let mut tokens: Vec<&Token> = activation.inputs.iter().collect();
        if tokens.len() > 1 {
            tokens.sort_by_cached_key(|token| order(token));
        }
        Inputs::Many(tokens.into_iter().map(input).collect())
    }

    /// Converts an answer about an activation with unknown outcome into its result.
    pub(super) fn resolve(&mut self, resolution: Resolution) -> Result<Update<S>, Failure> {
        match resolution.into_change()? {
            None => Ok(Update::none()),
            Some(patch) => self
                .update_from_patch(&patch)
                .map_err(|error| Failure::from_error(FailureKind::Update, &error)),
        }
    }

    /// Converts a patch from an answer into an update.
    fn update_from_patch(&self, patch: &Patch) -> Result<Update<S>> {
        Ok(Update::new(S::diff(&self.state, self.state_after_patch(patch)?)?))
    }

    /// Returns the state after a patch.
    pub(super) fn state_after_patch(&self, patch: &Patch) -> Result<S> {
        let mut channels = Channels::from_json(self.state.to_channels_json()?.get())?;
        channels.apply(patch)?;
        S::from_channels(channels, self.graph.schema())
    }
}
