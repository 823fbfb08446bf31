//! Free ports of this machine.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// Ports are taken from here: below those that the system gives to outgoing connections, so that a server that is down for a
/// moment finds its port free when it comes back. Redis Cluster listens 10000 above, which is below them, too.
const FIRST: u16 = 12_000;
const COUNT: u16 = 10_000;

/// What Redis Cluster adds to a port for its bus, and a cluster of NATS here for its routes.
pub(crate) const BUS: u16 = 10_000;

/// How often another port is tried when a process was quicker.
pub(crate) const TRIES: u32 = 5;

/// Returns a port on which no process listens, nor on its bus port.
///
/// One may before it is used: the caller that starts a server takes another port then.
pub(crate) fn free() -> u16 {
    loop {
        // A new state hashes with new keys: tests that run at once begin at different places.
        let random = RandomState::new().hash_one(std::process::id());
        let offset = u16::try_from(random % u64::from(COUNT)).unwrap_or(0);
        let port = FIRST + offset;
        if is_free(port) && is_free(port + BUS) {
            return port;
        }
    }
}

/// Listens on a free port.
pub(crate) fn listen() -> io::Result<TcpListener> {
    let mut outcome = TcpListener::bind((Ipv4Addr::LOCALHOST, free()));
    for _ in 1..TRIES {
        if outcome.is_ok() {
            break;
        }
        outcome = TcpListener::bind((Ipv4Addr::LOCALHOST, free()));
    }
    outcome
}

/// Asks without binding, which would be in the way of a server that comes back on this port at that moment.
fn is_free(port: u16) -> bool {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    // One that does not answer in time is a listener.
    let refused = TcpStream::connect_timeout(&address, Duration::from_millis(200));
    refused.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}
