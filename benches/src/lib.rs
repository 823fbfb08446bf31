//! Measuring in pairs: a workload and its bare reference in turn, several times; the ratio is the result.

#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

use std::future::Future;
use std::time::{Duration, Instant};

/// Minimum, median and maximum of several measurements, in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    /// The least.
    pub min: f64,
    /// The one in the middle.
    pub median: f64,
    /// The most.
    pub max: f64,
}

impl Spread {
    /// Sums up measurements; there must be one.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let last = values.len() - 1;
        Self { min: values[0], median: values[last / 2], max: values[last] }
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.3} ({:.3} .. {:.3})", self.median, self.min, self.max)
    }
}

/// Times a future.
pub async fn time(work: impl Future<Output = ()>) -> Duration {
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures the machine")]
    let begun = Instant::now();
    work.await;
    begun.elapsed()
}

/// Measures two workloads in turn, `rounds` times after a first that is not counted, and returns what one unit of each costs
/// in microseconds.
pub async fn pair<A, B, FA, FB>(rounds: u32, units: [f64; 2], mut one: A, mut other: B) -> [Spread; 2]
where
    A: FnMut(u32) -> FA,
    B: FnMut(u32) -> FB,
    FA: Future<Output = ()>,
    FB: Future<Output = ()>,
{
    let (mut ones, mut others) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        let a = time(one(round)).await;
        let b = time(other(round)).await;
        if round > 0 {
            ones.push(a.as_secs_f64() * 1e6 / units[0]);
            others.push(b.as_secs_f64() * 1e6 / units[1]);
        }
    }
    [Spread::of(ones), Spread::of(others)]
}

/// Prints a row: what was measured, its reference, the ratio, and the goal.
pub fn row(name: &str, measured: Spread, reference: Spread, unit: &str, goal: &str) {
    println!("{name}");
    println!("    ferrata    {measured} {unit}");
    println!("    reference  {reference} {unit}");
    println!("    ratio      {:.2}    goal: {goal}", measured.median / reference.median);
}
