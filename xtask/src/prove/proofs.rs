//! The proofs: which tests each runs, and how its length and its seeds are set.

use std::collections::BTreeSet;

/// A long form of tests.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Proof {
    /// The name, for the command line and the page.
    pub(super) name: &'static str,
    /// What the proof checks, for the page.
    pub(super) checks: &'static str,
    pub(super) programs: &'static [TestProgram],
    /// The part of the names of the tests that run; all if it is empty.
    pub(super) filter: &'static str,
    pub(super) length: Length,
    /// The share of the time, relative to the other proofs.
    pub(super) weight: u32,
    /// Whether the tests need servers.
    pub(super) needs_servers: bool,
    /// Whether the programs have ignored tests that take minutes. These run from [`LONG`] on.
    pub(super) has_long_tests: bool,
}

/// The requested time in seconds from which the tests run that take minutes each.
pub(super) const LONG: u64 = 3_600;

/// A test program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TestProgram {
    pub(super) package: &'static str,
    pub(super) target: &'static str,
    /// The beginning of the path of its source, as the messages of cargo name it.
    pub(super) source: &'static str,
}

/// How a proof fills its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    /// The proof visits every state once.
    Exhaustive,
    /// Batches of consecutive seeds. The first batch has `batch` seeds and measures the pace. From a few more seeds on, the tests also check that
    /// everything occurred.
    Seeds { first: &'static str, count: &'static str, batch: u64 },
    /// Like `Seeds`, but one seed makes all cases of a batch.
    Cases { seed: &'static str, count: &'static str, batch: u64 },
    /// One call that runs for a time in seconds.
    Seconds { seed: &'static str, seconds: &'static str },
    /// Rounds of all tests, each with its own value of these seeds.
    Rounds { seeds: &'static [&'static str] },
}

const fn test(package: &'static str, target: &'static str, source: &'static str) -> TestProgram {
    TestProgram { package, target, source }
}

/// All proofs, in the order in which they run.
pub(super) const PROOFS: &[Proof] = &[
    Proof {
        name: "model",
        checks: "every state of the model of the protocol; the model finds each planted mistake",
        programs: &[test("ferrata-model", "exhaustive", "model/tests/exhaustive")],
        filter: "",
        length: Length::Exhaustive,
        weight: 1,
        needs_servers: false,
        has_long_tests: true,
    },
    Proof {
        name: "runs",
        checks: "simulated processes that crash, stall and lose replies, on one store",
        programs: &[test("ferrata-core", "sim", "crates/core/tests/sim")],
        filter: "",
        length: Length::Seeds { first: "FERRATA_SIM_FIRST", count: "FERRATA_SIMS", batch: 60 },
        weight: 4,
        needs_servers: false,
        has_long_tests: false,
    },
    Proof {
        name: "queues",
        checks: "the same for queues, also on several stores as one",
        programs: &[test("ferrata-queue", "sim", "crates/queue/tests/sim")],
        filter: "",
        length: Length::Seeds { first: "FERRATA_SIM_FIRST", count: "FERRATA_SIMS", batch: 5 },
        weight: 2,
        needs_servers: false,
        has_long_tests: false,
    },
    Proof {
        name: "races",
        checks: "several callers of one run, in every order that a seed makes",
        programs: &[test("ferrata-core", "races", "crates/core/tests/races")],
        filter: "",
        length: Length::Seeds { first: "FERRATA_RACE_FIRST", count: "FERRATA_RACES", batch: 199 },
        weight: 1,
        needs_servers: false,
        has_long_tests: false,
    },
    Proof {
        name: "functions",
        checks: "random functions that crash at each write, and whose code is edited between two processes",
        programs: &[test("ferrata-flow", "random", "crates/flow/tests/random")],
        filter: "",
        length: Length::Seeds { first: "FERRATA_FLOW_FIRST", count: "FERRATA_FLOW_CASES", batch: 20 },
        weight: 2,
        needs_servers: false,
        has_long_tests: false,
    },
    Proof {
        name: "operations",
        checks: "random sequences of all public operations, compared with a model of the documentation",
        programs: &[test("ferrata-core", "model", "crates/core/tests/model")],
        filter: "",
        length: Length::Cases { seed: "FERRATA_MODEL_SEED", count: "FERRATA_MODEL_CASES", batch: 799 },
        weight: 1,
        needs_servers: false,
        has_long_tests: false,
    },
    Proof {
        name: "pipelines",
        checks: "mutated pipeline files, which are read or refused",
        programs: &[test("ferrata-dot", "fuzz", "crates/dot/tests/fuzz")],
        filter: "",
        length: Length::Seconds { seed: "FERRATA_FUZZ_SEED", seconds: "FERRATA_FUZZ_SECONDS" },
        weight: 1,
        needs_servers: false,
        has_long_tests: false,
    },
    Proof {
        name: "stores",
        checks: "the conformance suite on every store, with random calls compared with a model",
        programs: &[
            test("ferrata-store-conformance", "memory", "crates/store-conformance/tests/memory"),
            test("ferrata-store-fs", "conformance", "crates/store-fs/tests/conformance"),
            test("ferrata-store-sqlite", "conformance", "crates/store-sqlite/tests/conformance"),
            test("ferrata-store-postgres", "conformance", "crates/store-postgres/tests/conformance"),
            test("ferrata-store-redis", "conformance", "crates/store-redis/tests/conformance"),
            test("ferrata-store-nats", "conformance", "crates/store-nats/tests/conformance"),
            test("ferrata-store-s3", "s3", "crates/store-s3/tests/s3"),
            test("ferrata-store-sharded", "conformance", "crates/store-sharded/tests/conformance"),
            test("ferrata-store-envelope", "envelope", "crates/store-envelope/tests/envelope"),
        ],
        filter: "conformance",
        length: Length::Rounds { seeds: &["STORE_SUITE_SEED"] },
        weight: 3,
        needs_servers: true,
        has_long_tests: false,
    },
    Proof {
        name: "kills",
        checks: "real processes and servers that are killed, suspended and cut off, on every store",
        programs: &[
            test("ferrata-tests", "kill", "tests/tests/kill"),
            test("ferrata-tests", "bank", "tests/tests/bank"),
            test("ferrata-tests", "fleet", "tests/tests/fleet"),
        ],
        filter: "",
        length: Length::Rounds { seeds: &["FERRATA_KILL_SEED", "FERRATA_BANK_SEED", "FERRATA_FLEET_SEED"] },
        weight: 5,
        needs_servers: true,
        has_long_tests: true,
    },
];

