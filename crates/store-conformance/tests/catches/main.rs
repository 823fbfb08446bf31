//! The suite can fail: every property detects at least one broken store, and a correct store passes.

#![expect(clippy::unwrap_used, reason = "all of this is one test")]

mod appending;
mod liar;
mod lie;
mod listing;
mod misplaced;
mod reading;
mod removing;
mod space;
mod transactions;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use ferrata_store_conformance::{PROPERTIES, Property, check, check_on};

use self::lie::{Lie, NOTICED};
use self::space::LiarFactory;

fn name(property: &Property) -> String {
    format!("{}::{}", property.topic(), property.name())
}

/// The locations of the panics since the last check.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Returns why a property does not detect this fault, or none if it does.
///
/// Runs on one thread, so that tasks are always polled in the same order.
fn overlooks(property: &Property, lie: Lie) -> Option<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    PANICS.lock().unwrap().clear();
    let checked = catch_unwind(AssertUnwindSafe(|| check_on(&runtime, &LiarFactory(lie), property)));
    if checked.is_ok() {
        return Some(format!("{property:?} does not notice a store that {lie:?}"));
    }
    // An expectation of the suite must fail, not the faulty store and not the timeout of the test.
    let expectations = ["src/cases/", "src/stage/", "src/model/", "testing/src/log.rs"];
    let strange = std::mem::take(&mut *PANICS.lock().unwrap());
    let strange = strange.into_iter().find(|at| !expectations.iter().any(|part| at.contains(part)));
    strange.map(|at| format!("{property:?} with a store that {lie:?} fails at {at}, which is no expectation"))
}

/// Guarantees: CUSTOM-STORE-1.
#[test]
fn every_property_notices_a_broken_store() {
    // Hide hundreds of expected failures, so that a real one is visible. Panics of other threads are shown as usual.
    let usual = std::panic::take_hook();
    let here = std::thread::current().id();
    std::panic::set_hook(Box::new(move |panic| {
        if std::thread::current().id() == here {
            PANICS.lock().unwrap().push(panic.location().unwrap().to_string());
        } else {
            usual(panic);
        }
    }));
    let mut wrong = Vec::new();
    for property in PROPERTIES {
        let Some((_, lies)) = NOTICED.iter().find(|(noticed, _)| *noticed == name(property)) else {
            wrong.push(format!("{property:?} is not in the table; give it a store that it catches"));
            continue;
        };
        if lies.is_empty() {
            wrong.push(format!("{property:?} is in the table with no store that it catches"));
        }
        wrong.extend(lies.iter().filter_map(|lie| overlooks(property, *lie)));
    }
    drop(std::panic::take_hook());
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn table_lists_each_property_once() {
    let properties: BTreeSet<_> = PROPERTIES.iter().map(name).collect();
    let named: BTreeSet<_> = NOTICED.iter().map(|(property, _)| (*property).to_owned()).collect();
    assert_eq!(named, properties);
    assert_eq!(NOTICED.len(), PROPERTIES.len(), "a property is in the table twice");
}

/// Every fault must be detected by some property of the table.
///
/// Guarantees: CUSTOM-STORE-1.
#[test]
fn every_lie_is_noticed_by_a_property() {
    let told: BTreeSet<_> = NOTICED.iter().flat_map(|(_, lies)| *lies).copied().collect();
    let unnoticed: Vec<_> = Lie::ALL.iter().filter(|lie| !told.contains(lie)).collect();
    assert_eq!(unnoticed, [&Lie::Honest]);
}

/// The suite of the memory store skips some groups. They run here, on memory that is damaged and reopened.
///
/// Guarantees: CUSTOM-STORE-2.
#[test]
fn no_property_finds_fault_with_an_honest_store() {
    for property in PROPERTIES {
        check(&LiarFactory(Lie::Honest), property);
    }
}
