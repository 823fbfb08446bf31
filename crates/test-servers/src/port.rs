//! Free ports of this machine.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::{Ipv4Addr, TcpListener};

/// Ports are taken from here: below those that the system gives to outgoing connections, so that a server that is down for a
/// moment finds its port free when it comes back. Redis Cluster listens 10000 above, which is below them, too.
const FIRST: u16 = 12_000;
const COUNT: u16 = 10_000;

/// What Redis Cluster adds to a port for its bus.
const BUS: u16 = 10_000;

/// Returns a port on which nobody listens, nor on its bus port.
///
/// Somebody may before it is used: whoever starts a server takes another port then.
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

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}
