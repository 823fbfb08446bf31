//! The proxy applies an armed fault once, at the chosen place, and reports it. All other traffic is unchanged.
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use ferrata_test_servers::{
    ConnectionCut, FaultEffect, FaultPosition, FaultTrigger, Proxy, ProxyFault, RedisServer,
    RedisServerOptions, RefusingPort,
};

const SOON: Duration = Duration::from_secs(120);

/// All data that a server received, with `|` at the end of each connection.
#[derive(Clone, Default)]
struct Received(Arc<(Mutex<Vec<u8>>, Condvar)>);

impl Received {
    fn add(&self, bytes: &[u8]) {
        self.0.0.lock().unwrap().extend(bytes);
        self.0.1.notify_all();
    }

    /// Waits until this is what has been received.
    #[track_caller]
    fn expect(&self, text: &str) {
        let guard = self.0.0.lock().unwrap();
        let other = |bytes: &mut Vec<u8>| bytes != text.as_bytes();
        let (guard, _) = self.0.1.wait_timeout_while(guard, SOON, other).unwrap();
        assert_eq!(String::from_utf8_lossy(&guard), text);
    }
}

/// Starts a server that answers each line in capitals.
fn shouter() -> (SocketAddr, Received) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, received) = (listener.local_addr().unwrap(), Received::default());
    let shared = received.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let received = shared.clone();
            std::thread::spawn(move || {
                let (mut line, mut byte) = (Vec::new(), [0]);
                while let Ok(1) = stream.read(&mut byte) {
                    received.add(&byte);
                    line.push(byte[0].to_ascii_uppercase());
                    if byte[0] == b'\n' && stream.write_all(&std::mem::take(&mut line)).is_err() {
                        break;
                    }
                }
                received.add(b"|");
            });
        }
    });
    (address, received)
}

fn connect(proxy: &Proxy) -> TcpStream {
    let stream = TcpStream::connect(proxy.address()).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream
}

/// Sends a line, and reads the answer until its end or the end of the connection.
fn call(stream: &mut TcpStream, line: &str) -> String {
    stream.write_all(line.as_bytes()).unwrap();
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).unwrap();
    answer
}

fn close(place: FaultPosition) -> ProxyFault {
    ProxyFault { place, act: FaultEffect::Close }
}

#[test]
fn what_is_not_armed_passes_unchanged() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = Proxy::start(listener.local_addr().unwrap()).unwrap();
    let mut client = connect(&proxy);
    let (mut server, _) = listener.accept().unwrap();
    // More than all buffers can hold, in both directions at once.
    let sent: Vec<u8> = (0..8_000_000_u32).map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
    let (mut got, mut came_back) = (Vec::new(), Vec::new());
    std::thread::scope(|scope| {
        for mut writer in [client.try_clone().unwrap(), server.try_clone().unwrap()] {
            let sent = &sent;
            scope.spawn(move || {
                writer.write_all(sent).unwrap();
                writer.shutdown(Shutdown::Write).unwrap();
            });
        }
        scope.spawn(|| server.read_to_end(&mut got).unwrap());
        client.read_to_end(&mut came_back).unwrap();
    });
    assert!(got == sent && came_back == sent);
    assert_eq!((proxy.connections(), proxy.done()), (1, Vec::new()));
}

#[test]
fn closing_one_direction_leaves_other_open() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = Proxy::start(listener.local_addr().unwrap()).unwrap();
    let mut client = connect(&proxy);
    let (mut server, _) = listener.accept().unwrap();
    server.set_read_timeout(Some(SOON)).unwrap();
    client.write_all(b"all").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut got = String::new();
    server.read_to_string(&mut got).unwrap();
    assert_eq!(got, "all");
    server.write_all(b"got all").unwrap();
    drop(server);
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "got all");
}

