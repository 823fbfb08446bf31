//! Kills the function at every write, and checks that each run still ends the same.

use ferrata::prelude::*;
use ferrata::testing::{CrashTest, ScriptedAnswers};

/// Runs the function with this answer, once for each possible crash, and passes each outcome to `check`.
async fn crash_everywhere(is_approved: bool, check: impl Fn(&Flow<u32, String>, &Outcome<Context>)) {
    let order = flow("order", starter::order);
    let crashes = CrashTest::new(order.graph().unwrap(), order.input(&120).unwrap())
        .with_process(move |builder| {
            let answer = Answer::accept(is_approved).unwrap();
            builder.answerer(ScriptedAnswers::new().answer("main", answer))
        })
        .run(async |case| check(&order, &case.outcome))
        .await;
    assert!(crashes > 0);
}

#[tokio::test]
async fn order_survives_crashes() {
    crash_everywhere(true, |order, outcome| {
        let Outcome::Completed(state) = outcome else { panic!("{outcome}") };
        assert_eq!(order.output(state).unwrap(), "paid 120 EUR for shelf 7");
    })
    .await;
}

#[tokio::test]
async fn rejected_order_fails() {
    crash_everywhere(false, |_, outcome| {
        let Outcome::Failed { failure, .. } = outcome else { panic!("{outcome}") };
        assert_eq!(failure.message, "not approved");
    })
    .await;
}
