//! From packets to receive buffers.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use work::cause::{Cause, LocalUse, Refusal};

use super::*;

#[test]
fn a_datagram_is_placed_after_the_header() {
    let mut end = End::new();
    let buf = end.buf(60);
    end.recv(1, &[buf.seg(5, 30), buf.seg(35, 20)]);
    end.take(&packet(b"datagram")).unwrap();
    assert_eq!(end.received(), [recv_wc(1, 8)]);
    let expected = [&[0; 5], &HEADER[..], b"datagram", &[0; 7]].concat();
    assert_eq!(buf.octets(), expected);
    end.assert_received_as("datagrams-received", 1);

    // An empty datagram needs a buffer for the header.
    end.recv(2, &[buf.seg(0, HEADER_SIZE)]);
    end.take(&packet(b"")).unwrap();
    assert_eq!(end.received(), [recv_wc(2, 0)]);
}

#[test]
fn datagrams_of_all_lengths_arrive_in_all_segments() {
    let mut rng = Rng(24);
    let (mut from, mut to) = (End::new(), End::new());
    let source = from.buf(4096).filled(&mut rng);
    let sink = to.buf(4096 + HEADER_SIZE);
    let header: [u8; HEADER_SIZE] = std::array::from_fn(|at| at as u8);
    // Miri is too slow for all of them.
    for len in (0..=4096).step_by(if cfg!(miri) { 97 } else { 1 }) {
        let spare = rng.below(4096 - len + 1);
        let gather = scattered(&mut rng, &source, len);
        let scatter = scattered(&mut rng, &sink, HEADER_SIZE + len + spare);
        let immediate = rng.chance(2).then_some(len as u32);
        from.datagram(DatagramWr { immediate, ..datagram(len as u64, &gather) });
        to.recv(len as u64, &scatter);
        sink.octets_mut().fill(0xEE);
        from.transmit(PEER).unwrap();
        let packet = from.sent().remove(0);
        to.ud.receive(&Packet::parse(&packet).unwrap(), HOST, &header).unwrap();
        assert_eq!(to.received(), [Wc { immediate, ..recv_wc(len as u64, len) }]);
        let placed = octets_of(&sink, &scatter);
        assert!(placed[..HEADER_SIZE] == header, "{len} octets");
        assert!(
            placed[HEADER_SIZE..HEADER_SIZE + len] == octets_of(&source, &gather),
            "{len} octets"
        );
        assert!(placed[HEADER_SIZE + len..].iter().all(|&octet| octet == 0xEE), "{len} octets");
        assert_eq!(from.completions(), [wc(len as u64, WcOp::Send, len, WcStatus::Success)]);
    }
    to.assert_received_as("datagrams-received", to.ud.stats().rx_datagrams);
}

#[test]
fn a_longer_payload_than_the_own_mtu_is_received() {
    let cfg = UdCfg { mtu: PathMtu::Octets256, ..CFG };
    let mut end = End::of(Queues::new(None, Arc::new(Keys::new())), cfg);
    let buf = end.buf(4136);
    end.recv(1, &[buf.seg(0, 4136)]);
    end.take(&packet(&[0xAB; 4096])).unwrap();
    assert_eq!(end.received(), [recv_wc(1, 4096)]);
}

#[test]
fn immediate_data_are_the_octets_of_the_number() {
    let mut end = End::new();
    let buf = end.buf(48);
    end.recv(1, &[buf.seg(0, 48)]);
    let number = u32::from_ne_bytes([1, 2, 3, 4]);
    let deth = Deth { q_key: Q_KEY, source_qpn: 9 };
    let bth = Bth::new(Opcode::DatagramSendOnlyImmediate, QPN, Psn::new(0));
    let octets = of_bth(bth, Extension::DethImmediate(deth, 0x0102_0304), b"abcd");
    end.take(&octets).unwrap();
    assert_eq!(end.received(), [Wc { immediate: Some(number), ..recv_wc(1, 4) }]);
    assert_eq!(&buf.octets()[HEADER_SIZE..], b"abcd\0\0\0\0");
}

