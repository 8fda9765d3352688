use std::net::IpAddr;
use std::time::Duration;

use super::path::gid;
use super::*;
use crate::rocev2::Psn;

mod sidr;

/// A REQ that rping of Linux 6.1 has sent: the part after the MAD header, without the zeros at the
/// end.
const REQ: &str = "
    7b8bf58f 00000000 0000000001061c06 505400fffe770002 00000000 00000000 00001101 00000001 \
    000000a0 653b5da7
    ffff37f0 ffff ffff 00000000000000000000ffff0a4d0002 00000000000000000000ffff0a4d0003 2907f000 \
    00400098
    00000000000000000000000000000000000000000000000000000000000000000000000000000000 00000000
    00409867 000000000000000000000000 0a4d0002 000000000000000000000000 0a4d0003";

/// The REJ that Linux 6.12 sends if no program listens at the port.
const REJ: &str = "00000000 55ce9834 00000008";

fn mad(attribute: u16, transaction: u64, body: &str) -> [u8; MAD_SIZE] {
    let digits: Vec<u8> = body.bytes().filter(|c| !c.is_ascii_whitespace()).collect();
    let mut mad = [0; MAD_SIZE];
    mad[..4].copy_from_slice(&[1, 7, 2, 3]);
    mad[8..16].copy_from_slice(&transaction.to_be_bytes());
    mad[16..18].copy_from_slice(&attribute.to_be_bytes());
    for (at, pair) in digits.chunks(2).enumerate() {
        mad[24 + at] = u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    }
    mad
}

#[test]
fn the_req_of_a_kernel() {
    let octets = mad(0x10, 0x1_8FF5_8B7B, REQ);
    let parsed = Mad::parse(&octets).unwrap();
    let Message::Req(req) = parsed.message else { panic!("{parsed:?}") };

    let (ours, theirs) = (IpAddr::from([10, 77, 0, 2]), IpAddr::from([10, 77, 0, 3]));
    let primary = Path { flow_label: 0x2907F, ..Path::over_ip(ours, theirs, Timeout::new(19)) };
    let private = IpHeader { source_port: 0x9867, source: ours, destination: theirs };
    assert_eq!(IpHeader::parse(req.private), Ok((private, &[0; 56][..])));
    let expected = Req {
        local_id: 0x7B8B_F58F,
        service: ServiceId::tcp(7174),
        ca_guid: 0x5054_00FF_FE77_0002,
        qpn: 0x11,
        responder_resources: 1,
        initiator_depth: 1,
        remote_response_timeout: Timeout::new(20),
        transport: Req::RC,
        flow_control: false,
        starting_psn: Psn::new(0x65_3B5D),
        local_response_timeout: Timeout::new(20),
        retry_count: 7,
        p_key: 0xFFFF,
        path_mtu: PathMtu::Octets1024.code(),
        rnr_retry_count: 7,
        max_cm_retries: 15,
        srq: false,
        primary,
        alternate: None,
        private: req.private,
    };
    assert_eq!(req, expected);
    assert_eq!(parsed, Mad { transaction: 0x1_8FF5_8B7B, message: Message::Req(expected) });
    let sent = Req { private: &private.emit(), ..expected };
    assert_eq!(Mad { message: Message::Req(sent), ..parsed }.emit(), octets);
}

#[test]
fn the_rej_of_a_kernel() {
    let octets = mad(0x12, 0x2_3498_CE55, REJ);
    let rej = Rej {
        local_id: 0,
        remote_id: 0x55CE_9834,
        answered: Answered::Req,
        reason: Reason::INVALID_SERVICE_ID,
        ari: &[],
        private: &[],
    };
    assert_eq!(Mad { transaction: 0x2_3498_CE55, message: Message::Rej(rej) }.emit(), octets);
    let parsed = Mad::parse(&octets).unwrap();
    assert_eq!(parsed.message, Message::Rej(Rej { private: &[0; 148], ..rej }));
}