#[test]
fn a_connection_is_cut_at_each_place() {
    let cases = [
        (FaultPosition::RequestByte(0), "a\n|", "A\n"),
        (FaultPosition::HalfRequest, "a\nbcd|", "A\n"),
        (FaultPosition::ReplyByte(0), "a\nbcdef\n|", "A\n"),
        (FaultPosition::HalfReply, "a\nbcdef\n|", "A\nBCD"),
    ];
    assert_eq!(cases.map(|(place, _, _)| place), FaultPosition::ALL);
    for (place, at_server, at_client) in cases {
        let (server, received) = shouter();
        let proxy = Proxy::start(server).unwrap();
        let mut client = connect(&proxy);
        let mut answers = call(&mut client, "a\n");
        proxy.arm(FaultTrigger::Request(1), close(place));
        answers += &call(&mut client, "bcdef\n");
        assert_eq!(answers, at_client, "{place:?}");
        assert_eq!(client.read(&mut [0]).unwrap(), 0, "{place:?}: the connection must end");
        received.expect(at_server);
        let done = proxy.wait(1, SOON);
        assert_eq!(done.len(), 1);
        assert_eq!((done[0].connection, done[0].request, done[0].fault), (1, 2, close(place)));
        // A fault happens once.
        let mut next = connect(&proxy);
        assert_eq!((call(&mut next, "g\n").as_str(), call(&mut next, "h\n").as_str()), ("G\n", "H\n"));
        assert_eq!((proxy.connections(), proxy.requests(), proxy.disarm()), (2, 4, 0));
    }
}

#[test]
fn a_connection_is_cut_at_each_byte() {
    for byte in 0..=4 {
        let (server, received) = shouter();
        let proxy = Proxy::start(server).unwrap();
        proxy.arm(FaultTrigger::Connection(1), close(FaultPosition::RequestByte(byte)));
        let answer = call(&mut connect(&proxy), "abcdef\n");
        received.expect(&format!("{}|", &"abcd"[..usize::try_from(byte).unwrap()]));
        assert_eq!(answer, "");
        proxy.arm(FaultTrigger::Request(1), close(FaultPosition::ReplyByte(byte)));
        assert_eq!(call(&mut connect(&proxy), "xyzu\n").len() as u64, byte);
        assert_eq!(proxy.wait(2, SOON).len(), 2);
    }
}

#[test]
fn a_request_in_pieces_is_one() {
    let (server, received) = shouter();
    let proxy = Proxy::start(server).unwrap();
    let mut client = connect(&proxy);
    proxy.arm(FaultTrigger::Request(1), close(FaultPosition::RequestByte(5)));
    client.write_all(b"abc").unwrap();
    received.expect("abc");
    assert_eq!(call(&mut client, "def\n"), "");
    received.expect("abcde|");
    assert_eq!(proxy.requests(), 1);
}

#[test]
fn reset_is_error_and_close_is_not() {
    let (server, received) = shouter();
    let proxy = Proxy::start(server).unwrap();
    for place in [FaultPosition::RequestByte(0), FaultPosition::ReplyByte(0)] {
        let mut client = connect(&proxy);
        proxy.arm(FaultTrigger::Request(1), ProxyFault { place, act: FaultEffect::Reset });
        client.write_all(b"a\n").unwrap();
        assert_eq!(client.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset, "{place:?}");
        received.expect(if place == FaultPosition::RequestByte(0) { "|" } else { "|a\n|" });
    }
}

