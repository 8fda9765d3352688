//! Tests of what the model does after a loss. The tests of rnic and of simulation let it speak with
//! softroce's engine.

use super::*;

const CFG: RxeCfg = RxeCfg {
    mtu: PathMtu::Octets1024,
    peer_qpn: 17,
    sq_psn: Psn::new(100),
    rq_psn: Psn::new(100),
    timeout: Duration::from_millis(500),
    retry_cnt: 2,
};

/// Takes everything that a queue pair sends now.
fn sent(rxe: &mut Rxe, now: Instant) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| rxe.transmit(now)).collect()
}

fn parsed(bytes: &[u8]) -> Packet<'_> {
    Packet::parse(bytes).expect("the model sends valid packets")
}

fn psns(packets: &[Vec<u8>]) -> Vec<u32> {
    packets.iter().map(|bytes| parsed(bytes).bth.psn.value()).collect()
}

/// Passes packets to a queue pair, except for those with these indices. Returns its answers.
fn deliver(to: &mut Rxe, now: Instant, packets: &[Vec<u8>], lost: &[usize]) -> Vec<Vec<u8>> {
    for (index, bytes) in packets.iter().enumerate() {
        if !lost.contains(&index) {
            to.receive(now, &parsed(bytes));
        }
    }
    sent(to, now)
}

#[test]
fn the_requester_goes_back_to_the_missing_packet() {
    let now = Instant::now();
    let (mut from, mut to) = (Rxe::new(CFG), Rxe::new(CFG));
    from.post(5 * 1024, Some((0x1000, 7)));
    let first = sent(&mut from, now);
    assert_eq!(psns(&first), [100, 101, 102, 103, 104]);
    // One NAK names the missing packet, whatever follows it.
    let answers = deliver(&mut to, now, &first, &[1]);
    assert_eq!(psns(&answers), [101]);
    let Extension::Aeth(aeth) = parsed(&answers[0]).extension else { panic!("{answers:?}") };
    assert_eq!(aeth.syndrome, Syndrome::Nak(NakCode::SequenceError));
    let again = deliver(&mut from, now, &answers, &[]);
    assert_eq!(psns(&again), [101, 102, 103, 104]);
    let answers = deliver(&mut to, now, &again, &[]);
    deliver(&mut from, now, &answers, &[]);
    assert_eq!((from.completed(), from.failure()), (1, None));
}

#[test]
fn the_requester_ignores_a_second_nak_and_waits_for_its_timer() {
    let now = Instant::now();
    let (mut from, mut to) = (Rxe::new(CFG), Rxe::new(CFG));
    from.post(3 * 1024, None);
    let first = sent(&mut from, now);
    let nak = deliver(&mut to, now, &first, &[0]);
    assert_eq!(deliver(&mut from, now, &nak, &[]).len(), 3);
    assert!(deliver(&mut from, now, &nak, &[]).is_empty());
    assert_eq!(from.deadline(), Some(now + CFG.timeout));
    from.expire(now + CFG.timeout);
    assert_eq!(psns(&sent(&mut from, now + CFG.timeout)), [100, 101, 102]);
}

#[test]
fn a_silent_peer_uses_up_the_retries() {
    let mut now = Instant::now();
    let mut from = Rxe::new(CFG);
    from.post(1, None);
    for _ in 0..=CFG.retry_cnt {
        assert_eq!((sent(&mut from, now).len(), from.failure()), (1, None));
        now = from.deadline().expect("the timer runs");
        from.expire(now);
    }
    assert_eq!(from.failure(), Some("the retries are used up"));
    assert_eq!((sent(&mut from, now).len(), from.deadline(), from.has_request()), (0, None, false));
}

#[test]
fn at_most_129_packets_are_outstanding() {
    let now = Instant::now();
    let mut from = Rxe::new(CFG);
    from.post(1 << 20, None);
    assert_eq!(sent(&mut from, now).len(), 129);
    assert!(!from.has_request());
}