/// Each field has different octets, at the offset that the standard's tables give.
#[test]
fn every_field_of_the_short_messages() {
    let private = [0xEE; 224];
    let cases = [
        (
            0x11,
            Message::Mra(Mra {
                local_id: 0x0102_0304,
                remote_id: 0x0506_0708,
                answered: Answered::Rep,
                service_timeout: Timeout::new(24),
                private: &private[..222],
            }),
            "01020304 05060708 40 C0".to_owned() + &"EE".repeat(222),
        ),
        (
            0x12,
            Message::Rej(Rej {
                local_id: 0x0102_0304,
                remote_id: 0x0506_0708,
                answered: Answered::Other,
                reason: Reason::TIMEOUT,
                ari: &[0xA1, 0xA2, 0xA3],
                private: &private[..148],
            }),
            "01020304 05060708 80 06 0004 A1A2A3".to_owned() + &"00".repeat(69) + &"EE".repeat(148),
        ),
        (
            0x13,
            Message::Rep(Rep {
                local_id: 0x0102_0304,
                remote_id: 0x0506_0708,
                qpn: 0x11_1213,
                starting_psn: Psn::new(0x21_2223),
                responder_resources: 0x31,
                initiator_depth: 0x41,
                target_ack_delay: Timeout::new(15),
                failover: 1,
                flow_control: true,
                rnr_retry_count: 6,
                srq: true,
                ca_guid: 0x5152_5354_5556_5758,
                private: &private[..196],
            }),
            "01020304 05060708 00000000 11121300 00000000 21222300 31 41 7B D0 5152535455565758"
                .to_owned()
                + &"EE".repeat(196),
        ),
        (
            0x14,
            Message::Rtu(Rtu { local_id: 0x0102_0304, remote_id: 0x0506_0708, private: &private }),
            "01020304 05060708".to_owned() + &"EE".repeat(224),
        ),
        (
            0x15,
            Message::Dreq(Dreq {
                local_id: 0x0102_0304,
                remote_id: 0x0506_0708,
                remote_qpn: 0x11_1213,
                private: &private[..220],
            }),
            "01020304 05060708 11121300".to_owned() + &"EE".repeat(220),
        ),
        (
            0x16,
            Message::Drep(Drep {
                local_id: 0x0102_0304,
                remote_id: 0x0506_0708,
                private: &private,
            }),
            "01020304 05060708".to_owned() + &"EE".repeat(224),
        ),
    ];
    for (attribute, message, body) in cases {
        let mad = (
            Mad { transaction: 0x6162_6364_6566_6768, message },
            mad(attribute, 0x6162_6364_6566_6768, &body),
        );
        assert_eq!(mad.0.emit(), mad.1, "{message:?}");
        assert_eq!(Mad::parse(&mad.1), Ok(mad.0));
    }
}

