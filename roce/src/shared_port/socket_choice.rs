//! Selects the socket for each packet, among the sockets that share the port.
//!
//! The low bits of a queue pair number or communication id are the number of the adapter's slot.
//! There are a few *large* slots, for which few bits are fixed, and many *small* slots:
//!
//! | slots | low bits of a number | queue pair numbers of a slot |
//! |---|---|---|
//! | 0 to 62 (large) | 0, and 6 bits for the slot | 2^17 |
//! | 63 to 1086 (small) | 1, and 10 bits for the slot | 2^13 |

use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

use rnic::cm::LowBits;

use crate::cm_packet::GSI;
use crate::socket::Udp;

/// The number of an adapter's slot, or [`REQ_SLOT`].
pub(crate) type PortSlot = u16;

/// The number of bits that distinguish large slots.
const LARGE_BITS: u32 = 6;
/// The number of bits that distinguish small slots.
const SMALL_BITS: u32 = 10;
/// The number of large slots. The REQ socket has one of the possible values.
const LARGE_SLOTS: PortSlot = (1 << LARGE_BITS) - 1;
const SMALL_SLOTS: PortSlot = 1 << SMALL_BITS;

/// The slot number of the REQ socket, which receives the requests that name no connection.
pub(crate) const REQ_SLOT: PortSlot = LARGE_SLOTS + SMALL_SLOTS;
/// The slots that adapters can have.
pub(crate) const SLOTS: Range<PortSlot> = 0..REQ_SLOT;

/// The offset of the destination queue pair in a packet: in the BTH, after 8 reserved bits.
const QPN_OFFSET: u32 = 4;
/// The offset of the MAD header in a message of the connection manager: behind BTH and DETH.
const MAD_OFFSET: u32 = 12 + 8;
/// The offset of the attribute ID, which names the kind of message.
const ATTRIBUTE_OFFSET: u32 = MAD_OFFSET + 16;
/// The offset of the first word of a message's data. In the reply of a service ID resolution it is
/// the ID that the receiver has chosen.
const REQUEST_ID_OFFSET: u32 = MAD_OFFSET + 24;
/// The offset of the receiver's communication id in the other messages: the second word of the
/// data. A REQ has 0 there (IBA, chapter 12).
const REMOTE_ID_OFFSET: u32 = REQUEST_ID_OFFSET + 4;
/// The attribute IDs of service ID resolution.
const SIDR_REQ: u32 = 0x17;
const SIDR_REP: u32 = 0x18;

/// Returns the slot that a queue pair number or communication id belongs to.
pub(crate) fn slot_of(number: u32) -> PortSlot {
    let rest = (number >> 1) as PortSlot;
    match (number & 1, rest & LARGE_SLOTS) {
        (0, LARGE_SLOTS) => REQ_SLOT,
        (0, large) => large,
        _ => LARGE_SLOTS + (rest & (SMALL_SLOTS - 1)),
    }
}

/// Returns the slot whose socket gets a packet, as the BPF program selects it. Of the packets in a
/// batch, the kernel looks only at the first one.
#[inline]
pub(crate) fn slot_of_packet(packet: &[u8]) -> PortSlot {
    let word = |at: u32| {
        packet
            .get(at as usize..)
            .and_then(<[u8]>::first_chunk)
            .map_or(0, |&n| u32::from_be_bytes(n))
    };
    match word(QPN_OFFSET) & 0xff_ffff {
        GSI => match (word(ATTRIBUTE_OFFSET) >> 16, word(REMOTE_ID_OFFSET)) {
            (SIDR_REP, _) => slot_of(word(REQUEST_ID_OFFSET)),
            (SIDR_REQ, _) | (_, 0) => REQ_SLOT,
            (_, id) => slot_of(id),
        },
        qpn => slot_of(qpn),
    }
}

/// Returns the low bits of the queue pair numbers and communication ids of a slot.
pub(crate) fn low_bits(slot: PortSlot) -> LowBits {
    match slot.checked_sub(LARGE_SLOTS) {
        None => LowBits { count: 1 + LARGE_BITS, value: u32::from(slot) << 1 },
        Some(small) => LowBits { count: 1 + SMALL_BITS, value: u32::from(small) << 1 | 1 },
    }
}

