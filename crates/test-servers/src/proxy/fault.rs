//! The words of a plan: which request, where in it, and what happens there.

use std::time::Duration;

use super::Cut;

/// Which request a fault is for, counted from when it is armed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// The n-th to begin, over all connections; 1 is the next.
    Request(u64),
    /// The first one of the n-th connection to be accepted; 1 is the next.
    Connection(u64),
    /// The next whose bytes contain these, as they come from one read of the connection. For clients with more than one
    /// connection, or with traffic of their own.
    Containing(Vec<u8>),
}

impl Trigger {
    /// The next request that contains these bytes.
    #[must_use]
    pub fn containing(bytes: impl Into<Vec<u8>>) -> Self {
        Self::Containing(bytes.into())
    }
}

/// Where in a request or its reply something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// When this many bytes of the client have reached the server, counted from the beginning of the request. 0 is before it.
    RequestByte(u64),
    /// When half of what the client sent at once has reached the server: during the request.
    HalfRequest,
    /// When this many bytes of the server have reached the client, counted from the request. 0 is before the reply: the server
    /// has begun to answer, so it has done what it was asked to, and the client is not told.
    ReplyByte(u64),
    /// When half of what the server sent at once has reached the client: during the reply.
    HalfReply,
}

impl Place {
    /// Before, during and after the request, and during its reply: the four places of a lost connection.
    pub const ALL: [Self; 4] = [Self::RequestByte(0), Self::HalfRequest, Self::ReplyByte(0), Self::HalfReply];

    pub(super) fn is_of_request(self) -> bool {
        matches!(self, Self::RequestByte(_) | Self::HalfRequest)
    }
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// The connection is closed in good order, on both sides: the client reads its end.
    Close,
    /// The connection is reset, on both sides: the client's calls fail.
    Reset,
    /// What follows comes later, in both directions. [`Duration::MAX`] is never: the connection stays, and nothing passes.
    Delay(Duration),
}

impl From<Cut> for Act {
    fn from(cut: Cut) -> Self {
        match cut {
            Cut::Close => Self::Close,
            Cut::Reset => Self::Reset,
        }
    }
}

/// Something that happens once, to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where.
    pub place: Place,
    /// What.
    pub act: Act,
}

/// A fault that has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FiredFault {
    /// On which connection, counted from 1 at the start of the proxy.
    pub connection: u64,
    /// To which request, counted from 1 at the start of the proxy.
    pub request: u64,
    /// What.
    pub fault: Fault,
}
