//! Fails if a row differs by an order of magnitude from the committed ratios. Noise does not cause this, but lost batching or quadratic costs do.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::row::{Row, figure};

/// The factor by which a row may differ. A quick run on a busy machine differs by a factor of two or three.
const FACTOR: f64 = 10.0;

/// The committed ratios by row.
#[derive(Debug, Deserialize)]
struct Ratios {
    ratios: BTreeMap<String, f64>,
}

/// Compares rows with a file of ratios.
///
/// # Errors
///
/// Names each row that differs too much, each row that is not in the file, and each row of the file that was not measured.
pub(crate) fn check(path: &Path, rows: &[Row]) -> Result<()> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let committed: Ratios =
        toml::from_str(&text).with_context(|| format!("{} is not as it should be", path.display()))?;
    let measured: BTreeMap<&str, f64> = rows.iter().map(|row| (row.id.as_str(), row.guarded())).collect();
    let faults = faults(&committed.ratios, &measured);
    if faults.is_empty() {
        return Ok(());
    }
    bail!(
        "{}\nIf that is as it should be, say why in {} and write the new figure there.",
        faults.join("\n"),
        path.display()
    )
}

fn faults(committed: &BTreeMap<String, f64>, measured: &BTreeMap<&str, f64>) -> Vec<String> {
    let mut faults = Vec::new();
    for (id, &now) in measured {
        let Some(&then) = committed.get(*id) else {
            faults.push(format!("{id} is measured and not in the file; its figure is {}", figure(now)));
            continue;
        };
        // A much lower cost is suspicious too: a workload that does nothing costs nothing.
        let off = (now / then).max(then / now);
        if off.is_nan() || off > FACTOR {
            faults.push(format!(
                "{id}: {} now, {} committed: {}x off",
                figure(now),
                figure(then),
                figure(off)
            ));
        }
    }
    let absent = committed.keys().filter(|id| !measured.contains_key(id.as_str()));
    faults.extend(absent.map(|id| format!("{id} is in the file and was not measured")));
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_order_of_magnitude_is_a_fault() {
        let committed = BTreeMap::from([("a".to_owned(), 2.0), ("b".to_owned(), 2.0), ("c".to_owned(), 2.0)]);
        let measured = |a, b, c| BTreeMap::from([("a", a), ("b", b), ("c", c)]);
        assert_eq!(faults(&committed, &measured(19.9, 0.21, 2.0)), Vec::<String>::new());
        let found = faults(&committed, &measured(20.1, 0.19, f64::NAN));
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].starts_with("a: 20.1 now, 2.00 committed"), "{found:?}");
    }

    #[test]
    fn a_row_that_nobody_knows_or_measured_is_a_fault() {
        let committed = BTreeMap::from([("old".to_owned(), 1.0)]);
        let found = faults(&committed, &BTreeMap::from([("new", 3.0)]));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("its figure is 3.00") && found[1].contains("old"), "{found:?}");
    }
}
