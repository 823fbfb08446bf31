//! Reports that were once true, from a process that was suspended, is slow, or no longer owns the run.

use super::*;

/// A suspended process drops its node when it learns that another process owns the run. The wait of the node in the other process stays.
#[test]
fn drop_in_former_process_keeps_node_wait_elsewhere() {
    let mut settings = QueueSettings::new();
    settings.at_once = Some(1);
    let (mut ledger, [before, now]) = (QueueState::new(settings), [executor(), executor()]);
    let at = Timestamp::from_unix_ms(START);
    let leave = |who: u8, executor| QueueOp::LeaveNode { id: format!("run:default/run-{who:03}"), executor };
    for (who, said) in [(1, OpResult::Granted), (2, OpResult::Waits)] {
        assert_eq!(ledger.apply(ask(who, before, "", 0, 1, at), at), said);
        assert_eq!(
            ledger.apply(ask(who, now, "", 0, 1, at), at),
            said,
            "the node continues in the other process"
        );
        ledger.apply(leave(who, before), at);
    }
    assert_eq!((ledger.held.len(), ledger.waiting.len()), (1, 1));
    [2, 1].into_iter().for_each(|who| drop(ledger.apply(leave(who, now), at)));
    assert_eq!((ledger.held.len(), ledger.waiting.len()), (0, 0));
}

/// A process was suspended and lost its run to another process. When it continues, it requests a slot for its node, reports that the node becomes
/// idle, or drops the node. None of these may change the slot or the wait of the node in the other process.
#[test]
fn stale_process_cannot_change_node_in_current_process() {
    let mut settings = QueueSettings::new();
    settings.at_once = Some(1);
    let (mut ledger, [before, now]) = (QueueState::new(settings), [executor(), executor()]);
    let at = Timestamp::from_unix_ms(START);
    let asks = |who: u8, by: ExecutorId, epoch: u32| {
        let QueueOp::Ask(mut one) = ask(who, by, "", 0, 1, at) else { unreachable!() };
        one.waiting.epoch = Epoch::new(epoch);
        one
    };
    let rest = |who: u8, by: ExecutorId, epoch: u32, question: &str| {
        let one = asks(who, by, epoch);
        QueueOp::Rest { id: one.id, waiting: Box::new(one.waiting), question: question.to_owned() }
    };
    let stands = |ledger: &QueueState, who: u8| {
        let id = format!("run:default/run-{who:03}");
        let held = ledger.held.get(&id).map(|held| (held.executor, held.question.clone()));
        held.unwrap_or_else(|| (ledger.waiting[&id].executor, ledger.waiting[&id].question.clone()))
    };
    for who in [1, 2] {
        ledger.apply(QueueOp::Ask(asks(who, before, 1)), at);
        ledger.apply(QueueOp::Ask(asks(who, now, 2)), at);
        for question in [None, Some("own")] {
            if let Some(question) = question {
                ledger.apply(rest(who, now, 2, question), at);
            }
            let said = ledger.apply(QueueOp::Ask(asks(who, before, 1)), at);
            assert_eq!(said, OpResult::Stale(now, Epoch::new(2)), "the former owner must get no slot");
            let id = asks(who, before, 1).id;
            ledger.apply(QueueOp::Lost { id: id.clone(), executor: now, epoch: Epoch::new(1) }, at);
            ledger.apply(QueueOp::Lost { id, executor: before, epoch: Epoch::new(2) }, at);
            ledger.apply(rest(who, before, 1, "late"), at);
            ledger
                .apply(QueueOp::LeaveNode { id: format!("run:default/run-{who:03}"), executor: before }, at);
            assert_eq!(stands(&ledger, who), (now, question.map(str::to_owned)));
        }
        // The node of the next owner takes the slot over.
        ledger.apply(rest(who, before, 3, "next"), at);
        assert_eq!(stands(&ledger, who), (before, Some("next".to_owned())));
    }
}

/// A slow process reports that it has woken a node, or that a node does not use its slot. Since then, the node has become idle again with another
/// question, or has claimed its slot. The queue ignores the report.
#[test]
fn late_report_on_idle_node_is_ignored() {
    let (mut ledger, [one, other]) = (QueueState::new(QueueSettings::new()), [executor(), executor()]);
    let at = Timestamp::from_unix_ms(START);
    let id = || "run:default/run-001".to_owned();
    let QueueOp::Ask(mine) = ask(1, one, "", 0, 1, at) else { unreachable!() };
    let QueueOp::Ask(theirs) = ask(1, other, "", 0, 1, at) else { unreachable!() };
    let rest = |of: &SlotRequest, question: &str| QueueOp::Rest {
        id: id(),
        waiting: Box::new(of.waiting.clone()),
        question: question.to_owned(),
    };
    let woken = |question: &str| QueueOp::Woken { id: id(), question: question.to_owned() };
    ledger.apply(QueueOp::Ask(mine.clone()), at);
    ledger.apply(rest(&mine, "queue.gpu.0"), at);
    let seen = Box::new(ledger.held[&id()].clone());
    ledger.apply(rest(&theirs, "queue.gpu.1"), at);
    ledger.apply(woken("queue.gpu.0"), at);
    assert_eq!(ledger.held[&id()].woken, None, "the current question has no answer yet");
    ledger.apply(woken("queue.gpu.1"), at);
    assert_eq!(ledger.held[&id()].woken, Some(at));
    ledger.apply(QueueOp::Gone { id: id(), seen }, at);
    let seen = Box::new(ledger.held[&id()].clone());
    ledger.apply(QueueOp::Ask(theirs), at);
    ledger.apply(QueueOp::Gone { id: id(), seen }, at);
    assert_eq!(ledger.held[&id()].question, None, "the node has claimed its slot");
}

