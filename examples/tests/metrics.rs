//! Tests the example with Prometheus as a user runs it. The exported metrics have the names of the documentation, the alerts and the dashboard.
#![expect(clippy::unwrap_used, reason = "all of it is a test")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use ferrata::metrics::{ALL, Metric, MetricKind};

/// The example program. The program is killed at the end of the test.
struct Program {
    child: Child,
    address: String,
}

impl Program {
    fn start() -> Self {
        let own = std::env::current_exe().unwrap();
        let program = own.parent().and_then(Path::parent).unwrap().join("examples/metrics");
        let mut child = Command::new(program).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address =
            line.trim().strip_prefix("metrics on http://").and_then(|rest| rest.strip_suffix("/metrics"));
        let address = address.unwrap_or_else(|| panic!("it says {line:?}")).to_owned();
        Self { child, address }
    }

    fn scrape(&self) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(stream, "GET /metrics HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", self.address)
            .unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        let (head, body) = reply.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        body.to_owned()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // The program may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the name of a metric in Prometheus, according to the documentation.
fn exported(metric: &Metric) -> String {
    let unit = match metric.unit {
        "s" => "_seconds",
        "By" => "_bytes",
        _ => "",
    };
    let total = if metric.kind == MetricKind::Counter { "_total" } else { "" };
    format!("{}{unit}{total}", metric.name.replace('.', "_"))
}

/// Parses the kind of each metric family, and every sample by its name and labels.
fn parse(text: &str) -> (BTreeMap<String, String>, BTreeMap<String, f64>) {
    let (mut kinds, mut samples) = (BTreeMap::new(), BTreeMap::new());
    for line in text.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            kinds.insert(name.to_owned(), kind.to_owned());
        } else if !line.starts_with('#')
            && let Some((series, value)) = line.rsplit_once(' ')
        {
            samples.insert(series.to_owned(), value.parse().unwrap());
        }
    }
    (kinds, samples)
}

#[test]
fn prometheus_names_match_metrics_page() {
    let program = Program::start();
    let settled =
        r#"ferrata_run_settled_total{ferrata_workflow_name="order",ferrata_run_status="completed"}"#;
    let (kinds, samples) = loop {
        let (kinds, samples) = parse(&program.scrape());
        // The program places orders forever. So the loop ends, or the program has ended and the scrape fails.
        if samples.get(settled).is_some_and(|settled| *settled >= 4.0) {
            break (kinds, samples);
        }
        std::thread::yield_now();
    };
    let named: BTreeMap<String, &str> = ALL
        .iter()
        .map(|metric| {
            let kind = match metric.kind {
                MetricKind::Counter => "counter",
                MetricKind::Gauge => "gauge",
                _ => "histogram",
            };
            (exported(metric), kind)
        })
        .collect();
    for (name, kind) in &kinds {
        assert_eq!(named.get(name), Some(&kind.as_str()), "{name}");
    }
    // The metrics that a process without problems exports.
    let there: BTreeSet<&str> = kinds.keys().map(String::as_str).collect();
    for name in [
        "ferrata_run_started_total",
        "ferrata_run_duration_seconds",
        "ferrata_activation_failures_total",
        "ferrata_attempt_duration_seconds",
        "ferrata_store_operation_duration_seconds",
        "ferrata_store_io_bytes_total",
        "ferrata_append_batch_runs",
        "ferrata_heartbeat_time_seconds",
        "ferrata_recovery_lag_seconds",
    ] {
        assert!(there.contains(name), "{name} is missing: {there:?}");
    }
    let append = r#"ferrata_store_operation_duration_seconds_bucket{ferrata_store_name="memory",ferrata_store_operation="append",le="+Inf"}"#;
    assert!(samples[append] >= 4.0, "{append}");
    let failed = r#"ferrata_activation_failures_total{ferrata_workflow_name="order",error_type="node"}"#;
    assert!(samples[failed] >= 2.0, "{failed}");
}
