//! Tests with messages of strangers.

use crate::cm::sidr::ANSWERS_MAX;
use crate::tests::Rng;
use wire::cm::sidr_trailer;

use super::*;

const FLOOD: u32 = if cfg!(miri) { 200 } else { 20_000 };

/// The number of REQs of a flood that the manager knows: state that it keeps.
fn known(net: &Net, flood: &[(IpAddr, u32)]) -> usize {
    let private = field(address(A), b"");
    let is_known = |&&(from, id): &&(IpAddr, u32)| {
        let Message::SidrReq(req) = kernel_req(id, &private) else { unreachable!() };
        net.managers[B].has_request(from, 0, &req)
    };
    flood.iter().filter(is_known).count()
}

/// The senders and request IDs of a flood.
fn flood(many_senders: bool) -> Vec<(IpAddr, u32)> {
    let sender =
        |n: u32| if many_senders { (0x0C00_0000 + n).to_be_bytes() } else { [11, 0, 0, 1] };
    (0..FLOOD).map(|n| (sender(n).into(), n)).collect()
}

fn deliver_flood(net: &mut Net, flood: &[(IpAddr, u32)], mut after_each: impl FnMut(&mut Net)) {
    for &(from, id) in flood {
        net.deliver(B, from, 0, kernel_req(id, &field(from, b"flood")));
        after_each(net);
    }
}

/// An answer counts only if all of these values are right: the sender, the transaction, the request
/// ID and the service.
#[test]
fn a_forged_rep_is_ignored() {
    let mut net = Net::listening(1);
    let a = net.resolve(b"");
    net.run();
    let transaction = transaction(&net.sent[0].mad);
    let right = kernel_rep(a, SidrStatus::SUCCESS, b"forged");
    let service = ServiceId::udp(PORT + 1);
    let tcp = ServiceId::tcp(PORT);
    let [stranger, own]: [IpAddr; 2] = [[10, 0, 0, 3].into(), address(A)];
    for (from, transaction, rep) in [
        (stranger, transaction, right),
        (own, transaction, right),
        (address(B), transaction ^ 1, right),
        (address(B), 0, right),
        (address(B), transaction, SidrRep { request_id: a.0 ^ 0x80, ..right }),
        (address(B), transaction, SidrRep { service, ..right }),
        (address(B), transaction, SidrRep { service: tcp, ..right }),
    ] {
        net.deliver(A, from, transaction, Message::SidrRep(rep));
        assert!(net.events(A).is_empty(), "{from} {transaction:#x} {rep:?}");
    }
    let (b, _) = net.event(B);
    net.accept(b, b"true");
    net.run();
    assert_eq!(net.event(A), (a, resolved(b"true")));
    // After its end, an attempt takes no further answer.
    net.deliver(A, address(B), transaction, Message::SidrRep(right));
    assert!(net.events(A).is_empty());
    assert_eq!(net.managers[A].deadline(), None);
}

/// If a trailer is not valid, the private data are the whole field, and no queue pair is known.
#[test]
fn forged_trailers() {
    let mut net = Net::listening(64);
    let from = address(A);
    let trailer = |qpn, len| {
        let mut data = sidr_trailer::emit_req(b"x", DatagramQp { qpn, q_key: 1 });
        data[171] = len;
        data
    };
    let cases = [
        (trailer(0, 1), false),
        (trailer(1, 1), false),
        (trailer(0xFF_FFFF, 1), false),
        (trailer(0x0100_0000, 1), false),
        (trailer(u32::MAX, 1), false),
        (trailer(2, 165), false),
        (trailer(2, 255), false),
        (trailer(2, 164), true),
        (trailer(0xFF_FFFE, 0), true),
    ];
    for (id, (data, is_valid)) in (0..).zip(cases) {
        net.deliver(B, from, 0, kernel_req(id, &field(from, &data)));
        let (_, Event::Request { private, caller, .. }) = net.event(B) else { panic!() };
        assert_eq!(caller.is_some(), is_valid, "case {id}");
        assert_eq!(private.len(), if is_valid { data[171].into() } else { 180 }, "case {id}");
    }
    for len in [129, 255] {
        let a = net.resolve(b"");
        let req = net.transmits(A).remove(0);
        let mut data = sidr_trailer::emit_rep(b"x");
        data[135] = len;
        let rep = Message::SidrRep(kernel_rep(a, SidrStatus::SUCCESS, &data));
        net.deliver(A, address(B), transaction(&req.mad), rep);
        assert_eq!(net.event(A), (a, resolved_by(false, &data)));
    }
}

