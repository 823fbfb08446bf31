//! The stand-in for a model: what it says follows from the task and from what it has seen, so nothing is called.

use serde::{Deserialize, Serialize};

use super::graph::Seen;

/// A tool that the model wants to be called, or its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Call {
    /// Look something up.
    Search(String),
    /// Send a mail, if a person agrees.
    Mail { to: String, text: String },
    /// The task is done.
    Answer(String),
}

/// What the model said, and what that cost.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) call: Call,
    pub(crate) cents: u32,
}

/// What the application lends to the nodes: in a service, a client of a provider.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Model {
    /// What it takes for each time it thinks.
    pub(crate) cents: u32,
}

impl Model {
    pub(crate) fn think(self, task: &str, seen: &[Seen]) -> Said {
        let found = seen.iter().filter(|seen| matches!(seen.call, Call::Search(_))).count();
        let mailed = seen.iter().find(|seen| matches!(seen.call, Call::Mail { .. }));
        let call = match (found, mailed) {
            (0, _) => Call::Search(format!("prices of {task}")),
            (1, _) => Call::Search(format!("dealers in {task}")),
            (_, None) => Call::Mail { to: "dealer@example.org".into(), text: format!("Two {task}, please.") },
            (_, Some(mail)) => Call::Answer(format!("{found} searches; the mail: {}", mail.result)),
        };
        Said { call, cents: self.cents }
    }
}
