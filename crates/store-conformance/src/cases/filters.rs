//! The runs that a query lists: each condition alone, and several conditions together.

use ferrata_store::{Order, Parent, RunFacts, RunKey, RunQuery, RunStatus, Timestamp, WorkflowName};

use super::HOSTILE_TEXTS;
use crate::stage::{Log, TestStage, every_run, facts, key, key_in, label, query, tenant};

/// Starts a run with these facts.
async fn started(stage: &TestStage, key: RunKey, facts: RunFacts) -> Log {
    let mut log = stage.log_of(key).with_facts(facts);
    log.write(&*stage.store(), 1).await;
    log
}

/// Checks that a query lists exactly these runs of the default tenant, in order, for every page size.
async fn lists(stage: &TestStage, query: &RunQuery, expected: &[&str]) {
    let expected: Vec<_> = expected.iter().map(|run| key(run)).collect();
    lists_keys(stage, query, &expected).await;
}

async fn lists_keys(stage: &TestStage, query: &RunQuery, expected: &[RunKey]) {
    for limit in [1, 2, 100] {
        let listed = every_run(&*stage.store(), query, Order::OldestFirst, limit).await;
        let listed: Vec<_> = listed.into_iter().map(|head| head.run).collect();
        assert_eq!(listed, expected, "the runs that meet {query:?}, {limit} a page");
    }
}

/// Lists only the runs of one tenant.
pub(crate) async fn runs_can_be_listed_by_tenant(stage: TestStage) {
    let keys = [key_in("a", "r-1"), key_in("A", "r-1"), key_in("ab", "r-1"), key_in("a", "r-2")];
    for (n, key) in (0..).zip(&keys) {
        started(&stage, key.clone(), facts("w", n)).await;
    }
    let of = |name| query(|query| query.tenant = Some(tenant(name)));
    lists_keys(&stage, &of("a"), &[keys[0].clone(), keys[3].clone()]).await;
    lists_keys(&stage, &of("A"), &keys[1..2]).await;
    lists_keys(&stage, &of("ab"), &keys[2..3]).await;
    lists_keys(&stage, &of("b"), &[]).await;
}

/// Lists only the runs of one workflow.
pub(crate) async fn runs_can_be_listed_by_workflow(stage: TestStage) {
    for (n, (run, workflow)) in
        (0..).zip([("r-1", "review"), ("r-2", "Review"), ("r-3", "review2"), ("r-4", "review")])
    {
        started(&stage, key(run), facts(workflow, n)).await;
    }
    let of = |name| query(|query| query.workflow = Some(WorkflowName::new(name).expect("the name is valid")));
    lists(&stage, &of("review"), &["r-1", "r-4"]).await;
    lists(&stage, &of("Review"), &["r-2"]).await;
    lists(&stage, &of("revie"), &[]).await;
    lists(&stage, &of("revie_"), &[]).await;
}

/// Lists only the runs for one user. The store does not interpret the user's name.
pub(crate) async fn runs_can_be_listed_by_user(stage: TestStage) {
    let of = |user: &str| query(|query| query.user = Some(user.to_owned()));
    let said = |n, user: &str| facts("w", n).with_user(user).expect("the suite's users are valid");
    started(&stage, key("nobody"), facts("w", 0)).await;
    for (n, (run, user)) in (1..).zip([("r-1", "ann"), ("r-2", "Ann"), ("r-3", "anna"), ("r-4", "ann")]) {
        started(&stage, key(run), said(n, user)).await;
    }
    started(&stage, key("labelled"), label(said(5, "bob"), "user", "ann")).await;
    lists(&stage, &of("ann"), &["r-1", "r-4"]).await;
    lists(&stage, &of("Ann"), &["r-2"]).await;
    lists(&stage, &of("an"), &[]).await;
    lists(&stage, &of("an_"), &[]).await;
    lists(&stage, &of("ann%"), &[]).await;
    lists(&stage, &of("ann\0"), &[]).await;
    lists(&stage, &of(""), &[]).await;
    for (n, text) in (10..).zip(HOSTILE_TEXTS.into_iter().take(8)) {
        started(&stage, key(&format!("hostile-{n}")), said(n, text)).await;
        lists(&stage, &of(text), &[&format!("hostile-{n}")]).await;
    }
    // Combined with another condition.
    let mut one = of("ann");
    one.created_from = Some(Timestamp::from_unix_ms(2));
    lists(&stage, &one, &["r-4"]).await;
}

