//! The two ends of a TCP connection. A message is a number of segments. It is complete when its
//! last segment is acknowledged. For a read, the source begins at once: the request takes no time.

use std::time::{Duration, Instant};

use super::{Content, ETHERNET_IP_OCTETS, End, Outgoing};
use crate::network::Ecn;
use crate::posted_messages::{Load, PostedMessages};
use crate::tcp::{Ack, Algorithm, Receiver, Sender};

/// The number of octets of the TCP header with timestamps.
const HEADER_OCTETS: usize = 32;
/// The number of octets of the headers of IPv4 and TCP.
const IP_TCP_OCTETS: usize = 20 + HEADER_OCTETS;

/// The end that sends data.
pub(crate) struct TcpSource {
    sender: Sender,
    requests: PostedMessages,
    /// The maximum number of octets in a segment.
    segment_octets: usize,
}

/// The end that receives data.
#[derive(Default)]
pub(crate) struct TcpSink {
    receiver: Receiver,
    /// The acknowledgements that are to be sent.
    acks: Vec<Ack>,
}

impl TcpSource {
    /// A source with this load. `mtu` is the size of an IP packet, and `round_trip` what the
    /// handshake of the connection has measured.
    pub(crate) fn new(algorithm: Algorithm, mtu: usize, round_trip: Duration, load: Load) -> Self {
        let (sender, requests) = (Sender::new(algorithm, round_trip), PostedMessages::new(load));
        TcpSource { sender, requests, segment_octets: mtu - IP_TCP_OCTETS }
    }

    /// The number of segments of a message.
    fn segments(&self) -> u64 {
        (self.requests.load.size as usize).div_ceil(self.segment_octets) as u64
    }

    /// The number of octets of a segment. The last segment of a message may be shorter.
    fn octets(&self, number: u64) -> usize {
        let segments = self.segments();
        match (number + 1).is_multiple_of(segments) {
            true => {
                self.requests.load.size as usize - (segments as usize - 1) * self.segment_octets
            }
            false => self.segment_octets,
        }
    }
}

impl End for TcpSource {
    fn receive(&mut self, now: Instant, content: &Content, _is_marked: bool) {
        if let Content::TcpAck(ack) = content {
            self.sender.receive(now, ack);
        }
    }

    fn act(&mut self, now: Instant, out: &mut Vec<Outgoing>) {
        self.sender.expire(now);
        let complete = (self.sender.acknowledged() / self.segments()) as usize;
        let before = self.requests.completed.len();
        self.requests.complete(complete - before, now);
        while self.requests.post(now) {
            self.sender.supply(self.segments());
        }
        while let Some(number) = self.sender.transmit(now) {
            let payload = self.octets(number);
            out.push(Outgoing {
                content: Content::TcpSegment(number),
                octets: payload + HEADER_OCTETS + ETHERNET_IP_OCTETS,
                payload,
                ecn: Ecn::NotCapable,
            });
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.requests.deadline().into_iter().chain(self.sender.deadline()).min()
    }

    fn requests(&self) -> Option<&PostedMessages> {
        Some(&self.requests)
    }
}

impl End for TcpSink {
    fn receive(&mut self, _now: Instant, content: &Content, _is_marked: bool) {
        if let Content::TcpSegment(number) = content {
            self.acks.push(self.receiver.receive(*number));
        }
    }

    fn act(&mut self, _now: Instant, out: &mut Vec<Outgoing>) {
        out.extend(self.acks.drain(..).map(|ack| Outgoing {
            content: Content::TcpAck(ack),
            octets: HEADER_OCTETS + ETHERNET_IP_OCTETS,
            payload: 0,
            ecn: Ecn::NotCapable,
        }));
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn requests(&self) -> Option<&PostedMessages> {
        None
    }
}
