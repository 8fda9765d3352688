//! Reports of routers that a packet is too long for the path (ICMP "fragmentation needed", ICMPv6
//! "packet too big").
//!
//! Anybody can forge such a report. A report quotes the packet, so it counts only for the
//! connection to which the quoted packet belongs, and only if that connection may have sent the
//! packet. The reports of a sender are kept until a connection asks for its own. A connection asks
//! when the peer does not answer.

use std::collections::VecDeque;
use std::net::IpAddr;

use wire::rocev2::Psn;

/// The maximum number of reports that are kept. Further reports displace the oldest ones.
const REPORTS_MAX: usize = 256;

/// A report. It may be forged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PathReport {
    /// The address of the peer to which the quoted packet was sent.
    pub(crate) peer: IpAddr,
    /// The peer's queue pair and the PSN in the quoted packet.
    pub(crate) qpn: u32,
    pub(crate) psn: Psn,
    /// The length of the longest IP packet that the path carries.
    pub(crate) path: usize,
}

/// The reports about packets of one sender, the oldest one first.
#[derive(Default)]
pub(crate) struct PathReports(VecDeque<PathReport>);

impl PathReports {
    pub(crate) fn add(&mut self, report: PathReport) {
        if self.0.len() >= REPORTS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(report);
    }

    /// The length of the longest IP packet that the path of a connection carries, according to the
    /// latest report that quotes a packet of the connection. `peer` is the address and the queue
    /// pair of the connection's peer. `may_be_quoted` says whether the connection may have sent the
    /// packet with this PSN.
    pub(crate) fn path(
        &self,
        peer: (IpAddr, u32),
        may_be_quoted: impl Fn(Psn) -> bool,
    ) -> Option<usize> {
        // A connection asks about its requests and about its responses, so other reports stay.
        let is_meant =
            |report: &&PathReport| (report.peer, report.qpn) == peer && may_be_quoted(report.psn);
        self.0.iter().rev().find(is_meant).map(|report| report.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: (IpAddr, u32) = (IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)), 0x1205);

    fn report(psn: u32, path: usize) -> PathReport {
        PathReport { peer: PEER.0, qpn: PEER.1, psn: Psn::new(psn), path }
    }

    #[test]
    fn a_connection_gets_the_latest_report_about_its_own_packets() {
        let mut reports = PathReports::default();
        let path = |reports: &PathReports, psn| reports.path(PEER, |of| of == Psn::new(psn));
        assert_eq!(path(&reports, 7), None);
        reports.add(report(7, 1400));
        reports.add(PathReport { qpn: PEER.1 + 1, ..report(7, 600) });
        reports.add(PathReport { peer: [192, 0, 2, 2].into(), ..report(7, 700) });
        assert_eq!(path(&reports, 7), Some(1400));
        reports.add(report(7, 1300));
        assert_eq!(path(&reports, 7), Some(1300));
        // A question about other packets does not lose the report.
        assert_eq!(path(&reports, 8), None);
        assert_eq!(path(&reports, 7), Some(1300));
        assert_eq!(reports.path((PEER.0, PEER.1 + 1), |_| true), Some(600));
    }

    #[test]
    fn the_number_of_reports_is_limited() {
        let mut reports = PathReports::default();
        let forged = 10 * REPORTS_MAX as u32;
        (0..forged).for_each(|psn| reports.add(report(psn, 600)));
        assert_eq!(reports.0.len(), REPORTS_MAX);
        assert_eq!(reports.path(PEER, |psn| psn == Psn::new(0)), None);
    }
}
