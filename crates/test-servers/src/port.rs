//! Ports of this machine that no other test takes.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

/// Ports are taken from here: below those that the system gives to outgoing connections, so that a server that is down for a
/// moment finds its port free when it comes back. Redis Cluster listens 10000 above, which is below them, too.
const FIRST: u16 = 12_000;
const COUNT: u16 = 10_000;

/// What Redis Cluster adds to a port for its bus, and a cluster of NATS here for its routes.
pub(crate) const BUS: u16 = 10_000;

/// How often another port is tried when a program that is none of these tests was quicker.
pub(crate) const TRIES: u32 = 5;

/// A port, and its bus port: no other test of this machine is given either as long as this lives, also while its server is down.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    /// One process at a time has the same number of UDP, which no server here speaks; the system takes it back from a process that ends.
    _held: UdpSocket,
}

impl Port {
    /// Takes one on which no process listens, nor on its bus port.
    ///
    /// A program that is none of these tests may before it is used: the caller that starts a server takes another port then.
    pub(crate) fn free() -> Self {
        loop {
            // A new state hashes with new keys: tests that run at once begin at different places.
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
pub(crate) fn listen() -> io::Result<(Port, TcpListener)> {
    let mut attempt = 1;
    loop {
        let port = Port::free();
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port.number)) {
            Err(error) if attempt == TRIES => return Err(error),
            Err(_) => attempt += 1,
            Ok(listener) => return Ok((port, listener)),
        }
    }
}

/// Asks without binding, which would be in the way of a server that comes back on this port at that moment.
fn is_free(port: u16) -> bool {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    // One that does not answer in time is a listener.
    let refused = TcpStream::connect_timeout(&address, Duration::from_millis(200));
    refused.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A test took the port of another's server while that was down, and the server could not come back.
    #[test]
    fn a_port_is_given_out_once_while_nobody_listens_on_it() {
        let port = Port::free();
        assert!(is_free(port.number()), "nothing listens");
        let again = || UdpSocket::bind((Ipv4Addr::LOCALHOST, port.number()));
        assert_eq!(again().unwrap_err().kind(), ErrorKind::AddrInUse, "so `free` passes it over");
    }
}