/// Returns the position of a slot's socket in the order of binding. The REQ socket is the
/// first.
pub(super) const fn position_of(slot: PortSlot) -> usize {
    (slot as usize + 1) % POSITIONS
}

/// The number of positions if all slots have sockets.
pub(super) const POSITIONS: usize = REQ_SLOT as usize + 1;

const _: () = assert!(POSITIONS == 1088, "the number in the texts for users");

/// Returns a datagram that is steered to this slot.
pub(super) fn datagram_for(slot: PortSlot, rest: [u8; 8]) -> [u8; 16] {
    let mut octets = [0; 16];
    octets[QPN_OFFSET as usize..][..4].copy_from_slice(&low_bits(slot).append_to(1).to_be_bytes());
    octets[8..].copy_from_slice(&rest);
    octets
}

/// A classic BPF program that computes the position of a packet's socket. If the position has no
/// socket yet, the kernel selects any of the existing sockets. A packet that is too short for the
/// words that the program loads goes to position 0, the REQ socket, where it is dropped.
fn program() -> [libc::sock_filter; 20] {
    use libc::{
        BPF_ABS, BPF_ADD, BPF_ALU, BPF_AND, BPF_H, BPF_JA, BPF_JEQ, BPF_JMP, BPF_JSET, BPF_K,
        BPF_LD, BPF_RET, BPF_RSH, BPF_W,
    };
    const A: u32 = 0x10; // BPF_A, which libc does not have
    let op = |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter { code: code as u16, jt, jf, k };
    let load = |at: u32| op(BPF_LD | BPF_W | BPF_ABS, at, 0, 0);
    let load_half = |at: u32| op(BPF_LD | BPF_H | BPF_ABS, at, 0, 0);
    let jump = |count: u32| op(BPF_JMP | BPF_JA, count, 0, 0);
    let and = |mask: u32| op(BPF_ALU | BPF_AND | BPF_K, mask, 0, 0);
    let add = |k: u32| op(BPF_ALU | BPF_ADD | BPF_K, k, 0, 0);
    let shift_right = |k: u32| op(BPF_ALU | BPF_RSH | BPF_K, k, 0, 0);
    let if_set = |k: u32, jt: u8, jf: u8| op(BPF_JMP | BPF_JSET | BPF_K, k, jt, jf);
    let if_equal = |k: u32, jt: u8, jf: u8| op(BPF_JMP | BPF_JEQ | BPF_K, k, jt, jf);
    [
        load(QPN_OFFSET),
        and(0xff_ffff),
        if_equal(GSI, 0, 8),
        load_half(ATTRIBUTE_OFFSET),
        if_equal(SIDR_REQ, 5, 0),
        if_equal(SIDR_REP, 0, 2),
        load(REQUEST_ID_OFFSET),
        jump(1),
        load(REMOTE_ID_OFFSET),
        if_equal(0, 0, 1),
        op(BPF_RET | BPF_K, position_of(REQ_SLOT) as u32, 0, 0),
        // The following instructions compute `position_of(slot_of(A))`.
        if_set(1, 4, 0),
        shift_right(1),
        add(1),
        and(LARGE_SLOTS.into()),
        op(BPF_RET | A, 0, 0, 0),
        shift_right(1),
        and(u32::from(SMALL_SLOTS) - 1),
        add(position_of(LARGE_SLOTS) as u32),
        op(BPF_RET | A, 0, 0, 0),
    ]
}

/// libc's `sock_fprog` with explicit padding, because the kernel copies the padding, too.
#[repr(C)]
struct Program {
    len: u16,
    padding: [u8; size_of::<usize>() - size_of::<u16>()],
    filter: *mut libc::sock_filter,
}

const _: () = assert!(size_of::<Program>() == size_of::<libc::sock_fprog>());

/// Attaches the program to all sockets that share the port with this one.
pub(crate) fn attach(socket: &Udp) -> io::Result<()> {
    let mut program = program();
    let filter = Program {
        len: program.len() as u16,
        padding: Default::default(),
        filter: program.as_mut_ptr(),
    };
    // SAFETY: `filter` refers to a complete program that is valid during the call. The kernel
    // copies the program.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const filter).cast(),
            size_of_val(&filter) as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