#[test]
fn the_sender_decides_whether_a_completion_is_solicited() {
    let wakes = |all: bool, quiet: bool, solicited: bool| {
        let mut end = End::new();
        if all {
            end.ud.work_mut().solicit_all_receives();
        }
        let buf = end.buf(40);
        let segments = [buf.seg(0, 40)];
        // SAFETY: the test runs in one thread, and the buffer outlives the receive.
        unsafe { end.qp.post_recv(&RecvWr { id: 1, segments: &segments, quiet }) }.unwrap();
        assert!(arm(&end.recvs, true));
        let bth = Bth { solicited, ..Bth::new(Opcode::DatagramSendOnly, QPN, Psn::new(0)) };
        let deth = Deth { q_key: Q_KEY, source_qpn: 9 };
        end.take(&of_bth(bth, Extension::Deth(deth), &[])).unwrap();
        assert_eq!(end.received().len(), 1);
        end.ready.load(Ordering::Relaxed) == 1
    };
    for quiet in [false, true] {
        assert!(wakes(false, quiet, true) && !wakes(false, quiet, false));
    }
    for solicited in [false, true] {
        assert!(wakes(true, false, solicited) && !wakes(true, true, solicited));
    }
}

#[test]
fn the_receiver_ignores_psn_and_flags() {
    let mut end = End::new();
    let buf = end.buf(40);
    for (id, psn) in [(1, 0), (2, 0), (3, 0xFF_FFFF), (4, 5)] {
        end.recv(id, &[buf.seg(0, 40)]);
        let bth = Bth {
            ack_request: true,
            fecn: true,
            migrated: id % 2 == 0,
            ..Bth::new(Opcode::DatagramSendOnly, QPN, Psn::new(psn))
        };
        let deth = Deth { q_key: Q_KEY, source_qpn: 9 };
        end.take(&of_bth(bth, Extension::Deth(deth), &[])).unwrap();
        assert_eq!(end.received(), [recv_wc(id, 0)]);
    }
}

#[test]
fn what_is_not_for_this_queue_pair_is_dropped() {
    let mut end = End::new();
    let buf = end.buf(100);
    end.recv(1, &[buf.seg(0, 100)]);
    let bth = Bth::new(Opcode::DatagramSendOnly, QPN, Psn::new(0));
    let key = |q_key| Extension::Deth(Deth { q_key, source_qpn: 9 });
    for q_key in [0, Q_KEY + 1, Q_KEY | 1 << 31, Deth::GSI_Q_KEY] {
        end.take(&of_bth(bth, key(q_key), b"key")).unwrap();
    }
    for p_key in [0xFFFE, 0x8000, 0] {
        end.take(&of_bth(Bth { p_key, ..bth }, key(Q_KEY), b"partition")).unwrap();
    }
    let sends = [(Opcode::SendOnly, Extension::None), (Opcode::UcSendOnly, Extension::None)];
    for (opcode, extension) in sends {
        end.take(&of_bth(Bth { opcode, ..bth }, extension, b"opcode")).unwrap();
    }
    let expected =
        Stats { rx_wrong_q_key: 4, rx_wrong_p_key: 3, rx_wrong_opcode: 2, ..Stats::default() };
    assert_eq!(end.ud.stats(), &expected);
    assert!(end.received().is_empty());

    // A limited member may send to a full member.
    end.take(&of_bth(Bth { p_key: 0x7FFF, ..bth }, key(Q_KEY), b"good")).unwrap();
    assert_eq!(end.received(), [recv_wc(1, 4)]);
}

/// A peer of Linux's RDMA CM uses the key of that program. The key is accepted from its host only.
#[test]
fn the_key_of_the_rdma_cm_is_accepted_from_named_hosts() {
    const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 8));
    let mut end = End::new();
    let buf = end.buf(100);
    let bth = Bth::new(Opcode::DatagramSendOnly, QPN, Psn::new(0));
    let with = |q_key| of_bth(bth, Extension::Deth(Deth { q_key, source_qpn: 9 }), b"abc");
    end.recv(1, &[buf.seg(0, 100)]);
    end.take(&with(UDP_Q_KEY)).unwrap();
    end.ud.accept_cm_key(OTHER);
    end.take(&with(UDP_Q_KEY)).unwrap();
    end.take_from(OTHER, &with(UDP_Q_KEY ^ 1)).unwrap();
    assert_eq!((end.received(), end.ud.stats().rx_wrong_q_key), (vec![], 3));
    let mapped = Ipv4Addr::new(192, 0, 2, 8).to_ipv6_mapped().into();
    for (host, q_key) in [(OTHER, UDP_Q_KEY), (mapped, UDP_Q_KEY), (OTHER, Q_KEY), (HOST, Q_KEY)] {
        end.take_from(host, &with(q_key)).unwrap();
        assert_eq!(end.received(), [recv_wc(1, 3)]);
        end.recv(1, &[buf.seg(0, 100)]);
    }
    // The number of hosts is limited. Beyond it, no host is shut out.
    for host in 2..=HOSTS_MAX as u32 {
        end.ud.accept_cm_key(Ipv4Addr::from_bits(host).into());
        end.ud.accept_cm_key(OTHER);
    }
    end.take(&with(UDP_Q_KEY)).unwrap();
    assert_eq!(end.received(), []);
    end.ud.accept_cm_key(Ipv4Addr::from_bits(1).into());
    for host in [HOST, OTHER] {
        end.take_from(host, &with(UDP_Q_KEY)).unwrap();
        assert_eq!(end.received(), [recv_wc(1, 3)]);
        end.recv(1, &[buf.seg(0, 100)]);
    }
}

