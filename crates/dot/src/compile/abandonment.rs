//! Abandons branches whose results no longer count. This module decides when, and notifies the running nodes of these branches.
//!
//! The decision is made when the end of a branch is recorded, on the context after that record. So the log never shows an abandoned branch before the
//! cause.

use std::collections::HashMap;
use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use ferrata_core::node::{KeepAwakeGuard, NodeContext};
use ferrata_core::state::Context;
use serde_json::Value as Json;
use tokio::sync::watch;

use super::branch::channel;
use super::each;
use crate::outcome::Status;
use crate::pipeline::Node;
use crate::value::Value;

/// The context key of the result of a branch.
pub(super) const ENDED: &str = "internal.ended";

/// Maximum number of remembered joins that are settled. If a join was forgotten, a node that starts later in one of its branches runs to its end. A
/// forgotten join has no other effect.
const REMEMBERED: usize = 1024;

/// The condition under which the other branches of a parallel node no longer count.
#[derive(Clone, Debug)]
pub(super) struct LeaveRule {
    policy: LeavePolicy,
    /// Whether the first failed branch settles the join.
    pub(super) fail_fast: bool,
    /// The first nodes of the branches.
    firsts: Vec<String>,
}

/// The number of branches that must succeed.
#[derive(Clone, Copy, Debug)]
enum LeavePolicy {
    All,
    One,
    Most,
    Count(usize),
}

impl LeaveRule {
    pub(super) fn of(fork: &Node, firsts: Vec<String>) -> Self {
        let policy = match &*fork.attributes.text("join_policy") {
            "first_success" => LeavePolicy::One,
            "quorum" => LeavePolicy::Most,
            "k_of_n" => {
                let k = fork.attributes.get("k").and_then(Value::as_integer).unwrap_or(1);
                LeavePolicy::Count(usize::try_from(k).unwrap_or(usize::MAX))
            }
            _ => LeavePolicy::All,
        };
        Self { policy, fail_fast: fork.attributes.text("error_policy") == "fail_fast", firsts }
    }

    /// Returns how many of `total` branches must succeed; `None` if the results of all branches count.
    pub(super) fn needed(&self, total: usize) -> Option<usize> {
        match self.policy {
            LeavePolicy::All => None,
            LeavePolicy::One => Some(1),
            LeavePolicy::Most => Some(total / 2 + 1),
            LeavePolicy::Count(count) => Some(count),
        }
    }

    /// Returns whether branches may be abandoned at all.
    pub(super) fn may_abandon(&self) -> bool {
        !matches!(self.policy, LeavePolicy::All) || self.fail_fast
    }

    /// Returns whether the results so far settle the outcome of all branches. `join` names the parallel node and its visit, with the enclosing branch
    /// before them.
    pub(super) fn is_settled(&self, context: &Context, join: &str) -> bool {
        let firsts = each::all(&self.firsts, context, join);
        let ended = firsts.iter().filter_map(|first| {
            let set = context.get_value(&channel(&format!("{join}.{first}")))?;
            set.get(ENDED).and_then(Json::as_str)
        });
        let (mut succeeded, mut failed, mut others) = (0, 0, 0);
        for status in ended {
            match status {
                "success" | "partial_success" => succeeded += 1,
                status if status == Status::Fail.as_str() => failed += 1,
                _ => others += 1,
            }
        }
        let needed = self.needed(firsts.len());
        let enough = needed.is_some_and(|needed| succeeded >= needed);
        let out_of_reach = needed.is_some_and(|needed| firsts.len() - failed - others < needed);
        self.may_abandon() && (enough || out_of_reach || self.fail_fast && failed > 0)
    }
}

/// Returns the joins around a branch, each with its parallel node. The outermost join comes first. The name of a join consists of the enclosing
/// branch, the parallel node and its visit.
pub(super) fn joins(branch: &str) -> impl Iterator<Item = (&str, &str)> {
    let ends = branch.match_indices('/').map(|(at, _)| at).chain([branch.len()]);
    ends.filter_map(|end| {
        let (join, _) = branch[..end].rsplit_once('.')?;
        let innermost = join.rsplit_once('/').map_or(join, |(_, innermost)| innermost);
        Some((join, innermost.split_once('.')?.0))
    })
}

/// The joins in this process whose branches may be abandoned.
#[derive(Debug, Default)]
pub(super) struct BranchJoins {
    open: Mutex<HashMap<String, BranchJoin>>,
}

/// One join: the nodes that watch it, and guards. Once the join is settled, the guards keep the run active until these nodes have been notified.
#[derive(Debug)]
struct BranchJoin {
    settled: watch::Sender<bool>,
    watching: Vec<NodeContext>,
    awake: Vec<KeepAwakeGuard>,
}

impl BranchJoin {
    fn new() -> Self {
        Self { settled: watch::Sender::new(false), watching: Vec::new(), awake: Vec::new() }
    }
}

/// The watch of a node on a join. Dropping the value ends the watch.
#[derive(Debug)]
pub(super) struct JoinWatch {
    joins: Arc<BranchJoins>,
    key: String,
    activation: String,
    pub(super) settled: watch::Receiver<bool>,
}

impl Drop for JoinWatch {
    fn drop(&mut self) {
        let gone = |cx: &NodeContext| cx.idempotency_key() == self.activation;
        if let Some(join) = self.joins.lock().get_mut(&self.key) {
            join.watching.retain(|cx| !gone(cx));
        }
    }
}

impl BranchJoins {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, BranchJoin>> {
        // No code panics while it holds this lock.
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() >= REMEMBERED {
            open.retain(|_, join| !join.watching.is_empty());
        }
        open
    }

    /// Notifies the running nodes in the branches of a join that their results no longer count.
    pub(super) fn settle_join(&self, start_id: &str, join: &str) {
        let mut open = self.lock();
        let join = open.entry(format!("{start_id}:{join}")).or_insert_with(BranchJoin::new);
        join.awake = join.watching.iter().map(NodeContext::keep_awake).collect();
        join.settled.send_replace(true);
    }

    /// Starts a node's watch on a join.
    pub(super) fn watch(self: &Arc<Self>, cx: &NodeContext, start_id: &str, join: &str) -> JoinWatch {
        let key = format!("{start_id}:{join}");
        let mut open = self.lock();
        let join = open.entry(key.clone()).or_insert_with(BranchJoin::new);
        join.watching.push(cx.clone());
        let settled = join.settled.subscribe();
        JoinWatch { joins: Arc::clone(self), key, activation: cx.idempotency_key(), settled }
    }

    /// Removes a join whose parallel node has ended.
    pub(super) fn close(&self, start_id: &str, join: &str) {
        let closed = self.lock().remove(&format!("{start_id}:{join}"));
        drop(closed);
    }
}

/// Waits until one of these joins is settled. Waits forever if the list is empty.
pub(super) async fn wait_until_settled(joins: Vec<JoinWatch>) {
    let one = |mut join: JoinWatch| -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            // The sender was dropped, with the graph or because the join ended. Neither is a reason to stop the node.
            if join.settled.wait_for(|settled| *settled).await.is_err() {
                pending::<()>().await;
            }
        })
    };
    let mut all: Vec<_> = joins.into_iter().map(one).collect();
    poll_fn(|task| match all.iter_mut().any(|join| join.as_mut().poll(task).is_ready()) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
}