/// Lists only the runs in one of the given statuses. An empty list of statuses means any status.
pub(crate) async fn runs_can_be_listed_by_status(stage: TestStage) {
    for (n, status) in (0..).zip(RunStatus::ALL) {
        let mut log = started(&stage, key(&format!("r-{n}")), facts("w", n)).await;
        log.write_with(&*stage.store(), 1, |header| header.status = status).await;
    }
    for (n, status) in RunStatus::ALL.into_iter().enumerate() {
        lists(&stage, &query(|query| query.statuses = vec![status]), &[&format!("r-{n}")]).await;
    }
    let two = vec![RunStatus::Cancelled, RunStatus::Completed];
    lists(&stage, &query(|query| query.statuses = two), &["r-1", "r-5"]).await;
    let any = ["r-0", "r-1", "r-2", "r-3", "r-4", "r-5"];
    lists(&stage, &RunQuery::default(), &any).await;
}

/// Lists only the runs with all of the given labels: key and value must match.
pub(crate) async fn runs_can_be_listed_by_labels(stage: TestStage) {
    let labelled = |n, labels: &[(&str, &str)]| {
        labels.iter().fold(facts("w", n), |facts, (key, value)| label(facts, key, value))
    };
    started(&stage, key("none"), labelled(0, &[])).await;
    started(&stage, key("red"), labelled(1, &[("colour", "red")])).await;
    started(&stage, key("both"), labelled(2, &[("colour", "red"), ("size", "big")])).await;
    started(&stage, key("blue"), labelled(3, &[("colour", "blue"), ("size", "big"), ("red", "colour")]))
        .await;
    started(&stage, key("empty"), labelled(4, &[("colour", ""), ("Colour", "red")])).await;
    let with = |labels: &[(&str, &str)]| {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        query(|query| query.labels = labels)
    };
    lists(&stage, &with(&[("colour", "red")]), &["red", "both"]).await;
    lists(&stage, &with(&[("size", "big")]), &["both", "blue"]).await;
    lists(&stage, &with(&[("size", "big"), ("colour", "red")]), &["both"]).await;
    lists(&stage, &with(&[("colour", "red"), ("colour", "blue")]), &[]).await;
    lists(&stage, &with(&[("colour", "")]), &["empty"]).await;
    lists(&stage, &with(&[("size", "")]), &[]).await;
    lists(&stage, &with(&[("red", "colour")]), &["blue"]).await;
    lists(&stage, &with(&[("colour", "re")]), &[]).await;
    lists(&stage, &with(&[]), &["none", "red", "both", "blue", "empty"]).await;
}

/// The store compares labels literally and does not interpret them.
pub(crate) async fn labels_are_taken_literally(stage: TestStage) {
    let with = |key: &str, value: &str| {
        let labels = vec![(key.to_owned(), value.to_owned())];
        query(|query| query.labels = labels)
    };
    for (n, text) in (0..).zip(HOSTILE_TEXTS) {
        started(&stage, key(&format!("value-{n}")), label(facts("w", n), "k", text)).await;
        started(&stage, key(&format!("key-{n}")), label(facts("w", n), text, "v")).await;
    }
    for (n, text) in HOSTILE_TEXTS.iter().enumerate() {
        lists(&stage, &with("k", text), &[&format!("value-{n}")]).await;
        lists(&stage, &with(text, "v"), &[&format!("key-{n}")]).await;
        lists(&stage, &with(text, text), &[]).await;
    }
    lists(&stage, &with("k", "nobody"), &[]).await;

    // A text of the maximum length, and a text that differs only in its last byte.
    let (long, other) = ("é".repeat(128), format!("{}è", "é".repeat(127)));
    for (run, text) in [("long", &long), ("other", &other)] {
        started(&stage, key(run), label(facts("w", 100), text, text)).await;
    }
    lists(&stage, &with(&long, &long), &["long"]).await;
    lists(&stage, &with(&other, &other), &["other"]).await;
}

/// Lists only the runs created at a given time or later.
pub(crate) async fn runs_can_be_listed_from_a_time_of_creation(stage: TestStage) {
    for (run, created) in [("r-1", -5), ("r-2", 0), ("r-3", 10), ("r-4", 10), ("r-5", 11)] {
        started(&stage, key(run), facts("w", created)).await;
    }
    let from = |ms| query(|query| query.created_from = Some(Timestamp::from_unix_ms(ms)));
    lists(&stage, &from(-6), &["r-1", "r-2", "r-3", "r-4", "r-5"]).await;
    lists(&stage, &from(-4), &["r-2", "r-3", "r-4", "r-5"]).await;
    lists(&stage, &from(10), &["r-3", "r-4", "r-5"]).await;
    lists(&stage, &from(11), &["r-5"]).await;
    lists(&stage, &from(12), &[]).await;
}

/// Lists only the runs created before a given time.
pub(crate) async fn runs_can_be_listed_up_to_a_time_of_creation(stage: TestStage) {
    for (run, created) in [("r-1", -5), ("r-2", 0), ("r-3", 10), ("r-4", 10), ("r-5", 11)] {
        started(&stage, key(run), facts("w", created)).await;
    }
    let before = |ms| query(|query| query.created_before = Some(Timestamp::from_unix_ms(ms)));
    lists(&stage, &before(-5), &[]).await;
    lists(&stage, &before(-4), &["r-1"]).await;
    lists(&stage, &before(10), &["r-1", "r-2"]).await;
    lists(&stage, &before(11), &["r-1", "r-2", "r-3", "r-4"]).await;
    let mut both = before(11);
    both.created_from = Some(Timestamp::from_unix_ms(0));
    lists(&stage, &both, &["r-2", "r-3", "r-4"]).await;
}

