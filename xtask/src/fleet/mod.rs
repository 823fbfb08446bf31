//! `cargo xtask simulate-fleet`: what a fleet asks of its store, and whether that grows faster than the fleet and its work.
#![expect(clippy::print_stdout, reason = "a table for a person")]

mod rules;
mod simulation;
mod store;

use anyhow::{Result, bail};

use self::rules::Rules;
use self::simulation::{Fleet, Seen, simulate};
use self::store::Costs;

const SECOND: u64 = 1_000_000;

/// By how much more than in proportion something may grow before it is called faster: rounding, and pages that are not full.
const SLACK: f64 = 1.25;

/// Simulates fleets of several sizes, prints what each asks of its store, and fails if something grows faster than they do.
pub(crate) fn run(executors: u32, runs: u32) -> Result<()> {
    let (rules, costs) = (Rules::read()?, Costs::default());
    println!("rules as in the source: {rules:?}\nmodelled store: {costs:?}\n");
    let whole = fleet(executors, runs);
    let part = |executors: u32, runs: u32| fleet(executors.max(1), runs.max(1));
    let fleets = [
        part(executors / 4, runs / 4),
        part(executors / 2, runs / 2),
        whole,
        part(executors / 4, runs),
        part(executors, runs / 4),
    ];
    println!("{HEAD}");
    let seen: Vec<Seen> = fleets
        .into_iter()
        .map(|fleet| {
            let seen = simulate(fleet, rules, costs);
            println!("{}", row(&seen));
            seen
        })
        .collect();
    let faults = faults(&seen[1], &seen[2]).into_iter().chain(bounds(&seen, &rules));
    let faults: Vec<String> = faults.collect();
    if faults.is_empty() {
        println!("\nnothing grows faster than executors and due runs do");
        return Ok(());
    }
    bail!("{}", faults.join("\n"))
}

/// Runs that sleep for an hour and then do something for a fifth of a second; one executor in a hundred dies half-way.
fn fleet(executors: u32, runs: u32) -> Fleet {
    Fleet {
        executors,
        runs,
        sleeps: 3_600 * SECOND,
        works: SECOND / 5,
        records: 4,
        one_dies_in: 100,
        span: 300 * SECOND,
        seed: 1,
    }
}

const HEAD: &str = "\
| executors | runs | due/s | listings/s | rows/s | heartbeats/s | claims/s | of them in vain | waits p50 | p99 | orphans | left | cores busy |
|---|---|---|---|---|---|---|---|---|---|---|---|---|";

fn row(seen: &Seen) -> String {
    let (fleet, traffic) = (&seen.fleet, &seen.traffic);
    let span = (fleet.span / SECOND) as f64;
    let each = |count: u64| format!("{:.0}", count as f64 / span);
    format!(
        "| {} | {} | {} | {} | {} | {} | {} | {:.0} % | {} ms | {} ms | {} | {} | {:.2} |",
        fleet.executors,
        fleet.runs,
        each(traffic.claimed),
        each(traffic.listings),
        each(traffic.rows),
        each(traffic.heartbeats),
        each(traffic.tries),
        100.0 * traffic.lost as f64 / traffic.tries.max(1) as f64,
        seen.half / 1_000,
        seen.most / 1_000,
        seen.orphans,
        seen.left,
        traffic.work / fleet.span as f64,
    )
}

/// Compares a fleet with one that is larger in both, and names what grew faster than it.
fn faults(small: &Seen, large: &Seen) -> Vec<String> {
    let growth = f64::from(large.fleet.executors) / f64::from(small.fleet.executors);
    let kinds = [
        ("listings", small.traffic.listings, large.traffic.listings),
        ("heartbeats", small.traffic.heartbeats, large.traffic.heartbeats),
        ("claims", small.traffic.tries, large.traffic.tries),
    ];
    // The store's work, where rows of listings count for what they cost: there are more in each the larger the fleet is.
    let work = ("the store's work", small.traffic.work, large.traffic.work);
    let kinds = kinds.map(|(name, small, large)| (name, small.max(1) as f64, large as f64));
    let grew = kinds.into_iter().chain([work]).filter_map(|(name, small, large)| {
        let by = large / small;
        (by > growth * SLACK)
            .then(|| format!("{name} grow {by:.1} times where the fleet grows {growth:.1} times"))
    });
    grew.collect()
}

