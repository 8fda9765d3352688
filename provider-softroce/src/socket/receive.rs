//! Receiving, several datagrams at a time.

use std::mem::zeroed;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::{io, ptr};

use super::{Udp, address_of};

/// What one call reads at most; each may be a batch of packets that the kernel put together (UDP_GRO).
const MESSAGES: usize = 8;
/// Octets of one of these at most.
const LONGEST: usize = 65_535;

/// Where datagrams are read to.
pub(crate) struct RxBatch {
    octets: Box<[u8]>,
    froms: Box<[libc::sockaddr_storage; MESSAGES]>,
    controls: Box<[Control; MESSAGES]>,
    headers: Box<[libc::mmsghdr; MESSAGES]>,
    iovs: Box<[libc::iovec; MESSAGES]>,
    filled: usize,
}

/// Room for the control message that tells the packets' length.
#[derive(Clone, Copy)]
#[repr(align(8))]
struct Control(
    #[expect(dead_code, reason = "the kernel writes it, and the header leads there")] [u8; 32],
);

/// Packets of one sender which came together, each of `size` octets, the last perhaps shorter.
pub(crate) struct Datagrams<'a> {
    pub(crate) from: SocketAddr,
    pub(crate) octets: &'a [u8],
    pub(crate) size: usize,
}

// SAFETY: the pointers inside lead to the boxes beside them.
unsafe impl Send for RxBatch {}

impl RxBatch {
    /// Empty, with its memory: half a MiB.
    pub(crate) fn new() -> Self {
        // SAFETY: all of these are plain data, valid when zero.
        unsafe {
            RxBatch {
                octets: vec![0; MESSAGES * LONGEST].into(),
                froms: Box::new(zeroed()),
                controls: Box::new([Control([0; 32]); MESSAGES]),
                headers: Box::new(zeroed()),
                iovs: Box::new(zeroed()),
                filled: 0,
            }
        }
    }

    /// How many [`Datagrams`] the last [`Udp::receive`] brought.
    pub(crate) fn len(&self) -> usize {
        self.filled
    }

    /// One of them; `None` for one whose sender makes no sense.
    #[inline]
    pub(crate) fn get(&self, n: usize) -> Option<Datagrams<'_>> {
        let header = &self.headers[..self.filled][n];
        let octets = &self.octets[n * LONGEST..][..(header.msg_len as usize).min(LONGEST)];
        let from = address_of(&self.froms[n], header.msg_hdr.msg_namelen)?;
        Some(Datagrams { from, octets, size: self.size(n).unwrap_or(octets.len()).max(1) })
    }

    /// The length of each packet in a batch.
    #[inline]
    fn size(&self, n: usize) -> Option<usize> {
        let header = &self.headers[n].msg_hdr;
        // SAFETY: the kernel filled the control buffer, whose length is in the header.
        unsafe {
            let cmsg = libc::CMSG_FIRSTHDR(header).as_ref()?;
            let found = cmsg.cmsg_level == libc::SOL_UDP && cmsg.cmsg_type == libc::UDP_GRO;
            let size = || libc::CMSG_DATA(cmsg).cast::<libc::c_int>().read_unaligned();
            if found { usize::try_from(size()).ok() } else { None }
        }
    }

    fn prepare(&mut self, ask: usize) {
        let (octets, controls) = (self.octets.as_mut_ptr(), self.controls.as_mut_ptr());
        for n in 0..ask {
            self.iovs[n] =
                libc::iovec { iov_base: octets.wrapping_add(n * LONGEST).cast(), iov_len: LONGEST };
            let header = &mut self.headers[n].msg_hdr;
            header.msg_name = ptr::from_mut(&mut self.froms[n]).cast();
            header.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            header.msg_iov = &mut self.iovs[n];
            header.msg_iovlen = 1;
            header.msg_control = controls.wrapping_add(n).cast();
            header.msg_controllen = size_of::<Control>() as _;
            header.msg_flags = 0;
        }
    }
}

