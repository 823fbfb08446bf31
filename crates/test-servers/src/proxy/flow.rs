//! One direction of a connection: what was read and not yet written, and where it is interrupted.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};

use super::fault::{FiredFault, Place};

/// How much is read at once; a request up to this size comes in one piece, mostly.
const PIECE: usize = 64 * 1024;

/// One direction.
#[derive(Debug, Default)]
pub(super) struct Flow {
    /// Goes to the target as soon as it takes it.
    ready: Vec<u8>,
    /// Goes after the fault.
    held: Vec<u8>,
    /// A fault that waits for its byte.
    watch: Option<Watch>,
    /// A fault that happens when `ready` is written.
    due: Option<FiredFault>,
    /// The source has ended.
    ended: bool,
    /// The target was told so.
    told: bool,
}

#[derive(Debug)]
struct Watch {
    done: FiredFault,
    passed: u64,
}

impl Flow {
    /// Has a fault happen at its place, counted from what is read next.
    pub(super) fn watch(&mut self, done: FiredFault) {
        self.watch = Some(Watch { done, passed: 0 });
    }

    /// Tells whether more may be read: not while there is something to write, so that a slow target slows its source.
    pub(super) fn wants_more(&self) -> bool {
        !self.ended && self.ready.is_empty() && self.held.is_empty() && self.due.is_none()
    }

    /// Tells whether there is something to write.
    pub(super) fn has_more(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Tells whether the source has ended and the target knows.
    pub(super) fn is_over(&self) -> bool {
        self.told
    }

    /// Reads a piece; nothing if there is none yet, or at the end.
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

    /// Takes a piece in, up to where a fault waits.
    pub(super) fn push(&mut self, mut piece: Vec<u8>) {
        if let Some(watch) = &mut self.watch {
            let length = piece.len();
            let left = match watch.done.fault.place {
                Place::HalfRequest | Place::HalfReply => length / 2,
                Place::RequestByte(byte) | Place::ReplyByte(byte) => {
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

    /// Writes what the target takes now, and tells it the end.
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

    /// Returns the fault that is to happen now, once.
    pub(super) fn due(&mut self) -> Option<FiredFault> {
        if self.ready.is_empty() { self.due.take() } else { None }
    }

    /// Lets go what a fault held back.
    pub(super) fn release(&mut self) {
        if self.ready.is_empty() && self.due.is_none() {
            self.ready = std::mem::take(&mut self.held);
        }
    }
}

fn is_for_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