#[test]
fn every_field_of_a_req() {
    let address = |last| IpAddr::from([0x20, 0x01, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    let alternate = Path {
        local_lid: 0x0102,
        remote_lid: 0x0304,
        flow_label: 0xA_BCDE,
        packet_rate: 0x3F,
        traffic_class: 0x51,
        hop_limit: 0x52,
        service_level: 0x5,
        subnet_local: true,
        ..Path::over_ip(address(1), address(2), Timeout::new(17))
    };
    let req = Req {
        local_id: 0x0102_0304,
        service: ServiceId(0x1112_1314_1516_1718),
        ca_guid: 0x2122_2324_2526_2728,
        qpn: 0x31_3233,
        responder_resources: 0x34,
        initiator_depth: 0x35,
        remote_response_timeout: Timeout::new(21),
        transport: 3,
        flow_control: true,
        starting_psn: Psn::new(0x41_4243),
        local_response_timeout: Timeout::new(22),
        retry_count: 5,
        p_key: 0x4445,
        path_mtu: 0xF,
        rnr_retry_count: 6,
        max_cm_retries: 14,
        srq: true,
        primary: Path { local_lid: 0xFFFF, ..alternate },
        alternate: Some(alternate),
        private: &[0xEE; 92],
    };
    let path = "0304 20010000000000000000000000000001 20010000000000000000000000000002 ABCDE03F 51 \
                52 58 88";
    let body =
        "01020304 00000000 1112131415161718 2122232425262728 00000000 00000000 31323334 00000035
                000000AF 414243B5 4445 F6 E8 FFFF"
            .to_owned()
            + path
            + "0102"
            + path
            + &"EE".repeat(92);
    let octets = mad(0x10, 7, &body);
    let mad = Mad { transaction: 7, message: Message::Req(req) };
    assert_eq!(mad.emit(), octets);
    assert_eq!(Mad::parse(&octets), Ok(mad));
}

#[test]
fn what_is_not_a_message() {
    let octets = mad(0x14, 0, "");
    let with = |at: usize, octet: u8| {
        let mut octets = octets;
        octets[at] = octet;
        Mad::parse(&octets).map(drop)
    };
    let class = |base_version, class, class_version| {
        Err(MadError::Class { base_version, class, class_version })
    };
    assert_eq!(with(0, 2), class(2, 7, 2));
    assert_eq!(with(1, 3), class(1, 3, 2));
    assert_eq!(with(2, 1), class(1, 7, 1));
    assert_eq!(with(3, 0x81), Err(MadError::Method(0x81)));
    assert_eq!(with(17, 0x19), Err(MadError::Attribute(0x19)));
    assert_eq!(with(16, 1), Err(MadError::Attribute(0x114)));
    assert_eq!(Mad::parse(&octets[..255]).map(drop), Err(MadError::Size(255)));
    assert_eq!(Mad::parse(&[octets, octets].concat()).map(drop), Err(MadError::Size(512)));
    for attribute in [0x11, 0x12] {
        assert_eq!(
            Mad::parse(&mad(attribute, 0, "00000000 00000000 C0")).map(drop),
            Err(MadError::Answered)
        );
    }
}

/// The field for the length of the information can express 127 octets, but the information has at
/// most 72 octets.
#[test]
fn a_rej_whose_information_is_too_long() {
    let octets = mad(0x12, 0, "00000000 00000000 00 FF");
    let Message::Rej(rej) = Mad::parse(&octets).unwrap().message else { panic!() };
    assert_eq!(rej.ari, [0; 72]);
}

#[test]
#[should_panic(expected = "197 octets of private data, but at most 196 fit")]
fn private_data_that_do_not_fit() {
    let octets = mad(0x13, 0, "");
    let Message::Rep(rep) = Mad::parse(&octets).unwrap().message else { panic!() };
    Mad { transaction: 0, message: Message::Rep(Rep { private: &[0; 197], ..rep }) }.emit();
}

#[test]
fn headers_of_ip_connections() {
    let pairs = [("10.99.0.1", "10.99.0.2"), ("fd00::1", "2001:db8::2")];
    for (source, destination) in pairs.map(|(a, b)| (a.parse().unwrap(), b.parse().unwrap())) {
        let header = IpHeader { source_port: 0x8BA8, source, destination };
        let mut octets = header.emit().to_vec();
        octets.extend_from_slice(b"consumer");
        assert_eq!(IpHeader::parse(&octets), Ok((header, &b"consumer"[..])));
    }
    let good =
        IpHeader { source_port: 1, source: [1; 4].into(), destination: [2; 4].into() }.emit();
    let with = |at: usize, octet: u8| {
        let mut octets = good;
        octets[at] = octet;
        IpHeader::parse(&octets).map(drop)
    };
    assert_eq!(with(0, 1), Err(IpHeaderError::Version(1)));
    assert_eq!(with(1, 0x50), Err(IpHeaderError::IpVersion(5)));
    assert_eq!(IpHeader::parse(&good[..35]), Err(IpHeaderError::Size));
}

#[test]
fn services() {
    assert_eq!(ServiceId::tcp(7174), ServiceId(0x0106_1C06));
    assert_eq!(ServiceId(0x0106_FFFF).tcp_port(), Some(0xFFFF));
    assert_eq!(ServiceId(0x1_0106_1C06).tcp_port(), None);
    assert_eq!(ServiceId::udp(7174), ServiceId(0x0111_1C06));
    assert_eq!(ServiceId(0x0111_FFFF).udp_port(), Some(0xFFFF));
    assert_eq!(ServiceId(0x1_0111_1C06).udp_port(), None);
    assert_eq!(ServiceId::udp(7174).tcp_port(), None);
    assert_eq!(ServiceId::tcp(7174).udp_port(), None);
}

#[test]
fn times() {
    let durations = [0, 8, 9, 17, 20, 24, 31].map(|code| Timeout::new(code).duration().as_millis());
    assert_eq!(durations, [1, 1, 2, 512, 4096, 65_536, 8_388_608]);
    assert_eq!(Timeout::covering(Duration::ZERO).code(), 8);
    assert_eq!(Timeout::covering(Duration::from_millis(512)).code(), 17);
    assert_eq!(Timeout::covering(Duration::from_millis(513)).code(), 18);
    assert_eq!(Timeout::covering(Duration::MAX), Timeout::MAX);
}

#[test]
fn gids() {
    assert_eq!(
        gid([10, 77, 0, 2].into()).octets(),
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 77, 0, 2]
    );
    assert_eq!(gid("fd00::1".parse().unwrap()).to_string(), "fd00::1");
}

#[test]
fn reasons_have_names() {
    assert_eq!(Reason::STALE_CONNECTION.to_string(), "stale connection");
    assert_eq!(format!("{:?}", Reason(28)), "Reason(28: consumer reject)");
    assert_eq!(Reason(34).to_string(), "reason 34");
    assert_eq!(Reason::ALL.len(), 34);
}