#[test]
fn without_a_receive_a_datagram_is_dropped() {
    let mut end = End::new();
    let buf = end.buf(100);
    end.take(&packet(b"early")).unwrap();
    end.assert_received_as("dropped-no-receive", 1);
    end.recv(1, &[buf.seg(0, 100)]);
    end.take(&packet(b"later")).unwrap();
    assert_eq!(end.received(), [recv_wc(1, 5)]);
    assert_eq!(&buf.octets()[HEADER_SIZE..45], b"later");
}

#[test]
fn a_buffer_that_is_too_small_waits_for_a_datagram_that_fits() {
    let mut end = End::new();
    let buf = end.buf(200);
    end.recv(1, &[buf.seg(0, 30), buf.seg(30, 14)]);
    end.recv(2, &[buf.seg(100, 100)]);
    for _ in 0..2 {
        end.take(&packet(b"12345")).unwrap();
    }
    end.assert_received_as("dropped-receive-too-small", 2);
    assert!(end.received().is_empty() && buf.octets().iter().all(|&octet| octet == 0));
    assert_eq!(end.ud.work().allocated(), 2);
    end.take(&packet(b"1234")).unwrap();
    end.take(&packet(b"12345")).unwrap();
    assert_eq!(end.received(), [recv_wc(1, 4), recv_wc(2, 5)]);
    assert_eq!(&buf.octets()[40..44], b"1234");
    assert_eq!(&buf.octets()[140..145], b"12345");
    end.recv(3, &[]);
    end.take(&packet(b"")).unwrap();
    end.ud.flush();
    assert_eq!(end.received(), [wc(3, WcOp::Recv, 0, WcStatus::Flushed)]);
}

#[test]
fn a_shared_receive_queue() {
    let low = Arc::new(AtomicUsize::new(0));
    let notified = Arc::clone(&low);
    let (mut end, srq) = End::with_srq(8, move || {
        notified.fetch_add(1, Ordering::Relaxed);
    });
    let (other, work) = Queues::new(Some((Arc::clone(&srq), end.pd)), Arc::clone(&end.keys));
    let mut other_ud = DatagramQp::new(work, CFG);
    let buf = end.buf(300);
    end.take(&packet(b"early")).unwrap();
    assert_eq!(end.ud.stats().rx_no_receive, 1);
    for (id, len) in [(1, 42), (2, 60), (3, 60)] {
        share(&srq, id, &[buf.seg(id as usize * 60, len)]).unwrap();
    }
    srq.set_limit(3);
    // The first buffer belongs to the queue pair from now on, although no datagram is in it.
    end.take(&packet(b"long")).unwrap();
    assert_eq!((srq.available(), low.load(Ordering::Relaxed)), (2, 1));
    let octets = packet(b"other");
    other_ud.receive(&Packet::parse(&octets).unwrap(), HOST, &HEADER).unwrap();
    assert_eq!(other.received(), [recv_wc(2, 5)]);
    end.take(&packet(b"1")).unwrap();
    assert_eq!(end.received(), [recv_wc(1, 1)]);
    assert_eq!(&buf.octets()[60..102], &[&HEADER[..], b"1\0"].concat());

    // A flush completes the buffer that was too small, and leaves the others in the queue.
    share(&srq, 4, &[buf.seg(0, 60)]).unwrap();
    end.take(&packet(&[7; 30])).unwrap();
    end.ud.flush();
    assert_eq!(end.received(), [wc(3, WcOp::Recv, 0, WcStatus::Flushed)]);
    assert_eq!(srq.available(), 1);

    // While another queue pair waits for a buffer, the buffers are for that queue pair.
    let (rc_queues, mut waiting) =
        Queues::new(Some((Arc::clone(&srq), end.pd)), Arc::clone(&end.keys));
    waiting.wait_for_recv(1);
    other_ud.receive(&Packet::parse(&octets).unwrap(), HOST, &HEADER).unwrap();
    assert_eq!((other_ud.stats().rx_no_receive, srq.available()), (1, 1));
    waiting.stop_waiting();
    other_ud.receive(&Packet::parse(&octets).unwrap(), HOST, &HEADER).unwrap();
    assert_eq!(other.received(), [recv_wc(4, 5)]);
    drop((waiting, rc_queues, other_ud));
}

