//! Random graphs for the machine: every prefix of a log folds to the same machine, and the rules hold after each record.

mod graphs;
mod life;
mod normal;
mod replans;

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use self::graphs::{Draw, build, drafts};
use self::life::Life;
use self::normal::normal;
use crate::engine::machine::Machine;
use crate::graph::Graph;
use crate::graph::plan::GraphPlan;
use crate::id::NodeName;
use crate::state::Context;

/// Includes counts that no base contains: such a count must not be missed.
fn replans(machine: &Machine) -> BTreeMap<NodeName, u32> {
    machine.replan_counts().into_iter().collect()
}

fn fold_from(life: &Life, at: usize, plan: Option<&Arc<GraphPlan>>) -> Machine {
    let mut machine = Machine::restore(&life.moments[at].snapshot().unwrap(), plan.cloned()).unwrap();
    assert_eq!(normal(&machine), normal(&life.moments[at]), "restored at {at}");
    assert_eq!(replans(&machine), replans(&life.moments[at]), "restored at {at}");
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

/// Folds a run from its start and from a middle position, with the graph and without.
fn fold_all(life: &Life, graph: &Graph<Context>, place: usize) {
    for plan in [None, Some(graph.plan())] {
        let mut folded = Machine::new(plan.cloned());
        for (event, moment) in life.events.iter().zip(&life.moments) {
            folded.absorb(event).unwrap();
            assert_eq!(normal(&folded), normal(moment), "after {event:?}");
            if plan.is_some() {
                assert_eq!(folded.live(), moment.live());
            }
        }
        // A fold without the graph can continue with it.
        let planned = Machine::restore(&folded.snapshot().unwrap(), Some(Arc::clone(graph.plan()))).unwrap();
        let last = &life.moments[life.moments.len() - 1];
        assert_eq!(normal(&planned), normal(last), "planned at the end");
        assert_eq!(planned.live(), last.live(), "planned at the end");
        let restored = fold_from(life, place, plan);
        if plan.is_some() {
            assert_eq!(restored.live(), last.live());
        }
    }
}

proptest! {
    // The same graphs each time. `PROPTEST_RNG_SEED` and `PROPTEST_CASES` do not apply: change the numbers here to test further.
    #![proptest_config(ProptestConfig {
        rng_seed: proptest::test_runner::RngSeed::Fixed(1),
        cases: 400,
        ..ProptestConfig::default()
    })]

    /// [`Life`] checks the rules after every event.
    ///
    /// Guarantees: FORMAT-6.
    #[test]
    fn every_log_prefix_folds_to_live_machine(draft in drafts(), seed: u64, place: prop::sample::Index) {
        let graph = build(&draft);
        let life = Life::live(graph.plan(), &mut Draw(seed));
        fold_all(&life, &graph, place.index(life.events.len()));
    }

    /// [`replans::Replans`] checks the limits at every end.
    #[test]
    fn replanning_run_folds_and_stops_at_limits(draft in drafts(), seed: u64, place: prop::sample::Index) {
        let graph = build(&draft);
        let life = Life::live_revisiting(graph.plan(), &mut Draw(seed), 2);
        fold_all(&life, &graph, place.index(life.events.len()));
    }
}
