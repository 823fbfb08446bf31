//! `store keys`: which keys the records of the store need.

use ferrata::{KeyUsage, TenantId, key_usage};
use serde::Serialize;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Format;
use crate::store;
use crate::table::Table;

/// What stands for what is not encrypted, where people read. No key has such a name.
const PLAIN: &str = "(not encrypted)";

/// How much of a tenant stands under one key.
#[derive(Serialize)]
struct Counted {
    tenant: TenantId,
    key: Option<String>,
    records: u64,
    runs: u64,
}

pub(super) async fn run(context: &Context) -> Result<Exit, Failure> {
    let opened = store::open_as_stored(&context.global.store)?;
    let usage = key_usage(&*opened, context.global.tenant.as_ref()).await?;
    let counted = |KeyUsage { tenant, key, records, runs, .. }| Counted { tenant, key, records, runs };
    let all: Vec<Counted> = usage.into_iter().map(counted).collect();
    let table = |all: &[Counted]| {
        let mut table = Table::new(["TENANT", "KEY", "RECORDS", "RUNS"]);
        for one in all {
            let (records, runs) = (one.records.to_string(), one.runs.to_string());
            let key = one.key.as_deref().unwrap_or(PLAIN);
            table.row([one.tenant.to_string().into(), key.into(), records.into(), runs.into()]);
        }
        table
    };
    let id = |one: &Counted| format!("{}/{}", one.tenant, one.key.as_deref().unwrap_or_default());
    context.out.all(&all, id, table)?;
    if all.is_empty() && context.out.format == Format::Table {
        context.out.note("there are no records");
    }
    Ok(Exit::Done)
}
