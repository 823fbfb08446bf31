//! The parts of a planned fault: the request, the position in the request, and the effect.

use std::time::Duration;

use super::ConnectionCut;

/// Selects the request in which a fault happens. Numbers count from the call that arms the fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultTrigger {
    /// The n-th request to begin, over all connections. 1 is the next request.
    Request(u64),
    /// The first request of the n-th connection that the proxy accepts. 1 is the next connection.
    Connection(u64),
    /// The next request that has these bytes in one read of the connection. Use it for clients with several connections, or with background
    /// requests.
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
    /// At the moment when this many bytes of the client have reached the server, counted from the beginning of the request. With 0, the fault
    /// happens before the request.
    RequestByte(u64),
    /// At the moment when half of the client's bytes of one read have reached the server. The fault happens during the request.
    HalfRequest,
    /// At the moment when this many bytes of the server have reached the client, counted from the request. With 0, the fault happens before the
    /// reply: the server has begun to answer, so it has executed the request, but the client does not learn that.
    ReplyByte(u64),
    /// At the moment when half of the server's bytes of one read have reached the client. The fault happens during the reply.
    HalfReply,
}

impl FaultPosition {
    /// The four positions of a lost connection: before the request, during it, after it, and during its reply.
    pub const ALL: [Self; 4] = [Self::RequestByte(0), Self::HalfRequest, Self::ReplyByte(0), Self::HalfReply];

    pub(super) fn is_of_request(self) -> bool {
        matches!(self, Self::RequestByte(_) | Self::HalfRequest)
    }
}

/// The effect of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultEffect {
    /// The connection is closed normally on both sides. The client reads the end of the stream.
    Close,
    /// The connection is reset on both sides. The client's calls fail.
    Reset,
    /// Later bytes are delayed in both directions. With [`Duration::MAX`], the connection stays open, but no bytes pass any more.
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
    /// The position in the request.
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
