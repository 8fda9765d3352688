//! A consumer that posts one receive at a time does not make its peer wait for an RNR time in each
//! message.

use std::time::Instant;

use dat_core::provider::{Provider, WcStatus};
use provider_loopback::contract::rig::{Rig, outcomes};
use provider_softroce::SoftRoce;

/// The number of messages that the sender has posted at any time.
const POSTED: u64 = 32;
const MESSAGES: u64 = 4000;
const OCTETS: usize = 64;

/// An RNR time of 0.64 ms in each message would permit 1,500 messages per second. A release build
/// on an idle host transfers many times as many as this limit.
const MESSAGES_PER_SECOND_MIN: f64 = 3000.0;

#[test]
fn one_receive_at_a_time_is_enough() {
    let open = || SoftRoce.open("softroce", "127.0.0.47").expect("the address is free");
    let (a, b) = (open(), open());
    let rig = Rig { a: &a, b: &b };
    let (sender, receiver) = rig.pair();
    let send = |id| sender.send(id, &[sender.mem.segment(0, OCTETS)]);
    (0..POSTED).for_each(send);
    let start = Instant::now();
    for id in 0..MESSAGES {
        receiver.recv(id, &[receiver.mem.segment(0, OCTETS)]);
        let received = rig.completions(&receiver.recvs, 1);
        assert_eq!(outcomes(&received), [(id, WcStatus::Success)]);
        if id + POSTED < MESSAGES {
            rig.completions(&sender.requests, 1);
            send(id + POSTED);
        }
    }
    let rate = MESSAGES as f64 / start.elapsed().as_secs_f64();
    println!("{rate:.0} messages per second");
    assert!(rate > MESSAGES_PER_SECOND_MIN, "only {rate:.0} messages per second");
}
