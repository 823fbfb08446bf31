//! The command `store keys` counts the data of a store by encryption key: its records, and large values outside of the records.

use std::collections::BTreeMap;

use ferrata::blobs::BlobUsage;
use ferrata::{KeyUsage, TenantId, key_usage};
use serde::Serialize;

use super::blobs;
use crate::args::KeysArgs;
use crate::context::CommandContext;
use crate::exit::ExitReason;
use crate::failure::CommandFailure;
use crate::output::OutputFormat;
use crate::store;
use crate::table::Table;

/// The label of unencrypted data in the table. No key can have this name.
const PLAIN: &str = "(not encrypted)";

/// The amount of a tenant's data that one key encrypts.
#[derive(Serialize)]
struct KeyUsageRow {
    tenant: TenantId,
    key: Option<String>,
    records: u64,
    runs: u64,
    /// The number of large values. Present only if locations of large values were given.
    #[serde(skip_serializing_if = "Option::is_none")]
    values: Option<u64>,
}

pub(super) async fn run(context: &CommandContext, args: &KeysArgs) -> Result<ExitReason, CommandFailure> {
    let tenant = context.global.tenant.as_ref();
    let places: Result<Vec<_>, _> =
        args.blobs.iter().map(|place| blobs::open(place, "ferrata store keys --blobs PLACE")).collect();
    let places = places?;
    let opened = store::open_as_stored(&context.global.store)?;
    let mut found: BTreeMap<(TenantId, Option<String>), (u64, u64, u64)> = BTreeMap::new();
    for KeyUsage { tenant, key, records, runs, .. } in key_usage(&*opened, tenant).await? {
        found.insert((tenant, key), (records, runs, 0));
    }
    for place in &places {
        for BlobUsage { tenant, key, values, .. } in place.key_usage(tenant).await? {
            found.entry((tenant, key)).or_default().2 += values;
        }
    }
    let counted = |((tenant, key), (records, runs, values))| {
        let values = (!places.is_empty()).then_some(values);
        KeyUsageRow { tenant, key, records, runs, values }
    };
    let all: Vec<KeyUsageRow> = found.into_iter().map(counted).collect();
    let table = |all: &[KeyUsageRow]| {
        let mut heads = vec!["TENANT", "KEY", "RECORDS", "RUNS"];
        heads.extend((!places.is_empty()).then_some("VALUES"));
        let mut table = Table::new(heads);
        for one in all {
            let key = one.key.as_deref().unwrap_or(PLAIN);
            let mut row = vec![one.tenant.to_string().into(), key.into()];
            row.extend([one.records.to_string().into(), one.runs.to_string().into()]);
            row.extend(one.values.map(|values| values.to_string().into()));
            table.row(row);
        }
        table
    };
    let id = |one: &KeyUsageRow| format!("{}/{}", one.tenant, one.key.as_deref().unwrap_or_default());
    context.out.all(&all, id, table)?;
    if all.is_empty() && context.out.format == OutputFormat::Table {
        context.out.note("no records");
    }
    Ok(ExitReason::Done)
}
