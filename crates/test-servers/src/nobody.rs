//! An address where nobody is.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};

/// A port of 127.0.0.1 that refuses connections for as long as this value lives.
///
/// The port is bound and nobody listens on it. A port that was free a moment ago may be that of another process by now.
///
/// ```
/// let nobody = ferrata_test_servers::Nobody::new()?;
/// assert!(std::net::TcpStream::connect(nobody.address()).is_err());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Nobody {
    _held: OwnedFd,
    address: SocketAddr,
}

impl Nobody {
    /// Takes a port of the system's choice.
    ///
    /// # Errors
    ///
    /// What the system says if it has none.
    pub fn new() -> io::Result<Self> {
        let held = socket(AddressFamily::INET, SocketType::STREAM, None)?;
        bind(&held, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
        let address = getsockname(&held)?.try_into()?;
        Ok(Self { _held: held, address })
    }

    /// Returns the address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn nobody_answers_and_nobody_else_can_take_the_port() {
        let nobody = Nobody::new().unwrap();
        let refused = TcpStream::connect(nobody.address()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(TcpListener::bind(nobody.address()).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }
}
