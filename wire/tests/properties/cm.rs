//! Properties of communication management.

use proptest::collection::vec;
use proptest::prelude::*;
use wire::cm::Mad;

proptest! {
    /// A MAD of any octets that is parsed and encoded again is the same as before, except that
    /// fields that the parser ignores are zero.
    #[test]
    fn mads_come_back(kind in 0x0F..=0x17_u8, body in vec(any::<u8>(), 232), transaction in any::<[u8; 8]>()) {
        let start = [&[1, 7, 2, 3, 0, 0, 0, 0][..], &transaction, &[0, kind, 0, 0, 0, 0, 0, 0]].concat();
        let octets = [start, body].concat();
        match Mad::parse(&octets) {
            Ok(mad) => {
                let again = mad.emit();
                prop_assert_eq!(Mad::parse(&again), Ok(mad));
                // The comparison does not hold for a REJ, which may announce more information than
                // its field can contain.
                let unread = again.iter().zip(&octets).all(|(again, octet)| again & !octet == 0);
                prop_assert!(unread || kind == 0x12);
            }
            Err(_) => prop_assert!(![0x10, 0x13, 0x14, 0x15, 0x16].contains(&kind)),
        }
    }
}
