//! The test suite of dat-core's transport contract, run with an RDMA device of this host.
//! `OPENDAT_TEST=verbs=PARAMS` in the environment sets the ia_params of the device.
//!
//! `cargo test` does not run this, because it needs a host with an RDMA device. When the suite was
//! last run, the kernel's rxe (6.12) passed 57 of 73 cases, and all cases of the module
//! `datagrams`. These cases fail:
//!
//! - `solicited_waits_…` (2 cases): an armed notification cannot be withdrawn, so the first case
//!   depends on timing; quiet completions are not filtered.
//! - `posts_are_checked`, `datagrams_are_checked`, `unsupported_operations_are_refused`,
//!   `atomic_operations_are_checked`: the device makes these checks, and its rules differ.
//! - `addresses_may_count_from_zero`: the kernel requires a zero-based region to start at a page
//!   boundary.
//! - `a_shared_queue_…` (2 cases): rxe assumes that the buffers belong to the endpoint's protection
//!   domain, as `Attrs::srq_across_pds` reports.
//! - `watermarks_…`: held buffers are counted when completions are taken, so one more message is
//!   accepted.
//! - `a_send_does_not_invalidate_a_region`: rxe ends the connection and reports that only by the
//!   receive; the peer sees a disconnect.
//! - `a_send_invalidates_a_window`: a window of type 1 cannot be invalidated; with `window(true)`
//!   the case would pass.
//! - `a_bind_is_carried_out_in_order`, `the_sink_of_a_read_may_be_a_window`: there are no reads
//!   into windows.
//! - `a_dropped_window_is_unbound`: the last step drops a region that a window shows, which fails.
//!   dat-core never drops a region that a window shows.
//! - `a_flushed_bind_…`: the last step posts a request before there is a connection, which rxe
//!   refuses. dat-core posts no such request.

use dat_core::provider::Provider;
use provider_mem::contract::rig::expect_unreported_waits;
use provider_verbs::{Adapter, Verbs};

fn pair() -> (Adapter, Adapter) {
    expect_unreported_waits(true);
    (open(), open())
}

fn open() -> Adapter {
    let settings = std::env::var("OPENDAT_TEST").unwrap_or_default();
    let params = settings.split(';').find_map(|setting| setting.strip_prefix("verbs="));
    let params = params.unwrap_or_default();
    Verbs.open("verbs", params).unwrap_or_else(|e| panic!("{params}: {e}"))
}

provider_mem::transport_contract!(pair);

/// Cases about datagrams in which a device must do what this provider assumes.
mod datagrams {
    use std::time::Duration;

    use dat_core::provider::*;
    use provider_mem::contract::rig::*;
    use provider_verbs::Adapter;

    /// The number of octets before each message in a receive buffer.
    const HEADER: usize = 40;

    /// A buffer of a shared receive queue that is too small fails alone.
    #[test]
    fn a_small_buffer_of_a_shared_queue_fails_alone() {
        let (a, b) = super::pair();
        let rig = Rig { a: &a, b: &b };
        let (x, mut y, log) = (End::for_datagrams(&a), End::for_datagrams(&b), Log::new(&b));
        let srq = b.srq(&y.pd, 10, 2, log.sink()).expect("shared receive queue");
        let cfg = cfg::<Adapter>(&y.pd, &y.requests, &y.recvs, Some(&srq));
        let cfg = QpCfg { service: ServiceType::Datagram, ..cfg };
        let qp = b.qp(cfg, y.log.sink()).expect("queue pair");
        y.qp = qp;
        for id in 0..4 {
            let len = if id % 2 == 0 { HEADER + 8 } else { 200 };
            let segments = [y.mem.segment(id as usize * 200, len)];
            // SAFETY: the buffer outlives the case.
            unsafe { srq.post_recv(&RecvWr { id, segments: &segments, quiet: false }) }
                .expect("the post succeeds");
        }
        let [peer, _] = rig.introduce(&x, &y);
        let mut received = Vec::new();
        for id in 0..4 {
            x.post_datagram(id, &peer, &[x.mem.segment(0, 32)]);
            assert_eq!(rig.completions(&x.requests, 1)[0].status, WcStatus::Success);
            std::thread::sleep(Duration::from_millis(20));
            received.extend(outcomes(&poll::<Adapter>(&y.recvs, 4)));
        }
        let outcome = |id| match id % 2 {
            0 => (id, WcStatus::LocalLength),
            _ => (id, WcStatus::Success),
        };
        assert_eq!(received, [0, 1, 2, 3].map(outcome));
        y.log.assert_silent();
        // The queue pair still sends.
        let [_, peer] = rig.introduce(&x, &y);
        y.post_datagram(9, &peer, &[]);
        assert_eq!(outcomes(&rig.completions(&y.requests, 1)), [(9, WcStatus::Success)]);
    }

