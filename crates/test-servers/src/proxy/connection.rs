//! One connection through the proxy: a thread that forwards bytes in both directions, in order, until a fault or the end.

use std::io::{self, PipeReader, Read};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_linger;

use super::fault::{FaultEffect, FiredFault};
use super::flow::ProxyFlow;
use super::plan::ProxyPlan;
use super::{ConnectionCut, RESET, SILENCE};
use crate::wait;

/// How long to read from a client after its connection was closed. Otherwise the client would see a reset instead of the end.
const LINGER: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct ProxyConnection {
    number: u64,
    plan: Arc<ProxyPlan>,
    client: TcpStream,
    server: TcpStream,
    /// The flow from the client to the server.
    up: ProxyFlow,
    /// The flow from the server to the client.
    down: ProxyFlow,
    /// The number of the current or last request.
    request: u64,
    /// Whether the server has answered the request. If so, the next bytes of the client begin another request.
    answered: bool,
    /// The end of a delay during which no bytes pass.
    held: Option<FaultDelay>,
}

/// A delay.
#[derive(Clone, Copy, Debug)]
enum FaultDelay {
    Until(Instant),
    Forever,
}

impl ProxyConnection {
    /// Connects `client` with the server.
    pub(super) fn open(
        client: TcpStream,
        server: SocketAddr,
        number: u64,
        plan: Arc<ProxyPlan>,
    ) -> io::Result<Self> {
        let server = TcpStream::connect(server)?;
        for stream in [&client, &server] {
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
        }
        let (up, down) = (ProxyFlow::default(), ProxyFlow::default());
        Ok(Self { number, plan, client, server, up, down, request: 0, answered: true, held: None })
    }

    /// Forwards bytes until both sides have ended, one side breaks, a fault ends the connection, or the control pipe ends.
    pub(super) fn run(mut self, control: &PipeReader) {
        let end = loop {
            match self.step(control) {
                Ok(None) => {}
                Ok(Some(end)) => break end,
                // One side broke off, so reset the other side, too.
                Err(_) => break ConnectionCut::Reset,
            }
        };
        match end {
            ConnectionCut::Reset => {
                for stream in [&self.client, &self.server] {
                    // If setting the reset fails, the connection is closed normally.
                    let _ = set_socket_linger(stream, Some(Duration::ZERO));
                }
            }
            ConnectionCut::Close => close(&self.client, &self.server),
        }
    }

    /// Waits for data or a signal, and handles it.
    fn step(&mut self, control: &PipeReader) -> io::Result<Option<ConnectionCut>> {
        let timeout = match self.held {
            Some(FaultDelay::Until(time)) => Some(time.saturating_duration_since(wait::now())),
            Some(FaultDelay::Forever) | None => None,
        };
        let passing = self.held.is_none();
        let (client, server) = if passing {
            (interest(&self.up, &self.down), interest(&self.down, &self.up))
        } else {
            (PollFlags::empty(), PollFlags::empty())
        };
        let mut waited = vec![PollFd::new(control, PollFlags::IN)];
        // Do not poll a stream for which there is nothing to do: it would report the end of its connection again and again.
        let asked = [(&self.client, client), (&self.server, server)];
        let asked = asked.into_iter().filter(|(_, interest)| !interest.is_empty());
        waited.extend(asked.map(|(stream, interest)| PollFd::from_borrowed_fd(stream.as_fd(), interest)));
        match poll(&mut waited, timeout.and_then(|time| Timespec::try_from(time).ok()).as_ref()) {
            Err(Errno::INTR) => return Ok(None),
            outcome => outcome?,
        };
        if !waited[0].revents().is_empty() {
            let mut word = [0];
            let said = matches!(control.take(1).read(&mut word), Ok(1));
            match word[0] {
                SILENCE if said => self.held = Some(FaultDelay::Forever),
                RESET if said => return Ok(Some(ConnectionCut::Reset)),
                _ => return Ok(Some(ConnectionCut::Close)),
            }
            return Ok(None);
        }
        if let Some(FaultDelay::Until(time)) = self.held
            && wait::now() >= time
        {
            self.held = None;
            self.up.release();
            self.down.release();
        }
        if self.held.is_none() { self.move_bytes() } else { Ok(None) }
    }

    fn move_bytes(&mut self) -> io::Result<Option<ConnectionCut>> {
        // Read from the server first: its answers so far belong to the previous request.
        if self.down.wants_more()
            && let Some(piece) = self.down.read(&self.server)?
        {
            self.answered = true;
            self.down.push(piece);
        }
        let end = self.finish(false)?;
        if end.is_some() || self.held.is_some() {
            return Ok(end);
        }
        if self.up.wants_more()
            && let Some(piece) = self.up.read(&self.client)?
        {
            self.assign_request(&piece);
            self.up.push(piece);
        }
        if let Some(end) = self.finish(true)? {
            return Ok(Some(end));
        }
        Ok((self.up.is_over() && self.down.is_over()).then_some(ConnectionCut::Close))
    }

    /// Assigns bytes of the client to a request, and finds the fault for that request.
    fn assign_request(&mut self, piece: &[u8]) {
        let begins = std::mem::replace(&mut self.answered, false);
        if begins {
            self.request = self.plan.request();
        }
        if let Some(fault) = self.plan.fault(self.number, self.request, begins, piece) {
            let done = FiredFault { connection: self.number, request: self.request, fault };
            let flow = if fault.place.is_of_request() { &mut self.up } else { &mut self.down };
            flow.watch(done);
        }
    }

    /// Writes the pending bytes of one direction, and executes a fault whose position is reached.
    fn finish(&mut self, upwards: bool) -> io::Result<Option<ConnectionCut>> {
        let (flow, target) =
            if upwards { (&mut self.up, &self.server) } else { (&mut self.down, &self.client) };
        flow.write(target)?;
        let Some(done) = flow.due() else { return Ok(None) };
        self.plan.record_fired(done);
        Ok(match done.fault.act {
            FaultEffect::Close => Some(ConnectionCut::Close),
            FaultEffect::Reset => Some(ConnectionCut::Reset),
            FaultEffect::Delay(time) => {
                // A delay beyond the range of the clock never ends.
                self.held =
                    Some(wait::now().checked_add(time).map_or(FaultDelay::Forever, FaultDelay::Until));
                None
            }
        })
    }
}

/// Returns the events to wait for on a stream, which is the source of one flow and the target of the other.
fn interest(from: &ProxyFlow, to: &ProxyFlow) -> PollFlags {
    let mut flags = PollFlags::empty();
    flags.set(PollFlags::IN, from.wants_more());
    flags.set(PollFlags::OUT, to.has_more());
    flags
}

/// Closes both streams normally. The system resets a socket that is closed with unread bytes, so read those first.
fn close(client: &TcpStream, server: &TcpStream) {
    for stream in [server, client] {
        // The other side may be gone already.
        let _ = stream.shutdown(Shutdown::Write);
    }
    let _ = client.set_nonblocking(false);
    let _ = client.set_read_timeout(Some(LINGER));
    let _ = io::copy(&mut { client }, &mut io::sink());
}
