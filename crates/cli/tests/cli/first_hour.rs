//! Mistakes of a new user, and stores that are down or refuse access. The error names the problem and the remedy.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use ferrata::{Clock, SystemClock};

use crate::service::some_runs;
use crate::support::{Place, Said};

/// `--status` accepts `in_progress`, as tables and JSON print it.
#[tokio::test(flavor = "multi_thread")]
async fn a_status_is_taken_as_it_is_printed() {
    let place = Place::new();
    drop(some_runs(&place).await);
    for status in ferrata::RunStatus::ALL {
        for word in [status.to_string(), status.to_string().replace('_', "-")] {
            place.ok(&["ls", "--status", &word]);
            place.ok(&["sweep", "--keep-last", "1", "--only", &word]);
        }
    }
    assert_eq!(place.ok(&["ls", "--status", "awaiting_input", "-o", "ids"]), "chat-1\n");
}

/// If the default store does not exist, `ls` says so, so that a user who forgot `FERRATA_STORE` notices.
///
/// Guarantees: CLI-3.
#[test]
fn missing_store_setting_is_reported() {
    let place = Place::new();
    let unset = |line: &[&str]| place.call_with(line, "", &[]);
    for line in [
        &["ls"][..],
        &["show", "a"],
        &["wait", "a"],
        &["questions"],
        &["answer", "a", "yes"],
        &["sweep", "--purge", "failed=0s"],
        &["store", "check"],
    ] {
        let said = unset(line);
        assert_eq!((said.code, said.out.as_str()), (4, ""), "{line:?}: {said:?}");
        let told = "error: cannot find a store at `file:.ferrata/store`; set FERRATA_STORE or --store\n";
        assert!(said.err.starts_with(told), "{line:?}: {said:?}");
        assert!(said.err.ends_with("next: ferrata ls --store URL\n"), "{line:?}: {said:?}");
    }
    let absent = format!("sqlite:{}", place.folder.path().join("none.db").display());
    let said = place.call(&["ls", "--store", &absent]);
    assert!(said.code == 4 && said.err.contains("cannot find a store at `sqlite:"), "{said:?}");
    assert!(std::fs::read_dir(place.folder.path()).unwrap().next().is_none(), "a read must create nothing");
    place.ok(&["store", "check", "--setup"]);
    assert!(place.call(&["ls"]).err.contains("no matching runs"));
}

/// Runs a command line against an unreachable store, and returns its output. The limit is two seconds plus the overhead of a busy machine, which is
/// less than the ten seconds that a service waits for a connection.
fn told_soon(url: &str) -> Said {
    let (place, clock) = (Place::new(), SystemClock::new());
    let said = place.call(&["ls", "--store", url]);
    let took = clock.monotonic();
    assert!(took < Duration::from_secs(10), "{url} took {took:?}: {said:?}");
    said
}

/// An unreachable Postgres is reported soon.
///
/// Guarantees: CLI-9.
#[test]
fn dead_server_fails_soon_with_cause() {
    for url in ["postgres://me@127.0.0.1:1/app", "redis://127.0.0.1:1"] {
        let said = told_soon(url);
        assert_eq!(said.code, 70, "{said:?}");
        assert!(said.err.to_lowercase().contains("connection refused"), "{said:?}");
    }
}

/// A server that accepts connections and sends nothing counts as unreachable.
///
/// Guarantees: CLI-9.
#[test]
fn a_silent_server_is_told_soon() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let said = told_soon(&format!("postgres://me@{}/app", silent.local_addr().unwrap()));
    assert_eq!(said.code, 70, "{said:?}");
    assert!(said.err.contains("did not answer"), "{said:?}");
}

/// A minimal Postgres server that refuses every connection.
fn refusing(code: &'static str, message: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut packet = [0; 4096];
            let Ok(read) = stream.read(&mut packet) else { continue };
            // A TLS request has eight bytes.
            if read == 8 && (stream.write_all(b"N").is_err() || stream.read(&mut packet).is_err()) {
                continue;
            }
            let fields = format!("SFATAL\0VFATAL\0C{code}\0M{message}\0\0");
            let mut refusal = vec![b'E'];
            refusal.extend(u32::try_from(fields.len() + 4).unwrap().to_be_bytes());
            refusal.extend(fields.as_bytes());
            let _ = stream.write_all(&refusal);
        }
    });
    format!("postgres://app:s3cret@{address}/app")
}

/// A refused password or database is a store failure with its own exit code, and the suggested command checks the URL.
///
/// Guarantees: CLI-2.
#[test]
fn wrong_password_or_database_blames_store_url() {
    for (code, message, told) in [
        ("28P01", "password authentication failed for user \"app\"", "the server refused the password"),
        ("28000", "no pg_hba.conf entry", "rejects this user"),
        ("3D000", "database \"app\" does not exist", "the database does not exist"),
    ] {
        let said = told_soon(&refusing(code, message));
        assert_eq!(said.code, 70, "{said:?}");
        assert!(said.err.contains(told) && said.err.contains(message), "{said:?}");
        assert!(said.err.ends_with("next: ferrata store check --store URL\n"), "{said:?}");
        assert!(!said.err.contains("s3cret") && !said.err.contains("***"), "{said:?}");
    }
}

/// A misspelled position or node is reported as such, and not as a lost record.
///
/// Guarantees: CLI-2.
#[tokio::test(flavor = "multi_thread")]
async fn unknown_node_suggests_closest_name() {
    let place = Place::new();
    let service = some_runs(&place).await;
    service.runtime.shutdown(Duration::ZERO).await.unwrap();
    for line in [
        &["diff", "pay-2", "begin@1", "aprove@1"][..],
        &["state", "pay-2", "--at", "aprove@1"],
        &["show", "pay-2", "--at", "aprove@1"],
        &["show", "pay-2", "--node", "aprove"],
        &["show", "pay-2", "--node", "aprove@1"],
        &["logs", "pay-2", "--node", "aprove"],
        &["fork", "pay-2", "aprove@1"],
        &["fork", "pay-2", "--start-at", "aprove"],
    ] {
        let said = place.call(line);
        assert_eq!(said.code, 4, "{line:?}: {said:?}");
        assert!(said.err.contains("no node `aprove`"), "{line:?}: {said:?}");
        assert!(said.err.contains("did you mean `approve`?"), "{line:?}: {said:?}");
    }
    // A node of the graph that the run has not visited.
    assert!(place.call(&["show", "pay-1", "--node", "send"]).err.contains("has not started by record"));
    assert!(
        place
            .call(&["state", "pay-2", "--at", "send@9"])
            .err
            .contains("cannot find a record with the end of")
    );
}