#[test]
fn memory_that_is_freed_before_a_datagram_arrives() {
    let mut end = End::new();
    let causes = Arc::new(Mutex::new(vec![]));
    let seen = Arc::clone(&causes);
    end.ud.work_mut().watch_causes(move |cause| seen.lock().unwrap().push(cause));
    let (buf, mut freed) = (end.buf(100), end.buf(100));
    end.recv(1, &[buf.seg(0, 50), freed.seg(0, 100)]);
    end.recv(2, &[buf.seg(0, 50)]);
    freed.mr = None;
    // The datagram does not need the freed memory.
    end.take(&packet(b"1234567890")).unwrap();
    assert_eq!(end.received(), [recv_wc(1, 10)]);

    let mut freed = end.buf(100);
    end.ud.flush();
    assert_eq!(end.received().len(), 1);
    let (pd, keys) = (end.pd, Arc::clone(&end.keys));
    end = End::of(Queues::of(None, pd, keys), CFG);
    let seen = Arc::clone(&causes);
    end.ud.work_mut().watch_causes(move |cause| seen.lock().unwrap().push(cause));
    end.recv(1, &[buf.seg(0, 50), freed.seg(0, 100)]);
    end.recv(2, &[buf.seg(0, 50)]);
    freed.mr = None;
    assert!(arm(&end.recvs, true));
    assert_eq!(end.take(&packet(b"12345678901")), Err(Failure::Receive));
    assert_eq!(end.received(), [wc(1, WcOp::Recv, 0, WcStatus::LocalProtection)]);
    assert_eq!(end.ready.load(Ordering::Relaxed), 1);
    let cause = Cause::LocalMemory { usage: LocalUse::Receive, why: Refusal::Unknown };
    assert_eq!(*causes.lock().unwrap(), [cause]);
    assert_eq!(end.take(&packet(b"")), Err(Failure::Receive));
    assert!(freed.octets().iter().all(|&octet| octet == 0));
    end.ud.flush();
    assert_eq!(end.received(), [wc(2, WcOp::Recv, 0, WcStatus::Flushed)]);
    end.assert_received_as("dropped-receive-failed", 1);
}

#[test]
fn a_datagram_may_be_denied_its_buffer() {
    let mut end = End::new();
    let (taken, causes) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(vec![])));
    let (count, seen) = (Arc::clone(&taken), Arc::clone(&causes));
    let work = end.ud.work_mut();
    work.watch_receives(move || count.fetch_add(1, Ordering::Relaxed) < 1);
    work.watch_causes(move |cause| seen.lock().unwrap().push(cause));
    let buf = end.buf(50);
    for id in 1..=3 {
        end.recv(id, &[buf.seg(0, 42)]);
    }
    // The watch hears of a buffer once, even if the first datagram does not fit.
    end.take(&packet(b"long")).unwrap();
    end.take(&packet(b"1")).unwrap();
    assert_eq!((taken.load(Ordering::Relaxed), end.received()), (1, vec![recv_wc(1, 1)]));
    assert_eq!(end.take(&packet(b"2")), Err(Failure::ReceiveDeclined));
    assert_eq!(end.take(&packet(b"2")), Err(Failure::ReceiveDeclined));
    assert_eq!(*causes.lock().unwrap(), [Cause::ReceiveDeclined]);
    assert!(end.received().is_empty());
    end.ud.flush();
    let flushed = |id| wc(id, WcOp::Recv, 0, WcStatus::Flushed);
    assert_eq!(end.received(), [flushed(2), flushed(3)]);
    assert_eq!((taken.load(Ordering::Relaxed), end.ud.stats().rx_failed), (2, 1));
}
