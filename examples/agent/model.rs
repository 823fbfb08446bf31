//! A stand-in for a model. Its answers depend only on the task and the results so far, so the program calls no service.

use serde::{Deserialize, Serialize};

use super::graph::Seen;

/// What the model wants: a call of a tool, or its final answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Call {
    /// Search for something.
    Search(String),
    /// Send a mail, if a person approves.
    Mail { to: String, text: String },
    /// The task is done, with this answer.
    Answer(String),
}

/// The output of the model, and its cost.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) call: Call,
    pub(crate) cents: u32,
}

/// The model that the application provides to the nodes. In a service, it is the client of a provider.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Model {
    /// The cost of each thought in cents.
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
