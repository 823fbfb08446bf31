//! Processes are stopped and replaced one by one under load.

use ferrata_core::{Clock, SystemClock};
use ferrata_tests::Space;

use super::crew::{Crew, Dice, LONG, Size, until};

pub(crate) async fn rolling(space: &Space, dice: &mut Dice) {
    let runs = Size::of(space).runs;
    // The validity is so long that runs without a release would not finish in time, because other processes would wait.
    let crew = Crew::new(space, 2 * LONG).await;
    let clock = SystemClock::new();
    let mut members: Vec<_> = ["a", "b"].map(|name| crew.spawn(&crew.url, dice.skew(), name, runs)).into();
    let mut moments = Vec::new();
    for round in 0..2 {
        let lines = crew.done().len() + 1 + usize::try_from(dice.below(u64::from(runs) * 4)).unwrap();
        until("work", async || (crew.done().len() >= lines).then_some(())).await;
        let next = crew.spawn(&crew.url, dice.skew(), &format!("r{round}"), runs);
        members.remove(0).leave().await;
        moments.push(crew.moment().await);
        members.push(next);
    }
    let begun = clock.monotonic();
    // Processes may have shut down before they started all their runs.
    let started = until("starts", async || {
        let heads = crew.heads().await;
        let is_new = |head: &&ferrata_core::store::RunHead| head.run.run.as_str().starts_with('r');
        (heads.iter().filter(is_new).count() == 2 * runs as usize).then_some(heads.len())
    })
    .await;
    crew.complete(started).await;
    println!("{started} runs, the last completed {:?} after the last restart", clock.monotonic() - begun);
    for member in members {
        member.leave().await;
    }
    crew.check(&moments).await;
}
