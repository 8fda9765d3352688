//! A connection that is there.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use dat_core::provider::{Close, ReadDepth};
use rnic::Work;
use rnic::rc::{Failure, RcCfg, ReliableConnection};
use wire::cm::Timeout;
use wire::rocev2::{Bth, PathMtu, Psn, RnrTimer};

use super::debt::Debt;
use super::end::Leaving;
use super::{Conn, Tools};
use crate::line::Peer;

/// What the peer is told to wait when no receive is posted: 0.64 ms.
const RNR_TIMER: u8 = 12;
/// Octets in flight at most.
const WINDOW: usize = 1 << 20;
/// Packets in flight at most, and at least.
const WINDOWS: RangeInclusive<usize> = 16..=1024;

/// Bursts of one queue pair before others get their turn.
pub(super) const BURSTS: usize = 16;

/// The connection.
pub(super) struct Up {
    pub(super) rc: ReliableConnection,
    pub(super) conn: Conn,
    pub(super) peer: Peer,
    pub(super) peer_qpn: u32,
    /// Reads that were agreed on.
    pub(super) depth: ReadDepth,
    /// On the passive side: the peer and this side, with their ports.
    pub(super) ends: Option<(SocketAddr, SocketAddr)>,
    /// The consumer has been told of it.
    pub(super) announced: bool,
    /// It ends when all that was posted is done.
    pub(super) closing: Option<Close>,
    /// It ends when what is in flight is done, as far as the peer has taken it.
    pub(super) peer_leaves: Option<Leaving>,
    pub(super) failure: Option<Failure>,
    /// What the peer's host has said of its port.
    pub(super) refused: Refused,
    /// The acknowledgement that is owed.
    pub(super) debt: Debt,
    /// The queue pair.
    pub(super) link: usize,
    /// It is in the kit's list of those who have more to send.
    pub(super) queued: bool,
}

/// How long the peer's host must have refused packets for the connection to end.
const REFUSED_FOR: Duration = Duration::from_millis(1500);

/// Since when the peer's host has refused packets, and what had been received by then.
#[derive(Default)]
pub(super) struct Refused(Option<(Instant, u64)>);

impl Refused {
    /// Takes note that the host refuses a packet. Answers whether it has refused for so long that the
    /// connection is over: `received`, the number of packets that have come from the peer, has not changed in
    /// that time.
    pub(super) fn is_over(&mut self, received: u64, now: Instant) -> bool {
        match self.0 {
            Some((since, before)) if before == received => now >= since + REFUSED_FOR,
            _ => {
                self.0 = Some((now, received));
                false
            }
        }
    }
}

/// What was agreed on.
pub(super) struct Terms {
    pub(super) mtu: PathMtu,
    pub(super) peer_qpn: u32,
    pub(super) sq_psn: Psn,
    pub(super) rq_psn: Psn,
    pub(super) depth: ReadDepth,
    pub(super) ack_timeout: Timeout,
    pub(super) retries: u8,
    pub(super) rnr_retries: u8,
}

impl Up {
    pub(super) fn new(
        link: usize,
        work: Work,
        terms: Terms,
        conn: Conn,
        peer: Peer,
        tools: &Tools<'_>,
    ) -> Self {
        let Terms { mtu, peer_qpn, sq_psn, rq_psn, depth, ack_timeout, retries, rnr_retries } =
            terms;
        // The peer's socket is as ours, as likely as not; half of it, since the kernel counts more than octets there.
        let octets = WINDOW.min(tools.station.port.socket.receive_buffer() / 2);
        let window = (octets / mtu.octets()).clamp(*WINDOWS.start(), *WINDOWS.end());
        let cfg = RcCfg {
            mtu,
            peer_qpn,
            p_key: Bth::DEFAULT_P_KEY,
            sq_psn,
            rq_psn,
            initiator_depth: depth.outgoing,
            responder_resources: depth.incoming,
            ack_timeout: ack_timeout.code(),
            retries,
            rnr_retries,
            rnr_timer: RnrTimer::from_code(RNR_TIMER),
            window: window as u32,
        };
        Up {
            rc: ReliableConnection::new(work, cfg, tools.now),
            conn,
            peer,
            peer_qpn,
            depth,
            ends: None,
            announced: false,
            closing: None,
            peer_leaves: None,
            failure: None,
            refused: Refused::default(),
            debt: Debt::default(),
            link,
            queued: false,
        }
    }

    /// Sends what is ready.
    pub(super) fn transmit(&mut self, tools: &mut Tools<'_>) -> Result<(), Failure> {
        // On the passive side: not before the peer has shown that it is there.
        if !self.announced {
            return Ok(());
        }
        for _ in 0..BURSTS {
            self.rc.transmit(tools.now, &mut tools.kit.burst)?;
            if !tools.kit.burst.is_empty() {
                self.debt.answered();
            }
            tools.station.send(&self.peer, &mut tools.kit.burst, tools.now);
            if !self.rc.wants_tx() {
                return Ok(());
            }
        }
        if !std::mem::replace(&mut self.queued, true) {
            tools.kit.again.push(self.link);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::ACK_TIMEOUT;

    const SECOND: Duration = Duration::from_secs(1);

    /// Since when a dead peer is known, whose host refuses what it is asked this often.
    fn known_after(every: Duration, received: impl Fn(Duration) -> u64) -> Option<Duration> {
        let (mut refused, start) = (Refused::default(), Instant::now());
        let times = (1..).map(|n| every * n).take_while(|&time| time < 60 * SECOND);
        times.into_iter().find(|&time| refused.is_over(received(time), start + time))
    }

    /// The death of a peer on another host is reported within 5 s where that host says that nobody has the
    /// port any more. It is asked with each packet that is sent again, at least once in an ACK timeout, and
    /// Linux answers once a second at least.
    #[test]
    fn a_port_that_nobody_has_is_told_of_within_five_seconds() {
        let timeout = Duration::from_nanos(4096 << ACK_TIMEOUT.code());
        for every in [Duration::from_millis(5), Duration::from_millis(100), timeout, SECOND] {
            let known = known_after(every, |_| 7).expect("it is over");
            assert!(REFUSED_FOR < known && known < 5 * SECOND, "{every:?}: {known:?}");
        }
    }

    /// Whoever sends anything is not dead.
    #[test]
    fn a_peer_that_is_heard_is_not_dead() {
        let heard_every = |time: Duration| time.as_millis() as u64 / 1400;
        assert_eq!(known_after(Duration::from_millis(100), heard_every), None);
    }
}
