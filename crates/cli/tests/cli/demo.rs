//! The example runs of `ferrata demo`, as the page gets them.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ferrata::{Clock as _, SystemClock};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::service::PATIENCE;
use crate::support::Place;

/// A `ferrata demo`, killed at the end of a failed test.
struct Demo(Child);

impl Demo {
    /// Starts the command, and returns it with the host and port of the page.
    fn start(place: &Place, arguments: &[&str]) -> (Self, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ferrata"));
        command.args(["demo", "--listen", "127.0.0.1:0"]).args(arguments).current_dir(place.folder.path());
        // The environment may name the store of a service. The demo must not write there.
        command.env("FERRATA_STORE", place.url()).env("TMPDIR", place.folder.path());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
        let address = url.trim().trim_start_matches("http://").trim_end_matches('/').to_owned();
        (Self(child), address)
    }

    /// Presses Ctrl-C, and returns the exit code.
    fn stop(mut self) -> i32 {
        let process = Pid::from_child(&self.0);
        kill_process(process, Signal::INT).unwrap();
        self.0.wait().unwrap().code().expect("the command ends by itself")
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn fetch(address: &str, path: &str) -> Value {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
    let body = if head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
        body.split("\r\n").skip(1).step_by(2).collect::<String>()
    } else {
        body.to_owned()
    };
    serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

/// Waits until the page shows each run in its state.
async fn wait_for_states(address: &str) {
    let clock = SystemClock::new();
    loop {
        let listed = fetch(address, "/api/v1/runs");
        let status = |run: &str| {
            let runs = listed["items"].as_array().unwrap_or_else(|| panic!("{listed}"));
            let found = runs.iter().find(|listed| listed["id"] == run);
            found.map(|found| found["status"].as_str().unwrap_or_else(|| panic!("{found}")).to_owned())
        };
        let statuses = ["order-1", "invoice-1", "delivery-1", "import-1"].map(status);
        let expected = ["failed", "interrupted", "in_progress", "in_progress"];
        let delivery = fetch(address, "/api/v1/runs/default/delivery-1").to_string();
        if statuses.iter().map(|status| status.as_deref().unwrap_or_default()).eq(expected)
            && delivery.contains("the carrier does not answer")
        {
            return;
        }
        assert!(clock.monotonic() < PATIENCE, "{statuses:?}: {listed}\n{delivery}");
        clock.sleep(Duration::from_millis(20)).await;
    }
}

/// Guarantees: CLI-27.
#[tokio::test]
async fn demo_shows_four_states_and_cleans_up() {
    let place = Place::new();
    let (demo, address) = Demo::start(&place, &[]);
    wait_for_states(&address).await;
    assert_eq!(std::fs::read_dir(place.folder.path()).unwrap().count(), 1, "only the temporary store");
    assert_eq!(demo.stop(), 0);
    assert_eq!(std::fs::read_dir(place.folder.path()).unwrap().count(), 0);
}

/// Guarantees: CLI-27.
#[tokio::test]
async fn named_store_keeps_demo_runs() {
    let place = Place::new();
    for _ in 0..2 {
        let (demo, address) = Demo::start(&place, &["--store", "file:kept"]);
        wait_for_states(&address).await;
        assert_eq!(demo.stop(), 0);
    }
    assert_eq!(place.ok(&["ls", "--store", "file:kept", "-o", "ids"]).lines().count(), 4);
    assert_eq!(place.ok(&["ls", "--store", "file:kept", "--status", "failed", "-o", "ids"]), "order-1\n");
}
