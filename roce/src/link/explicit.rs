//! Explicit connections: both sides have told each other the parameters in another way than by
//! connection management. The responder starts first, so that a side can answer before it knows
//! that the other side can.
//!
//! The peer is not told the end of such a connection. Its process and its host are not watched:
//! only requests that are not answered show that the peer is gone.

use adapter::{Error, RequesterCfg, ResponderCfg, Result};
use wire::cm::Timeout;
use wire::rocev2::{PathMtu, Psn, RnrTimer};
use work::ReadDepth;

use super::established::{Established, Sends, Terms};
use super::{Conn, Link, Phase};
use crate::MAX_READ_DEPTH;
use crate::resources::EngineContext;
use crate::shared_port::slot_of;

/// Checks that a value is not larger than its field.
fn within<T: PartialOrd>(value: T, max: T) -> Result<T> {
    if value <= max { Ok(value) } else { Err(Error::InvalidArgument) }
}

/// The largest PSN and the largest queue pair number.
const MAX_24_BITS: u32 = 0xff_ffff;

impl Link {
    /// Starts the responder: see [`Qp::establish_responder`](adapter::Qp::establish_responder).
    pub(crate) fn establish_responder(
        &mut self,
        cx: &mut EngineContext<'_>,
        local_address: usize,
        cfg: &ResponderCfg,
    ) -> Result<()> {
        let number = self.number.ok_or(Error::NotSupported)?;
        let largest = PathMtu::of_interface(cx.local_address.ip_mtu);
        let mtu = PathMtu::ALL.into_iter().find(|mtu| mtu.octets() == cfg.path_mtu as usize);
        let mtu = mtu.filter(|&mtu| Some(mtu) <= largest).ok_or(Error::InvalidArgument)?;
        let mut peer = cx.local_address.peer(cfg.peer).ok_or(Error::InvalidArgument)?;
        let peer_qpn = within(cfg.peer_number, MAX_24_BITS)?;
        let terms = Terms {
            mtu,
            peer_qpn,
            rq_psn: Psn::new(within(cfg.first_psn, MAX_24_BITS)?),
            depth: ReadDepth { incoming: within(cfg.read_depth, MAX_READ_DEPTH)?, outgoing: 0 },
            rnr_timer: RnrTimer::from_code(within(cfg.rnr_timer, 31)?),
            // The following values become known when the requester starts.
            sq_psn: Psn::new(0),
            ack_timeout: Timeout::new(0),
            retries: 0,
            rnr_retries: 0,
        };
        let work = self.phase.take_idle().ok_or(Error::InvalidState)?;
        let qpns = &mut cx.local_address.qpns;
        let Some(qpn) = qpns.assign_for_use(self.index, Some(number)) else {
            self.phase = Phase::Idle(work);
            return Err(Error::NoQueuePair);
        };
        cx.local_address.packet_io.choose_sender(&mut peer, [qpn, peer_qpn]);
        cx.local_address.read_marks_of(cfg.peer);
        cx.local_address.packet_io.prepare_connected_socket(peer.address);
        let conn = Conn { local_address, id: None, qpn, peer: (cfg.peer, slot_of(peer_qpn)) };
        let mut established = Established::new(self.index, work, terms, conn, peer, cx);
        established.sends = Sends::Responses;
        self.phase = Phase::Established(Box::new(established));
        Ok(())
    }

    /// Starts the requester: see [`Qp::establish_requester`](adapter::Qp::establish_requester).
    pub(crate) fn establish_requester(
        &mut self,
        cx: &mut EngineContext<'_>,
        cfg: &RequesterCfg,
    ) -> Result<()> {
        let established = match &mut self.phase {
            Phase::Established(of) if of.sends == Sends::Responses => of,
            _ => return Err(Error::InvalidState),
        };
        let terms = Terms {
            mtu: established.rc.path_mtu(),
            peer_qpn: established.peer_qpn,
            sq_psn: Psn::new(within(cfg.first_psn, MAX_24_BITS)?),
            depth: ReadDepth {
                outgoing: within(cfg.read_depth, MAX_READ_DEPTH)?,
                ..established.depth
            },
            ack_timeout: Timeout::new(within(cfg.ack_timeout, 31)?),
            retries: within(cfg.retries, 7)?,
            rnr_retries: within(cfg.rnr_retries, 7)?,
            // The responder has these values already.
            rq_psn: Psn::new(0),
            rnr_timer: RnrTimer::from_code(0),
        };
        established.start_requester(terms, cx);
        self.transmit(cx);
        Ok(())
    }

    /// Ends an explicit connection without an event, and makes the queue pair idle again: see
    /// [`Qp::reset`](adapter::Qp::reset). The caller removes the queue pair from the engine's
    /// lists.
    pub(crate) fn reset(&mut self, cx: Option<&mut EngineContext<'_>>) -> Result<()> {
        let mut work = match (std::mem::take(&mut self.phase), cx) {
            (Phase::Idle(work) | Phase::Ended(work), _) => work,
            (Phase::Established(established), Some(cx)) if established.conn.id.is_none() => {
                cx.resources.ended_counts.add(&established.rc.stats().list());
                cx.release_qpn(established.conn.qpn, established.conn.id);
                established.rc.into_work()
            }
            (other, _) => {
                self.phase = other;
                return Err(Error::InvalidState);
            }
        };
        work.reset();
        self.shared.reset();
        (self.phase, self.received, self.ack_pending) = (Phase::Idle(work), false, false);
        Ok(())
    }
}