#[test]
fn a_request_is_chosen_by_what_it_contains() {
    let (server, received) = shouter();
    let proxy = Proxy::start(server).unwrap();
    let (mut first, mut second) = (connect(&proxy), connect(&proxy));
    proxy.arm(FaultTrigger::containing("put"), close(FaultPosition::RequestByte(0)));
    assert_eq!(call(&mut first, "get\n"), "GET\n");
    assert_eq!(call(&mut second, "put\n"), "");
    received.expect("get\n|");
    assert_eq!(call(&mut first, "put\n"), "PUT\n");
    received.expect("get\n|put\n");
    assert_eq!(proxy.done()[0].connection, 2);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a delay is measured on the clock of the machine")]
fn a_delay_ends() {
    let (server, received) = shouter();
    let proxy = Proxy::start(server).unwrap();
    let mut client = connect(&proxy);
    let delay = Duration::from_millis(50);
    for place in FaultPosition::ALL {
        proxy.arm(FaultTrigger::Request(1), ProxyFault { place, act: FaultEffect::Delay(delay) });
        let start = Instant::now();
        assert_eq!(call(&mut client, "abcd\n"), "ABCD\n", "{place:?}");
        assert!(start.elapsed() >= delay, "{place:?}: {:?}", start.elapsed());
    }
    received.expect(&"abcd\n".repeat(4));
    assert_eq!((proxy.done().len(), proxy.connections()), (4, 1));
}

#[test]
fn a_stall_lasts_until_the_connection_is_cut() {
    let cases = [
        (FaultPosition::RequestByte(0), "|", ""),
        (FaultPosition::HalfRequest, "ab|", ""),
        (FaultPosition::ReplyByte(0), "abcd\n|", ""),
        (FaultPosition::HalfReply, "abcd\n|", "AB"),
    ];
    for (place, at_server, at_client) in cases {
        let (server, received) = shouter();
        let proxy = Proxy::start(server).unwrap();
        let mut client = connect(&proxy);
        proxy.arm(FaultTrigger::Request(1), ProxyFault { place, act: FaultEffect::Delay(Duration::MAX) });
        client.write_all(b"abcd\n").unwrap();
        assert_eq!(proxy.wait(1, SOON).len(), 1, "{place:?}");
        let mut answer = vec![0; at_client.len()];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(String::from_utf8_lossy(&answer), at_client, "{place:?}");
        client.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let nothing = client.read(&mut [0]).unwrap_err().kind();
        assert!(matches!(nothing, ErrorKind::WouldBlock | ErrorKind::TimedOut), "{place:?}: {nothing}");
        proxy.cut(ConnectionCut::Close);
        client.set_read_timeout(Some(SOON)).unwrap();
        assert_eq!(client.read(&mut [0]).unwrap(), 0, "{place:?}");
        received.expect(at_server);
    }
}

#[test]
fn new_connections_are_refused_until_they_are_accepted() {
    let (server, _received) = shouter();
    let proxy = Proxy::start(server).unwrap();
    let mut old = connect(&proxy);
    assert_eq!(call(&mut old, "a\n"), "A\n");
    proxy.refuse();
    let refused = TcpStream::connect(proxy.address()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    assert_eq!(call(&mut old, "b\n"), "B\n");
    proxy.accept().unwrap();
    assert_eq!(call(&mut connect(&proxy), "c\n"), "C\n");
    proxy.cut(ConnectionCut::Reset);
    assert_eq!(old.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn proxy_to_absent_server_closes_connection() {
    let nobody = RefusingPort::new().unwrap();
    let server = nobody.address();
    let proxy = Proxy::start(server).unwrap();
    assert_eq!(proxy.url(&format!("redis://{server}/1")), format!("redis://{}/1", proxy.address()));
    let mut client = connect(&proxy);
    assert!(matches!(client.read(&mut [0]), Ok(0) | Err(_)));
}

#[test]
fn redis_executes_only_complete_requests() {
    let redis = RedisServer::start(RedisServerOptions::default()).unwrap();
    let proxy = Proxy::start(redis.address()).unwrap();
    let counts = FaultPosition::ALL.map(|place| {
        for act in [FaultEffect::Close, FaultEffect::Reset] {
            proxy.arm(FaultTrigger::containing("INCR"), ProxyFault { place, act });
            let mut client = connect(&proxy);
            client.write_all(b"INCR key\r\n").unwrap();
            let mut answer = Vec::new();
            let ended = client.read_to_end(&mut answer);
            assert_eq!(ended.is_ok(), act == FaultEffect::Close, "{place:?} {act:?}");
            assert!(answer.len() < 4, "{place:?} {act:?}: the whole answer arrived");
        }
        call(&mut connect(&proxy), "GET key\r\n");
        let mut direct = TcpStream::connect(redis.address()).unwrap();
        call(&mut direct, "STRLEN key\r\n");
        call(&mut direct, "INCRBY key 0\r\n")
    });
    assert_eq!(counts, [":0\r\n", ":0\r\n", ":2\r\n", ":4\r\n"]);
    assert_eq!(proxy.done().len(), 8);
}