/// What a socket's traffic has been like of late, and how it is read best.
pub(crate) struct Habits {
    /// Batches are gathered.
    gathers: bool,
    /// Packets that came alone, since a batch did.
    singles: u32,
    /// Looks in a row that found something.
    streak: u32,
}

/// So many packets alone, and batches are not expected any more: without them a packet is read with a quicker call.
const ALONE: u32 = 256;
/// So many looks in a row that found something, and more is expected; to look for a second that is not there costs time.
const BUSY: u32 = 2;
/// Errors of earlier packets at one look.
const ERRORS: u32 = 16;

impl Default for Habits {
    fn default() -> Self {
        Habits { gathers: true, singles: 0, streak: 0 }
    }
}

impl Habits {
    /// For a socket that other processes read, too: each call asks for several datagrams, and the
    /// socket's options stay as they are.
    pub(crate) fn of_shared_socket() -> Self {
        Habits { gathers: true, singles: 0, streak: BUSY }
    }
}

impl Udp {
    /// Reads what has come; false: nothing.
    #[inline]
    pub(crate) fn receive(&self, batch: &mut RxBatch, habits: &mut Habits) -> bool {
        let ask = if habits.streak < BUSY { 1 } else { MESSAGES };
        batch.filled = 0;
        // An error that an earlier packet met is reported once, in place of what is asked. Where one comes after another, there
        // may be more to read all the same.
        for _ in 0..ERRORS {
            match self.receive_once(batch, ask, habits.gathers) {
                Ok(n) => {
                    batch.filled = n;
                    habits.streak = habits.streak.saturating_add(1);
                    let comes_alone = n == 1 && batch.size(0).is_none();
                    habits.singles = if comes_alone { habits.singles.saturating_add(1) } else { 0 };
                    if n == MESSAGES && !habits.gathers {
                        habits.gathers = true;
                        self.gather(true);
                    }
                    return true;
                }
                Err(libc::EAGAIN) => break,
                Err(_) => {}
            }
        }
        if habits.streak > 0 {
            habits.streak = 0;
            // Now that none waits: one that was gathered before could not be told from a single packet.
            if habits.gathers && habits.singles >= ALONE {
                habits.gathers = false;
                self.gather(false);
            }
        }
        false
    }

    /// How many came, or what the kernel says. The less a call can tell, the quicker it is.
    #[inline]
    fn receive_once(
        &self,
        batch: &mut RxBatch,
        ask: usize,
        gathers: bool,
    ) -> Result<usize, libc::c_int> {
        let (fd, flags) = (self.as_raw_fd(), libc::MSG_DONTWAIT);
        batch.prepare(ask);
        let headers = batch.headers.as_mut_ptr();
        let came = if ask > 1 {
            // SAFETY: `ask` headers are prepared, and lead to memory of the batch.
            unsafe {
                libc::recvmmsg(fd, headers, ask as libc::c_uint, flags as _, ptr::null_mut())
                    as isize
            }
        } else {
            let header = &mut batch.headers[0];
            let msg = &mut header.msg_hdr;
            // SAFETY: the first header is prepared, likewise.
            let octets = unsafe {
                if gathers {
                    libc::recvmsg(fd, msg, flags)
                } else {
                    msg.msg_controllen = 0;
                    let iov = *msg.msg_iov;
                    let name = msg.msg_name.cast();
                    libc::recvfrom(fd, iov.iov_base, iov.iov_len, flags, name, &mut msg.msg_namelen)
                }
            };
            header.msg_len = octets.max(0) as libc::c_uint;
            octets.min(1)
        };
        match came {
            0 => Ok(1),
            n => usize::try_from(n)
                .map_err(|_| io::Error::last_os_error().raw_os_error().unwrap_or(0)),
        }
    }

    /// Drops what has come.
    pub(crate) fn drain(&self) {
        let mut octet = [0];
        loop {
            // SAFETY: one octet, alive during the call.
            let n = unsafe {
                libc::recv(self.as_raw_fd(), octet.as_mut_ptr().cast(), 1, libc::MSG_DONTWAIT)
            };
            if n < 0 && io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock {
                return;
            }
        }
    }
}
