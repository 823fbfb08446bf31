//! The first setup: no instance has prepared the space, and many instances do it at the same time.

use crate::stage::{TestStage, is_kept, ok, together};

/// Ten instances find a space that is not prepared. Each prepares it and writes, and no record is lost.
pub(crate) async fn many_instances_prepare_a_space_at_once(stage: TestStage) {
    let mut stores = vec![stage.store()];
    while stores.len() < stage.times(10, 4) {
        stores.push(stage.unprepared().await);
    }
    let tasks = stores.iter().cloned().enumerate().map(|(n, store)| {
        let mut log = stage.log(&format!("r-{n}"));
        async move {
            ok(store.setup().await, "setting up at the same time as others");
            log.write(&*store, 3).await;
            log
        }
    });
    for log in together(tasks).await {
        for store in &stores {
            is_kept(&**store, &log).await;
        }
    }
}
