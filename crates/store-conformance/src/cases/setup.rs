//! Setup, and the reported abilities of a store.

use ferrata_store::{Clock, ErrorKind, HeadRef, MAX_TEXT_BYTES, Order, RunQuery, SystemClock, within};

use crate::stage::{TestStage, every_run, is_kept, ok, together};

/// A repeated setup is `Ok` and leaves the stored data unchanged.
pub(crate) async fn setup_can_be_repeated(stage: TestStage) {
    let mut log = stage.written("r-1", 6).await;
    for _ in 0..3 {
        ok(stage.store().setup().await, "setting up again");
        is_kept(&*stage.store(), &log).await;
        log.write(&*stage.store(), 1).await;
    }
    let listed = every_run(&*stage.store(), &RunQuery::default(), Order::OldestFirst, 10).await;
    assert_eq!(listed, [log.run_head()]);
}

/// Many instances may run setup at once, even while others write runs.
pub(crate) async fn setup_is_safe_from_many_instances_at_once(stage: TestStage) {
    let mut stores = Vec::new();
    for _ in 0..10 {
        stores.push(stage.unprepared().await);
    }
    let mut log = stage.written("r-1", 1).await;
    let writer = {
        let (store, mut log) = (stage.store(), log.clone());
        async move {
            for _ in 0..20 {
                log.write(&*store, 1).await;
            }
            log
        }
    };
    let setups = stores.iter().cloned().map(|store| async move { store.setup().await });
    let (written, results) = tokio::join!(together([writer]), together(setups));
    for result in results {
        ok(result, "setting up at the same time as others");
    }
    log = written.into_iter().next().unwrap_or(log);
    for store in stores {
        is_kept(&*store, &log).await;
    }
}

/// The reported abilities of a store are constant while it is open.
pub(crate) async fn capabilities_are_constant(stage: TestStage) {
    let store = stage.store();
    let before = store.capabilities();
    assert!(!before.name.is_empty(), "a store has a name");
    ok(store.setup().await, "setting up");
    stage.written("r-1", 2).await;
    for _ in 0..3 {
        assert_eq!(store.capabilities(), before, "capabilities do not change");
    }
}

/// A store sends notices if and only if it reports that it does.
///
/// Guarantees: STORE-5.
pub(crate) async fn notices_are_sent_as_announced(stage: TestStage) {
    for _ in 0..2 {
        let announced = stage.store().capabilities().notices;
        assert_eq!(stage.store().subscribe().is_some(), announced, "notices are as announced");
    }
}

/// Changes of runs cause notices. Single notices may be lost, so the runs are changed until a notice arrives.
pub(crate) async fn changes_are_noticed(stage: TestStage) {
    let mut notices = stage
        .store()
        .subscribe()
        .expect("the store sends no notices; leave the group `notices` out of the suite with the reason");
    let clock = SystemClock::new();
    let mut log = stage.log("r-1");
    loop {
        log.write(&*stage.store(), 1).await;
        tokio::select! {
            notice = notices.next() => match ok(notice, "waiting for a notice") {
                Some(notice) => {
                    assert_eq!(notice.run, log.key, "only one run has changed");
                    let is_of_it = |head: HeadRef| log.records.iter().any(|record| record.header.head() == head);
                    assert!(notice.head.is_none_or(is_of_it), "the head is one that the run had: {notice:?}");
                    break;
                }
                // Some notices were missed, so any run may have changed. That counts as a notice.
                None => break,
            },
            () = clock.sleep(std::time::Duration::from_millis(100)) => {
                assert!(log.records.len() < 200, "no notice of two hundred changes");
            }
        }
    }
}

/// Every listener receives the texts of every instance: complete, in order, and from the start of its listening on. A store need not have a relay.
pub(crate) async fn what_is_said_is_heard_whole_and_in_order(stage: TestStage) {
    let (store, other) = (stage.store(), stage.another().await);
    let (Some(relay), Some(far)) = (store.relay(), other.relay()) else {
        assert!(store.relay().is_none() && other.relay().is_none(), "a store that can say nothing never can");
        return;
    };
    let long = relay.publish(vec!["short".to_owned(), "x".repeat(MAX_TEXT_BYTES + 1)]).await;
    assert_eq!(long.expect_err("a text that is too long is refused").kind(), ErrorKind::TooLarge);
    let nul = relay.publish(vec!["short".to_owned(), "a\0b".to_owned()]).await;
    assert_eq!(nul.expect_err("a text with a NUL is refused").kind(), ErrorKind::Invalid);
    let mut here = ok(relay.listen().await, "beginning to hear");
    let mut there = ok(far.listen().await, "beginning to hear");
    let clock = SystemClock::new();
    // Texts that are not keys, markup, an empty text, and a text of the maximum length.
    let longest = "\u{fc}".repeat(MAX_TEXT_BYTES / 2 - 8);
    let odd = ["", "a/b c", "'; -- \" \\ $1 %s", "\u{1f6a2} {\"a\":\"\\n\"}\n\t\r\u{7f}", &*longest];
    let said = |round: u32| -> Vec<String> { odd.iter().map(|text| format!("{round}:{text}")).collect() };
    // A connection may be lost in the middle, but not again and again. A busy machine may need more time.
    for (round, patience) in [(0, 50), (1, 400), (2, 3_200), (3, 15_000)] {
        ok(relay.publish(said(round)).await, "saying something");
        ok(far.publish(vec![format!("{round}:end")]).await, "saying something");
        let expected: Vec<String> = said(round).into_iter().chain([format!("{round}:end")]).collect();
        let mut is_whole = true;
        for heard in [&mut here, &mut there] {
            let hear = async {
                let mut texts: Vec<String> = Vec::new();
                while texts.len() < expected.len() {
                    match ok(heard.next().await, "hearing something") {
                        // A text of an earlier round that arrives late.
                        Some(text) if !text.starts_with(&format!("{round}:")) => {}
                        Some(text) => texts.push(text.to_string()),
                        None => texts.clear(),
                    }
                }
                texts
            };
            match within(&clock, std::time::Duration::from_millis(patience), hear).await {
                Some(texts) => assert_eq!(texts, expected, "texts are heard whole and in order"),
                None => {
                    is_whole = false;
                    break;
                }
            }
        }
        if is_whole {
            return;
        }
    }
    panic!("texts were lost in each round");
}
