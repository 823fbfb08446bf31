//! One direction of a connection: bytes that are read but not yet written, and the position of a fault.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};

use super::fault::{FaultPosition, FiredFault};

/// The size of one read. A request up to this size usually arrives in one read.
const PIECE: usize = 64 * 1024;

/// One direction of a connection.
#[derive(Debug, Default)]
pub(super) struct ProxyFlow {
    /// Bytes that may be written as soon as the target accepts them.
    ready: Vec<u8>,
    /// Bytes after the position of a fault. They wait for the fault.
    held: Vec<u8>,
    /// A fault whose position is not reached yet.
    watch: Option<FaultWatch>,
    /// A fault that happens once `ready` is written.
    due: Option<FiredFault>,
    /// Whether the source has ended.
    ended: bool,
    /// Whether the target has received the end.
    told: bool,
}

#[derive(Debug)]
struct FaultWatch {
    done: FiredFault,
    passed: u64,
}

impl ProxyFlow {
    /// Sets a fault at its position, counted from the next read.
    pub(super) fn watch(&mut self, done: FiredFault) {
        self.watch = Some(FaultWatch { done, passed: 0 });
    }

    /// Returns whether to read more. While bytes are pending, nothing is read, so that a slow target slows its source.
    pub(super) fn wants_more(&self) -> bool {
        !self.ended && self.ready.is_empty() && self.held.is_empty() && self.due.is_none()
    }

    /// Returns whether bytes are pending.
    pub(super) fn has_more(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Returns whether the source has ended and the target has received the end.
    pub(super) fn is_over(&self) -> bool {
        self.told
    }

    /// Reads bytes from the source. Returns `None` if no bytes are available yet, or at the end.
    pub(super) fn read(&mut self, mut source: &TcpStream) -> io::Result<Option<Vec<u8>>> {
        let mut piece = vec![0; PIECE];
        match source.read(&mut piece) {
            Ok(0) => {
                self.ended = true;
                Ok(None)
            }
            Ok(length) => {
                piece.truncate(length);
                Ok(Some(piece))
            }
            Err(error) if is_for_later(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Adds bytes. Bytes after the position of a fault wait for the fault.
    pub(super) fn push(&mut self, mut piece: Vec<u8>) {
        if let Some(watch) = &mut self.watch {
            let length = piece.len();
            let left = match watch.done.fault.place {
                FaultPosition::HalfRequest | FaultPosition::HalfReply => length / 2,
                FaultPosition::RequestByte(byte) | FaultPosition::ReplyByte(byte) => {
                    usize::try_from(byte - watch.passed).unwrap_or(usize::MAX)
                }
            };
            if left <= length {
                self.held = piece.split_off(left);
                self.due = self.watch.take().map(|watch| watch.done);
            } else {
                watch.passed += length as u64;
            }
        }
        self.ready = piece;
    }

    /// Writes the bytes that the target accepts now. Forwards the end of the source.
    pub(super) fn write(&mut self, mut target: &TcpStream) -> io::Result<()> {
        while !self.ready.is_empty() {
            match target.write(&self.ready) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => drop(self.ready.drain(..written)),
                Err(error) if is_for_later(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        if self.ended && !self.told && self.held.is_empty() && self.due.is_none() {
            self.told = true;
            target.shutdown(Shutdown::Write)?;
        }
        Ok(())
    }

    /// Returns a fault whose position is reached, once.
    pub(super) fn due(&mut self) -> Option<FiredFault> {
        if self.ready.is_empty() { self.due.take() } else { None }
    }

    /// Releases the bytes that a fault delayed.
    pub(super) fn release(&mut self) {
        if self.ready.is_empty() && self.due.is_none() {
            self.ready = std::mem::take(&mut self.held);
        }
    }
}

fn is_for_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
