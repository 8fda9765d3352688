//! Records a TCP connection as segments. A socket shows only the octets, so the segments are made
//! up.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use crate::headers::{self, ACK, FIN, Ip, MAX_SEGMENT, PSH, RST, SYN, Tcp};
use crate::{Capture, Direction};

/// When one side has received this number of octets without sending data itself, an acknowledgement
/// of that side is recorded.
const ACKNOWLEDGE_AFTER: u32 = 128 << 10;

/// A TCP connection that is being recorded. If the value is dropped before this side has ended the
/// connection, a FIN of this side is recorded.
#[derive(Debug)]
pub struct Flow {
    capture: Capture,
    local: Endpoint,
    peer: Endpoint,
    /// The identification field of the last IPv4 packet.
    id: u16,
    is_reset: bool,
}

#[derive(Debug)]
struct Endpoint {
    addr: SocketAddr,
    /// The sequence number of the next octet that this endpoint sends.
    next: u32,
    /// The sequence number up to which this endpoint has acknowledged the peer's octets.
    acknowledged: u32,
    has_ended: bool,
}

impl Flow {
    pub(crate) fn open(
        capture: Capture,
        at: Instant,
        local: SocketAddr,
        peer: SocketAddr,
        opened: Direction,
    ) -> Option<Self> {
        if !capture.batch().state().begin_flow(local, peer) {
            return None;
        }
        let sequence = initial_sequence();
        let endpoint = |addr, next| Endpoint { addr, next, acknowledged: 0, has_ended: false };
        let (local, peer) = (endpoint(local, sequence), endpoint(peer, sequence.rotate_left(16)));
        let mut flow = Self { capture, local, peer, id: 0, is_reset: false };
        let answered = opened.reversed();
        flow.record(at, [(opened, SYN, &[][..]), (answered, SYN | ACK, &[]), (opened, ACK, &[])]);
        Some(flow)
    }

    /// Records octets that the socket sent or received.
    pub fn data(&mut self, at: Instant, direction: Direction, octets: &[u8]) {
        if self.is_reset || self.endpoint(direction).has_ended {
            return;
        }
        let segments = octets.len().div_ceil(MAX_SEGMENT);
        let flags = |index| if index + 1 == segments { ACK | PSH } else { ACK };
        let cut = octets.chunks(MAX_SEGMENT).enumerate();
        self.record(at, cut.map(|(index, octets)| (direction, flags(index), octets)));
        let acknowledged = self.endpoint(direction.reversed()).acknowledged;
        if self.endpoint(direction).next.wrapping_sub(acknowledged) >= ACKNOWLEDGE_AFTER {
            self.record(at, [(direction.reversed(), ACK, &[][..])]);
        }
    }

    /// Records that one side sends no more data, because it has called `shutdown` or its stream has
    /// ended.
    pub fn finish(&mut self, at: Instant, direction: Direction) {
        if !self.is_reset && !std::mem::replace(&mut self.endpoint(direction).has_ended, true) {
            self.record(at, [(direction, FIN | ACK, &[][..]), (direction.reversed(), ACK, &[])]);
        }
    }

    /// Records a reset of the connection.
    pub fn reset(&mut self, at: Instant, direction: Direction) {
        if !std::mem::replace(&mut self.is_reset, true) {
            self.record(at, [(direction, RST | ACK, &[][..])]);
        }
    }

    /// The endpoint that sends the packets of this direction.
    fn endpoint(&mut self, direction: Direction) -> &mut Endpoint {
        match direction {
            Direction::Out => &mut self.local,
            Direction::In => &mut self.peer,
        }
    }

    fn record<'a>(
        &mut self,
        at: Instant,
        segments: impl IntoIterator<Item = (Direction, u8, &'a [u8])>,
    ) {
        let Self { capture, local, peer, id, .. } = self;
        let mut batch = capture.batch();
        for (direction, flags, payload) in segments {
            let (from, to) = match direction {
                Direction::Out => (&mut *local, &mut *peer),
                Direction::In => (&mut *peer, &mut *local),
            };
            let (src, dst) = (from.addr, to.addr);
            *id = id.wrapping_add(1);
            let ip = Ip { src: src.ip(), dst: dst.ip(), id: *id, dont_fragment: true };
            if flags & ACK != 0 {
                from.acknowledged = to.next;
            }
            let tcp = Tcp {
                src_port: src.port(),
                dst_port: dst.port(),
                sequence: from.next,
                acknowledged: from.acknowledged,
                flags,
            };
            batch.packet(at, direction, |frame| headers::tcp(frame, ip, tcp, payload));
            let syn_or_fin = u32::from(flags & (SYN | FIN) != 0);
            from.next = from.next.wrapping_add(payload.len() as u32 + syn_or_fin);
        }
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.finish(Instant::now(), Direction::Out);
        let (local, peer) = (self.local.addr, self.peer.addr);
        self.capture.batch().state().end_flow(local, peer);
    }
}

/// Returns a different initial sequence number for each connection, so that two connections between
/// the same ports can be told apart.
fn initial_sequence() -> u32 {
    static FLOWS: AtomicU32 = AtomicU32::new(1);
    FLOWS.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9E37_79B9)
}
