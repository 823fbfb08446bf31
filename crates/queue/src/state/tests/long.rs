//! Long lines: their size in the state, the requests that are refused, and an order that does not depend on the length.

use ferrata_core::TenantId;

use super::*;

/// Makes a run with an id in the runtime's format wait in the line, with the longest key that a caller may set.
fn uuid_start(n: u64, me: ExecutorId, key: &str, now: Timestamp) -> (String, QueueOp) {
    let run = RunKey::try_from(format!("01932f6e-7a3b-7cc1-9d4e-{n:012x}").as_str()).unwrap();
    let QueueOp::Ask(mut one) = ask(0, me, key, 0, 1, now) else { unreachable!() };
    one.id = format!("{RUN}{run}");
    (one.waiting.run, one.waiting.kind) = (run, SlotKind::Run);
    (one.id.clone(), QueueOp::Ask(one))
}

fn one_place(room: usize) -> QueueState {
    let mut settings = QueueSettings::new();
    (settings.at_once, settings.max_waiting) = (Some(1), 1_000_000);
    let mut ledger = QueueState::new(settings);
    ledger.max_bytes = room;
    ledger
}

fn stored(ledger: &mut QueueState) -> Channels {
    let first = ledger.initial_state().unwrap();
    let mut channels = Channels::from_json(first.to_channels_json().unwrap().get()).unwrap();
    channels.apply(&ledger.take_patch().unwrap()).unwrap();
    channels
}

/// Uses a tenth of the waiters and a tenth of the space. The space is seven eighths of the default limit of 8 MiB for a record.
#[test]
fn hundred_thousand_waiters_fit_and_grant_writes_one() {
    let (mut ledger, me) = (one_place(7 * 1024 * 1024 / 10), executor());
    let at = |n: u64| Timestamp::from_unix_ms(START + n as i64);
    for n in 0..=10_000 {
        let said = ledger.apply(uuid_start(n, me, &format!("customer-{}", n % 10), at(n)).1, at(n));
        assert_eq!(said, if n == 0 { OpResult::Granted } else { OpResult::Waits }, "start {n}");
    }
    let mut channels = stored(&mut ledger);
    let bytes = channels.to_json().unwrap().len();
    assert!(bytes <= ledger.bytes(), "{bytes} bytes, estimated as {}", ledger.bytes());
    let mut ledger = QueueState::read(&channels).unwrap();
    assert_eq!(ledger.waiting.len(), 10_000);
    for n in 0..100 {
        let (id, now) = (ledger.held.keys().next().cloned().unwrap(), at(10_001 + n));
        assert_eq!(id, uuid_start(n, me, "", now).0, "the first waiter gets the first slot");
        ledger.apply(leave(id), now);
        ledger.grant(now);
        let patch = ledger.take_patch().unwrap();
        let written = serde_json::to_string(&patch).unwrap().len();
        assert!(written < 1_000, "a grant writes {written} bytes");
        channels.apply(&patch).unwrap();
    }
    assert_eq!(QueueState::read(&channels).unwrap().waiting.len(), 9_900);
}

#[test]
fn full_queue_refuses_until_waiters_leave() {
    let (mut ledger, me) = (one_place(16 * 1024), executor());
    let (now, key) = (Timestamp::from_unix_ms(START), "k".repeat(200));
    let full = (0..1_000).find_map(|n| match ledger.apply(uuid_start(n, me, &key, now).1, now) {
        OpResult::Granted | OpResult::Waits => None,
        said => Some((n, said)),
    });
    let (n, said) = full.unwrap();
    assert!(matches!(said, OpResult::NoRoom { bytes, room: 16_384 } if bytes > 16_384), "{said:?}");
    assert!(n > 20, "{n} starts have space");
    assert!(stored(&mut ledger).to_json().unwrap().len() <= 16_384);
    // A waiter may repeat its request, and a slot can be released.
    assert_eq!(ledger.apply(uuid_start(0, me, &key, now).1, now), OpResult::Granted);
    assert_eq!(ledger.apply(uuid_start(1, me, &key, now).1, now), OpResult::Waits);
    for _ in 0..3 {
        let id = ledger.held.keys().next().cloned().unwrap();
        ledger.apply(leave(id), now);
        ledger.grant(now);
    }
    assert_eq!(ledger.apply(uuid_start(n, me, &key, now).1, now), OpResult::Waits);
}

/// A queue whose waiters are stored in the long form of an older version.
#[test]
fn a_line_that_was_written_out_is_read() {
    let (mut ledger, me) = (one_place(usize::MAX), executor());
    let now = Timestamp::from_unix_ms(START);
    for n in 0..3 {
        ledger.apply(uuid_start(n, me, "k", now).1, now);
    }
    // A waiter of another tenant, without a key and a priority.
    let (_, QueueOp::Ask(mut one)) = uuid_start(3, me, "", now) else { unreachable!() };
    one.waiting.run = RunKey::new(TenantId::new("acme").unwrap(), one.waiting.run.run);
    one.id = format!("{RUN}{}", one.waiting.run);
    assert_eq!(ledger.apply(QueueOp::Ask(one), now), OpResult::Waits);
    let mut channels = stored(&mut ledger);
    let runs: Vec<String> =
        channels.iter().map(|(name, _)| name.clone()).filter(|name| name.starts_with("runs.")).collect();
    assert_eq!(runs, [format!("runs.{me}")]);
    assert_eq!(*QueueState::read(&channels).unwrap().waiting, *ledger.waiting);
    channels.remove(&runs[0]);
    channels.insert("waiting", serde_json::to_value(&*ledger.waiting).unwrap());
    let mut read = QueueState::read(&channels).unwrap();
    assert_eq!(*read.waiting, *ledger.waiting);
    // A change of these waiters removes them from their old keys.
    for (id, _) in ledger.waiting.iter() {
        read.apply(leave(id.clone()), now);
    }
    channels.apply(&read.take_patch().unwrap()).unwrap();
    assert!(QueueState::read(&channels).unwrap().waiting.is_empty());
}
