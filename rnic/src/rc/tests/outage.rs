//! Tests of a network that carries nothing for 8 s and then works again.

use netem::Probability;

use super::order::{End, next_packet};
use super::*;
use crate::WcStatus;
use rxe_model::{Op, R_KEY, Rxe, RxeCfg, WorkRequest};

const OUTAGE: Duration = Duration::from_secs(8);
/// The time in which a transfer must end after the outage.
const CONTINUES_WITHIN: Duration = Duration::from_secs(1);
const DELAY: Duration = Duration::from_millis(1);
const LEN: usize = 1000 * OCTETS;

/// The values that softroce uses by default (its test `default_times`).
fn softroce(cfg: &mut RcCfg) {
    (cfg.ack_timeout, cfg.retries) = (17, 23);
}

/// Advances a pair by this time. Something waits for the network all the time.
fn run_for(pair: &mut Pair, time: Duration) {
    let end = pair.now + time;
    while pair.now < end {
        assert!(pair.step().expect("the connection goes on"), "nothing is in flight");
    }
}

/// Both ends have a WRITE, a SEND and a READ in flight. The outage begins at different times of the
/// transfer.
#[test]
#[cfg_attr(miri, ignore = "not a test: it takes long in Miri, which would find nothing new")]
fn requests_of_both_ends_survive_eight_seconds_without_a_network() {
    let works = Conditions { delay: DELAY, ..Conditions::default() };
    let is_down = Conditions { loss: Probability::ALWAYS, ..Conditions::default() };
    for begins in [0, 1, 3, 4, 5, 7, 20] {
        let mut pair = Pair::with(softroce).over(&works);
        let (a, b) = (pair.a.buf(4 * LEN), pair.b.buf(4 * LEN));
        for (side, own, far) in [(&mut pair.a, &a, &b), (&mut pair.b, &b, &a)] {
            side.recv(9, &[own.seg(3 * LEN, LEN)]);
            side.post(write(1, &[own.seg(0, LEN)], far.remote(LEN)));
            side.post(send(2, &[own.seg(0, LEN)]));
            side.post(read(3, &[own.seg(2 * LEN, LEN)], far.remote(0)));
        }
        run_for(&mut pair, begins * DELAY);
        let mut pair = pair.over(&is_down);
        run_for(&mut pair, OUTAGE);
        let mut pair = pair.over(&works);
        let restored = pair.now;
        pair.drive().expect("the connection goes on");
        let done = all(&pair);
        assert_eq!(done.each_ref().map(Vec::len), [3, 1, 3, 1], "{begins}");
        assert!(done.iter().flatten().all(|wc| wc.status == WcStatus::Success), "{begins}");
        let took = pair.now - restored;
        assert!(took < CONTINUES_WITHIN, "{begins}: {took:?}");
    }
}

/// Moves packets between two ends over a network with [`DELAY`] that is down for [`OUTAGE`], from
/// the time `begins` on. Returns the time from the end of the outage until `is_done`, or `None` if
/// no event follows.
fn drive<A: End, B: End>(
    (a, b): (&mut A, &mut B),
    begins: Duration,
    is_done: impl Fn(&A, &B) -> bool,
) -> Option<Duration> {
    let network = || Channel::<Vec<u8>>::new(Conditions { delay: DELAY, ..Conditions::default() });
    let (mut there, mut back) = (network(), network());
    let start = Instant::now();
    let (down, up) = (start + begins, start + begins + OUTAGE);
    let mut now = start;
    while !is_done(a, b) {
        if a.deadline().is_some_and(|at| at <= now) {
            a.expire(now);
        }
        if b.deadline().is_some_and(|at| at <= now) {
            b.expire(now);
        }
        for (channel, packets) in [(&mut there, a.transmit(now)), (&mut back, b.transmit(now))] {
            for packet in packets {
                let octets = packet.len();
                if !(down..up).contains(&now) {
                    channel.send(now, packet, octets);
                }
            }
        }
        let events = [there.deadline(), back.deadline(), a.deadline(), b.deadline()];
        let more = next_packet(a, b, now);
        let next = events.into_iter().chain([more]).flatten().min()?;
        now = next.max(now + Duration::from_nanos(1));
        while let Some(packet) = there.receive(now) {
            b.receive(now, &packet);
        }
        while let Some(packet) = back.receive(now) {
            a.receive(now, &packet);
        }
    }
    assert!(now >= up, "the transfer ended before the end of the outage");
    Some(now - up)
}

const MESSAGES: u64 = 8;

/// A queue pair of rxe with the ACK timeout and the retry count that softroce asks for (its test
/// `default_times`).
fn rxe() -> Rxe {
    let timeout = Duration::from_nanos(4096 << 19);
    let [rq_psn, sq_psn] = [PSNS[1], PSNS[0]];
    let (mtu, peer_qpn) = (MTU, QPNS[1]);
    let cfg = RxeCfg { mtu, peer_qpn, sq_psn, rq_psn, timeout, retry_cnt: 5, rd_atomic: 4 };
    Rxe::new(cfg, vec![0; LEN])
}

/// This implementation, as the peer of [`rxe`].
fn peer_of_rxe() -> Side {
    let mut cfg = cfg(0);
    softroce(&mut cfg);
    Side::new(cfg, Instant::now())
}

/// The requester of rxe sends again only when its ACK timeout expires. Therefore the transfer goes
/// on within one ACK timeout.
#[test]
#[cfg_attr(miri, ignore = "not a test: it takes long in Miri, which would find nothing new")]
fn requests_of_rxe_survive_eight_seconds_without_a_network() {
    for begins in [0, 1, 5, 7, 10, 11].map(|times| times * DELAY) {
        let (mut rxe, mut side) = (rxe(), peer_of_rxe());
        let sink = side.buf(LEN);
        for n in 0..MESSAGES {
            side.recv(n, &[sink.seg(0, LEN)]);
            let remote = rxe_model::Remote { va: sink.addr(), r_key: sink.key() };
            let op = if n % 2 == 0 { Op::Write(remote) } else { Op::Send };
            rxe.post(WorkRequest { op, local: 0, len: LEN });
        }
        let is_done = |rxe: &Rxe, _: &Side| rxe.completed() == MESSAGES as usize;
        let took = drive((&mut rxe, &mut side), begins, is_done);
        let took = took.unwrap_or_else(|| panic!("{begins:?}: the connection ends"));
        assert!(took < Duration::from_nanos(4096 << 19) + CONTINUES_WITHIN, "{begins:?}: {took:?}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "not a test: it takes long in Miri, which would find nothing new")]
fn requests_to_rxe_survive_eight_seconds_without_a_network() {
    for begins in [0, 1, 5, 7, 10, 11].map(|times| times * DELAY) {
        let (mut rxe, mut side) = (rxe(), peer_of_rxe());
        let source = side.buf(LEN);
        let sink = crate::Remote { addr: 0, key: R_KEY };
        for n in 0..MESSAGES {
            match n % 2 {
                0 => side.post(send(n, &[source.seg(0, LEN)])),
                _ => side.post(write(n, &[source.seg(0, LEN)], sink)),
            }
        }
        let is_done = |side: &Side, _: &Rxe| side.rc.is_drained();
        let took = drive((&mut side, &mut rxe), begins, is_done);
        let took = took.unwrap_or_else(|| panic!("{begins:?}: the connection ends"));
        assert!(took < CONTINUES_WITHIN, "{begins:?}: {took:?}");
        assert!(side.completions().iter().all(|wc| wc.status == WcStatus::Success));
    }
}
