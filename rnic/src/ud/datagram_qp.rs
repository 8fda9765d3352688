//! A datagram queue pair: sends posted datagrams, and places received ones.

use std::net::{IpAddr, Ipv6Addr};

use wire::cm::UDP_Q_KEY;
use wire::rocev2::{Bth, Deth, Extension, Opcode, Packet, PathMtu, Psn};
use work::cause::{Cause, LocalUse};

use super::cm_key_hosts::CmKeyHosts;
use super::posted_datagram::Way;
use super::stats::Stats;
use crate::key::Right;
use crate::qp::Work;
use crate::rc::{Burst, convert_immediate};
use crate::wqe::{Received, Rqe, Wqe};
use crate::wr::{Destination, Segment, WcStatus};

/// The number of octets before the payload in each receive buffer: the size of a GRH. It is the
/// same for datagrams that arrived without a GRH.
pub const HEADER_SIZE: usize = 40;

/// The configuration of a datagram queue pair.
#[derive(Clone, Copy, Debug)]
pub struct UdCfg {
    /// The key that datagrams to this queue pair must carry, except datagrams of the hosts that
    /// [`DatagramQp::accept_cm_key`] has named.
    pub q_key: u32,
    /// The maximum payload of a datagram that is sent. Received datagrams may be longer.
    pub mtu: PathMtu,
    /// The partition key.
    pub p_key: u16,
}

/// The reason for which the queue pair cannot continue. The reason is always on this side, because
/// wrong packets of peers are only dropped. If a work request is the reason, it completes with a
/// status of its own: a receive completes at once, and a request completes when
/// [`DatagramQp::flush`] is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The memory of a datagram to be sent is no longer registered, or a posted request is not a
    /// datagram.
    #[error("a request could not be carried out")]
    Local,
    /// The memory of a receive is no longer registered.
    #[error("a received datagram could not be placed in its receive buffer")]
    Receive,
    /// The [watch](Work::watch_receives) has refused a receive buffer.
    #[error("the owner of the queue pair let the message take no receive buffer")]
    ReceiveDeclined,
    /// [`DatagramQp::flush`] was called.
    #[error("the queue pair was flushed")]
    Flushed,
}

/// The engine's half of a datagram queue pair. It is used under the engine lock.
///
/// ```text
/// on a packet:  ud.receive(&packet, from, &header)?
/// on work:      while let Some(to) = ud.next() { ud.transmit(to, source_qpn, &mut burst)?; send }
/// on Err(_):    send what transmit has added; ud.flush(); tell the program
/// ```
///
/// After a failure, `receive` and `transmit` return that failure again.
pub struct DatagramQp {
    work: Work,
    cfg: UdCfg,
    cm_key_hosts: CmKeyHosts,
    /// The PSN of the next datagram. Receivers ignore it.
    psn: Psn,
    failure: Option<Failure>,
    stats: Stats,
}

impl DatagramQp {
    /// The engine of a queue pair that has sent nothing yet. From now on, datagrams may be posted
    /// to the queue pair.
    pub fn new(work: Work, cfg: UdCfg) -> Self {
        work.permit_datagrams();
        DatagramQp {
            work,
            cfg,
            cm_key_hosts: CmKeyHosts::default(),
            psn: Psn::new(0),
            failure: None,
            stats: Stats::default(),
        }
    }

    /// Also accepts datagrams of this host that carry [`UDP_Q_KEY`]. Call this for the host of a
    /// queue pair of Linux's RDMA CM, which uses no other key.
    pub fn accept_cm_key(&mut self, host: IpAddr) {
        self.cm_key_hosts.add(host);
    }

