//! The keys that the records of a store need.

use ferrata_store::{
    At, CheckpointStore, ErrorKind, FORMAT, MemoryStore, Page, PruneCut, Record, RunId, RunKey, Seq, TenantId,
};
use ferrata_store_envelope::{EnvelopeOptions, EnvelopeStore, key_usage};
use ferrata_testing::Log;

use super::{all, encrypting, wrapped, written};

/// The counts, as `TENANT/KEY RECORDS RUNS`.
async fn counted(store: &MemoryStore, tenant: Option<&str>) -> Vec<String> {
    let tenant = tenant.map(|name| TenantId::new(name).unwrap());
    let usage = key_usage(store, tenant.as_ref()).await.unwrap();
    let shown = |key: Option<String>| key.unwrap_or_else(|| "-".into());
    usage
        .into_iter()
        .map(|one| format!("{}/{} {} {}", one.tenant, shown(one.key), one.records, one.runs))
        .collect()
}

fn log(tenant: &str, run: &str) -> Log {
    Log::new(RunKey::new(TenantId::new(tenant).unwrap(), RunId::new(run).unwrap())).with_bases_every(3)
}

/// Guarantees: AT-REST-11.
#[tokio::test]
async fn each_record_counts_once_under_its_key() {
    let inner = MemoryStore::new();
    let under = |options| EnvelopeStore::new(inner.clone(), options);
    let compressed = under(EnvelopeOptions::default().with_compress_from(Some(0)));
    let (old, new) = (under(encrypting(&["old"])), under(all().with_accept_plain(true)));
    assert_eq!(counted(&inner, None).await, Vec::<String>::new());
    let (mut ann, mut bob) = (log("ann", "r"), log("bob", "r"));
    ann.write(&inner, 2).await;
    ann.write(&compressed, 5).await;
    ann.write(&old, 7).await;
    ann.write(&new, 4).await;
    log("ann", "s").write(&old, 1).await;
    bob.write(&new, 5).await;
    assert_eq!(counted(&inner, None).await, ["ann/- 7 1", "ann/new 4 1", "ann/old 8 2", "bob/new 5 1"]);
    assert_eq!(counted(&inner, Some("bob")).await, ["bob/new 5 1"]);
    // A prune after the change of keys leaves no record of the old key, because the base is encrypted with the current one.
    let base = ann.records[13].clone();
    let base = Record::seal(ferrata_store::RecordHeader { base: true, ..base.header }, base.body).unwrap();
    new.prune(&ann.key, PruneCut { at: Seq::new(13), base: Some(base) }).await.unwrap();
    new.purge(&log("ann", "s").key, None).await.unwrap();
    assert_eq!(counted(&inner, None).await, ["ann/new 5 1", "bob/new 5 1"]);
    let only = EnvelopeStore::new(inner.clone(), encrypting(&["new"]));
    assert!(only.load(&ann.key, At::Latest).await.is_ok() && only.load(&bob.key, At::Latest).await.is_ok());
}

#[tokio::test]
async fn the_runs_of_all_pages_are_counted() {
    let (inner, store) = wrapped(encrypting(&["k"]));
    let runs = Page::MAX + 1;
    for at in 0..runs {
        written(&store, &format!("r{at}"), 1).await;
    }
    assert_eq!(counted(&inner, None).await, [format!("default/k {runs} {runs}")]);
}

#[tokio::test]
async fn a_run_that_cannot_be_listed_is_named() {
    let (inner, store) = wrapped(encrypting(&["k"]));
    written(&store, "r", 2).await;
    let mut bob = log("bob", "r");
    bob.write(&store, 2).await;
    inner.tamper(&bob.key, |records| records[1].header.format = FORMAT + 1);
    let error = key_usage(&inner, None).await.unwrap_err();
    assert_eq!((error.kind(), error.run()), (ErrorKind::Unsupported, Some(&bob.key)));
    // The report of one tenant contains no other tenant.
    assert_eq!(counted(&inner, Some("default")).await, ["default/k 2 1"]);
}

#[tokio::test]
async fn record_with_unreadable_key_is_named() {
    let (inner, store) = wrapped(all());
    let log = written(&store, "r", 3).await;
    for (body, kind) in [
        (&b"\xFE\x01\x02\x02a b"[..], ErrorKind::Corrupt),
        (&[&b"\xFE\x01\x02\x01\xFF"[..], &[0; 64]].concat(), ErrorKind::Corrupt),
        (b"\xFE\x01\x09", ErrorKind::Corrupt),
        (b"\xFE\x02\x00", ErrorKind::Unsupported),
        (b"\xFE\x03\x00", ErrorKind::Unsupported),
    ] {
        inner.tamper(&log.key, |records| {
            records[1] = Record::seal(records[1].header.clone(), body.to_vec().into()).unwrap();
        });
        let error = key_usage(&inner, None).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.run(), error.seq()),
            (kind, Some(&log.key), Some(Seq::new(1))),
            "{error}"
        );
    }
}
