//! Runs the servers for tests until its input ends, so that a test can be repeated without new servers. With `real-s3`, runs only a Ceph object
//! gateway.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "talking to a person at a terminal is its purpose"
)]

use std::io::{Read, Write};
use std::process::ExitCode;

use ferrata_test_servers::{RadosgwServer, ServerError, Services};

/// The running servers.
#[derive(Debug)]
enum RunningServers {
    All(Box<Services>),
    RealS3(Box<RadosgwServer>),
}

impl RunningServers {
    fn start() -> Result<Self, ServerError> {
        match std::env::args().nth(1).as_deref() {
            Some("real-s3") => Ok(Self::RealS3(Box::new(RadosgwServer::start()?))),
            _ => Ok(Self::All(Box::new(Services::start()?))),
        }
    }

    fn variables(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::All(services) => services.variables(),
            Self::RealS3(server) => server.variables(),
        }
    }
}

fn main() -> ExitCode {
    let running = match RunningServers::start() {
        Ok(running) => running,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    for (variable, value) in running.variables() {
        println!("export {variable}={value}");
    }
    // Flush at once, because a reader of this pipe must not wait until a buffer is full.
    let shown = std::io::stdout().flush();
    eprintln!("what was started runs until the end of the input, or Ctrl-C");
    let ended = std::io::stdin().read_to_end(&mut Vec::new());
    drop(running);
    if shown.is_ok() && ended.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
