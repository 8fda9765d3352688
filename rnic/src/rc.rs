//! InfiniBand's reliable connection as RoCEv2 carries it in UDP (IBA, chapter 9): the engine
//! between a queue pair and packets. IBA is the InfiniBand Architecture Specification, volume 1.
//!
//! # Terms
//!
//! - The program posts requests and receive buffers to its queue pair. Each end of a connection has
//!   a *requester*, which sends the requests of this end, and a *responder*, which carries out the
//!   requests of the peer.
//! - A *SEND* places octets in the peer's next receive buffer, and a *WRITE* (RDMA write) in memory
//!   that it names. Both are *messages*, and the responder acknowledges them. A *READ* (RDMA read)
//!   asks for octets of the peer's memory, and an *atomic operation* changes eight octets there and
//!   asks for their previous value. Both are answered by *responses*.
//!   ACKs, NAKs (see below) and responses are *answers*.
//! - The path MTU is the maximum payload of a packet. A message or the response to a READ consists
//!   of an ONLY packet, or of a FIRST packet, any number of MIDDLE packets, and a LAST packet.
//! - The *PSN* (packet sequence number, 24 bits) of a request packet is one more than that of the
//!   packet before it. A READ uses as many PSNs as its response has packets. The answer to a packet
//!   has the PSN of that packet.
//! - An *ACK* acknowledges all packets up to its PSN. A *NAK* refuses a packet. A NAK for a *PSN
//!   sequence error* says that the packet is missing, and an *RNR NAK* (receiver not ready) that it
//!   found no receive buffer. The requester sends such a packet again. After any other NAK the
//!   connection ends.
//! - The *ACK timeout* is the time after which a requester without an answer *retries*: it sends
//!   the packets in flight again.
//! - A PSN is *in flight* from the time at which its packet is sent until it is acknowledged, and a
//!   PSN of a READ until its response arrives. A *probe* is the oldest packet in flight, sent again
//!   before the ACK timeout.
//! - The *window* is the maximum number of PSNs in flight, as for TCP. A memory window is always
//!   called so.
//! - A packet is *early* if it arrives while an earlier one is missing. A requester *goes back* if
//!   it sends a missing packet and all packets after it again.
//! - A *local* request concerns only this end: the bind of a memory window. It has no packets.
//! - Each packet begins with a *BTH* (base transport header) and ends with an *ICRC*, a checksum.
//!   The BTH has the *P_Key*, which names the partition of the network, and bits: *AckReq* asks for
//!   an acknowledgement, and *MigReq* belongs to path migration, which this engine does not have.
//!   Extension headers follow the BTH: the *RETH* names the memory of a READ or WRITE. The *AETH*
//!   of an answer says whether it is an ACK or NAK, and contains the *MSN* (message sequence
//!   number), which counts the completed requests.
//! - A switch with a long queue marks packets. The receiver then sends a *CNP* (congestion
//!   notification packet).
//! - [Connection management](crate::cm) opens and closes connections. Its messages *DREQ* and
//!   *DREP* are the request to disconnect and the reply to it.
//! - *rxe* is the RoCEv2 driver of the Linux kernel that needs no RDMA hardware. Some of its
//!   properties decide what this end sends; `responder` has a table of them.
//!
//! # Files
//!
//! The table lists the files from the bottom up. A file uses only what the files above its row in
//! the table and the rest of the crate define, so read them in this order. Read [`Work`] first: it
//! is the half of the queue pair that completes work. Its entries are `Wqe`, a request, and `Rqe`,
//! a receive buffer.
//!
//! | file | what |
//! |---|---|
//! | `types` | the parameters, the counters and the failures of a connection, and its path |
//! | [`burst`] | outgoing datagrams |
//! | [`wheel`] | the deadlines of all queue pairs of an adapter |
//! | `request_packets` | the requester's packets, created from work requests |
//! | `cursors` | which packets are acknowledged, sent, or to be sent again |
//! | `read_requests` | the requester's READs: which responses are requested, awaited and kept |
//! | `receiver_wait` | the requester's wait for a receive buffer of the peer |
//! | `congestion` | the congestion window and the pacing |
//! | `retransmission` | the retransmission timer |
//! | [`reorder_buffer`] | the packets that arrived although an earlier packet is missing |
//! | `recovery` | when new packets may be sent although a packet is missing |
//! | `flight` | the packets in flight: acknowledgements and losses |
//! | `challenge` | asks an idle peer whether it still has the connection |
//! | `requester` | sends requests, processes responses, and completes requests |
//! | `path_check` | notices that full packets do not get through although short packets do |
//! | `responder_resources` | the peer's READs and atomic operations, and their responses |
//! | `execution` | carries out the peer's requests: from packets to memory and completions |
//! | `gap` | when the responder reports a missing packet |
//! | `responder` | decides which requests of the peer are carried out, and which are acknowledged |
//! | [`ack_only`] | the answers of an end that has closed the connection |
//! | `notification` | tells the peer that a switch has marked its packets (CNP) |
//! | [`reliable_connection`] | the interface: both halves of a connection between a queue pair and packets |
//!
//! [`Work`]: crate::qp::Work

pub mod ack_only;
pub mod burst;
mod challenge;
mod congestion;
mod cursors;
mod execution;
mod flight;
mod gap;
mod notification;
mod path_check;
mod read_requests;
mod receiver_wait;
mod recovery;
pub mod reliable_connection;
pub mod reorder_buffer;
mod request_packets;
mod requester;
mod responder;
mod responder_resources;
mod retransmission;
mod types;
pub mod wheel;

pub use ack_only::AckOnlyResponder;
pub use burst::Burst;
pub use reliable_connection::ReliableConnection;
pub use reorder_buffer::EarlyPool;
pub use request_packets::OldestPacket;
pub(crate) use request_packets::convert_immediate;
pub use responder_resources::RepeatedRead;
pub use types::{Failure, MAX_MESSAGE, RcCfg, Stats};
pub use wheel::Wheel;

#[cfg(test)]
mod tests;
