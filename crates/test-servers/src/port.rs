//! Ports of this machine that no other test uses.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

/// The first port to try. It is below the ports that the system assigns to outgoing connections, so that a restarted server finds its port free.
/// Redis Cluster also listens on the port plus 10,000, which is below them, too.
const FIRST: u16 = 12_000;
const COUNT: u16 = 10_000;

/// The distance from a port to the bus port of Redis Cluster, and to the route port of a NATS cluster.
pub(crate) const BUS: u16 = 10_000;

/// The number of further ports to try if another program takes a port first.
pub(crate) const TRIES: u32 = 5;

/// A reserved port with its bus port. While this value exists, no other test on this machine gets either port, even while its server is down.
#[derive(Debug)]
pub(crate) struct ReservedPort {
    number: u16,
    /// The UDP port with the same number is the lock. No server of this crate uses UDP, and the system releases the port when the process ends.
    _held: UdpSocket,
}

impl ReservedPort {
    /// Reserves a port on which nothing listens, and on whose bus port nothing listens.
    ///
    /// Another program may take the port before it is used. A caller that starts a server then tries another port.
    pub(crate) fn free() -> Self {
        loop {
            // A new state hashes with new keys, so concurrent tests begin with different ports.
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

/// Tests a port without binding it: binding would conflict with a server that restarts on the port at that moment.
fn is_free(port: u16) -> bool {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    // If a port does not answer in time, something listens on it.
    let refused = TcpStream::connect_timeout(&address, Duration::from_millis(200));
    refused.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// While a test's server is down, another test must not take its port: the server could then not restart.
    #[test]
    fn port_is_reserved_once_while_unused() {
        let port = ReservedPort::free();
        assert!(is_free(port.number()), "nothing listens");
        let again = || UdpSocket::bind((Ipv4Addr::LOCALHOST, port.number()));
        assert_eq!(again().unwrap_err().kind(), ErrorKind::AddrInUse, "`free` must skip the port");
    }
}
