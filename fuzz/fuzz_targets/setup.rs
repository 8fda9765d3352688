//! Feeds octets from a stranger to both roles of MPA setup. Checks:
//!
//! - The code under test does not panic.
//! - Neither role takes more octets than it requested.
//! - Every accepted request gets a reply.
#![no_main]

use std::time::Instant;

use libfuzzer_sys::fuzz_target;
use rnic::rdmap::setup::{Call, Initiator, Offer, Responder};

fuzz_target!(|data: &[u8]| {
    let Some((&portion, data)) = data.split_first() else { return };
    let portion = usize::from(portion).max(1);
    let now = Instant::now();
    let offer = Offer { ird: 4, ord: 4, crc: false, extended: true };

    let mut responder = Responder::new(now);
    let mut rest = data;
    while !rest.is_empty() {
        let n = responder.wants().min(portion).min(rest.len());
        assert!(n > 0);
        let (octets, later) = rest.split_at(n);
        rest = later;
        match responder.feed(octets) {
            None => continue,
            Some(Call::Request(request)) => {
                let (reply, _) =
                    request.accept(offer, request.private().get(..16).unwrap_or(&[])).unwrap();
                let (mut initiator, _) = Initiator::new(offer, &[], now).unwrap();
                // An initiator must understand the reply that this side's responder creates.
                let mut sent = &reply[..];
                loop {
                    let (octets, later) = sent.split_at(initiator.wants());
                    if initiator.feed(octets).is_some() {
                        assert!(later.is_empty());
                        break;
                    }
                    sent = later;
                }
                request.reject(b"no").unwrap();
            }
            Some(Call::Refuse(answer)) => assert!(!answer.is_empty()),
            Some(Call::Stranger) => {}
        }
        break;
    }

    let (mut initiator, _) = Initiator::new(offer, b"private", now).unwrap();
    let mut rest = data;
    while !rest.is_empty() {
        let n = initiator.wants().min(portion).min(rest.len());
        assert!(n > 0);
        let (octets, later) = rest.split_at(n);
        rest = later;
        if initiator.feed(octets).is_some() {
            break;
        }
    }
});
