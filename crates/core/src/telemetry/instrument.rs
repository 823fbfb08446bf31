//! Handles to the metrics of the recorder that the application has installed.

use metrics::{
    Counter, Gauge, Histogram, Key, KeyName, Label, Level, Metadata, SharedString, Unit, with_recorder,
};

use super::catalogue::{ALL, Metric, MetricKind};

const METADATA: Metadata<'static> = Metadata::new("ferrata", Level::INFO, None);

/// A label with its value.
pub(super) type Pair = (&'static str, SharedString);

fn key(metric: &Metric, labels: &[Pair]) -> Key {
    debug_assert!(labels.iter().all(|(name, _)| metric.labels.contains(name)), "a label without a row");
    let labels: Vec<_> = labels.iter().map(|(name, value)| Label::new(*name, value.clone())).collect();
    Key::from_parts(metric.name, labels)
}

pub(super) fn counter(metric: &Metric, labels: &[Pair]) -> Counter {
    with_recorder(|recorder| recorder.register_counter(&key(metric, labels), &METADATA))
}

pub(super) fn gauge(metric: &Metric, labels: &[Pair]) -> Gauge {
    with_recorder(|recorder| recorder.register_gauge(&key(metric, labels), &METADATA))
}

pub(super) fn histogram(metric: &Metric, labels: &[Pair]) -> Histogram {
    with_recorder(|recorder| recorder.register_histogram(&key(metric, labels), &METADATA))
}

/// Registers the unit and the description of every metric with the recorder.
pub(super) fn describe_all() {
    with_recorder(|recorder| {
        for metric in ALL {
            let unit = match metric.unit {
                "s" => Unit::Seconds,
                "By" => Unit::Bytes,
                _ => Unit::Count,
            };
            let (name, unit) = (KeyName::from_const_str(metric.name), Some(unit));
            match metric.kind {
                MetricKind::Counter => recorder.describe_counter(name, unit, metric.help.into()),
                MetricKind::Gauge => recorder.describe_gauge(name, unit, metric.help.into()),
                MetricKind::Histogram => recorder.describe_histogram(name, unit, metric.help.into()),
            }
        }
    });
}
