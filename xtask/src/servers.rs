//! The servers of the tests: started here, or found where the environment says.
#![expect(
    clippy::print_stdout,
    reason = "which servers the tests use is what a person wants to see when one fails"
)]

use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ferrata_test_servers::{MotoServer, Program, RadosgwServer, Service, Services as Private, obtain};

use crate::args::Services;

/// How long a server that is said to run may take to accept a connection.
const REACHED: Duration = Duration::from_secs(5);

/// The servers of one run of the tests. Those that were started end with the value.
#[derive(Debug)]
pub(crate) enum Servers {
    /// Started for this run.
    Private(Box<Private>),
    /// Started for this run: the one server that is tested.
    RealS3(Box<RadosgwServer>),
    /// The variables that are not set, with the servers of docker-compose.yml.
    Given(Vec<(&'static str, String)>),
}

impl Servers {
    /// Starts them, or takes those that are given.
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

    /// Returns the variables that the tests need and this process does not have.
    pub(crate) fn variables(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::Private(servers) => servers.variables(),
            Self::RealS3(server) => server.variables(),
            Self::Given(variables) => variables.clone(),
        }
    }
}

/// Makes sure that [`Servers::start`] can do its work, before a caller waits for a build.
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

/// Returns where docker-compose.yml puts a server.
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

/// Makes sure that a connection to each server can be made; otherwise names all that are not there.
fn reach(urls: &[(Service, Option<String>)]) -> Result<()> {
    let mut absent = Vec::new();
    for (service, url) in urls {
        let url = url.as_deref().unwrap_or(composed(*service));
        // Never the URL itself: it may hold a password.
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
    // The colons of an address of IPv6 stand in brackets.
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
        // No server listens on the first of all ports.
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
