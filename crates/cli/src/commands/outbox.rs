//! `outbox`: what runs sent out, and no outlet has taken.

use ferrata::runtime::Letter;
use ferrata::store::RunQuery;
use ferrata::{RunKey, Runtime, Timestamp};
use serde::Serialize;
use serde_json::value::RawValue;

use super::newest::of_newest;
use crate::args::OutboxArgs;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::find::shown;
use crate::table::Table;

/// A letter, as it is printed.
#[derive(Debug, Serialize)]
struct Listed {
    run: RunKey,
    number: u64,
    key: String,
    topic: String,
    node: String,
    visit: u32,
    sent: Timestamp,
    tries: u32,
    put_aside: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_at: Option<Timestamp>,
    payload: Option<Box<RawValue>>,
}

impl From<Letter> for Listed {
    fn from(letter: Letter) -> Self {
        Self {
            key: letter.key(),
            // As it was recorded, which is JSON.
            payload: RawValue::from_string(letter.json().to_owned()).ok(),
            number: letter.number,
            topic: letter.topic.to_string(),
            node: letter.node.to_string(),
            visit: letter.visit.get(),
            sent: letter.sent,
            tries: letter.tries,
            put_aside: letter.is_dead,
            why: letter.why,
            retry_at: letter.retry_at,
            run: letter.run,
        }
    }
}

pub(super) async fn run(context: &Context, args: &OutboxArgs) -> Result<Exit, Failure> {
    let runtime = context.runtime()?;
    let letters = match &args.run {
        Some(name) => {
            let run = context.find(&**runtime.store(), name).await?.run;
            let request = match (args.retry, args.drop) {
                (true, _) => Some(runtime.retry_letters(&run, &args.letters)),
                (_, true) => Some(runtime.drop_letters(&run, &args.letters)),
                _ => None,
            };
            let is_asked = request.is_some();
            match (request, &args.by) {
                (Some(request), Some(by)) => request.by(by.clone()).await?,
                (Some(request), None) => request.await?,
                (None, _) => {}
            }
            match runtime.letters(&run).await {
                Err(error) if is_asked => {
                    context.tell_unseen(&error.into());
                    return Ok(Exit::Done);
                }
                letters => letters?,
            }
        }
        None => of_all(context, &runtime, args.limit).await?,
    };
    let meant = |letter: &Letter| args.letters.is_empty() || args.letters.contains(&letter.number);
    let letters: Vec<Listed> = letters.into_iter().filter(meant).map(Listed::from).collect();
    print(context, &letters)?;
    Ok(Exit::Done)
}

fn print(context: &Context, letters: &[Listed]) -> Result<(), Failure> {
    let now = context.now();
    context.out.all(
        letters,
        |letter| format!("{} {}", shown(&letter.run), letter.number),
        |letters| {
            let mut table = Table::new(["RUN", "LETTER", "TOPIC", "NODE", "SENT", "TRIES", "NEXT", "WHY"])
                .sparing(["WHY", "NODE", "SENT"]);
            for letter in letters {
                let next = match letter.retry_at {
                    _ if letter.put_aside => "put aside".to_owned(),
                    Some(at) => context.out.time.write(at, now),
                    None => String::new(),
                };
                table.row([
                    shown(&letter.run).into(),
                    letter.number.to_string().into(),
                    letter.topic.clone().into(),
                    format!("{}@{}", letter.node, letter.visit).into(),
                    context.out.time.write(letter.sent, now).into(),
                    letter.tries.to_string().into(),
                    next.into(),
                    letter.why.clone().unwrap_or_default().into(),
                ]);
            }
            table
        },
    )?;
    if letters.is_empty() {
        context.out.note("no letter waits");
    }
    Ok(())
}

/// Looks at the runs that go on, rest, or have ended with something left to deliver.
async fn of_all(context: &Context, runtime: &Runtime, limit: usize) -> Result<Vec<Letter>, Failure> {
    of_newest(context, runtime, RunQuery::default(), limit, async |head| {
        if head.status.is_finished() && !head.is_delivering() {
            return Ok(Vec::new());
        }
        runtime.letters(&head.run).await
    })
    .await
}