/// Lists only the direct forks of a run, with the right tenant.
pub(crate) async fn runs_can_be_listed_by_parent(stage: TestStage) {
    let root = started(&stage, key("root"), facts("w", 0)).await;
    let at = root.head().expect("the root was written");
    let fork = |run: RunKey| Parent { run, at };
    started(&stage, key("child"), facts("w", 1).with_parent(fork(key("root")))).await;
    started(&stage, key("grandchild"), facts("w", 2).with_parent(fork(key("child")))).await;
    started(&stage, key("second"), facts("w", 3).with_parent(fork(key("root")))).await;
    started(&stage, key("strange"), facts("w", 4).with_parent(fork(key_in("other", "root")))).await;
    let of = |run: RunKey| query(|query| query.parent = Some(run));
    lists(&stage, &of(key("root")), &["child", "second"]).await;
    lists(&stage, &of(key("child")), &["grandchild"]).await;
    lists(&stage, &of(key_in("other", "root")), &["strange"]).await;
    lists(&stage, &of(key("second")), &[]).await;
}

/// Lists only the runs that an executor owns now.
pub(crate) async fn runs_can_be_listed_by_owner(stage: TestStage) {
    let (one, two) = (stage.executor(), stage.executor());
    let mut logs = Vec::new();
    for (n, owner) in (0..).zip([Some(one), Some(two), None, Some(one)]) {
        let mut log = stage.log(&format!("r-{n}")).with_facts(facts("w", n));
        log.write_with(&*stage.store(), 1, |header| header.owner = owner).await;
        logs.push(log);
    }
    let of = |owner| query(|query| query.owner = Some(owner));
    lists(&stage, &of(one), &["r-0", "r-3"]).await;
    lists(&stage, &of(two), &["r-1"]).await;
    lists(&stage, &of(stage.executor()), &[]).await;
    logs[0].write_with(&*stage.store(), 1, |header| header.owner = Some(two)).await;
    logs[3].write(&*stage.store(), 1).await;
    lists(&stage, &of(one), &[]).await;
    lists(&stage, &of(two), &["r-0", "r-1"]).await;
}

/// A run must meet all given conditions.
pub(crate) async fn several_conditions_are_all_met(stage: TestStage) {
    // Each run except the first and the last violates exactly one condition of the query.
    let owner = stage.executor();
    let root = started(&stage, key("root"), facts("other", 0)).await;
    let at = root.head().expect("the root was written");
    let good = || {
        let said = facts("w", 50).with_user("ann").expect("the suite's users are valid");
        label(said, "k", "v").with_parent(Parent { run: key("root"), at })
    };
    let run = async |key: RunKey, facts: RunFacts, status, owner| {
        let mut log = stage.log_of(key).with_facts(facts);
        log.write_with(&*stage.store(), 1, |header| (header.status, header.owner) = (status, owner)).await;
    };
    let (failed, mine) = (RunStatus::Failed, Some(owner));
    run(key("a"), good(), failed, mine).await;
    run(key_in("other", "b"), good(), failed, mine).await;
    let mut workflow = good();
    workflow.workflow = WorkflowName::new("v").expect("the name is valid");
    run(key("c"), workflow, failed, mine).await;
    run(key("d"), good(), RunStatus::Completed, mine).await;
    run(key("e"), label(good(), "k", "w"), failed, mine).await;
    for (name, created) in [("f", 49), ("g", 60)] {
        let mut facts = good();
        facts.created = Timestamp::from_unix_ms(created);
        run(key(name), facts, failed, mine).await;
    }
    let mut orphan = good();
    orphan.parent = None;
    run(key("h"), orphan, failed, mine).await;
    run(key("i"), good(), failed, None).await;
    run(key("j"), good(), failed, mine).await;
    run(key("k"), good().with_user("ben").expect("the suite's users are valid"), failed, mine).await;

    let all = query(|query| {
        query.tenant = Some(tenant("default"));
        query.workflow = Some(WorkflowName::new("w").expect("the name is valid"));
        query.user = Some("ann".to_owned());
        query.statuses = vec![failed, RunStatus::Cancelled];
        query.labels = vec![("k".to_owned(), "v".to_owned())];
        query.created_from = Some(Timestamp::from_unix_ms(50));
        query.created_before = Some(Timestamp::from_unix_ms(60));
        query.parent = Some(key("root"));
        query.owner = Some(owner);
    });
    lists(&stage, &all, &["a", "j"]).await;
}
