//! Service ID resolution that was captured between two programs on kernel rxe.

use super::*;
use crate::cm::tests::replay::mads;
use crate::tests::capture;

/// A manager resolves the captured service, and another one answers the captured request. Each
/// understands the message of the kernel. The answer to the kernel has the octets of the kernel's
/// own answer.
#[test]
#[cfg_attr(miri, ignore = "not a test: Miri has no access to files")]
fn the_resolution_of_the_captures() {
    let mut count = 0;
    for (name, file) in capture::captures(&capture::root("rocev2")) {
        let mads = mads(&file);
        for (sent, answered) in pairs(&mads) {
            count += 1;
            let parsed = [sent, answered].map(|transmit| Mad::parse(&transmit.mad).unwrap());
            let [Message::SidrReq(req), Message::SidrRep(rep)] = parsed.map(|mad| mad.message)
            else {
                panic!("{name}: {parsed:?}");
            };
            let (header, private) = IpHeader::parse(req.private).unwrap();
            let local = SocketAddr::new(sent.from, header.source_port);
            let remote = SocketAddr::new(sent.to, req.service.udp_port().unwrap());
            let service = DatagramQp { qpn: rep.qpn, q_key: rep.q_key };

            let mut net = Net::new();
            net.managers[B].listen(remote.port(), 1).unwrap();
            net.managers[B].receive(net.now, sent.from, sent.to, &parsed[0]);
            let (id, request) = net.event(B);
            let private = private.to_vec();
            assert_eq!(request, Event::Request { from: local, to: remote, private, caller: None });
            let private = without_padding(rep.private);
            net.managers[B].accept(net.now, id, service, private).unwrap();
            let [answer] = net.transmits(B)[..] else { panic!("{name}: not one answer") };
            assert_eq!((answer.from, answer.to), (answered.from, answered.to), "{name}");
            assert_eq!(answer.mad, answered.mad, "{name}");

            // The manager chooses a request ID and a transaction ID of its own.
            let call = Resolve { local, remote, ..call() };
            let id = net.managers[A].resolve(net.now, &call).unwrap();
            let [own] = net.transmits(A)[..] else { panic!("{name}: not one request") };
            let rep = Message::SidrRep(SidrRep { request_id: id.0, ..rep });
            let mad = Mad { transaction: transaction(&own.mad), message: rep }.emit();
            net.managers[A].receive(net.now, sent.to, sent.from, &Mad::parse(&mad).unwrap());
            let private = rep_private(&mad);
            let resolved = Event::Resolved { service, private, knows_caller: false };
            assert_eq!(net.event(A), (id, resolved), "{name}");
        }
    }
    assert_eq!(count, 1);
}

/// The requests of a capture, each with its answer.
fn pairs(mads: &[Transmit]) -> impl Iterator<Item = (&Transmit, &Transmit)> {
    mads.iter().filter(|sent| is_sidr(sent) && is_req(sent)).map(|sent| {
        let answers = |other: &&Transmit| {
            is_sidr(other) && !is_req(other) && transaction(&other.mad) == transaction(&sent.mad)
        };
        (sent, mads.iter().find(answers).expect("an answer"))
    })
}

fn is_sidr(transmit: &Transmit) -> bool {
    let message = Mad::parse(&transmit.mad).map(|mad| mad.message);
    matches!(message, Ok(Message::SidrReq(_) | Message::SidrRep(_)))
}

/// The private data without the zeros at the end of the field.
fn without_padding(field: &[u8]) -> &[u8] {
    let len = field.iter().rposition(|&octet| octet != 0).map_or(0, |last| last + 1);
    &field[..len]
}

fn rep_private(mad: &[u8; MAD_SIZE]) -> Vec<u8> {
    match Mad::parse(mad).unwrap().message {
        Message::SidrRep(rep) => rep.private.to_vec(),
        other => panic!("{other:?}"),
    }
}
