//! Tests that every message of connection management in the captures is parsed, and is encoded
//! again to the same octets.

use std::collections::BTreeMap;

use wire::cm::{IpHeader, Mad, MadError, Message, ServiceId};

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
    ("ip", 29),
];

#[test]
fn every_mad_of_the_captures() {
    let mut counts = BTreeMap::<&str, usize>::new();
    for (place, octets) in mads() {
        let mad = match Mad::parse(&octets) {
            Ok(mad) => mad,
            // Messages for datagrams are not supported.
            Err(MadError::Attribute(attribute @ (0x17 | 0x18))) => {
                *counts
                    .entry(if attribute == 0x17 { "SIDR REQ" } else { "SIDR REP" })
                    .or_default() += 1;
                continue;
            }
            Err(error) => panic!("{place}: {error}"),
        };
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
            })
            .or_default() += 1;

        if let Message::Req(req) = mad.message {
            let (ip, consumer) =
                IpHeader::parse(req.private).unwrap_or_else(|error| panic!("{place}: {error}"));
            assert_eq!([&ip.emit()[..], consumer].concat(), req.private, "{place}: {ip:?}");
            let port =
                req.service.tcp_port().unwrap_or_else(|| panic!("{place}: {:?}", req.service));
            assert_eq!(ServiceId::tcp(port), req.service);
            *counts.entry("ip").or_default() += 1;
        }
    }
    assert_eq!(counts.into_iter().collect::<Vec<_>>(), EXPECTED);
}
