//! Replays both sides of every exchange that was captured between other implementations. The
//! numbers that a side chooses itself (communication IDs, transaction IDs, GUIDs, PSNs, queue
//! pairs) are taken from the capture. Each side sends each of its messages with the same octets as
//! in the capture, and understands the messages of the other side.

use std::net::SocketAddr;

use wire::cm::{IpHeader, MAD_SIZE, Message, Rep, Req};
use wire::rocev2::{Deth, Extension, Icrc, Packet, UDP_PORT};

use super::*;
use crate::tests::capture;

/// Totals of all captures.
const EXCHANGES: Outcome = Outcome { refused: 1, connected: 28, disconnected: 27 };

#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    refused: usize,
    connected: usize,
    disconnected: usize,
}

#[test]
#[cfg_attr(miri, ignore = "not a test: it takes long in Miri, which would find nothing new")]
fn every_exchange_of_the_captures() {
    let mut outcome = Outcome::default();
    for (name, file) in capture::captures(&capture::root("rocev2")) {
        let mads = mads(&file);
        for req in &mads {
            if let Ok(Mad { transaction, message: Message::Req(called) }) = Mad::parse(&req.mad) {
                // Each message of the connection contains the caller's ID.
                let of_call = |message: &&Transmit| of(called.local_id, &message.mad);
                let messages: Vec<_> = mads.iter().filter(of_call).collect();
                let mut exchange = Exchange::new(&name, req, called, transaction, &messages);
                for message in messages {
                    exchange.take(message);
                }
                exchange.end(&mut outcome);
            }
        }
    }
    assert_eq!(outcome, EXCHANGES);
}

/// The messages that were sent from QP 1 to QP 1.
pub(super) fn mads(file: &[u8]) -> Vec<Transmit> {
    const UDP: u8 = 17;
    let gsi = Extension::Deth(Deth { q_key: Deth::GSI_Q_KEY, source_qpn: Deth::GSI_QPN });
    let datagrams = capture::packets(file)
        .filter(|ip| ip.protocol == UDP && ip.payload[2..4] == UDP_PORT.to_be_bytes());
    datagrams
        .filter_map(|ip| {
            let packet = Packet::parse(&ip.payload[8..ip.payload.len() - Icrc::SIZE]).unwrap();
            let mad = (packet.extension == gsi).then(|| packet.payload.try_into().unwrap())?;
            Some(Transmit { from: ip.source, to: ip.destination, mad })
        })
        .collect()
}

/// Whether a message belongs to the connection whose caller has this ID.
fn of(caller: u32, mad: &[u8; MAD_SIZE]) -> bool {
    let ids = match Mad::parse(mad).map(|mad| mad.message) {
        Ok(Message::Req(req)) => [req.local_id, 0],
        Ok(Message::Rej(rej)) => [rej.local_id, rej.remote_id],
        Ok(Message::Rep(rep)) => [rep.local_id, rep.remote_id],
        Ok(Message::Rtu(rtu)) => [rtu.local_id, rtu.remote_id],
        Ok(Message::Dreq(dreq)) => [dreq.local_id, dreq.remote_id],
        Ok(Message::Drep(drep)) => [drep.local_id, drep.remote_id],
        Ok(Message::Mra(mra)) => [mra.local_id, mra.remote_id],
        Ok(Message::SidrReq(_) | Message::SidrRep(_)) | Err(_) => return false,
    };
    ids.contains(&caller)
}

struct Exchange<'a> {
    place: String,
    now: Instant,
    /// The active side and the passive side.
    cms: [Cm; 2],
    addresses: [IpAddr; 2],
    ids: [Option<ConnId>; 2],
    /// Messages that were sent and have not been found in the capture yet.
    sent: [Vec<Transmit>; 2],
    events: [Vec<Event>; 2],
    /// For each side, whether it sends a DREQ.
    disconnects: [bool; 2],
    req: Req<'a>,
}

impl<'a> Exchange<'a> {
    fn new(
        name: &str,
        call: &Transmit,
        req: Req<'a>,
        transaction: u64,
        messages: &[&Transmit],
    ) -> Self {
        let rep =
            messages.iter().find_map(|message| match Mad::parse(&message.mad).unwrap().message {
                Message::Rep(rep) => Some(rep),
                _ => None,
            });
        let (passive_id, passive_guid) = rep.map_or((1 << 7, 1), |rep| (rep.local_id, rep.ca_guid));
        let now = Instant::now();
        let mut cms =
            [(req.local_id, req.ca_guid), (passive_id, passive_guid)].map(|(id, ca_guid)| {
                let cfg = Cfg {
                    target_ack_delay: rep.map_or(Timeout::new(0), |rep| rep.target_ack_delay),
                    ..Cfg::new(ca_guid)
                };
                // The first communication ID is the one in the capture.
                let (mut first, mut rest) = (Some(u64::from(id)), random(1));
                Cm::new(cfg, Box::new(move || first.take().unwrap_or_else(&mut rest)))
            });
        let port = req.service.tcp_port().unwrap();
        let (ip, private) = IpHeader::parse(req.private).unwrap();
        if rep.is_some() {
            cms[B].listen(port, 1).unwrap();
        }
        let call_again = Connect {
            local: SocketAddr::new(call.from, ip.source_port),
            remote: SocketAddr::new(call.to, port),
            qpn: req.qpn,
            starting_psn: req.starting_psn,
            path_mtu: PathMtu::new(req.path_mtu).unwrap(),
            responder_resources: req.responder_resources,
            initiator_depth: req.initiator_depth,
            ack_timeout: req.primary.ack_timeout,
            retry_count: req.retry_count,
            rnr_retry_count: req.rnr_retry_count,
            srq: req.srq,
            private,
            deadline: None,
        };
        let id = cms[A].connect(now, &call_again).unwrap();
        cms[A].conns.get_mut(&id.0).unwrap().transaction = transaction;
        let dreq_from = |address| {
            messages.iter().any(|message| {
                message.from == address && message.mad[16..18] == 0x15_u16.to_be_bytes()
            })
        };
        Exchange {
            place: format!("{name}, call of {:#x}", req.local_id),
            now,
            cms,
            addresses: [call.from, call.to],
            ids: [Some(id), None],
            sent: [vec![], vec![]],
            events: [vec![], vec![]],
            disconnects: [call.from, call.to].map(dreq_from),
            req,
        }
    }

