//! Tests the transfers whose process is killed. The sum stays right, and each transfer and its record exist exactly once.

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use ferrata::{Clock as _, SystemClock};
use ferrata_test_servers::Service;
use ferrata_tests::{Space, StoreKind};

use crate::support::{Chance, ended, program};

const TRANSFERS: u32 = 25;
const KILLS: u32 = 3;

fn command(space: &Space) -> Command {
    let mut command = Command::new(program("transfer"));
    command.args(["--store", space.url(), "--transfers", &TRANSFERS.to_string()]);
    command.args(["--kills", &KILLS.to_string()]).current_dir(space.folder());
    command
}

fn said(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    format!("{}{errors}", String::from_utf8_lossy(&output.stdout))
}

/// Kills the program itself, and then lets it kill its workers.
async fn is_killed_on(kind: StoreKind) {
    Space::within(kind, async |space| {
        let (mut chance, clock) = (Chance::seeded(), SystemClock::new());
        let mut child = command(space).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        clock.sleep(Duration::from_millis(200 + chance.below(400))).await;
        child.kill().unwrap();
        child.wait().unwrap();

        let output = command(space).output().unwrap();
        let said = said(&output);
        assert!(output.status.success(), "{said}");
        assert!(
            said.contains(&format!("  sum    500, and {TRANSFERS} rows note {TRANSFERS} transfers")),
            "{said}"
        );
        assert!(said.contains(&format!("transfers done: {TRANSFERS}")), "{said}");
        let kills = said.matches("-- kill -9").count();
        assert!(said.contains(&format!("kills: {kills}")), "{said}");
        let log = ended(&*space.open(), "transfers").await;
        assert!(log.values().all(|times| *times == 1), "{log:?}");
        assert_eq!(log.len(), TRANSFERS as usize + 2, "{log:?}");

        // Another start moves nothing.
        let again = command(space).output().unwrap();
        let again = self::said(&again);
        assert!(again.contains("kills: 0; transfers started: 0"), "{again}");
    })
    .await;
}

#[tokio::test]
async fn killed_transfers_happen_once_on_sqlite() {
    is_killed_on(StoreKind::Sqlite).await;
}

/// Guarantees: ONCE-1.
#[tokio::test]
async fn killed_transfers_happen_once_on_postgres() {
    is_killed_on(StoreKind::Server(Service::Postgres)).await;
}

#[test]
fn store_without_transactions_is_refused_with_remedy() {
    let temp = tempfile::tempdir().unwrap();
    let mut command = Command::new(program("transfer"));
    let output = command.args(["--store", "file:runs"]).current_dir(temp.path()).output().unwrap();
    let said = said(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("PostgreSQL or SQLite"), "{said}");
}
