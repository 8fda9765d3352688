//! How connections end.
//!
//! Whoever ends one has had what it asked for, or does not want it any more: it completes all that is posted,
//! says DREQ, and goes on answering what it has taken ([`Parting`]) until it is answered. Whoever is told so
//! asks for what is in flight until it is settled ([`ReliableConnection::start_peer_close`](rnic::ReliableConnection::start_peer_close)), completes all that is
//! posted, and answers DREP. So a request that was carried out does not count as lost because an
//! acknowledgement was.

use dat_core::provider::Close;
use rnic::Work;
use rnic::cm::Ending;
use rnic::rc::Failure;

use super::parting::Parting;
use super::up::Up;
use super::{Link, Phase, Tools};
use crate::engine::Upcall;

/// Why a connection ends.
pub(super) enum End {
    /// This side's consumer wants it.
    Local(Close),
    /// The peer ended it.
    Peer,
    /// The network failed, or one side broke the rules, or a request failed.
    Broken(Breach),
    /// The peer never said that it has seen our acceptance.
    NotAccepted,
}

/// What ended it in disorder.
#[derive(Debug, thiserror::Error)]
pub(super) enum Breach {
    #[error(transparent)]
    Failed(#[from] Failure),
    /// It waited for our last word, or has forgotten the connection.
    #[error("the peer knows nothing of the connection any more")]
    Left,
    #[error("the peer's process is gone")]
    Gone,
    #[error("it broke on the peer's side")]
    ByPeer,
}

/// The peer ends the connection.
#[derive(Clone, Copy)]
pub(super) struct Leaving {
    /// It says that the connection broke on its side.
    pub(super) broke: bool,
}

impl Up {
    /// How the connection ends that the peer has ended, if it has.
    pub(super) fn peers_end(&self) -> Option<End> {
        self.peer_leaves
            .map(|Leaving { broke }| if broke { End::Broken(Breach::ByPeer) } else { End::Peer })
    }
}

impl Link {
    /// Ends the connection, or the attempt, as the consumer wants.
    pub(crate) fn disconnect(&mut self, tools: &mut Tools<'_>, how: Close) {
        match (&mut self.phase, how) {
            (Phase::Up(up), Close::Graceful) if up.announced => {
                up.closing = Some(how);
                self.transmit(tools);
            }
            (Phase::Up(_), _) => self.end(tools, End::Local(how)),
            (Phase::Dialing(dialing), _) => {
                if let Some((conn, _)) = dialing.call {
                    tools.station.cm.forget(tools.now, conn.id);
                }
                self.fail(Upcall::Disconnected);
            }
            (Phase::Idle(_) | Phase::Parting(_) | Phase::Ended(_) | Phase::Between, _) => {}
        }
    }

    /// The same where there is no connection.
    pub(crate) fn disconnect_nobody(&mut self) {
        match std::mem::replace(&mut self.phase, Phase::Between) {
            Phase::Idle(work) => self.finish(work),
            Phase::Dialing(dialing) => self.finish(dialing.work),
            other => return self.phase = other,
        }
        self.sink.call(Upcall::Disconnected);
    }

    /// The peer ends the connection; it may have taken what is in flight.
    pub(super) fn peer_leaves(&mut self, tools: &mut Tools<'_>, broke: bool) {
        if let Phase::Up(up) = &mut self.phase {
            up.peer_leaves = Some(Leaving { broke });
            up.rc.start_peer_close(tools.now);
            self.transmit(tools);
        }
    }

    /// The peer has answered to the end of the connection, or there is nobody any more who could.
    pub(super) fn disconnected(&mut self, tools: &mut Tools<'_>) {
        let parting = match std::mem::replace(&mut self.phase, Phase::Between) {
            Phase::Parting(parting) => parting,
            other => {
                self.phase = other;
                return match self.phase {
                    Phase::Dialing(_) => self.fail(Upcall::Disconnected),
                    Phase::Up(ref up) => {
                        let end = up.peers_end().unwrap_or(End::Peer);
                        self.end(tools, end);
                    }
                    _ => {}
                };
            }
        };
        tools.station.qpns.retire(parting.conn.qpn);
        self.finish(parting.rest.into_work());
        self.sink.call(Upcall::Disconnected);
    }

