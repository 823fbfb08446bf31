//! Ports of this machine that no other test uses.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

/// The first port: below those that the system assigns to outgoing connections, so that a restarted server finds its port free. Redis Cluster listens
/// 10000 above, which is also below them.
const FIRST: u16 = 12_000;
const COUNT: u16 = 10_000;

/// The offset of the bus port of Redis Cluster, and of the route port of a NATS cluster.
pub(crate) const BUS: u16 = 10_000;

/// Number of further ports to try if an unrelated program takes a port first.
pub(crate) const TRIES: u32 = 5;

/// A port, and its bus port: no other test of this machine gets either while this value lives, even while its server is down.
#[derive(Debug)]
pub(crate) struct ReservedPort {
    number: u16,
    /// The UDP port with the same number serves as a lock: no server here uses UDP, and the system releases the port of an ended process.
    _held: UdpSocket,
}

impl ReservedPort {
    /// Reserves a port without a listener on it or on its bus port.
    ///
    /// An unrelated program may take the port before its use: the caller that starts a server then uses another port.
    pub(crate) fn free() -> Self {
        loop {
            // A new state hashes with new keys, so concurrent tests begin at different ports.
            let random = RandomState::new().hash_one(std::process::id());
            let offset = u16::try_from(random % u64::from(COUNT)).unwrap_or(0);
            let number = FIRST + offset;
            if let Ok(held) = UdpSocket::bind((Ipv4Addr::LOCALHOST, number))
                && is_free(number)
                && is_free(number + BUS)
            {
                return Self { number, _held: held };
            }
        }
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }
}

/// Listens on a free port.
pub(crate) fn listen() -> io::Result<(ReservedPort, TcpListener)> {
    let mut attempt = 1;
    loop {
        let port = ReservedPort::free();
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port.number)) {
            Err(error) if attempt == TRIES => return Err(error),
            Err(_) => attempt += 1,
            Ok(listener) => return Ok((port, listener)),
        }
    }
}

/// Tests without binding, which would conflict with a server that restarts on this port at that moment.
fn is_free(port: u16) -> bool {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    // A port that does not answer in time has a listener.
    let refused = TcpStream::connect_timeout(&address, Duration::from_millis(200));
    refused.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A test must not take the port of another test's server while that server is down, because the server could then not restart.
    #[test]
    fn port_is_reserved_once_while_unused() {
        let port = ReservedPort::free();
        assert!(is_free(port.number()), "nothing listens");
        let again = || UdpSocket::bind((Ipv4Addr::LOCALHOST, port.number()));
        assert_eq!(again().unwrap_err().kind(), ErrorKind::AddrInUse, "so `free` passes it over");
    }
}