    /// An address may be dropped as soon as datagrams to it are posted.
    #[test]
    fn a_dropped_address_is_used_by_posted_datagrams() {
        let (a, b) = super::pair();
        let rig = Rig { a: &a, b: &b };
        let (x, y) = (End::for_datagrams(&a), End::for_datagrams(&b));
        for round in 0..20 {
            let [peer, _] = rig.introduce(&x, &y);
            for id in 0..QUEUE as u64 {
                let signalled = (id, id % 2 == 1);
                x.try_post_datagram(signalled, &peer, None, &[x.mem.segment(0, 500)])
                    .expect("the post succeeds");
            }
            drop(peer);
            let done = rig.completions(&x.requests, QUEUE / 2);
            assert!(
                done.iter().all(|wc| wc.status == WcStatus::Success),
                "round {round}: {done:?}"
            );
        }
        x.log.assert_silent();
    }

    /// A datagram whose memory the device cannot read ends the queue pair.
    #[test]
    fn a_failed_datagram_ends_its_queue_pair() {
        let (a, b) = super::pair();
        let rig = Rig { a: &a, b: &b };
        let (x, y) = rig.datagram_pair();
        let (x, peer) = (x.end, x.peer);
        x.recv(1, &[x.mem.segment(0, 100)]);
        let unknown = Segment { key: x.mem.segment(0, 8).key ^ 0x1234_5678, ..x.mem.segment(0, 8) };
        x.post_datagram(2, &peer, &[unknown]);
        x.try_post_datagram((3, false), &peer, None, &[]).expect("the post succeeds");
        let failed = outcomes(&rig.completions(&x.requests, 2));
        assert_eq!(failed, [(2, WcStatus::LocalProtection), (3, WcStatus::Flushed)]);
        match rig.next("the end", &x.log) {
            Event::Broken => {}
            other => panic!("{other:?}"),
        }
        assert_eq!(outcomes(&rig.completions(&x.recvs, 1)), [(1, WcStatus::Flushed)]);
        x.post_datagram(4, &peer, &[]);
        assert_eq!(outcomes(&rig.completions(&x.requests, 1)), [(4, WcStatus::Flushed)]);
        y.end.log.assert_silent();
    }

    /// Many attempts at the same time and one after the other leave nothing behind.
    #[test]
    fn many_addresses_are_resolved() {
        let (a, b) = super::pair();
        let rig = Rig { a: &a, b: &b };
        let (x, y) = (End::for_datagrams(&a), End::for_datagrams(&b));
        let service = Service::new(&b, 200);
        let mut addresses = Vec::new();
        for round in 0..3 {
            for number in 0..100 {
                x.resolve(number, service.port(&b), b"", None).expect("the attempt begins");
            }
            for _ in 0..100 {
                let (request, ..) = service.datagram_request(&rig);
                addresses.push(y.qp.answer(request, b"").expect("the request is answered"));
            }
            for _ in 0..100 {
                match rig.next("the address", &x.log) {
                    Event::Resolved { remote, .. } => addresses.push(remote),
                    other => panic!("round {round}: {other:?}"),
                }
            }
        }
        assert_eq!(addresses.len(), 600);
    }
}
