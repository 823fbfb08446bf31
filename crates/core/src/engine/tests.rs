//! The machine on random graphs: every prefix of a log folds to the machine that lived it, and the rules hold on the way.

mod graphs;
mod life;
mod normal;

use std::sync::Arc;

use proptest::prelude::*;

use self::graphs::{Draw, build, drafts};
use self::life::Life;
use self::normal::normal;
use super::machine::Machine;
use crate::graph::plan::Plan;

fn fold_from(life: &Life, at: usize, plan: Option<&Arc<Plan>>) -> Machine {
    let mut machine = Machine::restore(&life.moments[at].snapshot().unwrap(), plan.cloned()).unwrap();
    assert_eq!(normal(&machine), normal(&life.moments[at]), "restored at {at}");
    for (seen, event) in life.events.iter().enumerate().skip(at + 1) {
        machine.absorb(event).unwrap();
        assert_eq!(
            normal(&machine),
            normal(&life.moments[seen]),
            "from {at} on, after event {seen}: {event:?}"
        );
    }
    machine
}

proptest! {
    // The same graphs each time; `PROPTEST_RNG_SEED` and `PROPTEST_CASES` do not apply, change the numbers here to look further.
    #![proptest_config(ProptestConfig {
        rng_seed: proptest::test_runner::RngSeed::Fixed(1),
        cases: 400,
        ..ProptestConfig::default()
    })]

    /// The rules are checked by [`Life`] after every event.
    #[test]
    fn every_prefix_folds_to_the_machine_that_lived_it(draft in drafts(), seed: u64, place: prop::sample::Index) {
        let graph = build(&draft);
        let life = Life::live(graph.plan(), &mut Draw(seed));
        for plan in [None, Some(graph.plan())] {
            let mut folded = Machine::new(plan.cloned());
            for (event, moment) in life.events.iter().zip(&life.moments) {
                folded.absorb(event).unwrap();
                prop_assert_eq!(normal(&folded), normal(moment), "after {:?}", event);
                if plan.is_some() {
                    prop_assert_eq!(&folded.live, &moment.live);
                }
            }
            let restored = fold_from(&life, place.index(life.events.len()), plan);
            if plan.is_some() {
                prop_assert_eq!(&restored.live, &life.moments[life.moments.len() - 1].live);
            }
        }
    }
}
