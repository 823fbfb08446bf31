//! The shared servers are reachable at the URLs of their variables, and are of the right kind.
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use ferrata_test_servers::{Service, service_url};

/// Sends `request` to the server that a URL names, and returns the first bytes of the answer.
fn answer(url: &str, request: &[u8]) -> String {
    let (scheme, rest) = url.split_once("://").unwrap();
    let place = rest.split(['/', '?']).next().unwrap().rsplit('@').next().unwrap();
    let port = match scheme {
        "postgres" | "postgresql" => 5432,
        "redis" => 6379,
        "http" => 80,
        // This test does not use TLS. The tests of the stores do.
        other => panic!("this test needs a plain URL for the server, not `{other}`"),
    };
    let place = if place.contains(':') { place.to_owned() } else { format!("{place}:{port}") };
    let mut stream = TcpStream::connect(&place).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(request).unwrap();
    let mut bytes = [0; 64];
    let length = stream.read(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

#[test]
fn a_postgres_answers() {
    // The answer to a TLS request: `S` or `N`.
    let answer = answer(&service_url(Service::Postgres), &[0, 0, 0, 8, 4, 210, 22, 47]);
    assert!(answer == "S" || answer == "N", "{answer:?}");
}

#[test]
fn a_single_redis_answers() {
    let answer = answer(&service_url(Service::Redis), b"CLUSTER INFO\r\n");
    assert!(
        answer.starts_with("-ERR This instance has cluster support disabled")
            || answer.starts_with("-NOAUTH"),
        "{answer:?}"
    );
}

#[test]
fn a_redis_cluster_answers() {
    let answer = answer(&service_url(Service::RedisCluster), b"CLUSTER INFO\r\n");
    assert!(answer.contains("cluster_state:ok") || answer.starts_with("-NOAUTH"), "{answer:?}");
}

#[test]
fn an_s3_answers() {
    let answer = answer(&service_url(Service::S3), b"GET / HTTP/1.0\r\nHost: s3\r\n\r\n");
    assert!(answer.starts_with("HTTP/1."), "{answer:?}");
}
