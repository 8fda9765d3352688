//! Tests that every message of communication management in the captures is parsed, and is encoded
//! again to the same octets.

use std::collections::BTreeMap;

use wire::cm::{IpHeader, Mad, Message, ServiceId, SidrStatus, UDP_Q_KEY};

use crate::rocev2::mads;

/// The number of messages of each kind in all captures together.
const EXPECTED: [(&str, usize); 9] = [
    ("DREP", 29),
    ("DREQ", 29),
    ("REJ", 1),
    ("REP", 28),
    ("REQ", 29),
    ("RTU", 28),
    ("SIDR REP", 1),
    ("SIDR REQ", 1),
    ("ip", 30),
];

#[test]
fn every_mad_of_the_captures() {
    let mut counts = BTreeMap::<&str, usize>::new();
    for (place, octets) in mads() {
        let mad = Mad::parse(&octets).unwrap_or_else(|error| panic!("{place}: {error}"));
        assert_eq!(mad.emit()[..], octets, "{place}: {mad:?}");
        *counts
            .entry(match mad.message {
                Message::Req(_) => "REQ",
                Message::Mra(_) => "MRA",
                Message::Rej(_) => "REJ",
                Message::Rep(_) => "REP",
                Message::Rtu(_) => "RTU",
                Message::Dreq(_) => "DREQ",
                Message::Drep(_) => "DREP",
                Message::SidrReq(_) => "SIDR REQ",
                Message::SidrRep(_) => "SIDR REP",
            })
            .or_default() += 1;

        if let Message::SidrRep(rep) = mad.message {
            assert_eq!((rep.status, rep.q_key), (SidrStatus::SUCCESS, UDP_Q_KEY), "{place}");
        }
        let (service, made, private) = match mad.message {
            Message::Req(req) => {
                (req.service, req.service.tcp_port().map(ServiceId::tcp), req.private)
            }
            Message::SidrReq(req) => {
                (req.service, req.service.udp_port().map(ServiceId::udp), req.private)
            }
            _ => continue,
        };
        assert_eq!(made, Some(service), "{place}");
        let (ip, consumer) =
            IpHeader::parse(private).unwrap_or_else(|error| panic!("{place}: {error}"));
        assert_eq!([&ip.emit()[..], consumer].concat(), private, "{place}: {ip:?}");
        *counts.entry("ip").or_default() += 1;
    }
    assert_eq!(counts.into_iter().collect::<Vec<_>>(), EXPECTED);
}