    /// The peer's host says that nobody has the port. That ends an attempt to connect at once; over a
    /// connection it counts when the host has said nothing else for a while, since a firewall that is being
    /// changed says so, too.
    pub(crate) fn port_is_refused(&mut self, tools: &mut Tools<'_>) {
        if let Phase::Up(up) = &mut self.phase
            && !up.refused.is_over(up.rc.stats().rx_packets, tools.now)
        {
            return;
        }
        self.peer_is_gone(tools);
    }

    /// The peer's process is gone, or its host says that nobody has the port.
    pub(crate) fn peer_is_gone(&mut self, tools: &mut Tools<'_>) {
        let conn = self.conn();
        match &self.phase {
            // It has said so.
            Phase::Up(up) => {
                let end = up.peers_end().unwrap_or(End::Broken(Breach::Gone));
                self.end(tools, end);
            }
            Phase::Dialing(dialing) => {
                if let Some((conn, _)) = dialing.call {
                    tools.station.cm.forget(tools.now, conn.id);
                }
                self.fail(Upcall::Unreachable { because: Some(&Breach::Gone) });
            }
            Phase::Parting(_) => self.disconnected(tools),
            Phase::Idle(_) | Phase::Ended(_) | Phase::Between => {}
        }
        // Nor is there anybody who would hear of the end.
        if let Some(conn) = conn {
            tools.station.cm.unreachable(tools.now, conn);
        }
    }

    /// Ends the connection.
    pub(super) fn end(&mut self, tools: &mut Tools<'_>, end: End) {
        let mut up = match std::mem::replace(&mut self.phase, Phase::Between) {
            Phase::Up(up) => up,
            other => return self.phase = other,
        };
        tools.kit.past.add(&up.rc.stats().list());
        if let End::Broken(_) = end {
            up.rc.transmit_fatal_nak(&mut tools.kit.burst);
        } else {
            // What the peer asked for comes first.
            up.rc.acknowledge(&mut tools.kit.burst);
        }
        tools.station.send(&up.peer, &mut tools.kit.burst, tools.now);
        let (announced, closing, conn) = (up.announced, up.closing.is_some(), up.conn);
        let cm = &mut tools.station.cm;
        match end {
            End::Local(how) => {
                let ending = match how {
                    Close::Graceful => Ending::Graceful,
                    Close::Abrupt => Ending::Abrupt,
                };
                cm.disconnect(tools.now, conn.id, ending);
                self.shared.end();
                self.phase = Phase::Parting(Box::new(Parting::new(*up)));
                return;
            }
            // That is the answer.
            End::Peer => cm.disconnect(tools.now, conn.id, Ending::Graceful),
            End::Broken(_) => cm.break_off(tools.now, conn.id),
            End::NotAccepted => {}
        }
        tools.station.qpns.retire(conn.qpn);
        up.rc.flush();
        self.finish(up.rc.into_work());
        self.sink.call(match &end {
            _ if !announced => Upcall::AcceptFailed,
            _ if closing => Upcall::Disconnected,
            End::Broken(because) => Upcall::Broken { because },
            End::Local(_) | End::Peer | End::NotAccepted => Upcall::Disconnected,
        });
    }

    /// Completes all that is posted, and sees to it that what is posted later is completed, too.
    pub(super) fn finish(&mut self, mut work: Work) {
        self.shared.end();
        work.flush();
        self.phase = Phase::Ended(work);
    }

    /// The queue pair goes away: no upcalls any more.
    pub(crate) fn close(mut self, tools: &mut Tools<'_>) {
        let conn = match std::mem::replace(&mut self.phase, Phase::Between) {
            Phase::Up(up) => {
                tools.kit.past.add(&up.rc.stats().list());
                Some(up.conn)
            }
            Phase::Parting(parting) => Some(parting.conn),
            Phase::Dialing(dialing) => dialing.call.map(|(conn, _)| conn),
            Phase::Idle(_) | Phase::Ended(_) | Phase::Between => None,
        };
        if let Some(conn) = conn {
            tools.station.qpns.retire(conn.qpn);
            tools.station.cm.forget(tools.now, conn.id);
        }
    }
}
