//! Tests of service ID resolution.

use super::*;

/// The SIDR REQ that udaddy of Linux sends: the part after the MAD header, without the zeros at the
/// end.
const REQ: &str = "
    7ece9834 ffff 0000 0000000001111c06
    00408d87 000000000000000000000000 0a630001 000000000000000000000000 0a630002";

/// The SIDR REP to [`REQ`].
const REP: &str = "7ece9834 00 00 0000 00001f 00 0000000001111c06 01234567";

const TRANSACTION: u64 = 0x2_3498_CE7E;

#[test]
fn the_sidr_req_of_a_kernel() {
    let octets = mad(0x17, TRANSACTION, REQ);
    let parsed = Mad::parse(&octets).unwrap();
    let Message::SidrReq(req) = parsed.message else { panic!("{parsed:?}") };

    let (source, destination) = (IpAddr::from([10, 99, 0, 1]), IpAddr::from([10, 99, 0, 2]));
    let header = IpHeader { source_port: 0x8D87, source, destination };
    let consumer = &[0; SidrReq::MAX_CONSUMER_PRIVATE][..];
    assert_eq!(IpHeader::parse(req.private), Ok((header, consumer)));
    let expected = SidrReq {
        request_id: 0x7ECE_9834,
        p_key: 0xFFFF,
        service: ServiceId::udp(7174),
        private: req.private,
    };
    assert_eq!(parsed, Mad { transaction: TRANSACTION, message: Message::SidrReq(expected) });
    let sent = SidrReq { private: &header.emit(), ..expected };
    assert_eq!(Mad { message: Message::SidrReq(sent), ..parsed }.emit(), octets);
}

#[test]
fn the_sidr_rep_of_a_kernel() {
    let octets = mad(0x18, TRANSACTION, REP);
    let rep = SidrRep {
        request_id: 0x7ECE_9834,
        status: SidrStatus::SUCCESS,
        qpn: 0x1F,
        service: ServiceId::udp(7174),
        q_key: UDP_Q_KEY,
        info: &[],
        private: &[],
    };
    assert_eq!(Mad { transaction: TRANSACTION, message: Message::SidrRep(rep) }.emit(), octets);
    let parsed = Mad::parse(&octets).unwrap();
    assert_eq!(parsed.message, Message::SidrRep(SidrRep { private: &[0; 136], ..rep }));
}

/// Each field has different octets, at the offset that the standard's tables give.
#[test]
fn every_field() {
    let private = [0xEE; SidrReq::MAX_PRIVATE];
    let req = Message::SidrReq(SidrReq {
        request_id: 0x0102_0304,
        p_key: 0x1112,
        service: ServiceId(0x2122_2324_2526_2728),
        private: &private,
    });
    let rep = Message::SidrRep(SidrRep {
        request_id: 0x0102_0304,
        status: SidrStatus::REDIRECT,
        qpn: 0x11_1213,
        service: ServiceId(0x2122_2324_2526_2728),
        q_key: 0x3132_3334,
        info: &[0xA1, 0xA2, 0xA3],
        private: &private[..SidrRep::MAX_PRIVATE],
    });
    let cases = [
        (0x17, req, "01020304 1112 0000 2122232425262728".to_owned() + &"EE".repeat(216)),
        (
            0x18,
            rep,
            "01020304 04 03 0000 111213 00 2122232425262728 31323334 A1A2A3".to_owned()
                + &"00".repeat(69)
                + &"EE".repeat(136),
        ),
    ];
    for (attribute, message, body) in cases {
        let octets = mad(attribute, 7, &body);
        let mad = Mad { transaction: 7, message };
        assert_eq!(mad.emit(), octets, "{message:?}");
        assert_eq!(Mad::parse(&octets), Ok(mad));
    }
    assert_eq!(SidrReq::MAX_CONSUMER_PRIVATE, 180);
}

/// The reserved fields of a SIDR REP contain a vendor ID if the sender uses enhanced connection
/// establishment, which this crate does not support.
#[test]
fn reserved_fields_are_ignored() {
    let cases = [
        (0x17, "01020304 FFFF FFFF", "01020304 FFFF 0000"),
        (0x18, "01020304 00 00 FFFF 111213 FF", "01020304 00 00 0000 111213 00"),
    ];
    for (attribute, received, sent) in cases {
        let received = mad(attribute, 7, received);
        assert_eq!(Mad::parse(&received).unwrap().emit(), mad(attribute, 7, sent));
    }
}

#[test]
fn what_is_not_a_sidr_message() {
    for octets in [mad(0x17, 7, REQ), mad(0x18, 7, REP)] {
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
        assert_eq!(with(3, 1), Err(MadError::Method(1)));
        for size in (0..MAD_SIZE).chain([MAD_SIZE + 1]) {
            let mut resized = octets.to_vec();
            resized.resize(size, 0);
            assert_eq!(Mad::parse(&resized).map(drop), Err(MadError::Size(size)));
        }
    }
}

/// The field for the length of the information can express 255 octets, but the information has at
/// most 72 octets.
#[test]
fn information_that_is_too_long() {
    let octets = mad(0x18, 0, "00000000 04 FF");
    let Message::SidrRep(rep) = Mad::parse(&octets).unwrap().message else { panic!() };
    assert_eq!(rep.info, [0; 72]);
}

fn emit_rep(info: &[u8], private: &[u8]) {
    let octets = mad(0x18, 0, REP);
    let Message::SidrRep(rep) = Mad::parse(&octets).unwrap().message else { panic!() };
    Mad { transaction: 0, message: Message::SidrRep(SidrRep { info, private, ..rep }) }.emit();
}

#[test]
#[should_panic(expected = "73 octets of information on a SIDR REP, but at most 72 fit")]
fn information_that_does_not_fit() {
    emit_rep(&[0; 73], &[]);
}

#[test]
#[should_panic(expected = "137 octets of private data, but at most 136 fit")]
fn private_data_of_a_rep_that_do_not_fit() {
    emit_rep(&[], &[0; 137]);
}

#[test]
#[should_panic(expected = "217 octets of private data, but at most 216 fit")]
fn private_data_of_a_req_that_do_not_fit() {
    let octets = mad(0x17, 0, REQ);
    let Message::SidrReq(req) = Mad::parse(&octets).unwrap().message else { panic!() };
    let req = SidrReq { private: &[0; 217], ..req };
    Mad { transaction: 0, message: Message::SidrReq(req) }.emit();
}

#[test]
fn statuses() {
    let numbers: Vec<u8> = SidrStatus::ALL.iter().map(|status| status.0).collect();
    assert_eq!(numbers, [0, 1, 2, 3, 4, 5]);
    let text = SidrStatus::ALL.iter().map(SidrStatus::to_string).collect::<Vec<_>>().join("; ");
    assert_eq!(
        text,
        "success; service ID not supported; rejected by the service; no queue pair available; \
         redirected to another port; unsupported class version"
    );
    assert_eq!(SidrStatus(6).to_string(), "status 6");
    assert_eq!(format!("{:?}", SidrStatus::REJECT), "SidrStatus(2: rejected by the service)");
}

#[test]
fn every_status_comes_back() {
    for status in 0..=u8::MAX {
        let mut octets = mad(0x18, 7, REP);
        octets[28] = status;
        let parsed = Mad::parse(&octets).unwrap();
        let Message::SidrRep(rep) = parsed.message else { panic!("{parsed:?}") };
        assert_eq!(rep.status, SidrStatus(status));
        assert_eq!(parsed.emit(), octets);
    }
}
