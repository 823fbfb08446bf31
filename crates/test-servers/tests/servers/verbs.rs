//! The operations of each server, and the place of its data.
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use ferrata_test_servers::{
    AppendFsync, MotoServer, NatsServer, NatsServerOptions, PostgresServer, PostgresServerOptions,
    RedisCluster, RedisServer, RedisServerOptions, Server, ServerError,
};

/// Maximum time on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection to a server with a time limit for answers.
fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends a line to Redis, and returns the first line of the answer.
fn redis(stream: &mut TcpStream, line: &str) -> String {
    stream.write_all(format!("{line}\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).unwrap();
    answer.trim_end().to_owned()
}

/// A minimal Postgres client that reads one value.
struct Sql(TcpStream);

impl Sql {
    fn open(server: &Server) -> Self {
        let mut stream = connect(server);
        let parameters = b"\0\x03\0\0user\0postgres\0database\0postgres\0\0";
        let length = u32::try_from(parameters.len() + 4).unwrap();
        stream.write_all(&[&length.to_be_bytes()[..], parameters].concat()).unwrap();
        let mut sql = Self(stream);
        sql.answer().unwrap();
        sql
    }

    /// Runs a statement. Returns the last value, or the error of the server.
    fn ask(&mut self, statement: &str) -> Result<String, String> {
        let length = u32::try_from(statement.len() + 5).unwrap();
        self.0.write_all(&[b"Q", &length.to_be_bytes()[..], statement.as_bytes(), b"\0"].concat()).unwrap();
        self.answer()
    }

    fn answer(&mut self) -> Result<String, String> {
        let mut outcome = Ok(String::new());
        loop {
            let mut head = [0; 5];
            self.0.read_exact(&mut head).unwrap();
            let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) - 4;
            let mut body = vec![0; usize::try_from(length).unwrap()];
            self.0.read_exact(&mut body).unwrap();
            match head[0] {
                b'E' => outcome = Err(String::from_utf8_lossy(&body).into_owned()),
                // The row has one column. Its count and length come first.
                b'D' => outcome = Ok(String::from_utf8_lossy(&body[6..]).into_owned()),
                b'Z' => return outcome,
                _ => {}
            }
        }
    }
}

#[test]
fn postgres_preserves_acknowledged_writes_through_kill() {
    let postgres =
        PostgresServer::start(PostgresServerOptions::default().with_setting("work_mem", "5MB")).unwrap();
    let port = postgres.port();
    assert_eq!(postgres.url(), format!("postgres://postgres@127.0.0.1:{port}/postgres"));
    let mut sql = Sql::open(&postgres);
    assert_eq!(sql.ask("SHOW fsync").unwrap(), "on");
    assert_eq!(sql.ask("SHOW work_mem").unwrap(), "5MB");
    assert_eq!(sql.ask("SHOW server_encoding").unwrap(), "UTF8");
    sql.ask("CREATE TABLE kept (value text); INSERT INTO kept VALUES ('here')").unwrap();
    // A busy backend must not survive, because it would write next to the next server.
    sql.0.write_all(b"Q\0\0\0\x1aSELECT pg_sleep(1000)\0").unwrap();
    postgres.kill().unwrap();
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "a killed Postgres accepted a connection");
    assert!(matches!(postgres.kill(), Err(ServerError::NotRunning { .. })));
    postgres.restart().unwrap();
    assert_eq!(postgres.port(), port);
    assert_eq!(Sql::open(&postgres).ask("SELECT value FROM kept").unwrap(), "here");
    postgres.stop().unwrap();
    postgres.restart().unwrap();
    assert_eq!(Sql::open(&postgres).ask("SELECT value FROM kept").unwrap(), "here");
    let folder = postgres.folder().to_owned();
    assert!(folder.exists());
    drop(postgres);
    assert!(!folder.exists(), "{} must be removed", folder.display());
}

#[test]
fn suspended_postgres_answers_only_after_resume() {
    let postgres = PostgresServer::start(PostgresServerOptions::default().with_fsync(false)).unwrap();
    let mut sql = Sql::open(&postgres);
    assert_eq!(sql.ask("SHOW fsync").unwrap(), "off");
    postgres.suspend().unwrap();
    sql.0.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    sql.0.write_all(b"Q\0\0\0\x0dSELECT 7\0").unwrap();
    let error = sql.0.read(&mut [0]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
    postgres.resume().unwrap();
    sql.0.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(sql.answer().unwrap(), "7");
    // A suspended server can be stopped, too.
    postgres.suspend().unwrap();
    postgres.stop().unwrap();
}

#[test]
fn a_given_folder_stays_with_the_data() {
    let folder = tempfile::tempdir().unwrap();
    // The user of the server has no access to a private folder of root.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).unwrap();
    let options = PostgresServerOptions::default().with_fsync(false).with_dir(folder.path().join("kept"));
    let first = PostgresServer::start(options.clone()).unwrap();
    Sql::open(&first).ask("CREATE TABLE kept (value text)").unwrap();
    drop(first);
    let second = PostgresServer::start(options).unwrap();
    assert_eq!(Sql::open(&second).ask("SELECT count(*) FROM kept").unwrap(), "0");
}

#[test]
fn invalid_postgres_setting_reports_server_message() {
    let options = PostgresServerOptions::default().with_setting("no_such_setting", "1");
    let error = PostgresServer::start(options).unwrap_err().to_string();
    assert!(error.contains("Postgres ended at its start") && error.contains("no_such_setting"), "{error}");
}

#[test]
fn redis_preserves_appended_commands_through_kill() {
    let options = RedisServerOptions::default().with_appendfsync(AppendFsync::Always);
    let server = RedisServer::start(options).unwrap();
    let mut stream = connect(&server);
    assert_eq!(redis(&mut stream, "SET kept here"), "+OK");
    server.kill().unwrap();
    server.restart().unwrap();
    let mut stream = connect(&server);
    assert_eq!(redis(&mut stream, "STRLEN kept"), ":4");
    server.suspend().unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    stream.write_all(b"PING\r\n").unwrap();
    assert!(stream.read(&mut [0]).is_err());
    server.resume().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answer = [0; 7];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"+PONG\r\n");
}

