//! The two ends of a flow.
//!
//! | file | what |
//! |---|---|
//! | `softroce` | softroce's engine with a queue pair |
//! | `rxe` | a model of the kernel's rxe |
//! | `tcp` | TCP as [`crate::tcp`] has it |

mod rxe;
mod softroce;
mod tcp;

use std::time::{Duration, Instant};

pub(crate) use rxe::{MEMORY as RXE_MEMORY, Rxe};
pub(crate) use softroce::Softroce;
pub(crate) use tcp::{TcpSink, TcpSource};

use crate::network::Ecn;
use crate::posted_messages::PostedMessages;
use crate::tcp::Ack;

/// The time that a consumer takes to post the next receive if it posts one at a time.
pub(crate) const CONSUMER_TIME: Duration = Duration::from_micros(10);
/// The number of octets of the headers of Ethernet and IPv4.
const ETHERNET_IP_OCTETS: usize = 14 + 20;

/// The content of a packet.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// A RoCEv2 packet without its ICRC.
    RoceV2(Vec<u8>),
    /// A segment of TCP, by its number.
    TcpSegment(u64),
    TcpAck(Ack),
}

/// A packet that an end sends.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) content: Content,
    /// The size on the wire.
    pub(crate) octets: usize,
    /// The number of octets of payload.
    pub(crate) payload: usize,
    pub(crate) ecn: Ecn,
}

/// One end of a flow.
pub(crate) trait End {
    /// Handles a packet that has arrived. `is_marked` means that a queue has marked it (ECN).
    fn receive(&mut self, now: Instant, content: &Content, is_marked: bool);

    /// Does everything that is possible now: handles deadlines, posts messages, adds packets to
    /// `out`.
    fn act(&mut self, now: Instant, out: &mut Vec<Outgoing>);

    /// The time of the next [`act`](Self::act), if no packet arrives before.
    fn deadline(&self) -> Option<Instant>;

    /// The messages of this end, if it posts them.
    fn requests(&self) -> Option<&PostedMessages>;

    /// The reason for which the connection is broken.
    fn failure(&self) -> Option<String> {
        None
    }
}
