//! Generates random sequences of operations.

use proptest::prelude::*;

use crate::graphs::{Bank, Family};
use crate::operations::{Body, Kind, Op, Resolving, SLOTS, Which, Whom};
use crate::process::{Often, Setting};
use crate::weather::Fault;

const SECONDS: u64 = 1_000;
const TIMES: [u64; 8] = [
    3 * SECONDS,
    6 * SECONDS,
    20 * SECONDS,
    60 * SECONDS,
    601 * SECONDS,
    2 * 3_600 * SECONDS,
    86_400 * SECONDS,
    4 * 86_400 * SECONDS,
];

/// A graph and operations on a run of it. Nearly all sequences begin with a start.
pub(crate) fn cases(only: Option<Family>) -> impl Strategy<Value = (Family, Setting, Vec<Op>)> {
    // Choose graphs with `External` nodes more often, because more operations apply to them.
    let all = [&Family::ALL[..], &[Family::Payment, Family::Beside, Family::Errand]].concat();
    let family = prop::sample::select(only.map_or(all, |only| vec![only]));
    let told = prop_oneof![12 => ops().prop_map(|op| vec![op]), 1 => stories()];
    // Some sequences begin with a conflicting writer.
    let first = prop_oneof![3 => Just(vec![]), 1 => met().prop_map(Vec::from)];
    (family, settings(), prop::bool::weighted(0.95), first, prop::collection::vec(told, 1..40)).prop_map(
        |(family, setting, starts, first, ops)| {
            let mut ops = [first, ops.concat()].concat();
            if starts {
                ops.insert(0, Op::Start { slot: 0, same: true });
            }
            (family, setting, ops)
        },
    )
}

fn settings() -> impl Strategy<Value = Setting> {
    let often = prop_oneof![
        6 => Just(Often::EveryNode),
        1 => Just(Often::EveryThird),
        2 => Just(Often::StatusChanges),
        1 => Just(Often::Disabled),
    ];
    (often, prop::bool::weighted(0.15)).prop_map(|(often, is_sharded)| Setting { often, is_sharded })
}

fn ops() -> impl Strategy<Value = Op> {
    let slot = || 0..SLOTS;
    let by = || prop::sample::select(vec![None, Some("ann"), Some("bob")]);
    let which = prop_oneof![8 => Just(Which::First), 2 => Just(Which::Second), 1 => Just(Which::Third), 1 => Just(Which::Other)];
    prop_oneof![
        3 => (slot(), prop::bool::weighted(0.8)).prop_map(|(slot, same)| Op::Start { slot, same }),
        20 => (slot(), prop::bool::weighted(0.2), which, prop::bool::weighted(0.4))
            .prop_map(|(slot, take_over, graph, allow)| Op::Resume { slot, take_over, graph, allow }),
        18 => (slot(), whom(), kinds(), prop::bool::weighted(0.85), by())
            .prop_map(|(slot, whom, answer, fits, by)| Op::Respond { slot, whom, answer, fits, by }),
        8 => (slot(), bodies(), prop::option::weighted(0.3, 0..2_u8), by())
            .prop_map(|(slot, body, key, by)| Op::Send { slot, body, key, by }),
        1 => slot().prop_map(|slot| Op::Cancel { slot }),
        2 => slot().prop_map(|slot| Op::Pause { slot }),
        3 => slot().prop_map(|slot| Op::Unpause { slot }),
        3 => slot().prop_map(|slot| Op::Retry { slot }),
        2 => (slot(), prop::bool::weighted(0.7)).prop_map(|(slot, fits)| Op::Edit { slot, fits }),
        10 => prop::sample::select(TIMES.to_vec()).prop_map(|ms| Op::Advance { ms }),
        3 => slot().prop_map(|slot| Op::Crash { slot }),
        2 => slot().prop_map(|slot| Op::Shutdown { slot }),
        2 => any::<bool>().prop_map(Op::Rain),
        4 => banks().prop_map(Op::Bank),
        1 => prop::sample::select(vec![7, 9]).prop_map(Op::Most),
        4 => (slot(), weather()).prop_map(|(slot, fault)| Op::Weather { slot, fault }),
        1 => (slot(), any::<bool>(), prop::sample::select(TIMES.to_vec()))
            .prop_map(|(slot, done, ms)| Op::Hang { slot, done, ms }),
        1 => slot().prop_map(|slot| Op::Fork { slot }),
    ]
}

/// Another writer writes just before a record that work or a timer causes.
fn met() -> impl Strategy<Value = [Op; 2]> {
    let meets = Op::Weather { slot: 0, fault: Fault::Meets };
    let times = prop::sample::select(vec![TIMES[3], TIMES[5]]);
    let brings = prop_oneof![banks().prop_map(Op::Bank), times.prop_map(|ms| Op::Advance { ms })];
    brings.prop_map(move |op| [meets.clone(), op])
}

fn weather() -> impl Strategy<Value = Fault> {
    prop::sample::select(vec![Fault::Refuses, Fault::LosesReply, Fault::Meets, Fault::Meets])
}