#[test]
fn a_redis_is_as_its_options_say() {
    let forgetful =
        RedisServerOptions::default().with_appendonly(false).with_args(["--requirepass", "secret"]);
    let server = RedisServer::start(forgetful).unwrap();
    let mut stream = connect(&server);
    assert!(redis(&mut stream, "PING").starts_with("-NOAUTH"));
    assert_eq!(redis(&mut stream, "AUTH secret"), "+OK");
    assert_eq!(redis(&mut stream, "SET lost gone"), "+OK");
    server.kill().unwrap();
    server.restart().unwrap();
    let mut stream = connect(&server);
    assert_eq!(redis(&mut stream, "AUTH secret"), "+OK");
    assert_eq!(redis(&mut stream, "EXISTS lost"), ":0");

    let full = RedisServer::start(RedisServerOptions::default().with_maxmemory(1)).unwrap();
    assert!(redis(&mut connect(&full), "SET a b").starts_with("-OOM"));
}

#[test]
fn three_node_cluster_shares_slots_and_misses_killed() {
    let cluster = RedisCluster::start(3).unwrap();
    assert_eq!(cluster.nodes().len(), 3);
    assert_eq!(cluster.url(), cluster.nodes()[0].url());
    let mut served = 0;
    for key in ["a", "b", "c", "d", "e", "f"] {
        let answers = cluster.nodes().iter().map(|node| redis(&mut connect(node), &format!("SET {key} x")));
        let (taken, moved): (Vec<_>, Vec<_>) = answers.partition(|answer| answer == "+OK");
        assert!(moved.iter().all(|answer| answer.starts_with("-MOVED ")), "{moved:?}");
        served += taken.len();
    }
    assert_eq!(served, 6, "each key has one node");
    cluster.nodes()[2].kill().unwrap();
    cluster.nodes()[2].restart().unwrap();
}

#[test]
fn moto_refuses_second_conditional_create() {
    let moto = MotoServer::start().unwrap();
    let put = |path: &str| {
        let mut stream = connect(&moto);
        let head = "Host: 127.0.0.1\r\nIf-None-Match: *\r\nContent-Length: 1\r\nConnection: close\r\n";
        let signed = "Authorization: AWS4-HMAC-SHA256 Credential=a/20260101/us-east-1/s3/aws4_request\r\n";
        write!(stream, "PUT {path} HTTP/1.1\r\n{head}{signed}\r\nx").unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        line.split(' ').nth(1).unwrap().to_owned()
    };
    let mut stream = connect(&moto);
    write!(
        stream,
        "PUT /bucket HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(put("/bucket/key"), "200");
    assert_eq!(put("/bucket/key"), "412");
    moto.stop().unwrap();
    moto.restart().unwrap();
    assert_eq!(put("/bucket/key"), "404", "a moto server forgets its buckets");
}

/// Sends lines to NATS. Returns its greeting and the first answer.
fn nats(server: &Server, lines: &str) -> (String, String) {
    let mut stream = BufReader::new(connect(server));
    let [mut info, mut answer] = [const { String::new() }; 2];
    stream.read_line(&mut info).unwrap();
    stream.get_mut().write_all(lines.as_bytes()).unwrap();
    stream.read_line(&mut answer).unwrap();
    (info, answer.trim_end().to_owned())
}

#[test]
fn nats_restarts_with_jetstream_at_same_address() {
    let server = NatsServer::start(NatsServerOptions::default().with_max_payload(4_096)).unwrap();
    for _ in 0..2 {
        let (info, answer) = nats(&server, "CONNECT {\"verbose\":false}\r\nPING\r\n");
        assert!(info.contains("\"jetstream\":true") && info.contains("\"max_payload\":4096"), "{info}");
        assert_eq!(answer, "PONG");
        server.kill().unwrap();
        let refused = TcpStream::connect(server.address()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        server.restart().unwrap();
    }
    let closed =
        NatsServer::start(NatsServerOptions::default().with_config("authorization { token: \"secret\" }"))
            .unwrap();
    let (_, answer) = nats(&closed, "CONNECT {}\r\nPING\r\n");
    assert!(answer.contains("Authorization Violation"), "{answer}");
    let error = NatsServer::start(NatsServerOptions::default().with_config("no_such_setting: {"))
        .unwrap_err()
        .to_string();
    assert!(error.contains("NATS ended at its start"), "{error}");
}
