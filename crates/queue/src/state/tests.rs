//! Random operations on a queue. The tests compare the queue with a simple model, and check the promises of the queue at each moment.

use std::collections::BTreeMap;
use std::time::Duration;

use ferrata_core::state::{Channels, State};
use ferrata_core::{Epoch, ExecutorId, IdSource, RandomIds, RunKey, Timestamp};
use proptest::prelude::*;

use super::once::MAX_KEYS;
use super::*;
use crate::settings::RateLimit;

mod follow;
mod long;
mod rates;
mod stale;
mod start_ids;

const START: i64 = 1_767_225_600_000;

fn executor() -> ExecutorId {
    ExecutorId::from_uuid(RandomIds::new().next(Timestamp::default()))
}

/// Creates the operation for an ended run, without the start that recorded the run.
fn leave(id: String) -> QueueOp {
    QueueOp::LeaveRun { id, start_id: None, ended_at: Seq::new(1), place: None }
}

fn ask(who: u8, me: ExecutorId, key: &str, priority: i32, places: u32, now: Timestamp) -> QueueOp {
    let waiting = SlotWaiter {
        run: RunKey::try_from(format!("run-{who:03}").as_str()).unwrap(),
        kind: SlotKind::Node,
        places,
        key: key.to_owned(),
        priority,
        since: now,
        executor: me,
        epoch: Epoch::NEVER,
        question: None,
        not_before: None,
        deadline: None,
        debounced: None,
        start_ids: Vec::new(),
        alive: None,
    };
    let id = format!("run:default/run-{who:03}");
    QueueOp::Ask(Box::new(SlotRequest {
        id,
        waiting,
        once: None,
        debounce: None,
        doubts: Vec::new(),
        is_on_record: false,
    }))
}

/// Returns the name of a key of the model. One key of the model stands for requests without a key.
fn named(key: u8) -> String {
    if key == 0 { String::new() } else { format!("key-{key}") }
}

/// An operation of a caller in the model.
#[derive(Clone, Debug)]
enum Step {
    Ask {
        who: u8,
        key: u8,
        priority: i32,
        places: u32,
        delay: u16,
        patience: u16,
    },
    /// A debounced start: the last start of its key runs.
    Last {
        who: u8,
        key: u8,
        by: u8,
        quiet: u16,
        most: Option<u16>,
    },
    /// The start that replaced the n-th replaced start was never recorded.
    Restore(u8),
    /// The run of the n-th replaced start is cancelled.
    Forgotten(u8),
    Leave(u8),
    Pass(u16),
    /// The clock is set back, or the next process has a slower clock.
    Back(u16),
    Places(u32),
    Pause(bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..24_u8, 0..4_u8, -2..3_i32, 1..4_u32, 0..400_u16, 0..4_000_u16).prop_map(
            |(who, key, priority, places, delay, patience)| {
                let delay = if delay > 300 { delay } else { 0 };
                let patience = if patience > 3_000 { patience } else { 0 };
                Step::Ask { who, key, priority, places, delay, patience }
            }
        ),
        4 => (0..24_u8, 0..4_u8, 0..2_u8, 0..2_000_u16, proptest::option::of(0..3_000_u16))
            .prop_map(|(who, key, by, quiet, most)| Step::Last { who, key, by, quiet, most }),
        2 => (0..24_u8).prop_map(Step::Restore),
        1 => (0..24_u8).prop_map(Step::Forgotten),
        5 => (0..24_u8).prop_map(Step::Leave),
        3 => (0..3_000_u16).prop_map(Step::Pass),
        1 => (0..2_000_u16).prop_map(Step::Back),
        1 => (1..6_u32).prop_map(Step::Places),
        1 => any::<bool>().prop_map(Step::Pause),
    ];
    proptest::collection::vec(step, 1..80)
}

/// A requester in the model.
#[derive(Clone, Debug)]
struct Person {
    who: u8,
    key: u8,
    priority: i32,
    places: u32,
    since: i64,
    from: i64,
    until: Option<i64>,
    /// The debounce key of its start, and the time of the first start of that key.
    last: Option<(u8, i64)>,
}

