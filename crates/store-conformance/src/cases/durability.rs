//! Durability: the next process finds all acknowledged records.

use ferrata_store::{Order, PruneCut, RunQuery, Seq};

use super::conflict::is_a_conflict;
use crate::stage::{TestStage, appended, every_run, facts, is_kept, is_kept_at_head, label, ok};

/// After all instances are closed and the space is reopened, acknowledged records exist, and the log can continue.
pub(crate) async fn what_was_acknowledged_is_there_after_reopening(mut stage: TestStage) {
    let mut logs = Vec::new();
    for n in 0..3 {
        let said = label(facts("w", n), "k", "v");
        logs.push(stage.log(&format!("r-{n}")).with_facts(said));
    }
    for count in [1, 3, 7] {
        for log in &mut logs {
            log.write(&*stage.store(), count).await;
        }
        stage = stage.reopen().await;
        for log in &logs {
            is_kept(&*stage.store(), log).await;
        }
        let listed = every_run(&*stage.store(), &RunQuery::default(), Order::OldestFirst, 10).await;
        let heads: Vec<_> = logs.iter().map(|log| log.run_head()).collect();
        assert_eq!(listed, heads, "the runs as listed after reopening");
    }
}

/// If a reply was lost together with its process, the next process can repeat the append.
pub(crate) async fn a_repeat_after_reopening_is_ok(stage: TestStage) {
    let mut log = stage.written("r-1", 2).await;
    let behind = log.next(1);
    let append = log.next(3);
    appended(&*stage.store(), &append).await;
    log.note_append(&append);
    let stage = stage.reopen().await;
    appended(&*stage.store(), &append).await;
    is_a_conflict(&*stage.store(), &behind, log.head(), "an append behind the head, after reopening").await;
    is_kept(&*stage.store(), &log).await;
}

/// The next process does not find pruned or purged records, either.
pub(crate) async fn what_was_removed_is_gone_after_reopening(stage: TestStage) {
    let mut logs =
        [stage.written("r-1", 9).await, stage.written("r-2", 7).await, stage.written("r-3", 5).await];
    let base = logs[1].as_base(6);
    for (log, at, base) in [(0, 4, None), (1, 6, Some(base))] {
        let cut = PruneCut { at: Seq::new(at), base: base.clone() };
        ok(stage.store().prune(&logs[log].key, cut).await, "pruning");
        logs[log].note_pruned(at, base);
    }
    ok(stage.store().purge(&logs[2].key, None).await, "purging");
    logs[2].records.clear();
    let stage = stage.reopen().await;
    is_kept(&*stage.store(), &logs[0]).await;
    is_kept(&*stage.store(), &logs[1]).await;
    is_kept_at_head(&*stage.store(), &logs[2]).await;
    for log in &mut logs {
        log.write(&*stage.store(), 2).await;
        is_kept(&*stage.store(), log).await;
    }
}
