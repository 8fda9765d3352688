//! Tests of what the model does after a loss. The tests of rnic and of simulation let it speak with
//! softroce's engine.

use wire::rocev2::{Aeth, NakCode, Opcode, RnrTimer, Syndrome};

use super::*;

const CFG: RxeCfg = RxeCfg {
    mtu: PathMtu::Octets1024,
    peer_qpn: 17,
    sq_psn: Psn::new(100),
    rq_psn: Psn::new(100),
    timeout: Duration::from_millis(500),
    retry_cnt: 2,
    rd_atomic: 2,
};

/// The number of octets of a queue pair's memory.
const LEN: usize = 1 << 20;

fn rxe() -> Rxe {
    Rxe::new(CFG, (0..LEN).map(|at| (at % 251) as u8).collect())
}

/// A place in the memory of the other queue pair.
fn at(va: u64) -> Remote {
    Remote { va, r_key: R_KEY }
}

fn post(rxe: &mut Rxe, op: Op, len: usize) {
    rxe.post(WorkRequest { op, local: 0, len });
}

/// An ACK packet with any syndrome.
fn answer(psn: u32, syndrome: Syndrome) -> Vec<u8> {
    let bth = Bth::new(Opcode::Acknowledge, CFG.peer_qpn, Psn::new(psn));
    emit(bth, Extension::Aeth(Aeth { syndrome, msn: 0 }), &[])
}

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
    let (mut from, mut to) = (rxe(), rxe());
    post(&mut from, Op::Write(at(0x1000)), 5 * 1024);
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
    let (mut from, mut to) = (rxe(), rxe());
    post(&mut from, Op::Send, 3 * 1024);
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
    let mut from = rxe();
    post(&mut from, Op::Send, 1);
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
    let mut from = rxe();
    post(&mut from, Op::Send, 1 << 20);
    assert_eq!(sent(&mut from, now).len(), 129);
    assert!(!from.has_request());
}

/// The responses to a READ and an atomic operation carry data, and a lost one is asked for again.
#[test]
fn lost_responses_are_asked_for_again() {
    let now = Instant::now();
    let (mut from, mut to) = (rxe(), rxe());
    to.memory[..3000].fill(9);
    to.memory[4096..4104].copy_from_slice(&40_u64.to_ne_bytes());
    post(&mut from, Op::Read(at(0)), 3000);
    from.post(WorkRequest { op: Op::FetchAdd(at(4096), 2), local: 8000, len: 8 });
    from.post(WorkRequest { op: Op::CompareSwap(at(4096), [42, 7]), local: 8008, len: 8 });
    let first = sent(&mut from, now);
    assert_eq!(psns(&first), [100, 103], "two requests that await responses are in flight");
    // The second response is lost. The later ones show that, and the READ goes on behind the first
    // response. The atomic operation is not carried out again.
    let answers = deliver(&mut to, now, &first, &[]);
    assert_eq!(psns(&answers), [100, 101, 102, 103]);
    let again = deliver(&mut from, now, &answers, &[1]);
    assert_eq!((psns(&again), from.completed()), (vec![101, 103], 0));
    let answers = deliver(&mut to, now, &again, &[]);
    assert_eq!(psns(&answers), [101, 102, 103]);
    let last = deliver(&mut from, now, &answers, &[]);
    assert_eq!((psns(&last), from.completed()), (vec![104], 2));
    let answers = deliver(&mut to, now, &last, &[]);
    deliver(&mut from, now, &answers, &[]);
    assert_eq!((from.completed(), from.failure()), (3, None));
    assert_eq!(from.memory[..3000], [9; 3000]);
    assert_eq!(from.memory[8000..8016], [40_u64, 42].map(u64::to_ne_bytes).concat());
    assert_eq!(to.memory[4096..4104], 7_u64.to_ne_bytes());
}

/// An acknowledgement that names the PSN of an atomic operation, or the last PSN of a READ,
/// completes it without its data. One of a later PSN does not.
#[test]
fn an_acknowledgement_in_place_of_a_response_completes_without_data() {
    let now = Instant::now();
    for op in [Op::Read(at(0)), Op::FetchAdd(at(0), 1)] {
        for (psn, completed) in [(99, 0), (100, 1), (101, 0)] {
            let mut from = rxe();
            let before = from.memory.clone();
            post(&mut from, op, 8);
            post(&mut from, Op::Send, 1);
            assert_eq!(psns(&sent(&mut from, now)), [100, 101]);
            deliver(&mut from, now, &[answer(psn, Syndrome::ACK)], &[]);
            assert_eq!(
                (from.completed(), from.memory == before),
                (completed, true),
                "{op:?} {psn}"
            );
        }
    }
}

/// A duplicate of a message is acknowledged without the PSNs of READs.
#[test]
fn the_responder_does_not_acknowledge_reads() {
    let now = Instant::now();
    let (mut from, mut to) = (rxe(), rxe());
    post(&mut from, Op::Send, 1);
    post(&mut from, Op::Read(at(0)), 1);
    let first = sent(&mut from, now);
    assert_eq!(psns(&deliver(&mut to, now, &first, &[])), [100, 101]);
    assert_eq!(psns(&deliver(&mut to, now, &first[..1], &[])), [100]);
    assert_eq!(to.take_received(), Some(vec![0]));
    assert_eq!(to.take_received(), None);
}

/// An access outside the memory is refused.
#[test]
fn the_responder_checks_the_access() {
    let now = Instant::now();
    for remote in [at(LEN as u64), Remote { r_key: !R_KEY, ..at(0) }] {
        for op in [Op::Write(remote), Op::Read(remote), Op::FetchAdd(remote, 1)] {
            let (mut from, mut to) = (rxe(), rxe());
            post(&mut from, op, 8);
            let answers = deliver(&mut to, now, &sent(&mut from, now), &[]);
            deliver(&mut from, now, &answers, &[]);
            assert_eq!(to.failure(), Some("a request of the peer was refused"));
            assert_eq!(from.failure(), Some("the peer refused a request"));
        }
    }
}

/// After an RNR NAK, the requester goes back when a timer of the kernel has expired.
#[test]
fn the_requester_waits_for_a_receive_buffer() {
    let now = Instant::now();
    let mut from = rxe();
    post(&mut from, Op::Send, 1);
    let first = sent(&mut from, now);
    let not_ready = answer(100, Syndrome::Rnr(RnrTimer::from_code(1)));
    assert!(deliver(&mut from, now, &[not_ready], &[]).is_empty());
    let due = now + Duration::from_millis(4);
    assert_eq!(from.deadline(), Some(due));
    from.expire(due);
    assert_eq!(sent(&mut from, due), first);
}