/// The documented order in its simplest form: lists that are searched from end to end.
#[derive(Default)]
struct Model {
    inside: Vec<Person>,
    outside: Vec<Person>,
    /// The replaced starts, each with the start that replaced it.
    replaced: BTreeMap<u8, (Person, u8)>,
    /// For each key, the grant number at which the key was last served.
    served: BTreeMap<u8, u64>,
    given: u64,
}

impl Model {
    fn is_known(&self, who: u8) -> bool {
        self.inside.iter().chain(&self.outside).any(|one| one.who == who) || self.replaced.contains_key(&who)
    }

    fn come(&mut self, one: Person) {
        self.served.entry(one.key).or_insert(self.given);
        self.outside.push(one);
    }

    /// Returns the waiter with a debounce key.
    fn last(&self, by: u8) -> Option<Person> {
        self.outside.iter().find(|one| one.last.is_some_and(|(key, _)| key == by)).cloned()
    }

    fn replace(&mut self, one: &Person, by: u8) {
        self.outside.retain(|other| other.who != one.who);
        self.replaced.values_mut().filter(|(_, other)| *other == one.who).for_each(|(_, other)| *other = by);
        self.replaced.insert(one.who, (one.clone(), by));
    }

    /// Returns the n-th replaced start, or an unknown start if there are none.
    fn nth_replaced(&self, nth: u8) -> u8 {
        let all: Vec<u8> = self.replaced.keys().copied().collect();
        all.get(usize::from(nth) % all.len().max(1)).copied().unwrap_or(99)
    }

    fn restore(&mut self, who: u8) -> Option<u8> {
        let (one, by) = self.replaced.remove(&who)?;
        let other = one.last.and_then(|(key, _)| self.last(key));
        self.come(one.clone());
        match other {
            Some(other) if other.who == by => self.outside.retain(|other| other.who != by),
            // The later start stays.
            Some(other) if other.since < one.since => self.replace(&other, who),
            Some(other) => self.replace(&one, other.who),
            None => {}
        }
        Some(by)
    }