/// REQs with other addresses in their header than those of the datagram, or without a header, never
/// reach the program.
#[test]
fn forged_headers() {
    let mut net = Net::listening(64);
    let (a, stranger) = (address(A), IpAddr::from([10, 0, 0, 3]));
    let mut other_version = field(a, b"");
    other_version[0] = 1;
    let mut other_family = field(a, b"");
    other_family[1] = 0x50;
    for (id, private) in (0..).zip([vec![], field(stranger, b""), other_version, other_family]) {
        net.deliver(B, a, 0, kernel_req(id, &private));
        assert!(net.events(B).is_empty(), "case {id}");
        assert!(net.transmits(B).len() <= 1, "case {id}");
    }
    // The datagram was sent to another address than the header says.
    let private = field(a, b"");
    let mad = Mad { transaction: 0, message: kernel_req(9, &private) };
    net.managers[B].receive(net.now, a, stranger, &mad);
    assert!(net.events(B).is_empty());
    // The service is not a port of the UDP port space.
    for service in [ServiceId::tcp(PORT), ServiceId(u64::from(PORT)), ServiceId(u64::MAX)] {
        let req = SidrReq { request_id: 10, p_key: 0xFFFF, service, private: &private };
        net.deliver(B, a, 0, Message::SidrReq(req));
        assert!(net.events(B).is_empty(), "{service:?}");
        let [sent] = net.transmits(B)[..] else { panic!("not one REP") };
        let mad = Mad::parse(&sent.mad).unwrap();
        let Message::SidrRep(rep) = mad.message else { panic!("{mad:?}") };
        assert_eq!((rep.status, rep.service), (SidrStatus::UNSUPPORTED, service));
    }
}

/// Requests to closed ports leave no state, and the number of answers is limited.
#[test]
fn a_flood_to_a_closed_port() {
    for (many_senders, max) in [(false, 512), (true, 512 * 32)] {
        let mut net = Net::new();
        let flood = flood(many_senders);
        let mut reps = 0;
        deliver_flood(&mut net, &flood, |net| {
            let sent = net.transmits(B).len();
            assert!(sent <= 1);
            reps += sent;
        });
        assert!(reps <= max, "{reps}");
        assert_eq!((known(&net, &flood), net.events(B).len()), (0, 0));
        assert_eq!(reps as u64 + net.managers[B].dropped(), u64::from(FLOOD));
    }
}

/// A flood to a listener whose program does not decide fills the backlog and nothing else.
#[test]
fn a_flood_to_an_idle_program() {
    const BACKLOG: usize = 8;
    let mut net = Net::listening(BACKLOG);
    for flood in [flood(false), flood(true)] {
        // The second flood finds the backlog full.
        deliver_flood(&mut net, &flood, |_| {});
        assert!(known(&net, &flood) <= BACKLOG);
    }
    assert_eq!((net.events(B).len(), net.transmits(B).len()), (BACKLOG, 0));
    assert_eq!(net.managers[B].dropped(), 2 * u64::from(FLOOD) - BACKLOG as u64);
}

