//! Tests of the admissions and their order.

use std::sync::Mutex;

use super::*;
use crate::id::{Fingerprint, RunId};
use crate::record::Labels;

fn run(tenant: &str, id: &str) -> RunKey {
    RunKey::new(TenantId::new(tenant).unwrap(), RunId::new(id).unwrap())
}

fn facts(workflow: &str, created: i64, labels: &[(&str, &str)]) -> RunFacts {
    let name = WorkflowName::new(workflow).unwrap();
    let print = Fingerprint::of(b"");
    let facts = RunFacts::new(name, "1", print, print, Timestamp::from_unix_ms(created)).unwrap();
    let mut kept = Labels::default();
    labels.iter().for_each(|(key, value)| kept.insert(*key, *value).unwrap());
    facts.with_labels(kept)
}

fn nothing() -> RunStarter {
    Box::new(|_| Box::pin(std::future::ready(())))
}

/// Admits all possible runs one after the other, each leaving before the next, and returns their ids.
fn order(admission: &Arc<AdmissionControl>) -> Vec<String> {
    let mut ids = Vec::new();
    loop {
        let before: HashSet<_> = admission.lock().waiting.clone();
        let Some((_, permit)) = admission.pop() else { return ids };
        let after = admission.lock().waiting.clone();
        ids.extend(before.difference(&after).map(|run| run.run.to_string()));
        drop(permit);
    }
}

#[test]
fn each_cap_holds_for_itself() {
    let limits = RunLimits::new()
        .with_runs(4)
        .with_runs_of("w", 3)
        .with_runs_per_tenant(2)
        .with_runs_per_label("c", 1);
    let admission = AdmissionControl::new(limits);
    let take = |tenant: &str, workflow: &str, labels: &[(&str, &str)]| {
        admission.try_admit(&run(tenant, "r"), &facts(workflow, 0, labels))
    };
    let first = take("a", "w", &[("c", "1")]);
    assert!(first.is_some());
    assert!(take("a", "w", &[("c", "1")]).is_none(), "one per label");
    let _second = take("a", "w", &[("c", "2")]).unwrap();
    assert!(take("a", "v", &[]).is_none(), "two per tenant");
    let _third = take("b", "w", &[]).unwrap();
    assert!(take("b", "w", &[]).is_none(), "three of the workflow");
    let _fourth = take("b", "v", &[]).unwrap();
    assert!(take("c", "v", &[]).is_none(), "four in all");
    let clone = first.clone();
    drop(first);
    assert!(
        take("a", "w", &[("c", "1")]).is_none(),
        "a slot is held as long as a clone of its permit exists"
    );
    drop(clone);
    assert!(take("a", "w", &[("c", "1")]).is_some());
}

#[test]
fn admission_keys_alternate_oldest_first() {
    let admission = AdmissionControl::new(RunLimits::new().with_runs(1));
    let busy = admission.admit(&run("z", "busy"), &facts("w", 0, &[]));
    for (tenant, id, workflow, created) in [
        ("a", "a3", "w", 3),
        ("a", "a1", "v", 1),
        ("a", "a2", "w", 2),
        ("b", "b9", "w", 9),
        ("c", "c8", "w", 8),
        ("c", "c7", "w", 7),
    ] {
        admission.line_up(&run(tenant, id), &facts(workflow, created, &[]), nothing());
    }
    assert!(admission.pop().is_none(), "no slot is free");
    drop(busy);
    assert_eq!(order(&admission), ["a1", "b9", "c7", "a2", "c8", "a3"]);
    assert_eq!((admission.waiting(), admission.lock().line.len()), (0, 0));
    assert!(admission.lock().tenants.is_empty(), "tenants without runs use no memory");
}

#[test]
fn full_key_blocks_no_other_key() {
    let admission = AdmissionControl::new(RunLimits::new().with_runs_per_tenant(1));
    let _full = admission.try_admit(&run("a", "a0"), &facts("w", 0, &[])).unwrap();
    admission.line_up(&run("a", "a1"), &facts("w", 1, &[]), nothing());
    let other = admission.try_admit(&run("b", "b0"), &facts("w", 2, &[]));
    assert!(other.is_some());
    admission.line_up(&run("b", "b1"), &facts("w", 3, &[]), nothing());
    drop(other);
    assert!(admission.try_admit(&run("b", "b2"), &facts("w", 4, &[])).is_none(), "b1 comes first");
    assert!(
        admission.try_admit(&run("c", "c0"), &facts("w", 5, &[])).is_none(),
        "b1 can start, and comes first"
    );
    assert_eq!(order(&admission), ["b1"]);
    assert!(admission.is_waiting(&run("a", "a1")));
}

#[test]
fn run_queues_once_and_closed_queue_is_empty() {
    let admission = AdmissionControl::new(RunLimits::new().with_runs(1));
    let dropped = Arc::new(Mutex::new(0));
    struct Count(Arc<Mutex<u32>>);
    impl Drop for Count {
        fn drop(&mut self) {
            *self.0.lock().unwrap() += 1;
        }
    }
    for _ in 0..2 {
        let count = Count(Arc::clone(&dropped));
        let go: RunStarter = Box::new(move |_| {
            drop(count);
            Box::pin(std::future::ready(()))
        });
        admission.line_up(&run("a", "a1"), &facts("w", 1, &[]), go);
    }
    assert_eq!((admission.waiting(), *dropped.lock().unwrap()), (1, 1));
    admission.close();
    assert_eq!((admission.waiting(), *dropped.lock().unwrap()), (0, 2));
}
