//! The words of a plan: the request, the position in it, and the fault.

use std::time::Duration;

use super::ConnectionCut;

/// The request of a fault, counted from the call that arms it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultTrigger {
    /// The n-th to begin, over all connections; 1 is the next.
    Request(u64),
    /// The first one of the n-th connection to be accepted; 1 is the next.
    Connection(u64),
    /// The next request with these bytes in one read of the connection. For clients with several connections, or with traffic of their own.
    Containing(Vec<u8>),
}

impl FaultTrigger {
    /// The next request that contains these bytes.
    #[must_use]
    pub fn containing(bytes: impl Into<Vec<u8>>) -> Self {
        Self::Containing(bytes.into())
    }
}

/// The position of a fault in a request or its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultPosition {
    /// When this many bytes of the client have reached the server, counted from the beginning of the request. 0 is before it.
    RequestByte(u64),
    /// When half of the client's bytes of one read have reached the server: during the request.
    HalfRequest,
    /// When this many bytes of the server have reached the client, counted from the request. 0 is before the reply: the server has begun to answer,
    /// so it has performed the request, and the client does not learn that.
    ReplyByte(u64),
    /// When half of the server's bytes of one read have reached the client: during the reply.
    HalfReply,
}

impl FaultPosition {
    /// Before, during and after the request, and during its reply: the four positions of a lost connection.
    pub const ALL: [Self; 4] = [Self::RequestByte(0), Self::HalfRequest, Self::ReplyByte(0), Self::HalfReply];

    pub(super) fn is_of_request(self) -> bool {
        matches!(self, Self::RequestByte(_) | Self::HalfRequest)
    }
}

/// The effect of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultEffect {
    /// The connection is closed cleanly, on both sides: the client reads its end.
    Close,
    /// The connection is reset, on both sides: the client's calls fail.
    Reset,
    /// Later bytes are delayed, in both directions. [`Duration::MAX`] is never: the connection stays open, and nothing passes.
    Delay(Duration),
}

impl From<ConnectionCut> for FaultEffect {
    fn from(cut: ConnectionCut) -> Self {
        match cut {
            ConnectionCut::Close => Self::Close,
            ConnectionCut::Reset => Self::Reset,
        }
    }
}

/// A fault that happens once, to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyFault {
    /// The position.
    pub place: FaultPosition,
    /// The effect.
    pub act: FaultEffect,
}

/// A fault that has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FiredFault {
    /// The number of the connection, from 1 at the start of the proxy.
    pub connection: u64,
    /// The number of the request, from 1 at the start of the proxy.
    pub request: u64,
    /// The fault.
    pub fault: ProxyFault,
}
