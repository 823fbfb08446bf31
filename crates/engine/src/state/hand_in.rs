//! Transactions that commit together with the result of a node.

/// An open transaction of a node, which commits together with the record of the node's end.
///
/// Only `node::Transaction` implements this trait.
pub trait HandIn {
    /// The error of a node.
    type Error;

    /// Passes the transaction to the driver of the run, which commits it together with the record of the attempt.
    #[doc(hidden)]
    fn hand_in(self);
}
