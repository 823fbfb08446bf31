//! What runs wait for in queues, and what they hold there.

use std::collections::{HashMap, HashSet};

use ferrata::queue::{Overview, Standing};
use ferrata::store::RunHead;
use ferrata::{RunKey, RunStatus, Runtime};
use tokio::sync::Mutex;

use crate::context::Context;
use crate::table::clean;

/// The queues of the store, read again only as far as they have changed.
#[derive(Default)]
pub(crate) struct Turns(Mutex<Overview>);

impl Turns {
    /// Says what runs of a listing wait for. No queue is read for runs that cannot wait.
    pub(crate) async fn of(
        &self,
        context: &Context,
        runtime: &Runtime,
        heads: &[RunHead],
    ) -> HashMap<RunKey, Vec<Standing>> {
        let may_wait: HashSet<&RunKey> =
            heads.iter().filter(|head| may_wait(head)).map(|head| &head.run).collect();
        if may_wait.is_empty() {
            return HashMap::new();
        }
        let mut overview = self.0.lock().await;
        look(context, runtime, &mut overview).await;
        let mut waits = overview.waits(context.now());
        waits.retain(|run, _| may_wait.contains(run));
        waits
    }
}

/// Whether a run may wait for its turn, or a node of it, as far as its head says.
fn may_wait(head: &RunHead) -> bool {
    matches!(head.status, RunStatus::InProgress | RunStatus::Interrupted) && head.wake_at.is_none()
}

/// Reads the queues. What cannot be read hides nothing else.
pub(crate) async fn look(context: &Context, runtime: &Runtime, overview: &mut Overview) {
    if let Err(error) = overview.look(runtime).await {
        context.out.note(&format!("the queues cannot be read: {}", clean(&error.to_string())));
    }
}

/// Says for which place a run waits, or which one it holds.
pub(crate) fn told(one: &Standing, since: &str) -> String {
    let places = if one.places == 1 { String::new() } else { format!("{} places of ", one.places) };
    let what = format!("{places}queue `{}`", clean(&one.queue));
    let lacks = match one.lacks.is_empty() {
        true => String::new(),
        false => {
            format!(
                ": a place is free, and no process with the tags `{}` gives it",
                clean(&one.lacks.join(","))
            )
        }
    };
    match one.before {
        Some(0) => format!("{what}, as the next, since {since}{lacks}"),
        Some(before) => format!("{what}, behind {before}, since {since}{lacks}"),
        None => format!("{what}, since {since}"),
    }
}
