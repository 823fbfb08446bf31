//! One direction of a connection: bytes that were read and not yet written, and the position of a fault.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};

use super::fault::{FaultPosition, FiredFault};

/// Size of one read; a request up to this size usually comes in one piece.
const PIECE: usize = 64 * 1024;

/// One direction.
#[derive(Debug, Default)]
pub(super) struct ProxyFlow {
    /// Bytes that the target gets as soon as it accepts them.
    ready: Vec<u8>,
    /// Bytes that follow after the fault.
    held: Vec<u8>,
    /// A fault that waits for its byte.
    watch: Option<FaultWatch>,
    /// A fault that happens when `ready` is written.
    due: Option<FiredFault>,
    /// The source has ended.
    ended: bool,
    /// The target has received the end.
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

    /// Returns whether to read more: not while bytes are pending, so that a slow target slows its source.
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

    /// Reads a piece; nothing if none is available yet, or at the end.
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

    /// Adds a piece, up to the position of a fault.
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

    /// Writes the bytes that the target accepts now, and passes on the end.
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

    /// Returns the due fault, once.
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
