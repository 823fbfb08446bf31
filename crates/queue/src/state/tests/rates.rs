//! Rates: the number of grants and their times.

use super::*;

#[test]
fn rate_grants_its_count_and_gives_next_time() {
    let mut settings = QueueSettings::new();
    settings.rate = Some(RateLimit::new(60, Duration::from_secs(60)).burst(3));
    let (mut ledger, me) = (QueueState::new(settings), executor());
    let at = |ms: i64| Timestamp::from_unix_ms(START + ms);
    for who in 0..9 {
        ledger.apply(ask(who, me, "", 0, 1, at(0)), at(0));
    }
    assert_eq!(ledger.held.len(), 3, "the burst");
    assert_eq!(ledger.grant(at(0)), Some(at(1_000)));
    assert_eq!(ledger.grant(at(999)), Some(at(1_000)));
    for second in 1..=6 {
        ledger.grant(at(second * 1_000));
        assert_eq!(ledger.held.len() as i64, 3 + second);
    }
}

/// Requests without a key share one key. Its rate applies to them, and they take turns with the other keys.
#[test]
fn waiters_without_key_count_as_one_key() {
    let at = |ms: i64| Timestamp::from_unix_ms(START + ms);
    let mut settings = QueueSettings::new();
    settings.rate_per_key = Some(RateLimit::new(60, Duration::from_secs(60)));
    let (mut ledger, me) = (QueueState::new(settings), executor());
    for who in 0..3 {
        ledger.apply(ask(who, me, "", 0, 1, at(0)), at(0));
    }
    assert_eq!(ledger.held.len(), 1);
    assert_eq!(ledger.grant(at(0)), Some(at(1_000)));
    ledger.grant(at(1_000));
    assert_eq!(ledger.held.len(), 2);

    let mut settings = QueueSettings::new();
    settings.at_once = Some(1);
    let mut ledger = QueueState::new(settings);
    for who in 0..5 {
        ledger.apply(ask(who, me, "", 0, 1, at(who.into())), at(who.into()));
    }
    ledger.apply(ask(5, me, "ann", 0, 1, at(5)), at(5));
    ledger.apply(ask(6, me, "ann", 0, 1, at(6)), at(6));
    let mut came = Vec::new();
    while let Some((id, held)) = ledger.held.first_key_value() {
        let id = id.clone();
        came.push(held.key.clone());
        ledger.apply(leave(id), at(10));
        ledger.grant(at(10));
    }
    assert_eq!(came, ["", "", "ann", "", "ann", "", ""]);
}
