//! The operations that are measured.

use serde::{Deserialize, Serialize};

/// An operation that moves data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "`--help` would print the comments of the variants")]
pub enum Operation {
    Send,
    #[value(name = "write")]
    #[serde(rename = "write")]
    RdmaWrite,
    #[value(name = "read")]
    #[serde(rename = "read")]
    RdmaRead,
    FetchAdd,
    CompareSwap,
}

impl Operation {
    /// The operations of the standard, which every adapter has.
    pub const ALL: [Operation; 3] = [Operation::Send, Operation::RdmaWrite, Operation::RdmaRead];

    /// Returns the name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Send => "send/receive",
            Operation::RdmaWrite => "RDMA write",
            Operation::RdmaRead => "RDMA read",
            Operation::FetchAdd => "fetch and add",
            Operation::CompareSwap => "compare and swap",
        }
    }

    /// Returns the name in the command line, and in the results as CSV and JSON.
    pub fn word(self) -> &'static str {
        match self {
            Operation::Send => "send",
            Operation::RdmaWrite => "write",
            Operation::RdmaRead => "read",
            Operation::FetchAdd => "fetch-add",
            Operation::CompareSwap => "compare-swap",
        }
    }

    /// Returns a name of at most 12 characters.
    pub fn short(self) -> &'static str {
        if self.is_atomic() { self.word() } else { self.name() }
    }

    /// Returns whether this is an atomic operation of the extension, which works on
    /// [`ATOMIC_BYTES`] bytes.
    pub fn is_atomic(self) -> bool {
        matches!(self, Operation::FetchAdd | Operation::CompareSwap)
    }

    /// Returns whether the operation completes only when data of the peer have arrived, after a
    /// whole round trip.
    pub fn is_round_trip(self) -> bool {
        self == Operation::RdmaRead || self.is_atomic()
    }
}

/// The size of an atomic operation's operand.
pub const ATOMIC_BYTES: usize = 8;

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn an_operation_has_one_word_for_options_and_results() {
        for operation in Operation::value_variants() {
            let option = operation.to_possible_value().expect("no operation is hidden");
            assert_eq!(option.get_name(), operation.word());
            assert_eq!(serde_json::json!(operation), operation.word());
        }
    }
}
