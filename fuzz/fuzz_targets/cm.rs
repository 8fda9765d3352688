//! Sends messages of connection management from a peer, with calls of a consumer between them.
//! Checks:
//!
//! - The code under test does not panic.
//! - Each connection reports one end, and after that its release.
//! - The tables are empty after all connections were forgotten and have expired.
//!
//! The input is a list of steps in a short form. A message starts as a valid reply to a message
//! sent before, or as a valid REQ, because the fuzzer would not find the IDs by chance. Then some
//! of its octets are changed.
#![no_main]

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use rnic::cm::{Accept, Cfg, Cm, ConnId, Connect, Ending, Event, Random};
use wire::cm::{MAD_SIZE, Reason, ServiceId, Timeout};
use wire::rocev2::{PathMtu, Psn};

const PORT: u16 = 7174;
const BACKLOG: usize = 4;
/// The number of all queue pairs of this side. A DREQ to this side must contain it.
const QPN: u32 = 0x11_2233;
/// The offset of a message's fields in a MAD.
const BODY_OFFSET: usize = 24;

fuzz_target!(|data: &[u8]| {
    let mut fuzz = Fuzz {
        now: Instant::now(),
        cm: Cm::new(Cfg::new(7), random(1)),
        caller: Cm::new(Cfg::new(8), random(2)),
        conns: vec![],
        reported: HashMap::new(),
        sent: vec![],
    };
    fuzz.cm.listen(PORT, BACKLOG).unwrap();
    let mut rest = data;
    while let Some((&[step, pick], after)) = rest.split_first_chunk() {
        rest = fuzz.step(step, pick.into(), after);
        fuzz.take_output();
    }
    fuzz.end();
});

/// A generator with the same numbers in each run.
fn random(seed: u64) -> Random {
    let mut state = seed;
    Box::new(move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 16
    })
}

struct Fuzz {
    now: Instant,
    cm: Cm,
    /// The peer's connection manager, which creates the REQs of the peer.
    caller: Cm,
    conns: Vec<ConnId>,
    /// For each connection, whether its end and its release were reported.
    reported: HashMap<ConnId, (bool, bool)>,
    sent: Vec<[u8; MAD_SIZE]>,
}