    /// Replays a message of the capture. The side that sent it must send the same message, and the
    /// other side receives it.
    fn take(&mut self, seen: &Transmit) {
        let mad = Mad::parse(&seen.mad).unwrap();
        let from = self.addresses.iter().position(|&address| address == seen.from).unwrap();
        match mad.message {
            Message::Rep(rep) => self.accept(&rep),
            // If the capture contains a DREQ of each side, both sides send theirs before either
            // DREQ is delivered, because the two DREQs may have crossed on the network.
            Message::Dreq(_) => {
                for side in [A, B] {
                    if std::mem::take(&mut self.disconnects[side]) {
                        self.cms[side].disconnect(
                            self.now,
                            self.ids[side].unwrap(),
                            Ending::Graceful,
                        );
                    }
                }
            }
            _ => {}
        }
        self.collect();
        let ours = self.sent[from].iter().position(|sent| sent.mad[16..18] == seen.mad[16..18]);
        let ours = ours.unwrap_or_else(|| panic!("{}: we did not send {mad:?}", self.place));
        let ours = self.sent[from].remove(ours);
        assert_eq!((ours.from, ours.to), (seen.from, seen.to), "{}", self.place);
        let (ours, theirs) = (Mad::parse(&ours.mad).unwrap(), without_choices(mad));
        let transaction = match mad.message {
            // The message begins a transaction, so its sender may choose any ID.
            Message::Req(_) | Message::Dreq(_) => mad.transaction,
            _ => ours.transaction,
        };
        assert_eq!(Mad { transaction, ..ours }, theirs, "{}", self.place);
        self.cms[1 - from].receive(self.now, seen.from, seen.to, &seen.mad).unwrap();
        self.collect();
    }

    fn accept(&mut self, rep: &Rep<'_>) {
        let accept = Accept {
            qpn: rep.qpn,
            starting_psn: rep.starting_psn,
            responder_resources: rep.responder_resources,
            initiator_depth: rep.initiator_depth,
            rnr_retry_count: rep.rnr_retry_count,
            srq: rep.srq,
            private: rep.private,
        };
        let [Event::Request(request)] = &self.events[B][..] else {
            panic!("{}: {:?}", self.place, self.events)
        };
        assert_eq!(request.private, self.req.private[IpHeader::SIZE..]);
        assert_eq!((request.qpn, request.starting_psn), (self.req.qpn, self.req.starting_psn));
        self.cms[B].accept(self.now, self.ids[B].unwrap(), &accept).unwrap();
    }

    fn collect(&mut self) {
        for side in [A, B] {
            while let Some((id, event)) = self.cms[side].poll_event() {
                assert_eq!(*self.ids[side].get_or_insert(id), id);
                match event {
                    Event::Disconnecting { .. } => {
                        self.cms[side].disconnect(self.now, id, Ending::Graceful)
                    }
                    event => self.events[side].push(event),
                }
            }
            self.sent[side].extend(std::iter::from_fn(|| self.cms[side].poll_transmit()));
        }
    }

    fn end(self, outcome: &mut Outcome) {
        assert_eq!(self.sent, [vec![], vec![]], "{}: we sent more than was captured", self.place);
        let [a, b] = &self.events;
        match (&a[..], &b[..]) {
            ([Event::Refused { .. }, Event::Released { .. }], []) => outcome.refused += 1,
            ([Event::Accepted(_), a @ ..], [Event::Request(_), Event::Established, b @ ..]) => {
                outcome.connected += 1;
                match (a, b) {
                    ([], []) => {}
                    ([Event::Disconnected], [Event::Disconnected]) => outcome.disconnected += 1,
                    other => panic!("{}: {other:?}", self.place),
                }
            }
            other => panic!("{}: {other:?}", self.place),
        }
    }
}

/// Changes fields for which the standard permits any value to the values that this implementation
/// uses:
///
/// - no flow label; Linux derives one from the ports
/// - no packet rate
/// - no flow control; OFED's uDAPL requests it, and rxe does not have it
fn without_choices(mut mad: Mad<'_>) -> Mad<'_> {
    match &mut mad.message {
        Message::Req(req) => {
            (req.primary.flow_label, req.primary.packet_rate) = (0, 0);
            req.flow_control = false;
        }
        Message::Rep(rep) => rep.flow_control = false,
        _ => {}
    }
    mad
}