fn banks() -> impl Strategy<Value = Bank> {
    prop::sample::select(vec![Bank::Pays, Bank::Pays, Bank::Breaks, Bank::Refuses, Bank::Closes, Bank::Burns])
}

/// Sequences of operations that often occur together.
fn stories() -> impl Strategy<Value = Vec<Op>> {
    let slot = || 0..SLOTS;
    let whom = || any::<prop::sample::Index>().prop_map(Whom::Open);
    let answer = |kind: Kind| {
        (slot(), whom()).prop_map(move |(slot, whom)| Op::Respond {
            slot,
            whom,
            answer: kind,
            fits: true,
            by: None,
        })
    };
    let yes = move || answer(Kind::Accept(true));
    let resume = |slot| Op::Resume { slot, take_over: false, graph: Which::First, allow: false };
    let send = |slot| Op::Send { slot, body: Body::Text, key: None, by: None };
    let minute = Op::Advance { ms: 60 * SECONDS };
    let day = Op::Advance { ms: 86_400 * SECONDS };
    prop_oneof![
        // Several answers to an idle run, accepted or rejected, and a retry of the failure.
        (answer(Kind::Reject), answer(Kind::Reject), yes(), slot(), yes()).prop_map(
            move |(one, two, three, slot, last)| {
                vec![one, two, three, resume(slot), Op::Retry { slot }, resume(slot), last, resume(slot)]
            }
        ),
        // Waits of every kind during a pause.
        (slot(), yes(), slot()).prop_map({
            let minute = minute.clone();
            move |(slot, yes, other)| {
                let (pause, go_on) = (Op::Pause { slot }, Op::Unpause { slot: other });
                vec![pause, yes, send(other), minute.clone(), Op::Bank(Bank::Pays), go_on, resume(slot)]
            }
        }),
        // One wait after the other, each in time or too late, and the whole again.
        (slot(), yes(), yes(), any::<bool>()).prop_map(move |(slot, one, two, is_late)| {
            let mut ops = vec![one, resume(slot), send(slot), resume(slot)];
            ops.extend(is_late.then(|| day.clone()));
            ops.extend([two, resume(slot)]);
            ops
        }),
        // A retry next to a running node.
        (slot(), yes(), banks()).prop_map(move |(slot, yes, bank)| {
            let rain = |rain| Op::Rain(rain);
            vec![rain(true), yes, resume(slot), rain(false), Op::Retry { slot }, Op::Bank(bank), resume(slot)]
        }),
        // Work with unknown outcome, and its resolution.
        (slot(), kinds(), prop::sample::select(vec![Bank::Breaks, Bank::Burns]), whom()).prop_map(
            move |(slot, answer, bank, whom)| {
                let respond = Op::Respond { slot, whom, answer, fits: true, by: Some("ann") };
                let migrate = Op::Resume { slot, take_over: false, graph: Which::Third, allow: true };
                let then = if bank == Bank::Burns { migrate } else { resume(slot) };
                vec![resume(slot), Op::Bank(bank), respond, then, Op::Retry { slot }, resume(slot)]
            }
        ),
        // Faults of the store at the end of work or of a timer.
        (slot(), weather(), banks(), weather(), any::<bool>()).prop_map({
            let hours = Op::Advance { ms: TIMES[5] };
            move |(slot, one, bank, other, sends)| {
                let mut ops = vec![Op::Weather { slot, fault: one }, Op::Bank(bank)];
                ops.extend(sends.then(|| send(slot)));
                ops.extend([Op::Weather { slot, fault: other }, hours.clone(), resume(slot)]);
                ops
            }
        }),
        // Work, some time, and its result.
        (slot(), prop::sample::select(TIMES[..4].to_vec()), banks()).prop_map(move |(slot, ms, bank)| {
            vec![resume(slot), Op::Advance { ms }, minute.clone(), Op::Bank(bank), resume(slot)]
        }),
    ]
}

fn whom() -> impl Strategy<Value = Whom> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        8 => index().prop_map(Whom::Open),
        2 => index().prop_map(Whom::Node),
        1 => index().prop_map(Whom::Visit),
        1 => index().prop_map(Whom::Old),
        1 => Just(Whom::Unknown),
    ]
}

fn kinds() -> impl Strategy<Value = Kind> {
    let resolving = vec![Resolving::Retry, Resolving::Supply, Resolving::Skip, Resolving::Fail];
    prop_oneof![
        8 => prop::bool::weighted(0.6).prop_map(Kind::Accept),
        3 => Just(Kind::Reject),
        1 => Just(Kind::Cancel),
        6 => prop::sample::select(resolving).prop_map(Kind::Resolve),
    ]
}

fn bodies() -> impl Strategy<Value = Body> {
    prop_oneof![
        6 => Just(Body::Text),
        2 => Just(Body::Solved),
        2 => Just(Body::Quit),
        3 => Just(Body::Number),
        1 => Just(Body::Huge),
        1 => Just(Body::NotJson),
    ]
}
