//! Several starts of one run id. Some of the runs are purged before other starts begin.

use super::*;

/// Creates a start of the run with this number, by this process, at this time.
fn start(who: u8, by: ExecutorId, ms: i64) -> (String, StartId, Box<SlotRequest>) {
    let at = Timestamp::from_unix_ms(START + ms);
    let QueueOp::Ask(mut one) = ask(who, by, "", 0, 1, at) else { unreachable!() };
    one.waiting.kind = SlotKind::Run;
    (one.id.clone(), StartId { by, since: at, nth: 0 }, one)
}

fn places(at_once: u32) -> QueueState {
    let mut settings = QueueSettings::new();
    settings.at_once = Some(at_once);
    QueueState::new(settings)
}

fn ended(id: &str, start_id: StartId) -> QueueOp {
    QueueOp::LeaveRun { id: id.to_owned(), start_id: Some(start_id), ended_at: Seq::new(9), place: None }
}

/// A run has ended, and two starts of its id are in progress. One of them finds the run, the run is purged, and the other start is recorded. The
/// result does not depend on which start requested the slot first.
#[test]
fn slot_belongs_to_all_pending_starts() {
    let (me, now) = (executor(), Timestamp::from_unix_ms(START));
    for (finds, records) in [(1, 2), (2, 1)] {
        let mut ledger = places(1);
        let all: Vec<_> = (0..3).map(|ms| start(1, me, ms)).collect();
        for (_, _, one) in &all {
            assert_eq!(ledger.apply(QueueOp::Ask(one.clone()), now), OpResult::Granted);
        }
        let (next, _, other) = start(2, me, 9);
        assert_eq!(ledger.apply(QueueOp::Ask(other), now), OpResult::Waits);
        let (id, start_id) = (all[0].0.clone(), |nth: usize| all[nth].1);
        let gone = OverStart::without_run(start_id(finds));
        let found = |found: Option<StartId>| QueueOp::Settle {
            id: id.clone(),
            gone: vec![gone],
            found: found.map(|start| FoundRun { start, at: Seq::new(3) }),
        };
        // The start finds the run during this time: its end is recorded before and once more.
        for op in [
            ended(&id, start_id(0)),
            found(Some(start_id(0))),
            ended(&id, start_id(0)),
            ended(&id, start_id(0)),
        ] {
            ledger.apply(op, now);
            ledger.grant(now);
            assert!(ledger.held.contains_key(&id) && !ledger.held.contains_key(&next));
        }
        assert_eq!(ledger.held[&id].start_ids, [start_id(records)]);
        ledger.apply(ended(&id, start_id(records)), now);
        ledger.grant(now);
        assert_eq!(ledger.held.keys().collect::<Vec<_>>(), [&next]);
    }
}

/// The run of a waiting start is unpaused, while another start of the same id is in progress. The run of that start is on hold as well.
#[test]
fn slot_stays_held_while_another_start_is_pending() {
    let (me, now) = (executor(), Timestamp::from_unix_ms(START));
    let mut ledger = places(1);
    let (first, _, one) = start(1, me, 0);
    ledger.apply(QueueOp::Ask(one), now);
    let all: Vec<_> = (1..3).map(|ms| start(2, me, ms)).collect();
    let id = &all[0].0;
    for (_, _, one) in &all {
        assert_eq!(ledger.apply(QueueOp::Ask(one.clone()), now), OpResult::Waits);
    }
    // The start is stored once as one of two, and once as the default start of the entry.
    let start_ids = [all[0].1, all[1].1];
    assert_eq!(ledger.waiting[id].start_ids, start_ids);
    ledger.apply(
        QueueOp::Settle { id: id.clone(), gone: vec![OverStart::without_run(start_ids[1])], found: None },
        now,
    );
    assert!(ledger.waiting[id].start_ids.is_empty());
    assert_eq!(ledger.apply(QueueOp::Ask(all[1].2.clone()), now), OpResult::Waits);
    ledger.apply(leave(first), now);
    ledger.grant(now);
    let at = ledger.held[id].at;
    let found = |nth: usize| FoundRun { start: start_ids[nth], at: Seq::new(2) };
    let begun = |nth: usize| QueueOp::Begun { id: id.clone(), at, run: Some(found(nth)) };
    ledger.apply(begun(0), now);
    assert!(ledger.held[id].on_hold, "the run of the second start must be unpaused");
    ledger.apply(ended(id, start_ids[0]), now);
    ledger.apply(begun(1), now);
    assert!(!ledger.held[id].on_hold);
    ledger.apply(ended(id, start_ids[1]), now);
    assert!(ledger.held.is_empty());
}

/// A start that failed and may have entered the queue is repeated. It has one slot, and releases the whole slot.
#[test]
fn repeated_start_takes_slot_of_unknown_one() {
    let (me, now) = (executor(), Timestamp::from_unix_ms(START));
    let mut ledger = places(1);
    let (id, doubt, one) = start(1, me, 0);
    ledger.apply(QueueOp::Ask(one), now);
    let (_, start_id, mut again) = start(1, me, 1);
    again.doubts = vec![doubt];
    assert_eq!(ledger.apply(QueueOp::Ask(again.clone()), now), OpResult::Granted);
    assert_eq!(
        ledger.apply(QueueOp::Ask(again), now),
        OpResult::Granted,
        "the queue is asked again after others"
    );
    assert_eq!(ledger.held[&id].start_ids, [start_id]);
}

/// The stored state and the records of an earlier version.
#[test]
fn entry_without_start_id_matches_any_start() {
    let (me, now) = (executor(), Timestamp::from_unix_ms(START));
    let (mut ledger, first) = (places(1), places(1).initial_state().unwrap());
    let (id, start_id, one) = start(1, me, 0);
    ledger.apply(QueueOp::Ask(one), now);
    let mut channels = Channels::from_json(first.to_channels_json().unwrap().get()).unwrap();
    channels.apply(&ledger.take_patch().unwrap()).unwrap();
    let text = channels.to_json().unwrap();
    let start_ids = format!(r#","start_ids":["{start_id}"]"#);
    assert!(text.contains(&start_ids), "{text}");
    let before = Channels::from_json(text.replace(&start_ids, "")).unwrap();
    let place = Some((now, me));
    // The entry also contains another start of the id, and the end of any start releases the slot.
    for (start_id, place, is_held) in [
        (None, place, false),
        (Some(start_id), place, false),
        (Some(start_id), Some((now, executor())), true),
    ] {
        let mut ledger = QueueState::read(&before).unwrap();
        assert_eq!(ledger.apply(QueueOp::Ask(start(1, me, 5).2), now), OpResult::Granted);
        assert!(ledger.held[&id].start_ids.is_empty());
        ledger.apply(QueueOp::LeaveRun { id: id.clone(), start_id, ended_at: Seq::new(9), place }, now);
        assert_eq!(ledger.held.contains_key(&id), is_held);
    }
    // A run that an earlier version has recorded stands for any start.
    let mut ledger = QueueState::read(&channels).unwrap();
    ledger.apply(QueueOp::LeaveRun { id, start_id: None, ended_at: Seq::new(9), place }, now);
    assert!(ledger.held.is_empty());
}