impl Fuzz {
    /// Performs one step and returns the rest of the input.
    fn step<'a>(&mut self, step: u8, pick: usize, rest: &'a [u8]) -> &'a [u8] {
        let now = self.now;
        let conn = (!self.conns.is_empty()).then(|| self.conns[pick % self.conns.len()]);
        // The octets 254 and 255 mean the SIDR messages. All other octets have the same meaning as
        // in older seeds.
        let kind = if step < 254 { step % 16 } else { step - 238 };
        match (kind, conn) {
            (0, _) if self.conns.len() < 64 => {
                let deadline = (pick > 128).then(|| now + Duration::from_secs(3));
                let call = Connect { deadline, ..call(address(1), address(2), QPN) };
                self.conns.push(self.cm.connect(now, &call).unwrap());
            }
            (1 | 2, Some(id)) => drop(self.cm.accept(now, id, &accept())),
            (3, Some(id)) => drop(self.cm.reject(now, id, Reason(pick as u16), b"no")),
            (4, Some(id)) => self.cm.disconnect(now, id, Ending::Graceful),
            (5, Some(id)) => self.cm.disconnect(now, id, Ending::Abrupt),
            (6, Some(id)) => self.cm.established_by_data(now, id),
            (7, Some(id)) => {
                self.cm.forget(now, id);
                self.reported.entry(id).or_default().0 = true;
            }
            (8, _) => {
                self.now = self.cm.deadline().map_or(now, |due| now.max(due));
                self.cm.expire(self.now);
            }
            (kind, _) => return self.message(kind, pick, rest),
        }
        rest
    }

    /// Sends a message of this kind to this side, with some octets changed. The input gives the
    /// number of changed octets, their offset and the changes.
    fn message<'a>(&mut self, kind: u8, pick: usize, rest: &'a [u8]) -> &'a [u8] {
        let mut mad = [0; MAD_SIZE];
        if kind.is_multiple_of(7) {
            self.caller.connect(self.now, &call(address(2), address(1), pick as u32)).unwrap();
            mad = self.caller.poll_transmit().unwrap().mad;
        } else {
            mad[..4].copy_from_slice(&[1, 7, 2, 3]);
            // Kind 16 is a SIDR REQ (0x17), and kind 17 is a SIDR REP (0x18).
            mad[17] = if kind < 16 { 0x10 + kind % 7 } else { 7 + kind };
            mad[BODY_OFFSET..][..4].copy_from_slice(&9_u32.to_be_bytes());
            if !self.sent.is_empty() {
                // The message is addressed to the sender of an earlier message in the same
                // transaction.
                let sent = &self.sent[pick % self.sent.len()];
                mad[8..16].copy_from_slice(&sent[8..16]);
                mad[BODY_OFFSET + 4..][..4].copy_from_slice(&sent[BODY_OFFSET..][..4]);
                if sent[17] != 0x10 {
                    mad[BODY_OFFSET..][..4].copy_from_slice(&sent[BODY_OFFSET + 4..][..4]);
                }
            }
            match mad[17] {
                0x15 => mad[BODY_OFFSET + 8..][..3].copy_from_slice(&QPN.to_be_bytes()[1..]),
                // The fields before the service are an ID of the request and a partition key.
                0x17 => {
                    mad[BODY_OFFSET..][..4].copy_from_slice(&(pick as u32).to_be_bytes());
                    mad[BODY_OFFSET + 4..][..4].copy_from_slice(&[0xFF, 0xFF, 0, 0]);
                    mad[BODY_OFFSET + 8..][..8]
                        .copy_from_slice(&ServiceId::udp(PORT).0.to_be_bytes());
                }
                // The ID of the request comes first, and after it the status, which is 0: success.
                0x18 => {
                    mad.copy_within(BODY_OFFSET + 4..BODY_OFFSET + 8, BODY_OFFSET);
                    mad[BODY_OFFSET + 4..][..4].fill(0);
                }
                _ => {}
            }
        }
        let Some((&[count, at], octets)) = rest.split_first_chunk() else { return &[] };
        let (changes, rest) = octets.split_at(usize::from(count % 8).min(octets.len()));
        for (octet, change) in mad.iter_mut().skip(at.into()).zip(changes) {
            *octet ^= change;
        }
        let _ = self.cm.receive(self.now, address(2), address(1), &mad);
        rest
    }

    /// Takes the messages to send and the events.
    fn take_output(&mut self) {
        while let Some(transmit) = self.cm.poll_transmit() {
            assert_eq!((transmit.from, transmit.to), (address(1), address(2)));
            self.sent.push(transmit.mad);
        }
        while let Some((id, event)) = self.cm.poll_event() {
            // This event belongs to no connection.
            if let Event::PathMtuRefused { .. } = event {
                continue;
            }
            let (ended, released) = self.reported.entry(id).or_default();
            assert!(!*released, "{event:?}");
            match event {
                Event::Request(_) => self.conns.push(id),
                Event::Accepted(_)
                | Event::Established
                | Event::Disconnecting { .. }
                | Event::Stale => {
                    assert!(!*ended, "{event:?}");
                }
                Event::Released { qpn } => {
                    assert!(*ended && qpn == QPN);
                    *released = true;
                }
                _ => assert!(!std::mem::replace(ended, true), "{event:?}"),
            }
        }
        assert!(self.cm.len() <= self.conns.len());
    }

    fn end(mut self) {
        for &id in &self.conns {
            self.cm.forget(self.now, id);
            self.reported.entry(id).or_default().0 = true;
        }
        while let Some(due) = self.cm.deadline() {
            self.now = self.now.max(due);
            self.cm.expire(self.now);
            self.take_output();
        }
        self.take_output();
        assert!(self.cm.is_empty());
    }
}

fn address(last: u8) -> IpAddr {
    [10, 0, 0, last].into()
}

fn call(from: IpAddr, to: IpAddr, qpn: u32) -> Connect<'static> {
    Connect {
        local: SocketAddr::new(from, 1),
        remote: SocketAddr::new(to, PORT),
        qpn,
        starting_psn: Psn::new(1),
        path_mtu: PathMtu::Octets1024,
        responder_resources: 1,
        initiator_depth: 1,
        ack_timeout: Timeout::new(17),
        retry_count: 7,
        rnr_retry_count: 7,
        srq: false,
        private: &[],
        deadline: None,
    }
}

fn accept() -> Accept<'static> {
    Accept {
        qpn: QPN,
        starting_psn: Psn::new(2),
        responder_resources: 1,
        initiator_depth: 1,
        rnr_retry_count: 7,
        srq: false,
        private: &[],
    }
}
