//! A consumer that posts one receive at a time. Its peer need not wait for an RNR time in each
//! message, because a posted receive is announced to a peer that waits for one.

#[allow(dead_code)] // Other tests use the rest.
mod peer;

use std::net::Ipv4Addr;

use dat_core::provider::{Provider, WcStatus};
use provider_mem::contract::rig::{Rig, outcomes};
use provider_softroce::SoftRoce;

use self::peer::*;

const OURS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 55);
const PEER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 56);

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

/// The test plays the peer by hand. The announcement is a copy of the last acknowledgement.
#[test]
fn a_posted_receive_is_announced_to_a_peer_that_waits() {
    let _peer_port = lock_peer_port();
    let ours = adapter();
    let (rig, peer) = (Rig { a: &ours, b: &ours }, Peer::new());
    let (end, call) = connected(&rig, &peer);
    peer.send_send(&call, call.psn);
    let answer = rig.until("an RNR NAK", || peer.receive());
    assert_eq!(answer, Received::Ack(call.psn));
    end.recv(1, &[end.mem.segment(0, 8)]);
    let announcement = rig.until("an announcement", || peer.receive());
    assert_eq!(announcement, Received::Ack(call.psn.previous()));
    peer.send_send(&call, call.psn);
    assert_eq!(outcomes(&rig.completions(&end.recvs, 1)), [(1, WcStatus::Success)]);
}
