//! Runs the servers of the tests until its input ends, for a test that is run again and again.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "talking to a person at a terminal is its purpose"
)]

use std::io::{Read, Write};
use std::process::ExitCode;

use ferrata_test_servers::Services;

fn main() -> ExitCode {
    let services = match Services::start() {
        Ok(services) => services,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    for (service, url) in services.urls() {
        println!("export {}={url}", service.variable());
    }
    // Whoever reads this through a pipe must not wait for a full buffer.
    let shown = std::io::stdout().flush();
    eprintln!("the servers run until the end of the input, or Ctrl-C");
    let ended = std::io::stdin().read_to_end(&mut Vec::new());
    drop(services);
    if shown.is_ok() && ended.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
