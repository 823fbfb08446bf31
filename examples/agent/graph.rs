//! The graph of the agent. The agent thinks, calls a tool, reads the result, and thinks again. A person must approve each mail, and any additional
//! money.

use std::path::PathBuf;
use std::time::Duration;

use ferrata::prelude::*;
use serde::{Deserialize, Serialize};

use super::model::{Call, Model};

/// Time that a person has to decide about a mail. After that, the mail is not sent.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3 * 86_400);

/// Maximum number of thoughts, even if the budget allows more.
const THOUGHTS: u32 = 20;

/// The state of a run of the agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, State)]
pub(crate) struct Agent {
    pub(crate) task: String,
    /// The budget in cents.
    pub(crate) cents: u32,
    #[state(sum)]
    pub(crate) spent: u32,
    #[state(append)]
    pub(crate) seen: Vec<Seen>,
    /// The call that the model wants to make next.
    pub(crate) wanted: Option<Call>,
    /// Whether a person approved the mail that the model wants to send.
    pub(crate) agreed: bool,
    pub(crate) answer: Option<String>,
}

/// A call and its result.
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

    /// Returns the node that performs the call that the model wants to make.
    fn tool(&self) -> &'static str {
        match self.wanted {
            Some(Call::Search(_)) => "search",
            Some(Call::Mail { .. }) => "approve",
            Some(Call::Answer(_)) | None => "finish",
        }
    }
}

/// The folder to which mails are sent. Each mail is a file.
#[derive(Clone, Debug)]
pub(crate) struct Outbox(pub(crate) PathBuf);

impl Outbox {
    /// Sends a mail. Mails with the same key are sent only once, as mail providers do it.
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
