//! Holding a state's type to what a state must be, so that a mistake in it is found by a test and not by a restart.

use crate::error::{Error, ErrorKind, Result};
use crate::state::{State, reread};

/// Checks that a state reads back equal after a restart.
///
/// What serde is told about a nested type can make its `Deserialize` read something else than its `Serialize` writes:
/// `skip`, `skip_serializing_if` with another default, `untagged` where an earlier variant fits, too, `flatten` with keys that
/// are no text. [`start`](crate::runtime::Runtime::start) refuses such an *input*; what nodes write is not read back while a run
/// goes on, so give this a state with every field filled.
///
/// # Errors
///
/// [`ErrorKind::Invalid`] naming the channel.
///
/// # Examples
///
/// ```
/// use ferrata_core::state::Context;
/// use ferrata_core::testing::check_reads_back;
///
/// let mut state = Context::new();
/// state.set("title", "Ferrata")?;
/// check_reads_back(&state)?;
/// # Ok::<(), ferrata_core::Error>(())
/// ```
pub fn check_reads_back<S: State + PartialEq>(state: &S) -> Result<()> {
    let text = state.to_channels_json()?;
    let read: S = reread(text.get(), &S::schema())?;
    if read == *state {
        return Ok(());
    }
    let message = "the state reads back as another one that is written alike; look for fields that are not written, \
                   and for `untagged` variants that are written alike";
    Err(Error::new(ErrorKind::Invalid, message))
}
