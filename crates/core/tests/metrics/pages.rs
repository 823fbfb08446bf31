//! The documentation, the alerts and the dashboard name exactly the metrics that the library records.

use std::collections::BTreeSet;
use std::path::Path;

use ferrata_core::metrics::{ALL, Metric, MetricKind};

fn page(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The name of a metric in a Prometheus exporter.
fn exported(metric: &Metric) -> String {
    let unit = match metric.unit {
        "s" => "_seconds",
        "By" => "_bytes",
        _ => "",
    };
    let total = if metric.kind == MetricKind::Counter { "_total" } else { "" };
    format!("{}{unit}{total}", metric.name.replace('.', "_"))
}

/// Guarantees: METRIC-3.
#[test]
fn the_page_lists_every_metric_as_it_is() {
    let page = page("metrics.md");
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `ferrata.")).collect();
    let expected: Vec<String> = ALL
        .iter()
        .map(|metric| {
            let kind = format!("{:?}", metric.kind).to_lowercase();
            let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
            let labels = if labels.is_empty() { "–".to_owned() } else { labels.join(", ") };
            format!("| `{}` `{}` | {kind}, `{}` | {labels} | ", metric.name, exported(metric), metric.unit)
        })
        .collect();
    assert_eq!(rows.len(), expected.len());
    for row in &expected {
        assert!(rows.iter().any(|line| line.starts_with(row)), "no row begins with {row}");
    }
}

/// Returns the words of an expression that are names of the library.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("ferrata_") || *word == "error_type")
}

/// Rules and panels use existing metrics only. Otherwise a rule never fires and a panel stays empty.
///
/// Guarantees: METRIC-4.
#[test]
fn alerts_and_dashboard_name_metrics_that_exist() {
    let labels: BTreeSet<String> =
        ALL.iter().flat_map(|metric| metric.labels).map(|label| label.replace('.', "_")).collect();
    let metrics: BTreeSet<String> = ALL.iter().map(exported).collect();
    let of = |name: &str| -> Option<String> {
        let series = ["_bucket", "_sum", "_count"].into_iter().find_map(|end| name.strip_suffix(end));
        let metric = series.unwrap_or(name);
        let is_histogram = ALL.iter().any(|one| one.kind == MetricKind::Histogram && exported(one) == metric);
        (metrics.contains(metric) && is_histogram == series.is_some()).then(|| metric.to_owned())
    };
    let alerts = page("metrics/alerts.yml");
    let rules = alerts.lines().filter_map(|line| line.trim().strip_prefix("expr: "));
    let mut alerted = 0;
    for rule in rules {
        alerted += 1;
        for name in names(rule) {
            assert!(labels.contains(name) || of(name).is_some(), "{name} in {rule}");
        }
        assert!(names(rule).any(|name| of(name).is_some()), "{rule}");
    }
    // Each label's series appears with its first event, so `increase` alone misses this event.
    for late in ["ferrata_run_parked_total", "ferrata_run_errors_total"] {
        let rule = alerts.lines().find(|line| line.contains(&format!("increase({late}"))).unwrap();
        assert!(rule.contains(&format!("unless {late} offset 15m)")), "{rule}");
    }
    let increased = alerts.matches("increase(").count();
    // The third rule is about heartbeats, whose series start at 0.
    assert_eq!(increased, 3, "do the other rules count the first event of a series?");
    let titles: Vec<&str> = alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert_eq!(titles.len(), alerted);
    for part in ["summary: '", "description: '"] {
        let texts = alerts.lines().filter_map(|line| line.trim().strip_prefix(part));
        assert_eq!(texts.filter(|text| text.len() > 20).count(), alerted, "each alert needs a {part}");
    }

    let dashboard: serde_json::Value = serde_json::from_str(&page("metrics/dashboard.json")).unwrap();
    let mut shown = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expr = target["expr"].as_str().unwrap();
            for name in names(expr) {
                let metric = of(name);
                assert!(labels.contains(name) || metric.is_some(), "{name} in {expr}");
                shown.extend(metric);
            }
        }
    }
    assert_eq!(shown, metrics, "each metric needs a panel");
}
