//! The servers for the tests. The servers are started here, or environment variables name them.
#![expect(
    clippy::print_stdout,
    reason = "which servers the tests use is what a person wants to see when one fails"
)]

use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ferrata_test_servers::{MotoServer, Program, RadosgwServer, Service, Services as Private, obtain};

use crate::args::Services;

/// Maximum time in which a server that should be running must accept a connection.
const REACHED: Duration = Duration::from_secs(5);

/// The servers of one test run. Dropping the value stops those that were started.
#[derive(Debug)]
pub(crate) enum Servers {
    /// Servers that were started for this run.
    Private(Box<Private>),
    /// The distributed S3 server that was started for this run, and that is tested alone.
    RealS3(Box<RadosgwServer>),
    /// Servers that are already running. The value lists the variables that are not set, with the servers of docker-compose.yml.
    Given(Vec<(&'static str, String)>),
}

impl Servers {
    /// Starts the servers, or uses the given ones.
    pub(crate) fn start(services: Services) -> Result<Self> {
        match services {
            Services::Native => {
                let servers = Private::start()?;
                let urls: Vec<String> = servers.urls().into_iter().map(|(_, url)| url).collect();
                println!("servers of the tests: {}", urls.join(" "));
                Ok(Self::Private(Box::new(servers)))
            }
            Services::RealS3 => {
                let server = RadosgwServer::start()?;
                println!("server of the tests: {} at {}", server.version()?, server.url());
                Ok(Self::RealS3(Box::new(server)))
            }
            Services::None => Ok(Self::Given(Vec::new())),
            Services::Env => {
                let unset = Service::ALL.into_iter().filter(|service| given(service.variable()).is_none());
                let named = unset.map(|service| (service.variable(), composed(service).to_owned()));
                Ok(Self::Given(named.collect()))
            }
        }
    }

    /// Returns the variables that the tests need and that are not set in this process.
    pub(crate) fn variables(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::Private(servers) => servers.variables(),
            Self::RealS3(server) => server.variables(),
            Self::Given(variables) => variables.clone(),
        }
    }
}

/// Checks that [`Servers::start`] can succeed, before the caller waits for a build.
pub(crate) fn prepare(services: Services) -> Result<()> {
    match services {
        Services::Env => reach(&Service::ALL.map(|service| (service, given(service.variable())))),
        Services::None => Ok(()),
        Services::RealS3 => {
            println!("a Ceph object gateway will be downloaded into the target folder, unless it is there");
            Ok(())
        }
        Services::Native => {
            for service in Service::ALL.into_iter().filter(|service| given(service.variable()).is_some()) {
                println!("{} is set and not used; `--services env` uses it", service.variable());
            }
            obtain(&Program::ALL, |program| {
                println!("not installed, and now unpacked into the target folder, once: {program}");
            })?;
            if !MotoServer::is_at_hand() {
                println!("pip will put moto into the target folder, once; that takes a minute");
            }
            Ok(())
        }
    }
}

/// Returns the URL of a server in docker-compose.yml.
fn composed(service: Service) -> &'static str {
    match service {
        Service::Postgres => "postgres://postgres:ferrata@127.0.0.1:5442/postgres",
        Service::Redis => "redis://127.0.0.1:6389",
        Service::RedisCluster => "redis://127.0.0.1:6391",
        Service::Nats => "nats://127.0.0.1:4232",
        _ => "http://127.0.0.1:5010",
    }
}

fn given(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|value| !value.is_empty())
}

/// Checks that each server accepts a connection. The error names all servers that do not.
fn reach(urls: &[(Service, Option<String>)]) -> Result<()> {
    let mut absent = Vec::new();
    for (service, url) in urls {
        let url = url.as_deref().unwrap_or(composed(*service));
        // Do not show the URL itself, because it may contain a password.
        let place = place(url).with_context(|| format!("{} holds no URL of a server", service.variable()))?;
        let is_there = |address| TcpStream::connect_timeout(&address, REACHED).is_ok();
        if !place.to_socket_addrs().is_ok_and(|mut addresses| addresses.any(is_there)) {
            absent.push(format!("    {}: nobody at {place}", service.variable()));
        }
    }
    if absent.is_empty() {
        return Ok(());
    }
    bail!(
        "servers of the tests are not there:\n{}\nStart them with `docker compose up -d --wait`, or set the variables; \
         without `--services env` private ones are started",
        absent.join("\n")
    )
}

/// Returns the host and port of a URL.
fn place(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?']).next()?;
    let host = authority.rsplit('@').next().filter(|host| !host.is_empty())?;
    // The colons of an IPv6 address are inside brackets.
    if host.rsplit(']').next()?.contains(':') {
        return Some(host.to_owned());
    }
    let port = match scheme {
        "postgres" | "postgresql" => 5432,
        "redis" | "rediss" => 6379,
        "nats" | "tls" => 4222,
        "http" => 80,
        "https" => 443,
        _ => return None,
    };
    Some(format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn server_address_is_parsed_from_url() {
        let place = |url| place(url).unwrap_or_default();
        assert_eq!(place("postgres://user:p@ss:w@db.example:7000/name?x=y"), "db.example:7000");
        assert_eq!(place("postgresql://db.example/name"), "db.example:5432");
        assert_eq!(place("rediss://:secret@[::1]"), "[::1]:6379");
        assert_eq!(place("redis://[::1]:7/0"), "[::1]:7");
        assert_eq!(place("https://s3.example"), "s3.example:443");
        assert_eq!(place("http://127.0.0.1:5000"), "127.0.0.1:5000");
        assert_eq!(place("127.0.0.1:5000"), "");
        assert_eq!(place("postgres:///name"), "");
        assert_eq!(place("ftp://a"), "");
    }

    #[test]
    fn absent_servers_are_named_without_passwords() {
        let there = TcpListener::bind("127.0.0.1:0").unwrap();
        let there = format!("redis://{}", there.local_addr().unwrap());
        // No server listens on port 1.
        let absent = |scheme| Some(format!("{scheme}://user:secret@127.0.0.1:1/a"));
        let urls = [
            (Service::Postgres, absent("postgres")),
            (Service::Redis, Some(there)),
            (Service::S3, absent("http")),
        ];
        let error = reach(&urls).unwrap_err().to_string();
        assert!(error.contains("STORE_TEST_POSTGRES_URL: nobody at 127.0.0.1:1\n"), "{error}");
        assert!(error.contains("STORE_TEST_S3_URL") && error.contains("docker compose up"), "{error}");
        assert!(!error.contains("STORE_TEST_REDIS_URL") && !error.contains("secret"), "{error}");
        let nonsense = reach(&[(Service::S3, Some("user:secret@".to_owned()))]).unwrap_err().to_string();
        assert_eq!(nonsense, "STORE_TEST_S3_URL holds no URL of a server");
    }

    #[test]
    fn compose_file_contains_default_servers() {
        let text = include_str!("../../docker-compose.yml");
        for service in Service::ALL {
            let place = place(composed(service)).unwrap();
            assert!(text.contains(&format!("\"{place}:")), "{place} is not in docker-compose.yml");
        }
    }
}
