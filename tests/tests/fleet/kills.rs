//! One of three processes is killed and restarted under the same name. All clocks are wrong.

use std::time::Duration;

use ferrata_core::record::{RecordKind, RunStatus};
use ferrata_core::{Clock, RunKey, SystemClock};
use ferrata_tests::Space;

use super::crew::{Crew, Dice, Size, until};

/// Extra time for a recovery sweep beyond its interval, on a busy machine with delays of whole seconds.
const SLACK: Duration = Duration::from_secs(240);

pub(crate) async fn killed(space: &Space, dice: &mut Dice) {
    let Size { ttl, runs } = Size::of(space);
    let crew = Crew::new(space, ttl).await;
    let victim = crew.spawn(&crew.url, dice.skew(), "victim", runs);
    let others = ["b", "c"].map(|name| crew.spawn(&crew.url, dice.skew(), name, runs));
    let clock = SystemClock::new();
    // Wait for a random amount of its work.
    let lines = 1 + usize::try_from(dice.below(u64::from(runs) * 12)).unwrap();
    until("work of the victim", async || (ours(&crew) >= lines).then_some(())).await;
    victim.kill();
    let killed = clock.monotonic();
    let moment = crew.moment().await;
    let orphans: Vec<_> =
        crew.heads().await.into_iter().filter(|head| head.run.run.as_str().starts_with("victim")).collect();
    let again = crew.spawn(&crew.url, dice.skew(), "victim", runs);
    until("claims of the orphans", async || {
        // The last record of a run may have reached the server although its process was killed. Such a run needs no claim.
        let heads = crew.heads().await;
        let is_open = |run: &RunKey| heads.iter().any(|head| head.run == *run && !head.status.is_finished());
        for head in orphans.iter().filter(|head| head.status == RunStatus::InProgress) {
            if is_open(&head.run) {
                let headers = crew.headers(&head.run).await;
                headers.iter().skip(1).find(|header| header.kind == RecordKind::Claim)?;
            }
        }
        Some(())
    })
    .await;
    let took = clock.monotonic() - killed;
    println!(
        "{} orphans were claimed {took:?} after the kill, the life of a heartbeat is {ttl:?}",
        orphans.len()
    );
    assert!(took < ttl + SLACK, "the orphans waited for {took:?}");
    crew.complete(3 * runs as usize).await;
    crew.check(&[moment]).await;
    for member in others.into_iter().chain([again]) {
        member.leave().await;
    }
}

fn ours(crew: &Crew<'_>) -> usize {
    crew.done().iter().filter(|done| done.run.starts_with("victim")).count()
}