    /// Processes a packet of the host `from` for this queue pair: places the header and the payload
    /// in the next receive buffer, and completes it. The caller has checked the packet's ICRC. A
    /// datagram that cannot be delivered is dropped and counted. If it is too long for the receive
    /// buffer, this buffer stays the next one.
    #[inline]
    pub fn receive(
        &mut self,
        packet: &Packet<'_>,
        from: IpAddr,
        header: &[u8; HEADER_SIZE],
    ) -> Result<(), Failure> {
        self.check_not_failed()?;
        let (deth, immediate) = match packet.extension {
            Extension::Deth(deth) => (deth, None),
            Extension::DethImmediate(deth, data) => (deth, Some(convert_immediate(data))),
            _ => {
                self.stats.rx_wrong_opcode += 1;
                return Ok(());
            }
        };
        if !Bth::same_partition(packet.bth.p_key, self.cfg.p_key) {
            self.stats.rx_wrong_p_key += 1;
            return Ok(());
        }
        let is_cm_key = || deth.q_key == UDP_Q_KEY && self.cm_key_hosts.contain(from);
        if deth.q_key != self.cfg.q_key && !is_cm_key() {
            self.stats.rx_wrong_q_key += 1;
            return Ok(());
        }
        let Some(buffer) = self.take_buffer()? else {
            self.stats.rx_no_receive += 1;
            return Ok(());
        };
        let len = HEADER_SIZE + packet.payload.len();
        if len as u64 > buffer.len {
            self.stats.rx_too_long += 1;
            return Ok(());
        }
        self.place(header, packet.payload)?;
        self.stats.rx_datagrams += 1;
        let received = Received { immediate, ..Received::octets(len as u32) };
        self.work.finish_recv(received, WcStatus::Success, packet.bth.solicited);
        self.work.announce();
        Ok(())
    }

    /// Counts a datagram of the network layer for this queue pair that is no valid packet.
    #[cold]
    pub fn count_invalid(&mut self) {
        self.stats.rx_invalid += 1;
    }

    /// The receive buffer for a datagram: the one that was too small for the previous datagram, or
    /// the next one.
    #[inline]
    fn take_buffer(&mut self) -> Result<Option<Rqe>, Failure> {
        if let Some(kept) = self.work.recv() {
            return Ok(Some(kept));
        }
        let buffer = self.work.take_recv();
        if buffer.is_some() && !self.work.may_take() {
            // The buffer is flushed later with the other buffers.
            self.work.report(Cause::ReceiveDeclined);
            self.stats.rx_failed += 1;
            return Err(self.fail(Failure::ReceiveDeclined));
        }
        Ok(buffer)
    }

    /// Copies a datagram to the current receive buffer, which is long enough.
    #[inline]
    fn place(&mut self, header: &[u8; HEADER_SIZE], payload: &[u8]) -> Result<(), Failure> {
        let work = &mut self.work;
        let (scope, segments) = work.recv_segments();
        let by = (scope, Right::LocalWrite);
        let placed = work
            .scatter(by, segments, 0, header)
            .and_then(|()| work.scatter(by, segments, HEADER_SIZE, payload));
        let Err(error) = placed else { return Ok(()) };
        // The buffer's memory is no longer registered.
        work.report_local(LocalUse::Receive, error);
        work.finish_recv(Received::NOTHING, WcStatus::LocalProtection, true);
        work.announce();
        self.stats.rx_failed += 1;
        Err(self.fail(Failure::Receive))
    }

    /// Where the oldest datagram goes that was not sent. `None` if [`transmit`](Self::transmit) has
    /// nothing to do. If the oldest request is not a datagram, the address is unspecified, and
    /// `transmit` fails.
    #[inline]
    pub fn next(&self) -> Option<Destination> {
        if self.failure.is_some() {
            return None;
        }
        let (wqe, _) = self.work.request(self.work.oldest_request())?;
        Some(match wqe.is_datagram() {
            true => wqe.destination(),
            false => Destination { address: UNSPECIFIED, route: 0, qpn: 0, q_key: 0 },
        })
    }

