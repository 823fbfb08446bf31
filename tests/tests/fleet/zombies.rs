//! A process is stopped at a random moment, even during a write, until other processes have finished its runs. Then it continues.

use std::time::Duration;

use ferrata_core::record::RunStatus;
use ferrata_core::{Clock, SystemClock};
use ferrata_tests::Space;
use rustix::process::Signal;

use super::crew::{Crew, Dice, Size, until};

/// Maximum time that other processes wait for a lock of the suspended process. Work without this lock takes a tenth of it.
const HELD: Duration = Duration::from_secs(20);

pub(crate) async fn stopped(space: &Space, dice: &mut Dice) {
    let Size { ttl, runs } = Size::of(space);
    let crew = Crew::new(space, ttl).await;
    let zombie = crew.spawn(&crew.url, dice.skew(), "zombie", runs);
    let lines = 1 + usize::try_from(dice.below(u64::from(runs) * 10)).unwrap();
    until("work", async || (crew.done().len() >= lines).then_some(())).await;
    // Suspend it at a random time after an effect, so that it may be in the middle of a write.
    std::thread::park_timeout(Duration::from_micros(dice.below(20_000)));
    zombie.signal(Signal::STOP);
    let heads = crew.heads().await;
    let of_zombie =
        |status| heads.iter().filter(move |head| head.status == status).map(|head| head.run.run.to_string());
    let lost: Vec<String> = of_zombie(RunStatus::InProgress).collect();
    // Runs that it has not started cannot be started by others.
    let begun = heads.len();
    let rightful = crew.spawn(&crew.url, dice.skew(), "rightful", runs);
    let clock = SystemClock::new();
    until("the successor", async || {
        // In a folder of files, a process that is suspended during a write keeps the lock of that file. Other processes are refused with this reason
        // until it continues.
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
        // If its last record was written, the run may have completed, and it reports this.
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
        assert_eq!((after.seq, after.id), (head.seq, head.id), "the suspended process wrote to {}", head.run);
    }
    let is_over = |run: &String| before.iter().any(|head| head.run.run.as_str() == run);
    for late in crew.done().split_off(lines).iter().filter(|done| is_over(&done.run)) {
        assert!(
            !late.activation.starts_with("pay"),
            "the suspended process ran {late:?} after the run had ended"
        );
    }
    // It starts its remaining runs, and both processes shut down normally.
    crew.complete(2 * runs as usize).await;
    zombie.leave().await;
    rightful.leave().await;
    crew.check(&[]).await;
}
