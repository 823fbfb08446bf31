//! `purge`: removes runs and every trace of them.

use ferrata::{RunId, RunKey, TenantId};
use serde::Serialize;

use crate::args::PurgeArgs;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::find::shown;
use crate::input;
use crate::table::Table;

#[derive(Serialize)]
struct Gone {
    run: RunKey,
    records: u64,
    bytes: u64,
}

pub(super) async fn run(context: &Context, args: &PurgeArgs) -> Result<Exit, Failure> {
    let store = context.store()?;
    let names = input::runs(&args.runs)?;
    let mut runs = Vec::new();
    for name in &names {
        let run = match context.find(&*store, name).await {
            Ok(head) if args.force => (head.run, None),
            Ok(head) if head.status.is_finished() => (head.run.clone(), Some(head.head())),
            Ok(head) => {
                let name = shown(&head.run);
                let message = format!("run {name} is {}; cancel it first, or use --force", head.status);
                let next = format!("ferrata cancel {name} --yes");
                return Err(
                    Failure::new(Exit::Conflict, message, next).with_code(ferrata::ErrorKind::WrongStatus)
                );
            }
            // A damaged run has no head to be found by: its id in full is enough to remove it.
            Err(failure) if args.force && failure.code() == Some(ferrata::ErrorKind::Corrupt.code()) => {
                (exactly(context, name)?, None)
            }
            Err(failure) => return Err(failure),
        };
        runs.push(run);
    }
    let listed: Vec<String> = runs.iter().map(|(run, _)| shown(run)).collect();
    let what = format!("remove {} and every trace of it", listed.join(" "));
    context.confirm(args.yes, &what, &format!("ferrata purge {} --yes", listed.join(" ")))?;
    let mut gone = Vec::new();
    for (run, expected) in runs {
        // What somebody said to the run while the question stood here is not lost with it.
        let purged = store.purge(&run, expected).await?;
        gone.push(Gone { run, records: purged.records, bytes: purged.bytes });
    }
    context.out.all(
        &gone,
        |one| shown(&one.run),
        |gone| {
            let mut table = Table::new(["RUN", "RECORDS", "BYTES"]);
            for one in gone {
                table.row([
                    shown(&one.run).into(),
                    one.records.to_string().into(),
                    one.bytes.to_string().into(),
                ]);
            }
            table
        },
    )?;
    Ok(Exit::Done)
}

fn exactly(context: &Context, name: &str) -> Result<RunKey, Failure> {
    let (tenant, id) = match name.split_once('/') {
        Some((tenant, id)) => (TenantId::new(tenant)?, id),
        None => (context.global.tenant.clone().unwrap_or_default(), name),
    };
    Ok(RunKey::new(tenant, RunId::new(id)?))
}
