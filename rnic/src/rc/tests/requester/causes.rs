//! What the program of this side is told about failures, beyond the completions.

use std::sync::{Arc, Mutex};

use wire::rocev2::Reth;
use work::cause::{Access, AccessKind, Cause, LocalUse, Octets, Refusal};

use super::*;
use crate::Keys;
use crate::tests::Queues;

type Causes = Arc<Mutex<Vec<Cause>>>;

const OCTETS_OF_MESSAGE: Octets = Octets { count: 5, whole: true };

/// A side, and the causes that it reports.
fn fixture(change: impl Fn(&mut RcCfg)) -> (Fixture, Causes) {
    let (now, mut cfg, causes) = (Instant::now(), cfg(1), Causes::default());
    change(&mut cfg);
    let (queues, mut work) = Queues::new(None, Arc::new(Keys::new()));
    let kept = Arc::clone(&causes);
    work.watch_causes(move |cause| kept.lock().unwrap().push(cause));
    (Fixture { side: Side::of((queues, work), cfg, now), now, psn: cfg.sq_psn }, causes)
}

fn take(causes: &Causes) -> Vec<Cause> {
    std::mem::take(&mut causes.lock().unwrap())
}

/// A long wait for a receive of the peer is reported once, and again if another message waits.
#[test]
fn a_peer_that_posts_no_receive() {
    let (mut fixture, causes) = fixture(|_| {});
    let buf = fixture.side.buf(5);
    for id in 0..2 {
        fixture.side.post(send(id, &[buf.seg(0, 5)]));
    }
    let start = fixture.now;
    for message in 0..2 {
        let (wait_start, mut reported_at) = (fixture.now, None);
        fixture.sent();
        while fixture.now < wait_start + Duration::from_secs(3) {
            fixture.rnr(12, message).unwrap();
            if let [cause] = &take(&causes)[..] {
                let octets = Some(OCTETS_OF_MESSAGE);
                assert_eq!(*cause, Cause::PeerHasNoReceive { octets, waits: true });
                assert_eq!(reported_at.replace(fixture.now), None);
            }
            fixture.wait().unwrap();
            fixture.sent();
        }
        let after = reported_at.expect("the wait is reported") - wait_start;
        assert!((1000..1100).contains(&after.as_millis()), "{after:?}");
        fixture.ack(message);
    }
    assert!(fixture.now >= start + Duration::from_secs(6));
}

#[test]
fn a_peer_that_limits_the_rnr_retries() {
    let (mut fixture, causes) = fixture(|cfg| cfg.rnr_retries = 0);
    let buf = fixture.side.buf(5);
    fixture.side.post(send(0, &[buf.seg(0, 5)]));
    fixture.sent();
    assert_eq!(fixture.rnr(1, 0), Err(Failure::ReceiverNotReady));
    let octets = Some(OCTETS_OF_MESSAGE);
    assert_eq!(take(&causes), [Cause::PeerHasNoReceive { octets, waits: false }]);
}

#[test]
fn a_peer_that_refuses_a_request() {
    for (code, expected) in [
        (
            NakCode::RemoteAccess,
            Cause::RefusedByPeer {
                access: Some(Access {
                    kind: AccessKind::Write,
                    addr: Some(NOWHERE.addr),
                    octets: Some(OCTETS_OF_MESSAGE),
                    key: Some(NOWHERE.key),
                }),
                why: None,
            },
        ),
        (NakCode::InvalidRequest, Cause::InvalidAtPeer { is_message: false, octets: 5 }),
        (NakCode::RemoteOperational, Cause::PeerFailed),
    ] {
        let (mut fixture, causes) = fixture(|_| {});
        let buf = fixture.side.buf(5);
        fixture.side.post(write(0, &[buf.seg(0, 5)], NOWHERE));
        fixture.sent();
        assert_eq!(fixture.nak(code, 0), Err(Failure::Refused(code)));
        assert_eq!(take(&causes), [expected]);
    }
}

#[test]
fn a_silent_peer() {
    let (mut fixture, causes) = fixture(|_| {});
    fixture.side.post(send(0, &[]));
    let failure = loop {
        fixture.sent();
        if let Err(failure) = fixture.wait() {
            break failure;
        }
    };
    assert_eq!(failure, Failure::Silent);
    assert_eq!(take(&causes), [Cause::Silent]);
}

#[test]
fn memory_that_is_freed_before_it_is_sent() {
    let (mut fixture, causes) = fixture(|_| {});
    let buf = fixture.side.buf(5);
    fixture.side.post(write(0, &[buf.seg(0, 5)], NOWHERE));
    drop(buf);
    assert_eq!(fixture.try_send(), Err(Failure::Local));
    let (usage, why) = (LocalUse::Source, Refusal::Unknown);
    assert_eq!(take(&causes), [Cause::LocalMemory { usage, why }]);
}

#[test]
fn a_peer_with_too_many_reads() {
    let (mut fixture, causes) = fixture(|cfg| cfg.responder_resources = 1);
    let first = cfg(1).rq_psn;
    let reth = Extension::Reth(Reth { va: 0, r_key: 0, len: 0 });
    fixture.take(&packet(Opcode::ReadRequest, first, reth, &[])).unwrap();
    let refused = fixture.take(&packet(Opcode::ReadRequest, first.next(), reth, &[]));
    assert_eq!(refused, Err(Failure::Refusing(NakCode::InvalidRequest)));
    assert_eq!(take(&causes)[0], Cause::TooManyReads { limit: 1 });
}
