//! Checks that a state type reads back equal, so that a test finds a mistake before a restart does.

use ferrata_core::state::{State, reread};
use ferrata_core::{Error, ErrorKind, Result};

/// Checks that a state reads back equal after a restart.
///
/// The serde attributes of a nested type can make its `Deserialize` differ from its `Serialize`: `skip`, `skip_serializing_if` with another
/// default, `untagged` if an earlier variant also fits, `flatten` with keys that are not text. [`start`](ferrata_core::runtime::Runtime::start) rejects
/// such an *input*. An active run does not read back the states that nodes write, so pass a state with every field filled.
///
/// # Errors
///
/// [`ErrorKind::Invalid`] if the state differs; the message names the channel.
///
/// # Examples
///
/// ```
/// use ferrata_core::state::Context;
/// use ferrata_testing::check_reads_back;
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
    let message = "the state reads back as another value with the same JSON; look for skipped fields, and for `untagged` variants with the \
        same JSON";
    Err(Error::new(ErrorKind::Invalid, message))
}
