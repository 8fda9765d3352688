//! Sources and sinks that behave like TCP in bulk transfers. They are references: they are the
//! cross traffic beside a protocol under test, or they carry the same load in place of that
//! protocol.
//!
//! | file | what |
//! |---|---|
//! | `sender` | which segments are sent, acknowledged and lost (RFC 6675, RFC 8985, RFC 6298) |
//! | `receiver` | acknowledgements with the ranges that have arrived (RFC 2018) |
//! | `congestion_window` | the congestion window of Reno (RFC 5681) and CUBIC (RFC 9438) |
//!
//! Segments are numbered from 0 on, and all count alike. The sender finds losses by time, as RACK
//! does (RFC 8985), sends all lost segments again as the window permits, halves the window once per
//! round trip at most (CUBIC: reduces it to 70 %), and probes a silent peer after two round trips
//! (RFC 8985, section 7). The retransmission timeout is at least 200 ms, as in Linux.
//!
//! Left out, compared with Linux: HyStart++ (so slow start ends with a loss), proportional rate
//! reduction, delayed acknowledgements, pacing, offloads, ECN, the undo of spurious reductions, the
//! adaptive part of RACK's reordering window, and connection setup.

mod congestion_window;
mod receiver;
mod sender;

pub(crate) use congestion_window::Algorithm;
pub(crate) use receiver::Receiver;
pub(crate) use sender::Sender;

/// The maximum number of ranges in an acknowledgement, as many as the option has place for beside
/// timestamps.
pub(crate) const SACK_RANGES: usize = 3;

/// An acknowledgement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ack {
    /// The first segment that has not arrived.
    pub(crate) next: u64,
    /// Segments after `next` that have arrived: first the range with the segment that caused this
    /// acknowledgement, then the ranges that changed before. Empty ranges have no meaning.
    pub(crate) ranges: [(u64, u64); SACK_RANGES],
}

#[cfg(test)]
mod tests;
