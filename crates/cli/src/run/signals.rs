//! Handles Ctrl-C and the other signals that ask a process to end.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::CommandFailure;

/// The signals that ask the command to stop.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    /// Whether a signal was put back and is still to be handled.
    is_due: bool,
}

impl Signals {
    /// Starts to listen for the signals.
    pub(crate) fn listen() -> Result<Self, CommandFailure> {
        let listen = |kind| {
            signal(kind).map_err(|error| CommandFailure::internal("cannot listen for signals", &error))
        };
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
            is_due: false,
        })
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) {
        if std::mem::take(&mut self.is_due) {
            return;
        }
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }

    /// Puts a signal back, so that the next call of [`next`](Self::next) returns at once.
    pub(super) fn put_back(&mut self) {
        self.is_due = true;
    }
}
