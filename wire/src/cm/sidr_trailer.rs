//! What this implementation adds to the private data of a SIDR REQ and a SIDR REP.
//!
//! A SIDR REQ says nothing about its sender's queue pair, but a service that wants to answer needs
//! it. The private data of both messages have a fixed size, so that the receiver does not know how
//! long the consumer's data are. Therefore the last octets of each field contain what is missing:
//!
//! ```text
//! SIDR REQ, the last 16 of 180 octets:  magic number 7 | length 1 | queue pair 4 | Q_Key 4
//! SIDR REP, the last  8 of 136 octets:  magic number 7 | length 1
//! ```
//!
//! The length is that of the consumer's private data, which are at the start of the field. All
//! numbers are in network byte order. Messages of others have no magic number. For their receivers,
//! the last octets are private data that they do not read.

use super::{SidrRep, SidrReq};

/// The magic number before the length.
const MAGIC: [u8; 7] = *b"OpenDAT";
const LENGTH_SIZE: usize = MAGIC.len() + 1;
const REQ_TRAILER_SIZE: usize = LENGTH_SIZE + 8;

/// A queue pair that receives datagrams, and the key that the datagrams must contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramQp {
    /// The number of the queue pair, 24 bits.
    pub qpn: u32,
    /// The Q_Key.
    pub q_key: u32,
}

/// The queue pair numbers that are not those of a consumer: 0 and 1 belong to management, and the
/// last one stands for multicast.
const RESERVED: [u32; 3] = [0, 1, 0xFF_FFFF];

/// The maximum size of the consumer's private data in a SIDR REQ, in octets.
pub const MAX_REQ_DATA: usize = SidrReq::MAX_CONSUMER_PRIVATE - REQ_TRAILER_SIZE;
/// The maximum size of the consumer's private data in a SIDR REP, in octets.
pub const MAX_REP_DATA: usize = SidrRep::MAX_PRIVATE - LENGTH_SIZE;

/// The private data of a SIDR REQ after the [`IpHeader`](super::IpHeader), with the consumer's data
/// and the sender's queue pair.
///
/// # Panics
/// The data have more than [`MAX_REQ_DATA`] octets.
pub fn emit_req(data: &[u8], sender: DatagramQp) -> [u8; SidrReq::MAX_CONSUMER_PRIVATE] {
    assert!(data.len() <= MAX_REQ_DATA, "{} octets of private data", data.len());
    let mut field = [0; SidrReq::MAX_CONSUMER_PRIVATE];
    field[..data.len()].copy_from_slice(data);
    let trailer = &mut field[MAX_REQ_DATA..];
    trailer[..MAGIC.len()].copy_from_slice(&MAGIC);
    trailer[MAGIC.len()] = data.len() as u8;
    trailer[LENGTH_SIZE..LENGTH_SIZE + 4].copy_from_slice(&sender.qpn.to_be_bytes());
    trailer[LENGTH_SIZE + 4..].copy_from_slice(&sender.q_key.to_be_bytes());
    field
}

/// The consumer's data in the private data of a SIDR REQ after the
/// [`IpHeader`](super::IpHeader), and the sender's queue pair. If the message was not made by
/// [`emit_req`], the data are the whole field, and the queue pair is not known.
pub fn parse_req(field: &[u8]) -> (&[u8], Option<DatagramQp>) {
    let Some((data, trailer)) = field.split_last_chunk::<REQ_TRAILER_SIZE>() else {
        return (field, None);
    };
    let number = |at: usize| {
        u32::from_be_bytes([trailer[at], trailer[at + 1], trailer[at + 2], trailer[at + 3]])
    };
    let (qpn, q_key) = (number(LENGTH_SIZE), number(LENGTH_SIZE + 4));
    let length = data.get(..usize::from(trailer[MAGIC.len()]));
    match length {
        Some(data) if trailer.starts_with(&MAGIC) && qpn >> 24 == 0 && !RESERVED.contains(&qpn) => {
            (data, Some(DatagramQp { qpn, q_key }))
        }
        _ => (field, None),
    }
}

/// The private data of a SIDR REP with the consumer's data.
///
/// # Panics
/// The data have more than [`MAX_REP_DATA`] octets.
pub fn emit_rep(data: &[u8]) -> [u8; SidrRep::MAX_PRIVATE] {
    assert!(data.len() <= MAX_REP_DATA, "{} octets of private data", data.len());
    let mut field = [0; SidrRep::MAX_PRIVATE];
    field[..data.len()].copy_from_slice(data);
    field[MAX_REP_DATA..][..MAGIC.len()].copy_from_slice(&MAGIC);
    field[SidrRep::MAX_PRIVATE - 1] = data.len() as u8;
    field
}

/// The consumer's data in the private data of a SIDR REP, and whether the message was made by
/// [`emit_rep`]. If it was not, the data are the whole field. A message with a trailer answers a
/// SIDR REQ whose trailer its sender has read.
pub fn parse_rep(field: &[u8]) -> (&[u8], bool) {
    let Some((data, trailer)) = field.split_last_chunk::<LENGTH_SIZE>() else {
        return (field, false);
    };
    match data.get(..usize::from(trailer[MAGIC.len()])) {
        Some(data) if trailer.starts_with(&MAGIC) => (data, true),
        _ => (field, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENDER: DatagramQp = DatagramQp { qpn: 0x12_3456, q_key: 0x89AB_CDEF };

    #[test]
    fn data_of_every_length_come_back() {
        let data: Vec<u8> = (1..=MAX_REQ_DATA as u8).collect();
        for len in 0..=MAX_REQ_DATA {
            assert_eq!(parse_req(&emit_req(&data[..len], SENDER)), (&data[..len], Some(SENDER)));
        }
        for len in 0..=MAX_REP_DATA {
            assert_eq!(parse_rep(&emit_rep(&data[..len])), (&data[..len], true));
        }
    }

    #[test]
    fn the_layout_is_as_documented() {
        let req = emit_req(b"ab", SENDER);
        assert_eq!((req.len(), &req[..3]), (180, &b"ab\0"[..]));
        assert_eq!(req[164..], *b"OpenDAT\x02\x00\x12\x34\x56\x89\xAB\xCD\xEF");
        let rep = emit_rep(b"abc");
        assert_eq!((rep.len(), &rep[..4]), (136, &b"abc\0"[..]));
        assert_eq!(rep[128..], *b"OpenDAT\x03");
    }

    #[test]
    fn data_of_others_are_the_whole_field() {
        let plain = [7; SidrReq::MAX_CONSUMER_PRIVATE];
        assert_eq!(parse_req(&plain), (&plain[..], None));
        assert_eq!(parse_rep(&plain[..136]), (&plain[..136], false));
        assert_eq!(parse_req(&[1, 2]), (&[1, 2][..], None));
        assert_eq!(parse_rep(&[1]), (&[1][..], false));
        // These trailers are wrong in one place each.
        let req = emit_req(b"x", SENDER);
        for (at, wrong) in [(164, 0), (171, 165), (172, 1)] {
            let mut forged = req;
            forged[at] = wrong;
            assert_eq!(parse_req(&forged), (&forged[..], None), "{at}");
        }
        for qpn in RESERVED {
            let forged = emit_req(b"x", DatagramQp { qpn, ..SENDER });
            assert_eq!(parse_req(&forged), (&forged[..], None), "{qpn}");
        }
        let mut rep = emit_rep(b"x");
        rep[135] = 129;
        assert_eq!(parse_rep(&rep), (&rep[..], false));
    }
}
