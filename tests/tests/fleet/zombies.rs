//! A process is stopped at a random moment, also inside a write, until others have finished its runs; then it goes on.

use std::time::Duration;

use ferrata_core::record::RunStatus;
use ferrata_tests::Space;
use rustix::process::Signal;

use super::crew::{Crew, Dice, until};

const TTL: Duration = Duration::from_millis(1_500);
const RUNS: u32 = 3;

pub(crate) async fn stopped(space: &Space, dice: &mut Dice) {
    let crew = Crew::new(space, TTL).await;
    let zombie = crew.spawn(&crew.url, dice.skew(), "zombie", RUNS);
    let lines = 1 + usize::try_from(dice.below(30)).unwrap();
    until("work", async || (crew.done().len() >= lines).then_some(())).await;
    // Not always right after an effect: anywhere until the next, so inside of writes, too.
    std::thread::park_timeout(Duration::from_micros(dice.below(20_000)));
    zombie.signal(Signal::STOP);
    let moment = crew.moment().await;
    let heads = crew.heads().await;
    let of_zombie =
        |status| heads.iter().filter(move |head| head.status == status).map(|head| head.run.run.to_string());
    let lost: Vec<String> = of_zombie(RunStatus::InProgress).collect();
    // What it had not yet started nobody else can.
    let begun = heads.len();
    let rightful = crew.spawn(&crew.url, dice.skew(), "rightful", RUNS);
    crew.complete(begun + RUNS as usize, |_| true).await;
    let before = crew.heads().await;
    let lines = crew.done().len();
    zombie.signal(Signal::CONT);
    until("the zombie's word on the runs that it lost", async || {
        let said = zombie.said();
        let is_told = |run: &String| {
            said.iter().any(|line| line.starts_with(&format!("{run} ")) && !line.ends_with(" started"))
        };
        lost.iter().all(is_told).then_some(())
    })
    .await;
    let said = zombie.said();
    for run in &lost {
        // One whose last record it had written is completed for it, too.
        let word = said.iter().rfind(|line| line.starts_with(&format!("{run} "))).unwrap();
        let is_known = word.starts_with(&format!("{run} Fenced")) || word == &format!("{run} completed");
        assert!(is_known, "{word}");
    }
    println!(
        "the zombie lost {lost:?} and said {:?}",
        said.iter().filter(|line| line.contains("Fenced")).count()
    );
    for head in before {
        let after = crew.store.head(&head.run).await.unwrap().unwrap();
        assert_eq!((after.seq, after.id), (head.seq, head.id), "the zombie wrote to {}", head.run);
    }
    let late = crew.done().split_off(lines);
    assert!(
        late.iter().all(|done| !lost.contains(&done.run) || !done.activation.starts_with("pay")),
        "{late:?}"
    );
    // It starts what it had yet to start, and both end in good order.
    crew.complete(2 * RUNS as usize, |_| true).await;
    zombie.leave().await;
    rightful.leave().await;
    drop(moment);
    crew.check(&[]).await;
}
