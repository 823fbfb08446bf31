//! Tests the example of traces. Its two processes, one of which is killed, send spans to a collector by OTLP. The spans form one trace.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use ferrata_tests::{Space, StoreKind};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use prost::Message as _;

use crate::support::program;

/// A span as the collector received it.
#[derive(Clone, Debug)]
struct Span {
    process: String,
    name: String,
    trace: Vec<u8>,
    id: Vec<u8>,
    parent: Vec<u8>,
    links: Vec<Vec<u8>>,
    attributes: BTreeMap<String, String>,
}

impl Span {
    fn is_of(&self, node: &str) -> bool {
        self.name == "ferrata.node" && self.attributes["node.id"] == node
    }
}

/// Starts a collector that accepts OTLP over HTTP and sends each span to the receiver. The collector ends with the process.
fn collector() -> (SocketAddr, Receiver<Span>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, spans) = channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let sender = sender.clone();
            // A connection ends with the process at its other end, which may be killed.
            thread::spawn(move || serve(&stream.unwrap(), &sender));
        }
    });
    (address, spans)
}

/// Answers the requests of a connection until it ends.
fn serve(stream: &TcpStream, to: &Sender<Span>) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let (mut line, mut length) = (String::new(), 0);
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        assert_eq!(line, "POST /v1/traces HTTP/1.1\r\n");
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line)?;
            match line.to_ascii_lowercase().trim().split_once(": ") {
                Some(("content-length", value)) => length = value.parse().unwrap(),
                Some(("content-type", value)) => assert_eq!(value, "application/x-protobuf"),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let request = ExportTraceServiceRequest::decode(&*body).unwrap();
        // The test may have ended already.
        read(request).into_iter().for_each(|span| drop(to.send(span)));
        let reply = ExportTraceServiceResponse::default().encode_to_vec();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length:";
        (&*stream).write_all(&[format!("{head} {}\r\n\r\n", reply.len()).as_bytes(), &reply].concat())?;
    }
}

fn read(request: ExportTraceServiceRequest) -> Vec<Span> {
    let mut spans = Vec::new();
    for of in request.resource_spans {
        let resource = attributes(of.resource.unwrap().attributes);
        assert_eq!(resource["service.name"], "orders");
        for span in of.scope_spans.into_iter().flat_map(|scope| scope.spans) {
            spans.push(Span {
                process: resource["process.pid"].clone(),
                name: span.name,
                trace: span.trace_id,
                id: span.span_id,
                parent: span.parent_span_id,
                links: span.links.into_iter().map(|link| link.span_id).collect(),
                attributes: attributes(span.attributes),
            });
        }
    }
    spans
}

fn attributes(all: Vec<KeyValue>) -> BTreeMap<String, String> {
    let text = |value: Option<AnyValue>| match value.and_then(|value| value.value) {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    };
    all.into_iter().map(|one| (one.key, text(one.value))).collect()
}

/// The collector gets the spans that the killed process had sent, and all spans of the other process. Only the spans that were open at the kill are
/// missing. Spans below them name them as their parents.
///
/// Guarantees: TRACE-1.
#[tokio::test]
async fn collector_joins_killed_and_next_process_in_trace() {
    Space::within(StoreKind::Files, async |space| {
        let (address, sent) = collector();
        let mut command = Command::new(program("traces"));
        command.args(["--store", space.url()]).current_dir(space.folder());
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{address}"));
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        assert!(said.contains("the child ended with signal: 9 (SIGKILL)"), "{said}");
        // The program ends when all spans are sent, and the collector passes a batch on before it answers.
        let all: Vec<Span> = sent.try_iter().collect();
        let of = |name: &str| all.iter().filter(|span| span.name == name).collect::<Vec<_>>();
        let ([request], [operator]) = (&of("POST /orders")[..], &of("ferrata resume")[..]) else {
            panic!("{all:#?}")
        };
        let hex = |id: &[u8]| id.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert!(said.ends_with(&format!("its trace is {}\n", hex(&request.trace))), "{said}");
        let (first, second) = (&request.process, &operator.process);
        assert!(request.parent.is_empty() && first != second && operator.trace != request.trace);

        // Everything that the run and its child did is in the trace of the request, whichever process did it.
        for name in ["ferrata.start", "ferrata.run", "ferrata.node", "ferrata.step"] {
            assert!(
                !of(name).is_empty() && of(name).iter().all(|span| span.trace == request.trace),
                "{name}"
            );
        }
        let node = |name: &str| {
            let [node] = all.iter().filter(|span| span.is_of(name)).collect::<Vec<_>>()[..] else {
                panic!("{name}: {all:#?}")
            };
            node
        };
        for (name, process) in [("pay", first), ("pack", second), ("send", second), ("print", second)] {
            assert_eq!(&node(name).process, process, "{name}");
        }

        // The spans form one tree below the request, with two exceptions. The kill lost two spans: the drive of the run, and the running node, whose
        // append may have been sent before.
        let ours: BTreeMap<&[u8], &Span> =
            all.iter().filter(|span| span.trace == request.trace).map(|span| (&*span.id, span)).collect();
        let lost: BTreeSet<&[u8]> = ours.values().map(|span| &*span.parent).collect();
        let lost: Vec<_> = lost.into_iter().filter(|id| !id.is_empty() && !ours.contains_key(id)).collect();
        assert!(lost.contains(&&*node("pay").parent) && lost.len() <= 2, "{lost:?} of {all:#?}");
        let below: BTreeSet<&str> =
            ours.values().filter(|span| lost.contains(&&*span.parent)).map(|span| &*span.process).collect();
        assert_eq!(below, BTreeSet::from([&**first]));
        let roots: Vec<_> = ours.values().filter(|span| span.parent.is_empty()).collect();
        assert_eq!(roots.len(), 1, "{roots:#?}");

        // The path from the last node up to the request: the start of its child run, the node that started the child, the second drive, and the
        // start.
        let mut path = Vec::new();
        let mut at = node("print");
        while let Some(above) = ours.get(&*at.parent) {
            path.push(match above.attributes.get("node.id") {
                Some(node) => format!("{} {node}", above.name),
                None => above.name.clone(),
            });
            at = above;
        }
        let expected = [
            "ferrata.run",
            "ferrata.start",
            "ferrata.node send",
            "ferrata.run",
            "ferrata.start",
            "POST /orders",
        ];
        assert_eq!(path, expected);
        let step = of("ferrata.step")[0];
        assert_eq!(step.parent, node("pay").id);
        let resumed = ours[&*node("pack").parent];
        assert_eq!((&resumed.process, &resumed.links[..]), (second, &[operator.id.clone()][..]));
        assert_eq!(resumed.attributes["run.status"], "completed");
    })
    .await;
}