/// A slow process reports that it unpaused a run, or cancelled a run that missed its deadline. That run has ended and was purged since, and another
/// start of its id waits or has missed its deadline. The queue ignores the report, so the new run does not stay on hold.
#[test]
fn late_report_on_start_skips_next_one() {
    let mut settings = QueueSettings::new();
    settings.at_once = Some(1);
    let (mut ledger, me) = (QueueState::new(settings), executor());
    let at = |ms: i64| Timestamp::from_unix_ms(START + ms);
    let start = |who: u8, ms: i64, deadline: Option<i64>| {
        let QueueOp::Ask(mut one) = ask(who, me, "", 0, 1, at(ms)) else { unreachable!() };
        (one.waiting.kind, one.waiting.deadline) = (SlotKind::Run, deadline.map(at));
        QueueOp::Ask(one)
    };
    let id = |who: u8| format!("run:default/run-{who:03}");

    assert_eq!(ledger.apply(start(1, 0, None), at(0)), OpResult::Granted);
    // The second start waits, gets its slot, ends, and is started again after the third.
    let mut granted = Vec::new();
    for ms in [100, 200] {
        let before = if ms == 100 { 1 } else { 3 };
        if ms == 200 {
            ledger.apply(leave(id(2)), at(ms));
            assert_eq!(ledger.apply(start(3, ms, None), at(ms)), OpResult::Granted);
        }
        assert_eq!(ledger.apply(start(2, ms, None), at(ms)), OpResult::Waits);
        ledger.apply(leave(id(before)), at(ms + 1));
        ledger.grant(at(ms + 1));
        granted.push(ledger.held[&id(2)].at);
    }
    ledger.apply(QueueOp::Begun { id: id(2), at: granted[0], run: None }, at(300));
    assert!(ledger.held[&id(2)].on_hold, "nothing has unpaused this run");
    ledger.apply(QueueOp::Begun { id: id(2), at: granted[1], run: None }, at(300));
    assert!(!ledger.held[&id(2)].on_hold);

    ledger.apply(
        QueueOp::LeaveRun { id: id(2), start_id: None, ended_at: Seq::new(9), place: Some((granted[0], me)) },
        at(300),
    );
    assert!(ledger.held.contains_key(&id(2)), "the run with this slot has ended before");

    // The fourth start misses its deadline twice.
    let mut late = Vec::new();
    for ms in [400, 500] {
        assert_eq!(ledger.apply(start(4, ms, Some(ms + 1)), at(ms)), OpResult::Waits);
        assert!(!ledger.expired.contains_key(&id(4)), "this start has its own deadline");
        ledger.grant(at(ms + 2));
        late.push(ledger.expired[&id(4)].at);
    }
    ledger.apply(QueueOp::Forgotten { id: id(4), at: late[0] }, at(600));
    assert!(ledger.expired.contains_key(&id(4)), "nothing has cancelled this run");
    ledger.apply(QueueOp::Forgotten { id: id(4), at: late[1] }, at(600));
    assert!(ledger.expired.is_empty());
    // The fifth run is started again before its run, which is on hold, is cancelled.
    assert_eq!(ledger.apply(start(5, 700, Some(701)), at(700)), OpResult::Waits);
    ledger.apply(leave(id(2)), at(702));
    ledger.grant(at(702));
    assert_eq!((ledger.expired.contains_key(&id(5)), ledger.held.len()), (true, 0));
    assert_eq!(ledger.apply(start(5, 703, None), at(703)), OpResult::Waits);
    assert!(
        ledger.expired.is_empty() && ledger.held[&id(5)].on_hold,
        "the run has its slot, and must be unpaused"
    );
    // A start that is refused still counts as late. Otherwise its run would stay on hold forever.
    assert_eq!(ledger.apply(start(6, 800, Some(801)), at(800)), OpResult::Waits);
    ledger.grant(at(802));
    ledger.settings.max_waiting = 0;
    assert!(matches!(ledger.apply(start(6, 803, None), at(803)), OpResult::Full(_)));
    assert!(ledger.expired.contains_key(&id(6)), "the run must still be cancelled");
    let before: ExpiredStart = serde_json::from_str(r#"{"tenant":"default","run":"run-004"}"#).unwrap();
    assert_eq!(before.at, Timestamp::default(), "an earlier version wrote no time");
}

/// Another process has seen the run idle and released its slot before the queue recorded that the run becomes idle.
#[test]
fn idle_run_missing_from_queue_enters_again() {
    let (mut ledger, me) = (QueueState::new(QueueSettings::new()), executor());
    let now = Timestamp::from_unix_ms(START);
    let QueueOp::Ask(one) = ask(1, me, "", 0, 1, now) else { unreachable!() };
    let waiting = Box::new(one.waiting.clone());
    assert_eq!(ledger.apply(QueueOp::Ask(one), now), OpResult::Granted);
    let seen = Box::new(ledger.held["run:default/run-001"].clone());
    ledger.apply(QueueOp::Gone { id: "run:default/run-001".to_owned(), seen }, now);
    assert!(ledger.held.is_empty());
    let rest = QueueOp::Rest {
        id: "run:default/run-001".to_owned(),
        waiting,
        question: "work@1:queue.gpu.0".to_owned(),
    };
    ledger.apply(rest, now);
    ledger.grant(now);
    assert_eq!(
        ledger.held["run:default/run-001"].question.as_deref(),
        Some("work@1:queue.gpu.0"),
        "the run must be woken"
    );
}
