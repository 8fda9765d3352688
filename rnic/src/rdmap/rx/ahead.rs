//! Reports of placed writes that lie behind a message which waits for a receive.
//!
//! Over InfiniBand a write is acknowledged although a message of the peer waits for a receive, and
//! a program may wait for the write before it posts the receive. So the octets behind such a
//! message are read and kept, and the reports among them are handled at once. A report is handled
//! once more when its turn comes, and says nothing new then.

use wire::iwarp::mpa::fpdu::{Fpdu, LENGTH_SIZE, fpdu_len};
use wire::iwarp::{Header, Placement, ddp};

use super::super::stream::Stream;

/// The maximum number of octets that are kept while a message waits. Reports behind more octets are
/// handled when the message has found a receive.
const MAX_BACKLOG: usize = 128 << 10;

impl Stream {
    /// The number of octets that [`rx_ahead`](Self::rx_ahead) takes now: 0 unless a message waits
    /// for a receive and a write of this side waits for a report.
    pub fn wants_ahead(&self) -> usize {
        match self.is_stalled() && self.writes.has_outstanding() {
            true => MAX_BACKLOG.saturating_sub(self.rx.backlog.len()),
            false => 0,
        }
    }

    /// Keeps octets behind the message that waits for a receive, at most as many as
    /// [`wants_ahead`](Self::wants_ahead) has returned. If there are reports among the octets,
    /// completes the writes that the reports name.
    pub fn rx_ahead(&mut self, octets: &[u8]) {
        self.stats.rx_octets += octets.len() as u64;
        self.rx.backlog.extend_from_slice(octets);
        self.look_for_reports();
        self.work.retire();
        self.work.announce();
    }

    /// Handles the reports in the backlog, starting at the first frame that was not searched.
    fn look_for_reports(&mut self) {
        let mut at = self.rx.ahead.unwrap_or_else(|| self.start_of_next_frame());
        while let Some(octets) = self.rx.backlog.get(at..)
            && let Some(len) = octets.first_chunk::<LENGTH_SIZE>()
        {
            let ulpdu_len = usize::from(u16::from_be_bytes(*len));
            if ulpdu_len == ddp::TAGGED_SIZE {
                // The whole frame is needed, because its CRC must be checked.
                let Some(fpdu) = Fpdu::parse(octets) else { break };
                if let Ok(Some((Header::Tagged { placement, last, to, .. }, _))) =
                    Header::parse(fpdu.ulpdu())
                    && placement == Placement::Reported
                    && (!self.crc || fpdu.check_crc().is_ok())
                {
                    self.take_early_report(last, to);
                }
            }
            at += fpdu_len(ulpdu_len);
        }
        self.rx.ahead = Some(at);
    }

    /// The position in the backlog of the frame behind the message that waits for a receive.
    fn start_of_next_frame(&self) -> usize {
        let rx = &self.rx;
        match rx.fpdu.is_empty() {
            true => rx.backlog_taken + fpdu_len(rx.frame.ulpdu_len) - rx.partial_header_len,
            // The whole frame of the message is kept apart from the backlog.
            false => rx.backlog_taken,
        }
    }
}
