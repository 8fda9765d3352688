//! The operations that are measured.

use serde::{Deserialize, Serialize};

/// An operation that moves data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Operation {
    Send,
    #[value(name = "write")]
    RdmaWrite,
    #[value(name = "read")]
    RdmaRead,
    FetchAdd,
    CompareSwap,
}

impl Operation {
    /// The operations of the standard, which every adapter has.
    pub(crate) const ALL: [Operation; 3] =
        [Operation::Send, Operation::RdmaWrite, Operation::RdmaRead];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Operation::Send => "send/receive",
            Operation::RdmaWrite => "RDMA write",
            Operation::RdmaRead => "RDMA read",
            Operation::FetchAdd => "fetch and add",
            Operation::CompareSwap => "compare and swap",
        }
    }

    /// Returns the name that the command line uses.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Operation::Send => "send",
            Operation::RdmaWrite => "write",
            Operation::RdmaRead => "read",
            Operation::FetchAdd => "fetch-add",
            Operation::CompareSwap => "compare-swap",
        }
    }

    /// Returns a name of at most 12 characters.
    pub(crate) fn short(self) -> &'static str {
        if self.is_atomic() { self.word() } else { self.name() }
    }

    /// Returns whether this is an atomic operation of the extension, which works on
    /// [`ATOMIC_BYTES`] bytes.
    pub(crate) fn is_atomic(self) -> bool {
        matches!(self, Operation::FetchAdd | Operation::CompareSwap)
    }

    /// Returns whether the operation completes only when data of the peer have arrived, after a
    /// whole round trip.
    pub(crate) fn is_round_trip(self) -> bool {
        self == Operation::RdmaRead || self.is_atomic()
    }
}

/// The size of an atomic operation's operand.
pub(crate) const ATOMIC_BYTES: usize = 8;
