//! Queues that follow the changes of other processes. After any change or undo, they equal queues that are read from the store.

use ferrata_core::state::Op as PatchOp;

use super::*;

/// Applies changes to a queue.
fn followed(ledger: QueueState, changes: &[PatchOp]) -> QueueState {
    ledger.apply_changes(changes).unwrap().expect("changes of the same version must be followed")
}

/// Returns the whole content of a queue, in an order that does not depend on the order of the changes.
fn picture(ledger: &mut QueueState, now: Timestamp) -> String {
    // Waiters whose earliest time has come are indexed at a grant and when the queue is read, so do it here for both.
    ledger.waiting.advance_time(now);
    assert!(!ledger.waiting.is_touched(), "followed changes must not be written again");
    let line: Vec<_> =
        ledger.waiters_in_order(now).into_iter().map(|(id, waiting)| (id, waiting.since)).collect();
    let parts = [
        format!("{:?} {:?} {:?} {}", ledger.settings, ledger.overrides, ledger.grants, ledger.in_use),
        format!("{:?} {:?} {:?} {:?}", *ledger.held, *ledger.expired, *ledger.replaced, *ledger.once_entries),
        format!("{:?} {line:?} {:?}", *ledger.waiting, ledger.bytes()),
        ledger.keys.debug_text(),
        ledger.waiting.debug_text(),
    ];
    parts.join("\n")
}

/// Generates numbers from a seed (SplitMix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % most
    }
}

/// Applies several random operations, as a process does that writes them in one record.
fn operate(ledger: &mut QueueState, dice: &mut Dice, all: &[ExecutorId], now: Timestamp) {
    for _ in 0..=dice.below(4) {
        let who = u8::try_from(dice.below(16)).unwrap();
        let me = all[usize::try_from(dice.below(all.len() as u64)).unwrap()];
        let id = format!("run:default/run-{who:03}");
        let op = match dice.below(12) {
            0..=4 => {
                let key = ["", "a", "b"][usize::try_from(dice.below(3)).unwrap()];
                let QueueOp::Ask(mut one) = ask(who, me, key, i32::try_from(dice.below(2)).unwrap(), 1, now)
                else {
                    unreachable!()
                };
                one.id = format!("{RUN}{}", one.waiting.run);
                one.waiting.kind = if dice.below(3) == 0 { SlotKind::Node } else { SlotKind::Run };
                match dice.below(8) {
                    0 => one.waiting.not_before = Some(now.plus(Duration::from_millis(dice.below(3_000)))),
                    1 => one.waiting.deadline = Some(now.plus(Duration::from_millis(dice.below(3_000)))),
                    2 => one.once = Some((format!("once-{}", dice.below(3)), dice.below(5_000))),
                    3 => {
                        one.debounce =
                            Some(DebounceOptions { key: "last".to_owned(), period: 500, most: None })
                    }
                    _ => {}
                }
                QueueOp::Ask(one)
            }
            5 | 6 => leave(format!("{RUN}{}", RunKey::try_from(format!("run-{who:03}").as_str()).unwrap())),
            7 => QueueOp::Begun { at: ledger.held.get(&id).map_or(now, |held| held.at), id, run: None },
            8 => QueueOp::Close(now.plus(Duration::from_millis(dice.below(1_000)))),
            9 => {
                let paused = (dice.below(2) == 0).then(|| "stop".to_owned());
                QueueOp::Override(Box::new(QueueOverrides { paused, ..QueueOverrides::default() }))
            }
            10 => {
                let mut settings = ledger.settings.clone();
                settings.version += 1;
                settings.at_once = Some(1 + u32::try_from(dice.below(4)).unwrap());
                QueueOp::Declare(Box::new(settings))
            }
            _ => {
                let mut waiting = Box::new(SlotWaiter {
                    question: None,
                    ..match ask(who, me, "a", 0, 1, now) {
                        QueueOp::Ask(one) => one.waiting,
                        _ => unreachable!(),
                    }
                });
                waiting.kind = SlotKind::Node;
                QueueOp::Rest { id, waiting, question: format!("work@1:queue.{who}") }
            }
        };
        ledger.apply(op, now);
    }
    ledger.grant(now);
}

#[test]
fn whoever_follows_knows_what_whoever_reads_knows() {
    for seed in 0..300 {
        let mut dice = Dice(seed);
        let all: Vec<ExecutorId> = (0..3).map(|_| executor()).collect();
        let mut settings = QueueSettings::new();
        (settings.at_once, settings.rate_per_key) =
            (Some(2), Some(RateLimit::new(10, Duration::from_secs(1))));
        let first = QueueState::new(settings).initial_state().unwrap();
        let mut stored = Channels::from_json(first.to_channels_json().unwrap().get()).unwrap();
        let mut mine = QueueState::read(&stored).unwrap();
        let mut now = Timestamp::from_unix_ms(START);
        for step in 0..60 {
            now = now.plus(Duration::from_millis(dice.below(800)));
            let mut theirs = QueueState::read(&stored).unwrap();
            operate(&mut theirs, &mut dice, &all, now);
            let theirs = theirs.take_patch().unwrap();
            let mut changes = Vec::new();
            if dice.below(2) == 0 {
                // The other process appended first. The local changes are undone, and repeated after the changes of the other process.
                operate(&mut mine, &mut dice, &all, now);
                let patch = mine.take_patch().unwrap();
                changes = stored.undo_ops(&patch).unwrap();
                let mut back = stored.clone();
                back.apply(&patch).unwrap();
                changes.iter().for_each(|change| back.apply_op(change.clone()).unwrap());
                assert_eq!(back, stored, "seed {seed}, step {step}");
            }
            stored.apply(&theirs).unwrap();
            changes.extend(theirs.ops().unwrap());
            mine = followed(mine, &changes);
            let mut read = QueueState::read(&stored).unwrap();
            assert_eq!(picture(&mut mine, now), picture(&mut read, now), "seed {seed}, step {step}");
        }
    }
}

/// A waiter that an older version has stored under another key requires a full read. The next record moves it to its own key.
#[test]
fn what_an_older_version_wrote_is_read_anew() {
    let (mut ledger, now) = (QueueState::new(QueueSettings::new()), Timestamp::from_unix_ms(START));
    let first = ledger.initial_state().unwrap();
    let mut channels = Channels::from_json(first.to_channels_json().unwrap().get()).unwrap();
    ledger.overrides.paused = Some("stop".to_owned());
    let QueueOp::Ask(mut one) = ask(1, executor(), "", 0, 1, now) else { unreachable!() };
    (one.id, one.waiting.kind) = (format!("{RUN}{}", one.waiting.run), SlotKind::Run);
    let entry = serde_json::to_value(&one.waiting).unwrap();
    let written = PatchOp::Merge("waiting".to_owned(), [(one.id.clone(), entry)].into_iter().collect());
    assert!(
        QueueState::read(&channels).unwrap().apply_changes(std::slice::from_ref(&written)).unwrap().is_none()
    );
    channels.apply_op(written).unwrap();
    let read = QueueState::read(&channels).unwrap();
    assert!(read.waiting.is_touched());
    let nothing = PatchOp::Remove("late".to_owned(), vec!["run:default/x".to_owned()]);
    assert!(read.apply_changes(&[nothing]).unwrap().is_none(), "the waiter would be lost");
}
