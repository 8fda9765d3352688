//! Which of the sockets that share the port a packet goes to.

use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;

use crate::socket::Udp;

/// The slot that belongs to all: requests that name no connection come there.
pub(crate) const DOOR: u8 = 127;
/// The slots that an adapter can have.
pub(crate) const SLOTS: Range<u8> = 0..DOOR;

/// The queue pair of the connection manager, in every adapter.
const GSI: u32 = 1;
/// Where a packet has the queue pair that it is for, behind 8 reserved bits: in the BTH.
const QPN_AT: u32 = 4;
/// Where a message of the connection manager names the connection by its receiver's id: the second word of its data, behind
/// BTH, DETH and the MAD header. A request has 0 there (IBA, chapter 12).
const REMOTE_ID_AT: u32 = 12 + 8 + 24 + 4;

/// The slot that a queue pair number or communication id belongs to.
pub(crate) fn slot_of(number: u32) -> u8 {
    number as u8 & DOOR
}

/// The place of a slot's socket in the order of binding: the door's is the first.
pub(super) const fn place_of(slot: u8) -> usize {
    (slot as usize + 1) % PLACES
}

/// Places, if all slots have their sockets.
pub(super) const PLACES: usize = DOOR as usize + 1;

/// A datagram for a queue pair of this slot, as far as it matters here.
pub(super) fn datagram_for(slot: u8, rest: [u8; 8]) -> [u8; 16] {
    let mut octets = [0; 16];
    octets[QPN_AT as usize..][..4].copy_from_slice(&(0x100 | u32::from(slot)).to_be_bytes());
    octets[8..].copy_from_slice(&rest);
    octets
}

/// Classic BPF, which computes a place. Of a slot that has no socket yet the kernel makes any of those that are there. What is
/// too short to have the word that is looked for goes to the first one, the door, where it is dropped.
fn program() -> [libc::sock_filter; 9] {
    use libc::{
        BPF_ABS, BPF_ADD, BPF_ALU, BPF_AND, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W,
    };
    const A: u32 = 0x10; // BPF_A, which libc does not have
    let op = |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter { code: code as u16, jt, jf, k };
    let load = |at: u32| op(BPF_LD | BPF_W | BPF_ABS, at, 0, 0);
    let and = |mask: u32| op(BPF_ALU | BPF_AND | BPF_K, mask, 0, 0);
    let add = |k: u32| op(BPF_ALU | BPF_ADD | BPF_K, k, 0, 0);
    let if_equal = |k: u32, jt: u8, jf: u8| op(BPF_JMP | BPF_JEQ | BPF_K, k, jt, jf);
    [
        load(QPN_AT),
        and(0xff_ffff),
        if_equal(GSI, 0, 3),
        load(REMOTE_ID_AT),
        if_equal(0, 0, 1),
        op(BPF_RET | BPF_K, place_of(DOOR) as u32, 0, 0),
        // As `place_of` has it.
        add(1),
        and(PLACES as u32 - 1),
        op(BPF_RET | A, 0, 0, 0),
    ]
}

/// libc's `sock_fprog` with its padding, which the kernel copies, too.
#[repr(C)]
struct Program {
    len: u16,
    padding: [u8; size_of::<usize>() - size_of::<u16>()],
    filter: *mut libc::sock_filter,
}

const _: () = assert!(size_of::<Program>() == size_of::<libc::sock_fprog>());

/// Has the kernel steer packets so, for all sockets that share the port with this one.
pub(crate) fn attach(socket: &Udp) -> io::Result<()> {
    let mut program = program();
    let filter = Program {
        len: program.len() as u16,
        padding: Default::default(),
        filter: program.as_mut_ptr(),
    };
    // SAFETY: a complete program, which the kernel copies.
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
