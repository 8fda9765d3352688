//! A consumer that posts one receive at a time. Tests of `rnic` check that its peer need not wait
//! for an RNR time in each message.

use dat_core::provider::{Provider, WcStatus};
use provider_loopback::contract::rig::{Rig, outcomes};
use provider_softroce::SoftRoce;

/// The number of messages that the sender has posted at any time.
const POSTED: u64 = 32;
const MESSAGES: u64 = 4000;
const OCTETS: usize = 64;

#[test]
fn all_messages_arrive_if_one_receive_is_posted_at_a_time() {
    let open = || SoftRoce.open("softroce", "127.0.0.47").expect("the address is free");
    let (a, b) = (open(), open());
    let rig = Rig { a: &a, b: &b };
    let (sender, receiver) = rig.pair();
    let send = |id| sender.send(id, &[sender.mem.segment(0, OCTETS)]);
    (0..POSTED).for_each(send);
    for id in 0..MESSAGES {
        receiver.recv(id, &[receiver.mem.segment(0, OCTETS)]);
        let received = rig.completions(&receiver.recvs, 1);
        assert_eq!(outcomes(&received), [(id, WcStatus::Success)]);
        if id + POSTED < MESSAGES {
            rig.completions(&sender.requests, 1);
            send(id + POSTED);
        }
    }
}