/// A program answers each request of a flood at once. The number of answers that are kept is
/// limited, and the latest are kept.
#[test]
fn a_flood_to_a_busy_program() {
    let mut net = Net::listening(1);
    let flood = flood(true);
    let mut reps = 0;
    deliver_flood(&mut net, &flood, |net| {
        let (id, _) = net.event(B);
        net.managers[B].reject(net.now, id, SidrStatus::REJECT, b"").unwrap();
        reps += net.transmits(B).len();
    });
    assert_eq!(reps, flood.len());
    assert_eq!(known(&net, &flood), flood.len().min(ANSWERS_MAX));
    let latest = &flood[flood.len().saturating_sub(ANSWERS_MAX)..];
    assert_eq!(known(&net, latest), latest.len());
}

/// While nothing is sent, only a limited number of answers waits. A REQ never gets more than one.
#[test]
fn a_flood_of_repetitions() {
    let mut net = Net::listening(1);
    let from = address(A);
    let again = vec![(from, 5); 10_000];
    deliver_flood(&mut net, &again[..1], |_| {});
    let (id, _) = net.event(B);
    deliver_flood(&mut net, &again, |_| {});
    assert_eq!(net.transmits(B), [], "an undecided request was answered");
    net.accept(id, b"");
    let [reply] = net.transmits(B)[..] else { panic!("not one REP") };
    deliver_flood(&mut net, &again, |_| {});
    let waiting = net.transmits(B);
    assert!(waiting.len() <= 256, "{}", waiting.len());
    assert!(waiting.iter().all(|sent| *sent == reply));
    let mut reps = 0;
    deliver_flood(&mut net, &again, |net| {
        let sent = net.transmits(B).len();
        assert!(sent <= 1);
        reps += sent;
    });
    assert!(reps <= again.len());
    assert!(net.events(B).is_empty());
}

/// REPs that belong to no attempt leave no state and cause no message.
#[test]
fn a_flood_of_reps() {
    let mut net = Net::new();
    let a = net.resolve(b"");
    net.transmits(A);
    let deadline = net.managers[A].deadline();
    for id in 0..FLOOD {
        let rep = kernel_rep(ResolveId(id), SidrStatus::SUCCESS, b"");
        net.deliver(A, address(B), u64::from(id), Message::SidrRep(rep));
    }
    assert_eq!((net.events(A), net.transmits(A)), (vec![], vec![]));
    assert_eq!(net.managers[A].deadline(), deadline);
    net.managers[A].cancel(a);
}

/// No MAD makes a manager panic, or send more than one answer.
#[test]
fn random_messages() {
    let mut net = Net::listening(16);
    let mut rng = Rng(1);
    net.resolve(b"call");
    let req = net.transmits(A)[0].mad;
    net.deliver(B, address(A), transaction(&req), kernel_req(1, &field(address(A), b"")));
    for _ in 0..FLOOD {
        let mut mad = req;
        for _ in 0..rng.below(6) {
            mad[4 + rng.below(MAD_SIZE - 4)] = rng.next() as u8;
        }
        // The attribute: a REQ or a REP.
        mad[17] = 0x17 + rng.below(2) as u8;
        if rng.chance(8) {
            rng.fill(&mut mad[24..]);
        }
        let Ok(mad) = Mad::parse(&mad) else { continue };
        for at in [A, B] {
            net.managers[at].receive(net.now, address(1 - at), address(at), &mad);
            assert!(net.transmits(at).len() <= 1);
            for (id, event) in net.events(at) {
                if matches!(event, Event::Request { .. }) && rng.chance(2) {
                    net.managers[at].accept(net.now, id, SERVICE, b"").unwrap();
                    assert_eq!(net.transmits(at).len(), 1);
                }
            }
        }
    }
}

/// Messages of connections are for another manager.
#[test]
fn messages_of_connections_are_ignored() {
    let mut net = Net::listening(1);
    let rtu = wire::cm::Rtu { local_id: 1, remote_id: 2, private: &[] };
    net.deliver(B, address(A), 0, Message::Rtu(rtu));
    assert_eq!((net.transmits(B), net.events(B)), (vec![], vec![]));
}
