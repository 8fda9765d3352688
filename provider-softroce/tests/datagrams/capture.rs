//! Captures of datagrams and of the messages that find out addresses. Every ICRC must be right, and
//! Wireshark's dissectors must understand the captures.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use dat_core::provider::Transport;
use provider_mem::contract::rig::{Event, Rig, Service, pattern};
use wire::cm::sidr_trailer::{self, DatagramQp};
use wire::cm::{IpHeader, Mad, Message, ServiceId, SidrStatus};
use wire::rocev2::{Deth, Extension, Icrc, Identification, Opcode, Packet};

use super::ends::*;
use super::reader::{self, Body};

const TSHARK: &str = "/usr/bin/tshark";
/// The direction of sent packets in captures.
const OUT: u32 = 2;

/// Returns tshark's lines about the packets that pass the filter.
fn tshark(file: &Path, filter: &str) -> String {
    let mut command = Command::new(TSHARK);
    command.args(["-n", "-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE", "-r"]);
    command.arg(file).args(["-Y", filter]);
    // These dissectors would guess the protocol of the payload.
    for guess in ["rpcrdma_infiniband", "smb_direct_infiniband", "mellanox_eoib"] {
        command.args(["--disable-heuristic", guess]);
    }
    let output = command.output().expect("tshark starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    // tshark may end a line with a space.
    text.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

fn datagrams_are_captured(address: &str, params: &str) {
    let dir = tempfile::tempdir().expect("a directory");
    let files = ["a", "b"].map(|name| dir.path().join(name).with_extension("pcapng"));
    let [a, b] = files
        .each_ref()
        .map(|file| open(&format!("{address} {params} capture={}", file.display())));
    let ip = address.parse().expect("an address");
    let rig = Rig { a: &a, b: &b };
    let (x, y) = (end(&a), end(&b));
    let (to_y, to_x) = introduce(&rig, &x, (&y, ip));
    let longest = a.attrs().max_datagram.expect("datagrams are supported") as usize;
    let lengths = [0, 1, 2, 3, 4, 63, 64, 255, longest];
    for len in lengths {
        deliver(&rig, (&x, &to_y), &y, &pattern(len as u64, len));
        y.mem.write(0, &pattern(len as u64 + 1, len));
        x.recv(1, &[x.mem.segment(4096, HEADER + longest)]);
        send(&y, 2, &to_x, None, &[y.mem.segment(0, len)]);
        rig.completions(&x.recvs, 1);
        rig.completions(&y.requests, 1);
    }
    // A rejection, and a service that does not exist.
    let service = Service::new(&b, 1);
    let port = service.port(&b);
    resolve(&x, 8, (ip, port), b"please");
    b.reject(request(&rig, &service).0, b"no").expect("the request is rejected");
    assert!(matches!(rig.next("the rejection", &x.log), Event::Unresolved { number: 8, .. }));
    resolve(&x, 9, (ip, port ^ 1), b"");
    assert!(matches!(rig.next("the refusal", &x.log), Event::Unresolved { number: 9, .. }));

    // The captures are complete when the adapters are closed.
    drop((x, y, service));
    drop((a, b));
    let packets =
        files.each_ref().map(|file| reader::read(&std::fs::read(file).expect("the file")).packets);
    let (mut found, mut requests, mut answers) = (BTreeSet::new(), vec![], vec![]);
    for packet in packets.iter().flatten() {
        let Body::Udp { id, payload } = &packet.body else { panic!("{packet:?}") };
        let (id, dont_fragment) = id.unwrap_or_default();
        let icrc = Icrc::new(packet.src, packet.dst).expect("both addresses are of one family");
        icrc.verify(Identification { id, dont_fragment }, payload)
            .unwrap_or_else(|error| panic!("{error}: {packet:?}"));
        let parsed = Packet::parse(&payload[..payload.len() - Icrc::SIZE]).expect("a packet");
        let Packet { bth, extension, payload } = parsed;
        assert_eq!((bth.p_key, bth.ack_request), (0xFFFF, false), "{packet:?}");
        let (deth, immediate) = match extension {
            Extension::Deth(deth) => (deth, None),
            Extension::DethImmediate(deth, data) => (deth, Some(data)),
            other => panic!("{other:?}"),
        };
        if bth.dest_qpn != Deth::GSI_QPN {
            let ways = [(to_y.qpn, to_x.qpn), (to_x.qpn, to_y.qpn)];
            let way = ways.iter().position(|way| *way == (bth.dest_qpn, deth.source_qpn));
            let way = way.unwrap_or_else(|| panic!("{packet:?}"));
            assert_eq!(deth.q_key, [to_y, to_x][way].address.q_key);
            assert_eq!(immediate.is_some(), way == 0);
            assert_eq!(payload, pattern((payload.len() + way) as u64, payload.len()));
            found.insert((way, payload.len(), packet.direction));
            continue;
        }
        let deth_of_gsi = Deth { q_key: Deth::GSI_Q_KEY, source_qpn: Deth::GSI_QPN };
        assert_eq!((bth.opcode, deth), (Opcode::DatagramSendOnly, deth_of_gsi));
        let Mad { transaction, message } = Mad::parse(payload).expect("a message");
        match message {
            Message::SidrReq(req) if packet.direction == OUT => {
                let (header, data) = IpHeader::parse(req.private).expect("a header");
                assert_eq!((header.source, header.destination), (ip, ip));
                let (data, caller) = sidr_trailer::parse_req(data);
                assert_eq!(caller, Some(DatagramQp { qpn: to_x.qpn, q_key: to_x.address.q_key }));
                requests.push((transaction, req.request_id, req.service, data.to_vec()));
            }
            // An adapter of another process may have answered the request that nobody listens for.
            Message::SidrRep(rep) => {
                let data = sidr_trailer::parse_rep(rep.private).0.to_vec();
                let name = (transaction, rep.request_id, rep.service);
                answers.push((name, rep.status, (rep.qpn, rep.q_key), data));
            }
            Message::SidrReq(_) => {}
            // This message only probes whether the port is in use.
            Message::Drep(drep) if drep.remote_id == 0 => {}
            other => panic!("{other:?}"),
        }
    }
    let expected =
        lengths.iter().flat_map(|&len| [(0, len, 1), (0, len, OUT), (1, len, 1), (1, len, OUT)]);
    assert_eq!(found, expected.collect());
    // A busy machine may repeat a request.
    requests.dedup();
    let data = requests.iter().map(|(.., data)| &data[..]).collect::<Vec<_>>();
    assert_eq!(data, [&b"hello"[..], b"please", b""]);
    assert_eq!([requests[1].2, requests[2].2], [port, port ^ 1].map(ServiceId::udp));
    for ((transaction, id, service, _), (status, of_qp, data)) in requests.into_iter().zip([
        (SidrStatus::SUCCESS, (to_y.qpn, to_y.address.q_key), &b"welcome"[..]),
        (SidrStatus::REJECT, (0, 0), b"no"),
        (SidrStatus::UNSUPPORTED, (0, 0), b""),
    ]) {
        let answer = ((transaction, id, service), status, of_qp, data.to_vec());
        assert!(answers.contains(&answer), "{answer:?}: {answers:?}");
    }
    if !Path::new(TSHARK).exists() {
        println!("SKIP: {TSHARK} is not installed (package tshark)");
        return;
    }
    let mut lines = String::new();
    for file in &files {
        let flaws = "_ws.malformed || _ws.expert.severity >= \"Warning\" || !infiniband";
        assert_eq!(tshark(file, flaws), "", "{params}");
        lines += &tshark(file, "infiniband");
    }
    for words in [
        "UD Send Only QP=",
        "UD Send Only Immediate QP=",
        "CM: ServiceIDResReq\n",
        "CM: ServiceIDResReqResp\n",
    ] {
        assert!(lines.contains(words), "no {words}: {lines}");
    }
}

#[test]
fn captures_have_right_icrcs_and_are_dissected() {
    datagrams_are_captured("127.0.0.107", "");
    datagrams_are_captured("::1", "mtu=256 gso=off");
}
