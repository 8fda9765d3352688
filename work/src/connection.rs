//! Connections: their services, their read depths and their ends.

use std::fmt::Display;

/// The service of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceType {
    /// The queue pair has a reliable connection to one peer.
    Connection,
    /// The queue pair exchanges datagrams with any number of peers.
    Datagram,
}

/// The numbers of RDMA reads in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadDepth {
    /// The maximum number of reads by the peer that this side carries out at one time.
    pub incoming: u32,
    /// The maximum number of reads by this side that are outstanding at one time.
    pub outgoing: u32,
}

/// How to end a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// The requests that are already posted are carried out, and then the connection ends.
    Graceful,
    /// The connection ends immediately, and all work requests are flushed.
    Abrupt,
}

/// The reason for which an address could not be resolved.
#[derive(Clone, Copy)]
pub enum ResolveFailure<'a> {
    /// The peer's consumer has rejected the request.
    Rejected {
        /// The peer's private data.
        private: &'a [u8],
    },
    /// The peer's provider has refused the request, for example because nothing listens there.
    Refused {
        /// The cause, for diagnosis.
        because: Option<&'a dyn Display>,
    },
    /// The peer does not answer at its address, or there is no route to it.
    Unreachable {
        /// The cause, for diagnosis. `None` if only the lack of an answer is known.
        because: Option<&'a dyn Display>,
    },
    /// The attempt has exceeded its time limit.
    TimedOut,
}