impl Proof {
    /// Returns the call of cargo that repeats the proof with `variables`.
    pub(super) fn command(&self, variables: &[(&'static str, String)], is_long: bool) -> String {
        let set: String = variables.iter().map(|(name, value)| format!("{name}={value} ")).collect();
        let selected = selection(self.programs.iter());
        let mut tests = self.arguments(is_long);
        tests.retain(|argument| argument != NOCAPTURE);
        let tests = if tests.is_empty() { String::new() } else { format!(" -- {}", tests.join(" ")) };
        format!("{set}cargo test --all-features {selected}{tests}")
    }

    /// Returns the arguments of its test programs.
    pub(super) fn arguments(&self, is_long: bool) -> Vec<String> {
        let mut arguments = vec![NOCAPTURE.to_owned()];
        if is_long && self.has_long_tests {
            arguments.push("--include-ignored".to_owned());
        }
        if !self.filter.is_empty() {
            arguments.push(self.filter.to_owned());
        }
        arguments
    }
}

/// Returns the arguments of `cargo test` that select these programs.
pub(super) fn selection<'a>(programs: impl Iterator<Item = &'a TestProgram>) -> String {
    let (mut packages, mut targets) = (BTreeSet::new(), BTreeSet::new());
    for program in programs {
        packages.insert(format!("-p {}", program.package));
        targets.insert(format!("--test {}", program.target));
    }
    packages.into_iter().chain(targets).collect::<Vec<_>>().join(" ")
}

/// The tests print what they counted.
const NOCAPTURE: &str = "--nocapture";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_proofs_exist() {
        let root = crate::root().unwrap();
        for program in PROOFS.iter().flat_map(|proof| proof.programs) {
            let source = root.join(program.source);
            assert!(
                source.join("main.rs").is_file() || source.with_extension("rs").is_file(),
                "{} is no test program",
                program.source
            );
            assert!(program.source.ends_with(program.target), "{}", program.source);
        }
    }

    /// A variable that no test reads would make each batch repeat the same seeds.
    #[test]
    fn tests_read_the_variables_of_proofs() {
        let root = crate::root().unwrap();
        let text = |folder: &str, file: &str| {
            std::fs::read_to_string(root.join(folder).join(file)).unwrap_or_default()
        };
        for proof in PROOFS {
            let variables = match proof.length {
                Length::Exhaustive => Vec::new(),
                Length::Seeds { first, count, .. } => vec![first, count],
                Length::Cases { seed, count, .. } => vec![seed, count],
                Length::Seconds { seed, seconds } => vec![seed, seconds],
                // The suite of the stores is a library.
                Length::Rounds { seeds } => {
                    seeds.iter().copied().filter(|seed| seed.starts_with("FERRATA")).collect()
                }
            };
            let sources: String = proof
                .programs
                .iter()
                .map(|program| {
                    let file = std::fs::read_to_string(root.join(program.source).with_extension("rs"));
                    file.unwrap_or_default()
                        + &text(program.source, "main.rs")
                        + &text(program.source, "rng.rs")
                })
                .collect();
            for variable in variables {
                assert!(
                    sources.contains(&format!("\"{variable}\"")),
                    "no test of {} reads {variable}",
                    proof.name
                );
            }
        }
    }

    #[test]
    fn command_repeats_a_proof() {
        let proof = |name: &str| PROOFS.iter().find(|proof| proof.name == name).unwrap();
        let variables = [("FERRATA_SIM_FIRST", "7".to_owned()), ("FERRATA_SIMS", "260".to_owned())];
        assert_eq!(
            proof("runs").command(&variables, true),
            "FERRATA_SIM_FIRST=7 FERRATA_SIMS=260 cargo test --all-features -p ferrata-core --test sim"
        );
        assert_eq!(
            proof("model").command(&[], true),
            "cargo test --all-features -p ferrata-model --test exhaustive -- --include-ignored"
        );
        let stores = proof("stores").command(&[], false);
        assert!(stores.contains(" -p ferrata-store-s3 ") && stores.ends_with(" -- conformance"), "{stores}");
    }

    #[test]
    fn each_proof_has_its_own_name() {
        let mut names: Vec<_> = PROOFS.iter().map(|proof| proof.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), PROOFS.len());
    }
}
