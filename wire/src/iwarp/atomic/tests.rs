use super::*;
use crate::iwarp::{Header, Queue, UntaggedOpcode};

/// A whole segment of header and body, with the octets of RFC 7306's figures and appendix A.
fn segment(opcode: UntaggedOpcode, queue: Queue, msn: u32, body: &[u8]) -> Vec<u8> {
    let header =
        Header::Untagged { last: true, opcode, invalidate: 0, qn: queue.number(), msn, mo: 0 };
    let mut bytes = vec![0; header.len()];
    header.emit(&mut bytes);
    bytes.extend_from_slice(body);
    bytes
}

fn emit(size: usize, emit: impl Fn(&mut [u8]) -> usize) -> Vec<u8> {
    let mut buf = [0xEE; 64];
    assert_eq!(emit(&mut buf), size);
    assert!(
        buf[size..].iter().all(|&octet| octet == 0xEE),
        "octets beyond the returned length must stay unchanged"
    );
    buf[..size].to_vec()
}

#[test]
fn fetch_add_by_hand() {
    #[rustfmt::skip]
    let octets = [
        0x41, 0x4A, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 5, 0, 0, 0, 0, // untagged, last; QN 1, MSN 5
        0, 0, 0, 0,                                                 // FetchAdd
        0xAA, 0xBB, 0xCC, 0xDD,                                     // id
        0xCD, 0x1C, 0xB6, 0x00,                                     // STag
        0x00, 0x00, 0x55, 0xA0, 0xF3, 0x57, 0x71, 0x30,             // TO
        0, 0, 0, 0, 0, 0, 0, 7,                                     // add
        0, 0, 0, 0, 0, 0, 0, 0,                                     // one field
        0, 0, 0, 0, 0, 0, 0, 0,                                     // no compare data
        0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF,
    ];
    let request = AtomicRequest {
        id: 0xAABB_CCDD,
        stag: 0xCD1C_B600,
        to: 0x55A0_F357_7130,
        op: AtomicOp::fetch_add(7),
    };
    let body = emit(52, |buf| request.emit(buf));
    assert_eq!(segment(UntaggedOpcode::AtomicRequest, Queue::Request, 5, &body), octets);
    assert_eq!(AtomicRequest::parse(&octets[18..]), Some(Ok(request)));
    assert_eq!(AtomicRequest::parse(&octets[18..69]), None);
    assert_eq!(
        request.to_string(),
        "fetch-add 0x7 mask=0x0 target=0xcd1cb600+0x55a0f3577130 id=2864434397"
    );
}

#[test]
fn compare_and_swap_by_hand() {
    #[rustfmt::skip]
    let octets = [
        0, 0, 0, 2,                                     // CmpSwap
        0, 0, 0, 9,                                     // id
        0, 0, 0x12, 0x34,                               // STag
        0, 0, 0, 0, 0, 0, 0x10, 0x08,                   // TO
        0x01, 0x23, 0x45, 0x67, 0x89, 0xAB, 0xCD, 0xEF, // swap
        0xFF, 0xFF, 0xFF, 0xFF, 0x00, 0x00, 0x00, 0x00, // its mask
        0xFE, 0xDC, 0xBA, 0x98, 0x76, 0x54, 0x32, 0x10, // compare
        0x00, 0x00, 0x00, 0x00, 0xFF, 0xFF, 0xFF, 0xFF, // its mask
    ];
    let op = AtomicOp::CmpSwap {
        swap: 0x0123_4567_89AB_CDEF,
        swap_mask: 0xFFFF_FFFF_0000_0000,
        compare: 0xFEDC_BA98_7654_3210,
        compare_mask: 0x0000_0000_FFFF_FFFF,
    };
    let request = AtomicRequest { id: 9, stag: 0x1234, to: 0x1008, op };
    assert_eq!(emit(52, |buf| request.emit(buf)), octets);
    assert_eq!(AtomicRequest::parse(&octets), Some(Ok(request)));

    // Reserved bits are ignored. Undefined codes are errors.
    let mut patched = octets;
    patched[..4].copy_from_slice(&[0xFF, 0xFF, 0xFF, 0xF2]);
    assert_eq!(AtomicRequest::parse(&patched), Some(Ok(request)));
    for code in (0..16).filter(|code| ![0, 2].contains(code)) {
        patched[3] = code;
        let error = AtomicRequest::parse(&patched).unwrap().unwrap_err();
        assert_eq!((error, error.cause()), (UnknownAtomic { code }, Cause::UNEXPECTED_OPCODE));
    }
}

#[test]
fn response_by_hand() {
    #[rustfmt::skip]
    let octets = [
        0x41, 0x4B, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 0, // untagged, last; QN 3, MSN 1
        0xAA, 0xBB, 0xCC, 0xDD,
        0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08,
    ];
    let response = AtomicResponse { id: 0xAABB_CCDD, original: 0x0102_0304_0506_0708 };
    let body = emit(12, |buf| response.emit(buf));
    assert_eq!(segment(UntaggedOpcode::AtomicResponse, Queue::AtomicResponse, 1, &body), octets);
    assert_eq!(AtomicResponse::parse(&octets[18..]), Some(response));
    assert_eq!(AtomicResponse::parse(&octets[18..29]), None);
}

#[test]
fn immediate_data_by_hand() {
    #[rustfmt::skip]
    let octets = [
        0x41, 0x49, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, // untagged, last; QN 0, MSN 2; solicited
        0x77, 0x66, 0x55, 0x44, 0, 0, 0, 0,
    ];
    let body = emit(8, |buf| Immediate(0x7766_5544).emit(buf));
    assert_eq!(segment(UntaggedOpcode::ImmediateSolicited, Queue::Send, 2, &body), octets);
    assert_eq!(Immediate::parse(&octets[18..]), Some(Immediate(0x7766_5544)));
    assert_eq!(Immediate::parse(&octets[18..25]), None);
}

#[test]
fn what_operations_do() {
    let add = |original, add, mask| AtomicOp::FetchAdd { add, mask }.apply(original);
    assert_eq!(AtomicOp::fetch_add(3).apply(39), 42);
    assert_eq!(AtomicOp::fetch_add(1).apply(u64::MAX), 0, "the sum must wrap around");
    assert_eq!(add(0xFF, 1, 0x80), 0, "no carry may leave a field of eight bits");
    assert_eq!(add(0x7F, 1, 0x80), 0x80);
    assert_eq!(
        add(0xFFFF_FFFF_FFFF_FFFF, 0x0000_0001_0000_0001, 0x8000_0000_8000_0000),
        0,
        "no carry may leave a field of 32 bits"
    );
    assert_eq!(add(0b1010, 0b1110, u64::MAX), 0b0100, "no carry may leave a field of one bit");

    let swap = AtomicOp::cmp_swap(5, 9);
    assert_eq!((swap.apply(5), swap.apply(6)), (9, 6));
    let masked = AtomicOp::CmpSwap {
        swap: 0xABCD,
        swap_mask: 0x00FF,
        compare: 0x1234,
        compare_mask: 0xFF00,
    };
    assert_eq!((masked.apply(0x12FF), masked.apply(0x13FF)), (0x12CD, 0x13FF));
}
