//! Blocks of a pcapng file (draft-ietf-opsawg-pcapng), in little-endian order.

use crate::Direction;

const SECTION_HEADER: u32 = 0x0A0D_0D0A;
/// The first octets of every file.
pub(crate) const MAGIC: [u8; 4] = SECTION_HEADER.to_le_bytes();
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;

const BYTE_ORDER_MAGIC: u32 = 0x1A2B_3C4D;
const LINKTYPE_ETHERNET: u16 = 1;
/// The resolution of time stamps: 10^-9 seconds.
const NANOSECONDS: u8 = 9;

/// The codes of options that all kinds of blocks may have.
const END_OF_OPTIONS: u16 = 0;
const COMMENT: u16 = 1;
/// The code of an option of section headers.
const USER_APPLICATION: u16 = 4;
/// The codes of options of interface descriptions.
const NAME: u16 = 2;
const TIMESTAMP_RESOLUTION: u16 = 9;
/// The code of an option of packets.
const FLAGS: u16 = 2;

/// Appends a section header. A section header starts a file, or a further section of it. In each
/// section, interfaces are numbered from 0.
pub(crate) fn section(to: &mut Vec<u8>, application: &str, comment: &str) {
    block(to, SECTION_HEADER, |to| {
        to.extend(BYTE_ORDER_MAGIC.to_le_bytes());
        to.extend(1u16.to_le_bytes());
        to.extend(0u16.to_le_bytes());
        // The value -1 means that the length of the section is unknown.
        to.extend((-1i64).to_le_bytes());
        option(to, COMMENT, comment.as_bytes());
        option(to, USER_APPLICATION, application.as_bytes());
        option(to, END_OF_OPTIONS, &[]);
    });
}

/// Appends the description of an interface whose packets are Ethernet frames of any length.
pub(crate) fn interface(to: &mut Vec<u8>, name: &str) {
    block(to, INTERFACE_DESCRIPTION, |to| {
        to.extend(LINKTYPE_ETHERNET.to_le_bytes());
        to.extend([0; 2]);
        to.extend(0u32.to_le_bytes());
        option(to, NAME, name.as_bytes());
        option(to, TIMESTAMP_RESOLUTION, &[NANOSECONDS]);
        option(to, END_OF_OPTIONS, &[]);
    });
}

/// Appends a packet. `nanos` is the time of the packet in nanoseconds since 1970.
pub(crate) fn packet(
    to: &mut Vec<u8>,
    interface: u32,
    nanos: u64,
    direction: Direction,
    frame: impl FnOnce(&mut Vec<u8>),
) {
    block(to, ENHANCED_PACKET, |to| {
        to.extend(interface.to_le_bytes());
        to.extend(((nanos >> 32) as u32).to_le_bytes());
        to.extend((nanos as u32).to_le_bytes());
        let lengths = to.len();
        to.extend([0; 8]);
        let begin = to.len();
        frame(to);
        let length = ((to.len() - begin) as u32).to_le_bytes();
        // The captured length equals the original length, because packets are never truncated.
        to[lengths..lengths + 4].copy_from_slice(&length);
        to[lengths + 4..begin].copy_from_slice(&length);
        pad(to, begin);
        let flags: u32 = match direction {
            Direction::In => 1,
            Direction::Out => 2,
        };
        option(to, FLAGS, &flags.to_le_bytes());
        option(to, END_OF_OPTIONS, &[]);
    });
}

/// Appends a block. Its length is both at its beginning and at its end.
fn block(to: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let begin = to.len();
    to.extend(kind.to_le_bytes());
    to.extend([0; 4]);
    body(to);
    let length = ((to.len() - begin + 4) as u32).to_le_bytes();
    to[begin + 4..begin + 8].copy_from_slice(&length);
    to.extend(length);
}

/// Appends an option. A value that is too long is truncated.
fn option(to: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(u16::MAX.into())];
    to.extend(code.to_le_bytes());
    to.extend((value.len() as u16).to_le_bytes());
    let begin = to.len();
    to.extend(value);
    pad(to, begin);
}

/// Pads the contents since `begin` to a multiple of four octets.
fn pad(to: &mut Vec<u8>, begin: usize) {
    to.resize(begin + (to.len() - begin).next_multiple_of(4), 0);
}
