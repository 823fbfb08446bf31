//! The agent: it thinks, calls a tool, sees what came of it and thinks again; a person agrees to mails, and to more money.

use std::path::PathBuf;
use std::time::Duration;

use ferrata::prelude::*;
use serde::{Deserialize, Serialize};

use super::model::{Call, Model};

/// How long a person may think about a mail; after that it is not sent.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3 * 86_400);

/// How often it may think, whatever it has to spend.
const THOUGHTS: u32 = 20;

/// What a run of the agent knows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, State)]
pub(crate) struct Agent {
    pub(crate) task: String,
    /// What it may spend.
    pub(crate) cents: u32,
    #[state(sum)]
    pub(crate) spent: u32,
    #[state(append)]
    pub(crate) seen: Vec<Seen>,
    /// What the model wants next.
    pub(crate) wanted: Option<Call>,
    /// What a person said to the mail that is wanted.
    pub(crate) agreed: bool,
    pub(crate) answer: Option<String>,
}

/// A call, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seen {
    pub(crate) call: Call,
    pub(crate) result: String,
}

impl Agent {
    fn is_broke(&self) -> bool {
        self.spent > self.cents
    }

    fn sees(&mut self, result: impl Into<String>) {
        if let Some(call) = self.wanted.take() {
            self.seen.push(Seen { call, result: result.into() });
        }
    }

    /// Where what the model wants is done.
    fn tool(&self) -> &'static str {
        match self.wanted {
            Some(Call::Search(_)) => "search",
            Some(Call::Mail { .. }) => "approve",
            Some(Call::Answer(_)) | None => "finish",
        }
    }
}

/// Where mails go: a folder with a file for each.
#[derive(Clone, Debug)]
pub(crate) struct Outbox(pub(crate) PathBuf);

impl Outbox {
    /// Sends a mail once for a key, as mail providers do.
    fn send(&self, key: &str, mail: &str) -> std::io::Result<()> {
        std::fs::create_dir_all(&self.0)?;
        std::fs::write(self.0.join(key.replace(['/', ':'], "-")), mail)
    }
}

pub(crate) fn graph() -> Result<Graph<Agent>, GraphError> {
    Graph::<Agent>::builder("agent")
        .node("think", async |cx, mut s| {
            let said = cx.resource::<Model>().think(&s.task, &s.seen);
            s.spent += said.cents;
            s.wanted = Some(said.call);
            Ok(s)
        })
        .effect(Effect::Read)
        .retry(RetryPolicy::standard())
        .max_visits(THOUGHTS)
        .gate(
            "budget",
            |s: &Agent| {
                Ask::<u32>::new(format!("{} of {} cents are spent. How many more?", s.spent, s.cents))
            },
            |s: &mut Agent, more| s.cents = s.cents.saturating_add(more),
        )
        .node("search", async |_cx, mut s| {
            s.sees("a page");
            Ok(s)
        })
        .effect(Effect::Read)
        .gate(
            "approve",
            |s: &Agent| {
                let mail = match &s.wanted {
                    Some(Call::Mail { to, text }) => format!("Send `{text}` to {to}?"),
                    _ => "Send no mail?".to_owned(),
                };
                Ask::<bool>::new(mail).deadline(PATIENCE).or_default(false)
            },
            |s: &mut Agent, agreed| s.agreed = agreed,
        )
        .node("mail", async |cx, mut s| {
            if let Some(Call::Mail { to, text }) = &s.wanted {
                cx.resource::<Outbox>().send(&cx.idempotency_key(), &format!("{to}: {text}"))?;
            }
            s.sees("sent");
            Ok(s)
        })
        .node("refused", async |_cx, mut s| {
            s.sees("a person refused it");
            Ok(s)
        })
        .node("finish", async |_cx, mut s| {
            s.answer = Some(match s.wanted.take() {
                Some(Call::Answer(answer)) => answer,
                _ => format!("stopped: {} of {} cents are spent", s.spent, s.cents),
            });
            Ok(s)
        })
        .entry("think")
        .route("think", ["budget", "search", "approve", "finish"], |s: &Agent, _cx| {
            if s.is_broke() { "budget" } else { s.tool() }
        })
        .route(
            "budget",
            ["search", "approve", "finish"],
            |s: &Agent, _cx| {
                if s.is_broke() { "finish" } else { s.tool() }
            },
        )
        .edge("search", "think")
        .edge("approve", "mail")
        .when(|s| s.agreed)
        .edge("approve", "refused")
        .otherwise()
        .edge("mail", "think")
        .edge("refused", "think")
        .build()
}
