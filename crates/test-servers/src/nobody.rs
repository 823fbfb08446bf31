//! An address without a listener.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};

/// A port of 127.0.0.1 that refuses connections while this value exists.
///
/// The port is bound, but has no listener. A port that is only free could soon belong to another process.
///
/// ```
/// let nobody = ferrata_test_servers::RefusingPort::new()?;
/// assert!(std::net::TcpStream::connect(nobody.address()).is_err());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct RefusingPort {
    _held: OwnedFd,
    address: SocketAddr,
}

impl RefusingPort {
    /// Binds a port that the system chooses.
    ///
    /// # Errors
    ///
    /// Returns the system's error if the system has no free port.
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
    fn reserved_port_refuses_connections_and_binds() {
        let nobody = RefusingPort::new().unwrap();
        let refused = TcpStream::connect(nobody.address()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(TcpListener::bind(nobody.address()).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }
}
