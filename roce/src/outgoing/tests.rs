use std::net::Ipv4Addr;

use super::*;

/// A packet of `len` octets with its ICRC, all of which are `octet`, except that the destination
/// queue pair belongs to the first slot.
type Packet = (usize, u8);

fn destination(last: u8) -> Destination {
    let address = |last| SocketAddr::from((Ipv4Addr::new(192, 0, 2, last), 4791));
    let icrc = Icrc::new(address(1), address(last)).expect("addresses of one family");
    Destination { address: address(last), sender: 0, icrc, now: Instant::now() }
}

fn add(outgoing: &mut Outgoing, to: u8, packets: &[Packet]) {
    for &(len, octet) in packets {
        add_to(outgoing, to, 0x12_3400, (len, octet));
    }
}

/// Adds a packet to this queue pair.
fn add_to(outgoing: &mut Outgoing, to: u8, qpn: u32, (len, octet): Packet) {
    let burst = outgoing.burst_to(destination(to));
    let packet = burst.push(len - Icrc::SIZE).expect("the burst has room");
    packet.fill(octet);
    packet[4..8].copy_from_slice(&qpn.to_be_bytes());
}

/// Takes the packets out, batch by batch. Returns the lengths and the first octets of the packets.
fn take(outgoing: &mut Outgoing, max_packets: usize) -> Vec<Vec<Packet>> {
    let (_, batches) = outgoing.batches(max_packets).expect("packets wait");
    let packets = |Batch { octets, size }: Batch<'_>| {
        octets.chunks(size).map(|packet| (packet.len(), packet[0])).collect()
    };
    let taken = batches.map(packets).collect();
    outgoing.clear();
    assert!(outgoing.is_empty() && outgoing.batches(max_packets).is_none());
    taken
}

#[test]
fn packets_of_many_queue_pairs_leave_in_one_batch_and_in_order() {
    let mut outgoing = Outgoing::new();
    let packets: Vec<Packet> = (0..MAX_SEGMENTS).map(|n| (80, n as u8)).collect();
    packets.iter().for_each(|&packet| add(&mut outgoing, 2, &[packet]));
    assert_eq!(take(&mut outgoing, MAX_SEGMENTS), [packets]);
}

#[test]
fn a_longer_packet_starts_a_batch_and_a_shorter_one_ends_it() {
    let mut outgoing = Outgoing::new();
    add(&mut outgoing, 2, &[(80, 1), (80, 2), (96, 3), (96, 4), (20, 5), (20, 6), (80, 7)]);
    assert_eq!(
        take(&mut outgoing, MAX_SEGMENTS),
        [vec![(80, 1), (80, 2)], vec![(96, 3), (96, 4), (20, 5)], vec![(20, 6)], vec![(80, 7)]]
    );
    add(&mut outgoing, 2, &[(80, 1), (80, 2)]);
    assert_eq!(take(&mut outgoing, 1), [[(80, 1)], [(80, 2)]], "without UDP_SEGMENT");
}

/// The acknowledgements of two adapters have one length.
#[test]
fn a_batch_goes_to_one_adapter() {
    let mut outgoing = Outgoing::new();
    for (qpn, packet) in
        [(0x00, (20, 1)), (0x80, (20, 2)), (0x02, (20, 3)), (0x02, (80, 4)), (0x03, (20, 5))]
    {
        add_to(&mut outgoing, 2, qpn, packet);
    }
    assert_eq!(
        take(&mut outgoing, MAX_SEGMENTS),
        [vec![(20, 1), (20, 2)], vec![(20, 3)], vec![(80, 4)], vec![(20, 5)]]
    );
}

#[test]
fn only_packets_to_one_peer_wait_together() {
    let mut outgoing = Outgoing::new();
    let [peer, other] = [2, 3].map(|last| destination(last).address);
    assert!(outgoing.accepts(peer, 0) && outgoing.accepts(other, 0));
    add(&mut outgoing, 2, &[(80, 1)]);
    assert!(outgoing.accepts(peer, 0) && !outgoing.accepts(other, 0));
    assert!(!outgoing.accepts(peer, 1), "packets of another source port leave on their own");
    let (to, _) = outgoing.batches(MAX_SEGMENTS).expect("a packet waits");
    assert_eq!(to.address, peer);
    outgoing.clear();
    assert!(outgoing.accepts(other, 0));
}

#[test]
fn full_batches_accept_no_packet() {
    let peer = destination(2).address;
    for len in [20, 80, 1040, 4116, Icrc::MAX_DATAGRAM] {
        let mut outgoing = Outgoing::new();
        let mut packets = 0;
        while outgoing.accepts(peer, 0) {
            add(&mut outgoing, 2, &[(len, 0)]);
            packets += 1;
        }
        let octets_left = MAX_BATCH_BYTES - packets * len;
        assert!(packets == MAX_SEGMENTS || octets_left < Icrc::MAX_DATAGRAM, "{len}");
        assert_eq!(take(&mut outgoing, MAX_SEGMENTS), [vec![(len, 0); packets]]);
    }
}
