//! A process is stopped at a random moment, even during a write, until other processes have finished its runs. Then it continues.

use std::time::Duration;

use ferrata_core::record::RunStatus;
use ferrata_core::{Clock, SystemClock};
use ferrata_tests::Space;
use rustix::process::Signal;

use super::crew::{Crew, Dice, Size, until};

/// How long others wait for a process that is stopped inside of a write, where that holds them up: what they do without it is
/// done in a tenth of that.
const HELD: Duration = Duration::from_secs(20);

pub(crate) async fn stopped(space: &Space, dice: &mut Dice) {
    let Size { ttl, runs } = Size::of(space);
    let crew = Crew::new(space, ttl).await;
    let zombie = crew.spawn(&crew.url, dice.skew(), "zombie", runs);
    let lines = 1 + usize::try_from(dice.below(u64::from(runs) * 10)).unwrap();
    until("work", async || (crew.done().len() >= lines).then_some(())).await;
    // Not always right after an effect: anywhere until the next, so inside of writes, too.
    std::thread::park_timeout(Duration::from_micros(dice.below(20_000)));
    zombie.signal(Signal::STOP);
    let heads = crew.heads().await;
    let of_zombie =
        |status| heads.iter().filter(move |head| head.status == status).map(|head| head.run.run.to_string());
    let lost: Vec<String> = of_zombie(RunStatus::InProgress).collect();
    // What it had not yet started nobody else can.
    let begun = heads.len();
    let rightful = crew.spawn(&crew.url, dice.skew(), "rightful", runs);
    let clock = SystemClock::new();
    until("the successor", async || {
        // In files, a process that is stopped inside of a write has the lock of that file until it goes on: others are refused
        // for so long, and told why.
        let is_held = space.address().is_none() && clock.monotonic() > HELD;
        (is_held || crew.is_complete(begun + runs as usize).await).then_some(())
    })
    .await;
    let before: Vec<_> =
        crew.heads().await.into_iter().filter(|head| head.status == RunStatus::Completed).collect();
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
    for head in &before {
        let after = crew.store.head(&head.run).await.unwrap().unwrap();
        assert_eq!((after.seq, after.id), (head.seq, head.id), "the zombie wrote to {}", head.run);
    }
    let is_over = |run: &String| before.iter().any(|head| head.run.run.as_str() == run);
    for late in crew.done().split_off(lines).iter().filter(|done| is_over(&done.run)) {
        assert!(!late.activation.starts_with("pay"), "the zombie did {late:?} after the run had ended");
    }
    // It starts what it had yet to start, and both end in good order.
    crew.complete(2 * runs as usize).await;
    zombie.leave().await;
    rightful.leave().await;
    crew.check(&[]).await;
}