    /// Adds datagrams to a burst, and completes their requests, until the burst is full or a
    /// datagram has another address or another route than `to`. Their queue pairs and Q_Keys may
    /// differ. `source_qpn` is the number of this queue pair on that route. The burst has room for
    /// a packet if it is empty.
    ///
    /// A datagram that is longer than the MTU completes successfully, but is not sent. After a
    /// failure, the burst contains the datagrams before the failed request.
    #[inline]
    pub fn transmit(
        &mut self,
        to: Destination,
        source_qpn: u32,
        burst: &mut Burst,
    ) -> Result<(), Failure> {
        self.check_not_failed()?;
        let way = Way::to(&to);
        let mut at = self.work.oldest_request();
        let mut failed = None;
        while let Some((wqe, segments)) = self.work.request(at) {
            if !wqe.is_datagram() {
                failed = Some(WcStatus::LocalEp);
                break;
            }
            if wqe.way() != way {
                break;
            }
            match self.push(wqe, segments, source_qpn, burst) {
                Ok(Push::Added) => self.stats.tx_datagrams += 1,
                // IBA, C10-93.1.1.
                Ok(Push::TooLong) => self.stats.tx_too_long += 1,
                Ok(Push::Full) => break,
                Err(status) => {
                    failed = Some(status);
                    break;
                }
            }
            self.psn = self.psn.next();
            self.work.done(at);
            at = at.wrapping_add(1);
        }
        self.work.retire();
        self.work.announce();
        let Some(status) = failed else { return Ok(()) };
        self.work.fail(at, status);
        Err(self.fail(Failure::Local))
    }

    /// Adds a datagram to a burst.
    #[inline]
    fn push(
        &self,
        wqe: &Wqe,
        segments: &[Segment],
        source_qpn: u32,
        burst: &mut Burst,
    ) -> Result<Push, WcStatus> {
        let len = wqe.len as usize;
        if len > self.cfg.mtu.octets() {
            return Ok(Push::TooLong);
        }
        let deth = Deth { q_key: wqe.q_key, source_qpn };
        let (opcode, extension) = match wqe.immediate() {
            None => (Opcode::DatagramSendOnly, Extension::Deth(deth)),
            Some(immediate) => {
                let extension = Extension::DethImmediate(deth, convert_immediate(immediate));
                (Opcode::DatagramSendOnlyImmediate, extension)
            }
        };
        let bth = Bth {
            p_key: self.cfg.p_key,
            solicited: wqe.has(Wqe::SOLICITED),
            // HCAs that do not support path migration set this bit.
            migrated: true,
            ..Bth::new(opcode, wqe.qpn(), self.psn)
        };
        let Some(place) = burst.push_packet(&bth, &extension, len) else { return Ok(Push::Full) };
        if let Err(error) = self.work.gather(segments, 0, place) {
            self.work.report_local(LocalUse::Source, error);
            burst.pop();
            return Err(WcStatus::LocalProtection);
        }
        Ok(Push::Added)
    }

    /// Completes all posted work as flushed. Call this again for work that is posted later. From
    /// now on no packet is sent or received.
    pub fn flush(&mut self) {
        self.failure.get_or_insert(Failure::Flushed);
        self.work.flush();
    }

    /// The half of the queue pair that completes work.
    pub fn work(&self) -> &Work {
        &self.work
    }

    /// The half of the queue pair that completes work.
    pub fn work_mut(&mut self) -> &mut Work {
        &mut self.work
    }

    /// The counters of this queue pair.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Ends the engine. Posted work that has not completed stays in the queues until
    /// [`Work::flush`].
    pub fn into_work(self) -> Work {
        self.work
    }

    #[inline]
    fn check_not_failed(&self) -> Result<(), Failure> {
        match self.failure {
            None => Ok(()),
            Some(failure) => Err(failure),
        }
    }

    #[cold]
    fn fail(&mut self, failure: Failure) -> Failure {
        self.failure = Some(failure);
        failure
    }
}

const UNSPECIFIED: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

/// What became of a datagram that should be added to a burst.
enum Push {
    Added,
    TooLong,
    Full,
}
