use super::*;

fn pair(ip: &str) -> (Udp, Udp) {
    let bind = || {
        Udp::bind_exclusive(SocketAddr::new(ip.parse().expect("an address"), 0)).expect("a socket")
    };
    (bind(), bind())
}

fn receive(socket: &Udp) -> Vec<(Vec<u8>, usize)> {
    receive_with(socket, &mut ReceiveStrategy::default())
}

fn receive_with(socket: &Udp, strategy: &mut ReceiveStrategy) -> Vec<(Vec<u8>, usize)> {
    let (mut batch, mut all) = (RxBatch::new(), Vec::new());
    while socket.receive(&mut batch, strategy) {
        all.extend(
            (0..batch.len()).filter_map(|n| batch.get(n)).map(|d| (d.octets.to_vec(), d.size)),
        );
    }
    all
}

#[test]
fn packets_arrive_alone_and_in_batches() {
    for ip in ["127.0.0.1", "::1"] {
        let (a, b) = pair(ip);
        let to = b.local_addr().expect("the socket is bound");
        assert!(receive(&b).is_empty());
        assert_eq!(a.send(to, b"one", 3), Sent::All);
        assert_eq!(a.send(to, &[7; 10 * 100 + 50], 100), Sent::All);
        assert_eq!(a.send(to, b"", 1), Sent::All);
        for _ in 0..20 {
            assert_eq!(a.send(to, b"many", 4), Sent::All);
        }
        let got = receive(&b);
        let lens: Vec<usize> = got.iter().map(|(octets, _)| octets.len()).collect();
        let mut expected = vec![3, 1050, 0];
        expected.extend([4; 20]);
        assert_eq!(lens, expected, "{ip}");
        assert_eq!(got[1].1, 100, "the kernel must report the size of the packets of a batch");
        assert_eq!(got[0], (b"one".to_vec(), 3));
    }
}

#[test]
fn batches_are_whole_again_after_packets_have_come_alone() {
    for ip in ["127.0.0.1", "::1"] {
        let (a, b) = pair(ip);
        let to = b.local_addr().expect("the socket is bound");
        let mut strategy = ReceiveStrategy::default();
        for n in 0..1000u16 {
            assert_eq!(a.send(to, &n.to_be_bytes(), 2), Sent::All);
            assert_eq!(receive_with(&b, &mut strategy), [(n.to_be_bytes().to_vec(), 2)], "{ip}");
        }
        let batch: Vec<u8> = (0..60 * 100).map(|n| n as u8).collect();
        let batches = 4;
        let mut calls = Vec::new();
        for _ in 0..batches {
            assert_eq!(a.send(to, &batch, 100), Sent::All);
            let got = receive_with(&b, &mut strategy);
            assert_eq!(
                got.iter().flat_map(|(octets, _)| octets).copied().collect::<Vec<u8>>(),
                batch
            );
            assert!(got.iter().all(|(_, size)| *size == 100));
            calls.push(got.len());
        }
        assert_eq!(
            calls,
            [60, 1, 1, 1],
            "{ip}: the first batch is split; it shows that batches arrive"
        );
    }
}

#[test]
fn an_unused_port_is_reported() {
    for ip in ["127.0.0.1", "::1"] {
        let (a, b) = pair(ip);
        let to = b.local_addr().expect("the socket is bound");
        drop(b);
        a.enable_error_queue().expect("no privilege is needed");
        assert_eq!(a.send(to, b"who is there?", 13), Sent::All);
        let mut reports = Vec::new();
        a.read_errors(|report| reports.push((report.to, report.packet.to_vec(), report.cause)));
        assert_eq!(reports, [(to, b"who is there?".to_vec(), SendFailure::Refused)]);
        // The report does not prevent later sends.
        let c = Udp::bind_exclusive(to).expect("the address is free again");
        assert_eq!(a.send(to, b"hello", 5), Sent::All);
        assert_eq!(receive(&c).len(), 1);
    }
}

/// The kernel's rxe and RDMA adapters send without a checksum. Over IPv6 the kernel drops such
/// packets, except for sockets with an option that accepts them.
#[test]
fn packets_without_a_checksum_are_accepted() {
    const UDP_NO_CHECK6_TX: libc::c_int = 101;
    for (ip, level, option) in [
        ("127.0.0.1", libc::SOL_SOCKET, libc::SO_NO_CHECK),
        ("::1", libc::IPPROTO_UDP, UDP_NO_CHECK6_TX),
    ] {
        let (a, b) = pair(ip);
        a.set(level, option, 1).expect("no privilege is needed");
        assert_eq!(a.send(b.local_addr().expect("the socket is bound"), b"unsummed", 8), Sent::All);
        assert_eq!(receive(&b), [(b"unsummed".to_vec(), 8)], "{ip}");
    }
}

#[test]
fn a_packet_that_is_too_long_is_refused() {
    let (a, b) = pair("127.0.0.1");
    let to = b.local_addr().expect("the socket is bound");
    assert_eq!(a.send(to, &vec![0; 66_000], 66_000), Sent::TooLong);
}

/// A mark belongs to all packets of a batch. Packets with and without a mark are not merged.
#[test]
fn marks_are_reported_with_their_packets() {
    for ip in ["127.0.0.1", "::1"] {
        let (a, b) = pair(ip);
        let to = b.local_addr().expect("the socket is bound");
        b.report_traffic_class().expect("no privilege is needed");
        let mut strategy = ReceiveStrategy::default();
        strategy.read_marks();
        let mut batch = RxBatch::new();
        for round in 0..600 {
            let marked = round % 3 == 0;
            let codepoint = if marked { ECN_MARKED } else { ECN_CAPABLE };
            a.set_traffic_class(46 << 2 | codepoint).expect("no privilege is needed");
            // In the later rounds all packets are single, and UDP_GRO is turned off.
            let len = if round < 10 { 3 * 100 } else { 100 };
            assert_eq!(a.send(to, &[7; 300][..len], 100), Sent::All);
            assert!(b.receive(&mut batch, &mut strategy));
            let got = batch.get(0).expect("a datagram");
            assert_eq!((got.octets.len(), got.size, got.marked), (len, 100, marked), "{ip}");
            assert!(!b.receive(&mut batch, &mut strategy));
        }
    }
}

/// A socket of an earlier adapter may still report the traffic class.
#[test]
fn a_report_that_nobody_reads_does_no_harm() {
    let (a, b) = pair("127.0.0.1");
    b.report_traffic_class().expect("no privilege is needed");
    assert_eq!(a.send(b.local_addr().expect("the socket is bound"), &[7; 250], 100), Sent::All);
    assert_eq!(receive(&b), [(vec![7; 250], 100)]);
}