    fn grant(&mut self, now: i64, places: u32, per_key: u32, paused: bool) {
        self.outside.retain(|one| one.until.is_none_or(|until| until > now));
        loop {
            let used: u32 = self.inside.iter().map(|one| one.places).sum();
            if paused || used >= places {
                break;
            }
            let of_key =
                |key| self.inside.iter().filter(|one| one.key == key).map(|one| one.places).sum::<u32>();
            let first = self
                .outside
                .iter()
                .filter(|one| one.from <= now)
                .filter(|one| one.places <= places && of_key(one.key) + one.places <= per_key)
                .min_by_key(|one| {
                    let level = i64::from(one.priority) + (now - one.since).max(0) / 1_000;
                    (-level, self.served.get(&one.key).copied().unwrap_or(0), one.since, one.who)
                })
                .cloned();
            let Some(first) = first.filter(|one| used + one.places <= places) else { break };
            self.outside.retain(|one| one.who != first.who);
            self.given += 1;
            self.served.insert(first.key, self.given);
            self.inside.push(first);
        }
        // Keys without holders and waiters are removed.
        let (inside, outside) = (&self.inside, &self.outside);
        self.served.retain(|key, _| inside.iter().chain(outside).any(|one| one.key == *key));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn places_are_given_as_the_plain_model_says(steps in steps()) {
        let mut settings = QueueSettings::new();
        (settings.at_once, settings.at_once_per_key, settings.ageing_ms) = (Some(3), Some(3), 1_000);
        let (mut ledger, mut model) = (QueueState::new(settings), Model::default());
        let mut stored = Channels::from_json(ledger.initial_state().unwrap().to_channels_json().unwrap().get()).unwrap();
        let (me, other, mut now, mut places, mut paused) = (executor(), executor(), START, 3, false);
        for step in steps {
            let at = Timestamp::from_unix_ms(now);
            match step {
                Step::Ask { who, key, priority, places: wanted, delay, patience } => {
                    let QueueOp::Ask(mut one) = ask(who, me, &named(key), priority, wanted, at) else { unreachable!() };
                    // A request without a delay may begin at any time, even if the clock is set back.
                    let from = if delay > 0 { now + i64::from(delay) } else { i64::MIN };
                    let until = (patience > 0).then_some(now + i64::from(patience));
                    one.waiting.not_before = (delay > 0).then(|| Timestamp::from_unix_ms(from));
                    one.waiting.kind = if who % 2 == 0 { SlotKind::Run } else { SlotKind::Node };
                    one.waiting.executor = if who % 3 == 0 { me } else { other };
                    one.waiting.deadline = until.map(Timestamp::from_unix_ms);
                    let said = ledger.apply(QueueOp::Ask(one), at);
                    if !model.is_known(who) && wanted > places {
                        prop_assert_eq!(said, OpResult::TooMany(places));
                    } else if !model.is_known(who) {
                        model.come(Person { who, key, priority, places: wanted, since: now, from, until, last: None });
                    }
                }
                Step::Last { who, key, by, quiet, most } => {
                    let QueueOp::Ask(mut one) = ask(who, me, &named(key), 0, 1, at) else { unreachable!() };
                    one.waiting.kind = SlotKind::Run;
                    one.waiting.executor = if who % 3 == 0 { me } else { other };
                    let most_ms = most.map(u64::from);
                    one.debounce = Some(DebounceOptions { key: format!("last-{by}"), period: quiet.into(), most: most_ms });
                    let said = ledger.apply(QueueOp::Ask(one), at);
                    if let Some((_, other)) = model.replaced.get(&who) {
                        let other = RunKey::try_from(format!("run-{other:03}").as_str()).unwrap();
                        prop_assert_eq!(said, OpResult::Before(other));
                    } else if !model.is_known(who) {
                        let before = model.last(by);
                        let first = before.as_ref().and_then(|before| before.last).map_or(now, |(_, first)| first);
                        let quiet = now + i64::from(quiet);
                        let from = most.map_or(quiet, |most| quiet.min(first + i64::from(most)));
                        let last = Some((by, first));
                        model.come(Person { who, key, priority: 0, places: 1, since: now, from, until: None, last });
                        // A requester whose turn comes at this moment gets its slot.
                        model.grant(now, places, 3, paused);
                        if let Some(before) = before.filter(|one| model.outside.iter().any(|other| other.who == one.who)) {
                            model.replace(&before, who);
                        }
                    }
                }
                Step::Restore(nth) => {
                    let who = model.nth_replaced(nth);
                    let by = model.restore(who).unwrap_or(who);
                    let by = RunKey::try_from(format!("run-{by:03}").as_str()).unwrap();
                    ledger.apply(QueueOp::Restore { id: format!("run:default/run-{who:03}"), by }, at);
                }
                Step::Forgotten(nth) => {
                    let who = model.nth_replaced(nth);
                    model.replaced.remove(&who);
                    let id = format!("run:default/run-{who:03}");
                    if let Some(taken) = ledger.replaced.get(&id).map(|replaced| replaced.at) {
                        ledger.apply(QueueOp::Forgotten { id, at: taken }, at);
                    }
                }
                Step::Leave(who) => {
                    ledger.apply(leave(format!("run:default/run-{who:03}")), at);
                    model.inside.retain(|one| one.who != who);
                    model.outside.retain(|one| one.who != who);
                }
                Step::Pass(ms) => now += i64::from(ms),
                Step::Back(ms) => now -= i64::from(ms),
                Step::Places(some) => {
                    places = some;
                    let overrides = QueueOverrides { at_once: Some(some), ..ledger.overrides.clone() };
                    ledger.apply(QueueOp::Override(Box::new(overrides)), at);
                }
                Step::Pause(is_paused) => {
                    paused = is_paused;
                    let overrides =
                        QueueOverrides { paused: is_paused.then(|| "stop".to_owned()), ..ledger.overrides.clone() };
                    ledger.apply(QueueOp::Override(Box::new(overrides)), at);
                }
            }
            let at = Timestamp::from_unix_ms(now);
            let next = ledger.grant(at);
            model.grant(now, places, 3, paused);

            let mut inside: Vec<_> = model.inside.iter().map(|one| format!("run:default/run-{:03}", one.who)).collect();
            let mut outside: Vec<_> = model.outside.iter().map(|one| format!("run:default/run-{:03}", one.who)).collect();
            inside.sort();
            outside.sort();
            prop_assert_eq!(ledger.held.keys().cloned().collect::<Vec<_>>(), inside);
            prop_assert_eq!(ledger.waiting.keys().cloned().collect::<Vec<_>>(), outside);
            let replaced: Vec<_> = ledger.replaced.iter().map(|(id, one)| (id.clone(), one.by.run.to_string())).collect();
            let taken: Vec<_> =
                model.replaced.iter().map(|(who, (_, by))| (format!("run:default/run-{who:03}"), format!("run-{by:03}"))).collect();
            prop_assert_eq!(replaced, taken);
            for by in 0..2 {
                let has = |one: &&Person| one.last.is_some_and(|(key, _)| key == by);
                prop_assert!(model.outside.iter().filter(has).count() <= 1, "two starts with the same debounce key wait");
            }
            prop_assert!(next.is_none_or(|next| next > at), "the next check is due at {:?}, and now it is {:?}", next, at);

            // The stored state equals the state in memory.
            let patch = ledger.take_patch().unwrap();
            stored.apply(&patch).unwrap();
            let mut read = QueueState::read(&stored).unwrap();
            prop_assert_eq!(&*read.held, &*ledger.held);
            prop_assert_eq!(&*read.waiting, &*ledger.waiting);
            prop_assert_eq!(&*read.replaced, &*ledger.replaced);
            let keys = |ledger: &mut QueueState| format!("{:?}", **ledger.keys.notes());
            prop_assert_eq!(keys(&mut read), keys(&mut ledger));
            prop_assert_eq!(&read.grants, &ledger.grants);
            prop_assert_eq!(read.in_use, ledger.in_use);
            prop_assert_eq!(read.waiting.deadline(), ledger.waiting.deadline());
            prop_assert_eq!(read.bytes(), ledger.bytes());
            let bytes = stored.to_json().unwrap().len();
            prop_assert!(bytes <= read.bytes(), "{} bytes exceed the estimated maximum of {}", bytes, read.bytes());
            // A queue that is read from the store behaves the same from here on.
            ledger = read;
        }
        // Each waiter gets a slot once the earlier requesters have left.
        if !paused {
            for _ in 0..100 {
                now += 1_000;
                if let Some(id) = ledger.held.keys().next().cloned() {
                    ledger.apply(leave(id), Timestamp::from_unix_ms(now));
                }
                ledger.grant(Timestamp::from_unix_ms(now));
            }
            // A waiter stays only if a limit was lowered below the number of slots that it requests.
            let is_kept = ledger.waiting.values().all(|waiting| waiting.places > places);
            prop_assert!(is_kept, "{:?}", ledger.waiting);
        }
    }

    /// Guarantees: QUEUE-7.
    #[test]
    fn no_window_exceeds_rate_and_burst(
        (starts, period, burst) in (1..20_u32, 50..5_000_u64, 1..6_u32),
        gaps in proptest::collection::vec((0..400_i64, 1..4_u8), 1..120),
    ) {
        let mut settings = QueueSettings::new();
        settings.rate = Some(RateLimit::new(starts, Duration::from_millis(period)).burst(burst));
        let (mut ledger, me, mut now, mut who) = (QueueState::new(settings), executor(), START, 0_u8);
        let mut began: Vec<i64> = Vec::new();
        for (gap, some) in gaps {
            now += gap;
            let at = Timestamp::from_unix_ms(now);
            for _ in 0..some {
                who = who.wrapping_add(1);
                ledger.apply(ask(who, me, "", 0, 1, at), at);
            }
            ledger.grant(at);
            let given: Vec<_> = ledger.held.keys().cloned().collect();
            for id in given {
                ledger.apply(leave(id), at);
                began.push(now);
            }
        }
        let period = i64::try_from(period).unwrap();
        for (n, from) in began.iter().enumerate() {
            let within = began[n..].iter().take_while(|at| **at < from + period).count();
            prop_assert!(within <= (starts + burst - 1) as usize, "{} starts from {} on", within, from);
        }
    }
}

/// A clock that is a year ahead closes a queue for no longer than a burst takes.
#[test]
fn clock_ahead_does_not_close_queue_for_long() {
    let mut settings = QueueSettings::new();
    settings.rate = Some(RateLimit::new(60, Duration::from_secs(60)));
    let (mut ledger, me) = (QueueState::new(settings), executor());
    let (now, ahead) = (Timestamp::from_unix_ms(START), Timestamp::from_unix_ms(START + 31_536_000_000));
    ledger.apply(ask(1, me, "", 0, 1, ahead), ahead);
    ledger.apply(QueueOp::Close(ahead), ahead);
    assert_eq!(ledger.held.len(), 1);
    ledger.apply(ask(2, me, "", 0, 1, now), now);
    assert_eq!(ledger.grant(now), Some(now.plus(Duration::from_secs(1))));
    ledger.grant(now.plus(Duration::from_secs(1)));
    assert_eq!(ledger.held.len(), 2);
}

/// A provider asks for a pause of a day. A process whose clock is slightly behind does not shorten the pause.
#[test]
fn slow_clock_does_not_reopen_closed_queue() {
    let (mut ledger, me) = (QueueState::new(QueueSettings::new()), executor());
    let (now, behind) = (Timestamp::from_unix_ms(START), Timestamp::from_unix_ms(START - 600_000));
    let until = now.plus(LONGEST_CLOSED);
    ledger.apply(QueueOp::Close(until), now);
    ledger.apply(ask(1, me, "", 0, 1, behind), behind);
    assert_eq!((ledger.grant(behind), ledger.held.len()), (Some(until), 0));
    ledger.grant(until);
    assert_eq!(ledger.held.len(), 1);
}

/// Requests of higher priority overtake a request of low priority only as long as ageing allows.
///
/// Guarantees: QUEUE-3.
#[test]
fn nobody_is_passed_for_ever() {
    let mut settings = QueueSettings::new();
    (settings.at_once, settings.ageing_ms) = (Some(1), 1_000);
    let (mut ledger, me) = (QueueState::new(settings), executor());
    let at = |ms: i64| Timestamp::from_unix_ms(START + ms);
    ledger.apply(ask(0, me, "", 0, 1, at(0)), at(0));
    ledger.apply(ask(1, me, "", -5, 1, at(0)), at(0));
    for n in 0..100_u8 {
        let now = at(i64::from(n) * 100);
        ledger.apply(ask(n + 2, me, "", 0, 1, now), now);
        let inside = ledger.held.keys().next().cloned().unwrap();
        if inside == "run:default/run-001" {
            assert!((50..=60).contains(&n), "after {n} other waiters");
            return;
        }
        ledger.apply(leave(inside), now);
        ledger.grant(now);
    }
    panic!("a hundred other waiters passed it");
}

/// As long as all keys have waiters, each key gets slots in proportion to its weight. A key that leaves in the middle of its turn saves nothing.
///
/// Guarantees: QUEUE-3.
#[test]
fn keys_get_slots_by_weight() {
    let mut settings = QueueSettings::new();
    settings.at_once = Some(1);
    settings.weights = [("gold".to_owned(), 3), ("silver".to_owned(), 2)].into();
    let (mut ledger, me) = (QueueState::new(settings), executor());
    let now = Timestamp::from_unix_ms(START);
    let mut keys = BTreeMap::new();
    for who in 0..60_u8 {
        let key = ["gold", "silver", "plain"][usize::from(who) % 3];
        keys.insert(format!("run:default/run-{who:03}"), key);
        ledger.apply(ask(who, me, key, 0, 1, now), now);
        ledger.grant(now);
    }
    let mut came = Vec::new();
    for _ in 0..31 {
        let inside = ledger.held.keys().next().cloned().unwrap();
        came.push(keys[&inside]);
        ledger.apply(leave(inside), now);
        ledger.grant(now);
        // Another process continues from the stored state.
        let patch = ledger.take_patch().unwrap();
        assert!(!patch.is_empty());
    }
    let count = |key| came[1..].iter().filter(|came| **came == key).count();
    assert_eq!((count("gold"), count("silver"), count("plain")), (15, 10, 5), "{came:?}");
}

#[test]
fn once_key_is_not_started_again_within_window() {
    let (mut ledger, me) = (QueueState::new(QueueSettings::new()), executor());
    let at = |ms: i64| Timestamp::from_unix_ms(START + ms);
    let once = |who: u8, now: Timestamp| {
        let QueueOp::Ask(mut one) = ask(who, me, "", 0, 1, now) else { unreachable!() };
        one.once = Some(("invoice-7".to_owned(), 10_000));
        QueueOp::Ask(one)
    };
    let first = RunKey::try_from("run-001").unwrap();
    assert_eq!(ledger.apply(once(1, at(0)), at(0)), OpResult::Granted);
    assert_eq!(ledger.apply(once(1, at(1)), at(1)), OpResult::Granted, "the same start again");
    assert_eq!(ledger.apply(once(2, at(1)), at(1)), OpResult::Before(first.clone()));
    ledger.apply(leave("run:default/run-001".to_owned()), at(2));
    assert_eq!(
        ledger.apply(once(2, at(9_999)), at(9_999)),
        OpResult::Before(first),
        "the same start, although its run has ended"
    );
    assert_eq!(ledger.apply(once(3, at(10_000)), at(10_000)), OpResult::Granted);
}

/// The refusal names the number of stored keys, and takes no start of the rate.
#[test]
fn full_key_memory_refuses_start_with_reason() {
    let mut settings = QueueSettings::new();
    // One start more than the number of stored keys may begin.
    settings.rate = Some(RateLimit::new(1, Duration::from_secs(3_600)).burst(10_001));
    let (mut ledger, me) = (QueueState::new(settings), executor());
    let at = |ms: i64| Timestamp::from_unix_ms(START + ms);
    let once = |who: usize, now: Timestamp| {
        let QueueOp::Ask(mut one) = ask(1, me, "", 0, 1, now) else { unreachable!() };
        one.id = format!("run:default/run-{who}");
        one.waiting.run = RunKey::try_from(format!("run-{who}").as_str()).unwrap();
        one.once = Some((format!("invoice-{who}"), 10_000));
        QueueOp::Ask(one)
    };
    for who in 0..MAX_KEYS {
        assert_eq!(ledger.apply(once(who, at(0)), at(0)), OpResult::Granted);
    }
    assert_eq!(ledger.apply(once(MAX_KEYS, at(1)), at(1)), OpResult::Seen(MAX_KEYS));
    let known = RunKey::try_from("run-7").unwrap();
    let mut again = once(7, at(1));
    if let QueueOp::Ask(again) = &mut again {
        again.id = "run:default/another".to_owned();
        again.waiting.run = RunKey::try_from("another").unwrap();
    }
    assert_eq!(ledger.apply(again, at(1)), OpResult::Before(known), "the key must be remembered");
    assert_eq!(
        ledger.apply(once(MAX_KEYS, at(10_000)), at(10_000)),
        OpResult::Granted,
        "the start must be released"
    );
}

#[test]
fn a_line_has_its_length() {
    let mut settings = QueueSettings::new();
    (settings.at_once, settings.max_waiting) = (Some(1), 2);
    let (mut ledger, me) = (QueueState::new(settings), executor());
    let now = Timestamp::from_unix_ms(START);
    let said: Vec<_> = (0..4).map(|who| ledger.apply(ask(who, me, "", 0, 1, now), now)).collect();
    assert_eq!(said, [OpResult::Granted, OpResult::Waits, OpResult::Waits, OpResult::Full(2)]);
    assert_eq!(ledger.waiting.len(), 2);
    // The limit on waiting requests is zero.
    ledger.settings.max_waiting = 0;
    ledger.apply(leave("run:default/run-001".to_owned()), now);
    ledger.apply(leave("run:default/run-002".to_owned()), now);
    ledger.apply(leave("run:default/run-000".to_owned()), now);
    assert_eq!(ledger.apply(ask(9, me, "", 0, 1, now), now), OpResult::Granted);
}

/// The process that made the last of three starts dies before it records the run. The start before the last returns to the line, and no other start
/// does.
#[test]
fn unrecorded_replacement_returns_predecessor_to_queue() {
    let mut settings = QueueSettings::new();
    settings.max_waiting = 1;
    let (mut ledger, me) = (QueueState::new(settings), executor());
    let at = |ms: i64| Timestamp::from_unix_ms(START + ms);
    let run = |who: u8| RunKey::try_from(format!("run-{who:03}").as_str()).unwrap();
    let last_counts = |ledger: &mut QueueState, who: u8, now: Timestamp| {
        let QueueOp::Ask(mut one) = ask(who, me, "", 0, 1, now) else { unreachable!() };
        one.waiting.kind = SlotKind::Run;
        one.debounce = Some(DebounceOptions { key: "plan".to_owned(), period: 1_000, most: Some(1_500) });
        ledger.apply(QueueOp::Ask(one), now)
    };
    for who in 1..=3 {
        let now = at(i64::from(who) * 300);
        assert_eq!(last_counts(&mut ledger, who, now), OpResult::Waits);
    }
    assert_eq!(ledger.waiting.keys().collect::<Vec<_>>(), ["run:default/run-003"]);
    assert_eq!(
        ledger.waiting["run:default/run-003"].not_before,
        Some(at(1_800)),
        "the first start was at 300"
    );
    assert_eq!(last_counts(&mut ledger, 1, at(1_000)), OpResult::Before(run(3)), "a repeated start");
    let stored = |ledger: &QueueState| {
        let all = ledger.replaced.iter();
        all.map(|(id, one)| (id.clone(), one.by.clone())).collect::<Vec<_>>()
    };
    assert_eq!(
        stored(&ledger),
        [("run:default/run-001".to_owned(), run(3)), ("run:default/run-002".to_owned(), run(3))]
    );

    let restore = |who: u8| QueueOp::Restore { id: format!("run:default/run-00{who}"), by: run(3) };
    ledger.apply(restore(2), at(1_100));
    assert_eq!(
        ledger.waiting.keys().collect::<Vec<_>>(),
        ["run:default/run-002"],
        "the third start must not be there"
    );
    ledger.apply(restore(1), at(1_200));
    assert_eq!(ledger.waiting.keys().collect::<Vec<_>>(), ["run:default/run-002"]);
    assert_eq!(stored(&ledger), [("run:default/run-001".to_owned(), run(2))]);
    // The stored state equals the state in memory.
    let first = QueueState::new(QueueSettings::new()).initial_state().unwrap();
    let mut channels = Channels::from_json(first.to_channels_json().unwrap().get()).unwrap();
    channels.apply(&ledger.take_patch().unwrap()).unwrap();
    let read = QueueState::read(&channels).unwrap();
    assert_eq!((&*read.waiting, &*read.replaced), (&*ledger.waiting, &*ledger.replaced));

    let forgotten = |ms| QueueOp::Forgotten { id: "run:default/run-001".to_owned(), at: at(ms) };
    ledger.apply(forgotten(600), at(1_300));
    assert_eq!(
        ledger.replaced.len(),
        1,
        "the report was about an earlier start, whose slot another start has"
    );
    ledger.apply(forgotten(1_200), at(1_300));
    ledger.grant(at(2_000));
    assert_eq!((ledger.held.len(), ledger.replaced.len(), ledger.waiting.len()), (1, 0, 0));
}
