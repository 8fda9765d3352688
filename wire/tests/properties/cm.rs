//! Properties of communication management.

use proptest::collection::vec;
use proptest::prelude::*;
use wire::cm::{Mad, Message, ServiceId, SidrRep, SidrReq, SidrStatus};

proptest! {
    /// A MAD of any octets that is parsed and encoded again is the same as before, except that
    /// fields that the parser ignores are zero.
    #[test]
    fn mads_come_back(
        kind in 0x0F..=0x19_u8,
        body in vec(any::<u8>(), 232),
        transaction in any::<[u8; 8]>(),
    ) {
        let start = [&[1, 7, 2, 3, 0, 0, 0, 0][..], &transaction, &[0, kind, 0, 0, 0, 0, 0, 0]].concat();
        let octets = [start, body].concat();
        match Mad::parse(&octets) {
            Ok(mad) => {
                let again = mad.emit();
                prop_assert_eq!(Mad::parse(&again), Ok(mad));
                // The comparison does not hold for a REJ and a SIDR REP, which may announce more
                // information than their field can contain.
                let unread = again.iter().zip(&octets).all(|(again, octet)| again & !octet == 0);
                prop_assert!(unread || [0x12, 0x18].contains(&kind));
            }
            Err(_) => prop_assert!(![0x10, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18].contains(&kind)),
        }
    }

    #[test]
    fn sidr_requests_come_back(
        transaction in any::<u64>(),
        (request_id, p_key, service) in any::<(u32, u16, u64)>(),
        private in vec(any::<u8>(), SidrReq::MAX_PRIVATE),
    ) {
        let service = ServiceId(service);
        let req = SidrReq { request_id, p_key, service, private: &private };
        let mad = Mad { transaction, message: Message::SidrReq(req) };
        let octets = mad.emit();
        prop_assert_eq!(Mad::parse(&octets), Ok(mad));
    }

    #[test]
    fn sidr_replies_come_back(
        transaction in any::<u64>(),
        (request_id, status, service, q_key) in any::<(u32, u8, u64, u32)>(),
        qpn in 0..1_u32 << 24,
        info in vec(any::<u8>(), 0..=SidrRep::MAX_INFO),
        private in vec(any::<u8>(), SidrRep::MAX_PRIVATE),
    ) {
        let (status, service) = (SidrStatus(status), ServiceId(service));
        let rep =
            SidrRep { request_id, status, qpn, service, q_key, info: &info, private: &private };
        let mad = Mad { transaction, message: Message::SidrRep(rep) };
        let octets = mad.emit();
        prop_assert_eq!(Mad::parse(&octets), Ok(mad));
    }

    #[test]
    fn ports_of_services_come_back(port in any::<u16>(), service in any::<u64>()) {
        prop_assert_eq!(ServiceId::tcp(port).tcp_port(), Some(port));
        prop_assert_eq!(ServiceId::udp(port).udp_port(), Some(port));
        let service = ServiceId(service);
        prop_assert!(service.tcp_port().is_none_or(|port| ServiceId::tcp(port) == service));
        prop_assert!(service.udp_port().is_none_or(|port| ServiceId::udp(port) == service));
    }
}
