//! A recorder that stores the changes of each series.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use ferrata_core::metrics::{ALL, MetricKind};
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};

/// The state of a series.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Series {
    /// The sum of a histogram, or the current value.
    pub(crate) value: f64,
    /// Number of changes.
    pub(crate) moves: u64,
    /// The highest value, or the largest sample.
    pub(crate) most: f64,
}

#[derive(Default)]
struct Cell(Mutex<Series>);

impl Cell {
    fn change(&self, change: impl FnOnce(f64) -> f64, recorded: Option<f64>) {
        let mut series = self.0.lock().unwrap();
        series.value = change(series.value);
        series.moves += 1;
        series.most = series.most.max(recorded.unwrap_or(series.value));
    }
}

#[expect(clippy::cast_precision_loss, reason = "small numbers")]
impl CounterFn for Cell {
    fn increment(&self, value: u64) {
        // An increment of 0 is no change.
        if value > 0 {
            self.change(|was| was + value as f64, None);
        }
    }

    fn absolute(&self, value: u64) {
        self.change(|_| value as f64, None);
    }
}

impl GaugeFn for Cell {
    fn increment(&self, value: f64) {
        self.change(|was| was + value, None);
    }

    fn decrement(&self, value: f64) {
        self.change(|was| was - value, None);
    }

    fn set(&self, value: f64) {
        self.change(|_| value, None);
    }
}

impl HistogramFn for Cell {
    fn record(&self, value: f64) {
        self.change(|was| was + value, Some(value));
    }
}

type Labels = Vec<(String, String)>;

#[derive(Default)]
struct Seen {
    series: BTreeMap<(String, Labels), (MetricKindName, Arc<Cell>)>,
    described: BTreeMap<String, (MetricKindName, Option<Unit>, String)>,
}

type MetricKindName = &'static str;

/// A recorder. Clones share their data.
#[derive(Clone, Default)]
pub(crate) struct Remembering(Arc<Mutex<Seen>>);

impl Remembering {
    fn cell(&self, key: &Key, kind: MetricKindName) -> Arc<Cell> {
        let labels = key.labels().map(|label| (label.key().to_owned(), label.value().to_owned()));
        let mut labels: Labels = labels.collect();
        labels.sort();
        let mut seen = self.0.lock().unwrap();
        let (was, cell) =
            seen.series.entry((key.name().to_owned(), labels)).or_insert_with(|| (kind, Arc::default()));
        assert_eq!(*was, kind, "{} has two kinds", key.name());
        Arc::clone(cell)
    }

    fn describe(&self, name: &KeyName, kind: MetricKindName, unit: Option<Unit>, help: &SharedString) {
        let described = (kind, unit, help.to_string());
        self.0.lock().unwrap().described.insert(name.as_str().to_owned(), described);
    }

    /// Returns a series, or zeros if it was never registered.
    pub(crate) fn series(&self, name: &str, labels: &[(&str, &str)]) -> Series {
        let mut labels: Labels =
            labels.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
        labels.sort();
        let seen = self.0.lock().unwrap();
        seen.series
            .get(&(name.to_owned(), labels))
            .map(|(_, cell)| *cell.0.lock().unwrap())
            .unwrap_or_default()
    }

    /// Whether a series is registered.
    pub(crate) fn has(&self, name: &str, labels: &[(&str, &str)]) -> bool {
        let seen = self.0.lock().unwrap();
        let is_it = |(named, has): &(String, Labels)| {
            let has = |(label, value): &(&str, &str)| has.iter().any(|(l, v)| l == label && v == value);
            named == name && labels.iter().all(has)
        };
        seen.series.keys().any(is_it)
    }

    /// The value of a series.
    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.series(name, labels).value
    }

    /// The names of the metrics that changed from zero.
    pub(crate) fn moved(&self) -> BTreeSet<String> {
        let seen = self.0.lock().unwrap();
        let moved = seen.series.iter().filter(|(_, (kind, cell))| {
            let series = *cell.0.lock().unwrap();
            series.moves > 0 && (*kind == "histogram" || series.most > 0.0)
        });
        moved.map(|((name, _), _)| name.clone()).collect()
    }

    /// Every value of every label.
    pub(crate) fn label_values(&self) -> BTreeSet<String> {
        let seen = self.0.lock().unwrap();
        seen.series.keys().flat_map(|(_, labels)| labels.iter().map(|(_, value)| value.clone())).collect()
    }

    /// Compares the recorded metrics with the catalogue.
    pub(crate) fn check(&self) {
        let seen = self.0.lock().unwrap();
        for ((name, labels), (kind, _)) in &seen.series {
            let metric = ALL.iter().find(|metric| metric.name == name);
            let metric = metric.unwrap_or_else(|| panic!("{name} is not in the catalogue"));
            assert_eq!(*kind, word(metric.kind), "{name}");
            let unknown = labels.iter().find(|(label, _)| !metric.labels.contains(&label.as_str()));
            assert_eq!(unknown, None, "{name} has a label that is not in the catalogue");
        }
        for metric in ALL {
            let unit = match metric.unit {
                "s" => Unit::Seconds,
                "By" => Unit::Bytes,
                _ => Unit::Count,
            };
            let described = (word(metric.kind), Some(unit), metric.help.to_owned());
            assert_eq!(seen.described.get(metric.name), Some(&described), "{}", metric.name);
        }
    }
}

fn word(kind: MetricKind) -> MetricKindName {
    match kind {
        MetricKind::Counter => "counter",
        MetricKind::Gauge => "gauge",
        _ => "histogram",
    }
}

impl Recorder for Remembering {
    fn describe_counter(&self, key: KeyName, unit: Option<Unit>, help: SharedString) {
        self.describe(&key, "counter", unit, &help);
    }

    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, help: SharedString) {
        self.describe(&key, "gauge", unit, &help);
    }

    fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, help: SharedString) {
        self.describe(&key, "histogram", unit, &help);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.cell(key, "counter"))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.cell(key, "gauge"))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.cell(key, "histogram"))
    }
}