/// Names what exceeds the bounds that hold for any fleet: so much for each executor, and so much for each run that is due.
fn bounds(seen: &[Seen], rules: &Rules) -> Vec<String> {
    let mut faults = Vec::new();
    for seen in seen {
        let fleet = &seen.fleet;
        let looks = f64::from(fleet.executors) * fleet.span as f64 / (rules.sweep as f64 * rules.jitter.0);
        let name = format!("{} executors and {} runs", fleet.executors, fleet.runs);
        // Every page that is listed beyond two for each look was full, or others emptied it.
        let full = seen.traffic.tries as f64 / f64::from(rules.late.max(1));
        if seen.traffic.listings as f64 > 2.0 * looks + full {
            faults.push(format!("{name}: {} listings in {looks:.0} looks", seen.traffic.listings));
        }
        let in_vain = (f64::from(rules.late) + rules.at_once as f64) * seen.traffic.listings as f64;
        if seen.traffic.lost as f64 > in_vain {
            faults.push(format!("{name}: {} claims in vain", seen.traffic.lost));
        }
        if seen.traffic.claimed > 1_000 && seen.left as f64 > 0.05 * seen.traffic.claimed as f64 {
            faults.push(format!("{name}: {} runs that need an executor have none", seen.left));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(executors: u32, runs: u32, rules: Rules) -> Seen {
        simulate(
            Fleet { span: 60 * SECOND, sleeps: 120 * SECOND, ..fleet(executors, runs) },
            rules,
            Costs::default(),
        )
    }

    #[test]
    fn all_due_runs_are_claimed_once_and_soon() {
        let seen = seen(20, 2_000, Rules::read().unwrap());
        // Half of the runs wake within the time that is watched.
        assert!((900..1_100).contains(&seen.traffic.claimed), "{seen:?}");
        assert_eq!(seen.traffic.tries, seen.traffic.claimed + seen.traffic.lost, "{seen:?}");
        assert!(seen.most < SECOND && seen.left < 20, "{seen:?}");
    }

    #[test]
    fn what_the_dead_drove_is_driven_by_others() {
        let rules = Rules::read().unwrap();
        let mut fleet = fleet(10, 1_000);
        (fleet.one_dies_in, fleet.works) = (2, 20 * SECOND);
        (fleet.span, fleet.sleeps) = (120 * SECOND, 60 * SECOND);
        let seen = simulate(fleet, rules, Costs::default());
        assert!(seen.orphans > 50 && seen.left < 30, "{seen:?}");
    }

    #[test]
    fn the_same_seed_gives_the_same_fleet() {
        let rules = Rules::read().unwrap();
        assert_eq!(seen(5, 500, rules).traffic, seen(5, 500, rules).traffic);
    }

    #[test]
    fn an_idle_fleet_asks_in_proportion_to_its_size() {
        let rules = Rules::read().unwrap();
        let (small, large) = (seen(10, 1, rules), seen(80, 1, rules));
        assert_eq!(faults(&small, &large), Vec::<String>::new());
        assert!(bounds(&[small, large], &rules).is_empty());
    }

    #[test]
    fn a_busy_fleet_asks_in_proportion_to_its_size_and_its_work() {
        let rules = Rules::read().unwrap();
        let (small, large) = (seen(100, 100_000, rules), seen(200, 200_000, rules));
        assert_eq!(faults(&small, &large), Vec::<String>::new());
        assert!(large.traffic.lost < 2 * large.traffic.claimed, "{large:?}");
    }

    #[test]
    fn a_fleet_that_does_not_hold_back_is_found() {
        // Each executor tries all it finds, and the more of them there are, the more of them find the same.
        let rules = Rules { least_share: 1.0, ..Rules::read().unwrap() };
        let (small, large) = (seen(100, 100_000, rules), seen(200, 200_000, rules));
        assert!(!faults(&small, &large).is_empty(), "{small:?} {large:?}");
    }

    #[test]
    fn a_sweep_that_asks_about_each_other_executor_is_found() {
        let rules = Rules::read().unwrap();
        let with = |executors| seen(executors, 1, Rules { listings: executors, ..rules });
        let (small, large) = (with(10), with(80));
        assert!(faults(&small, &large).iter().any(|fault| fault.starts_with("listings grow")), "{large:?}");
        assert!(!bounds(&[large], &rules).is_empty());
    }
}
