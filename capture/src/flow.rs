//! A TCP connection as its segments: a socket tells of octets only.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use crate::headers::{self, ACK, FIN, Ip, MAX_SEGMENT, PSH, RST, SYN, Tcp};
use crate::{Capture, Direction};

/// Octets after which a side that sends nothing itself is made to acknowledge.
const ACKNOWLEDGE_AFTER: u32 = 128 << 10;

/// A TCP connection that is being recorded. If it is dropped before, it ends with a FIN of this side.
#[derive(Debug)]
pub struct Flow {
    capture: Capture,
    local: End,
    peer: End,
    /// Of the last IPv4 packet.
    id: u16,
    is_reset: bool,
}

#[derive(Debug)]
struct End {
    addr: SocketAddr,
    /// The sequence number of its next octet.
    next: u32,
    /// What it has acknowledged.
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
        let end = |addr, next| End { addr, next, acknowledged: 0, has_ended: false };
        let (local, peer) = (end(local, sequence), end(peer, sequence.rotate_left(16)));
        let mut flow = Self { capture, local, peer, id: 0, is_reset: false };
        let answered = opened.reversed();
        flow.record(at, [(opened, SYN, &[][..]), (answered, SYN | ACK, &[]), (opened, ACK, &[])]);
        Some(flow)
    }

    /// Octets that the socket took or gave.
    pub fn data(&mut self, at: Instant, direction: Direction, octets: &[u8]) {
        if self.is_reset || self.end(direction).has_ended {
            return;
        }
        let segments = octets.len().div_ceil(MAX_SEGMENT);
        let flags = |index| if index + 1 == segments { ACK | PSH } else { ACK };
        let cut = octets.chunks(MAX_SEGMENT).enumerate();
        self.record(at, cut.map(|(index, octets)| (direction, flags(index), octets)));
        let acknowledged = self.end(direction.reversed()).acknowledged;
        if self.end(direction).next.wrapping_sub(acknowledged) >= ACKNOWLEDGE_AFTER {
            self.record(at, [(direction.reversed(), ACK, &[][..])]);
        }
    }

    /// One side will send no more: `shutdown`, or the end of the stream.
    pub fn finish(&mut self, at: Instant, direction: Direction) {
        if !self.is_reset && !std::mem::replace(&mut self.end(direction).has_ended, true) {
            self.record(at, [(direction, FIN | ACK, &[][..]), (direction.reversed(), ACK, &[])]);
        }
    }

    /// The connection is gone at once.
    pub fn reset(&mut self, at: Instant, direction: Direction) {
        if !std::mem::replace(&mut self.is_reset, true) {
            self.record(at, [(direction, RST | ACK, &[][..])]);
        }
    }

    /// The one that sends in this direction.
    fn end(&mut self, direction: Direction) -> &mut End {
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
            let takes_number = u32::from(flags & (SYN | FIN) != 0);
            from.next = from.next.wrapping_add(payload.len() as u32 + takes_number);
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

/// Another one for each connection: two between the same ports are to be told apart.
fn initial_sequence() -> u32 {
    static FLOWS: AtomicU32 = AtomicU32::new(1);
    FLOWS.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9E37_79B9)
}
