//! Random numbers, as in the simulation of the core.

#[allow(dead_code, reason = "the simulation of the core has more that is random")]
#[path = "../../../core/tests/support/dice.rs"]
pub(crate) mod dice;
