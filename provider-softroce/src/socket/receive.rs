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
    /// How many to ask for: one, as long as no more came; to look for a second that is not there costs time.
    ask: usize,
}

/// Room for the control message that tells the packets' length.
#[derive(Clone, Copy)]
#[repr(align(8))]
struct Control(#[expect(dead_code, reason = "the kernel writes it, and the header leads there")] [u8; 32]);

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
                ask: 1,
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

    fn prepare(&mut self) {
        let (octets, controls) = (self.octets.as_mut_ptr(), self.controls.as_mut_ptr());
        for n in 0..self.ask {
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

impl Udp {
    /// Reads what has come; false: nothing.
    #[inline]
    pub(crate) fn receive(&self, batch: &mut RxBatch) -> bool {
        batch.prepare();
        batch.filled = 0;
        // An error that an earlier packet met is reported once, in place of what is asked.
        for _ in 0..2 {
            match self.receive_once(batch) {
                Ok(n) => {
                    batch.filled = n;
                    batch.ask = if n == batch.ask { MESSAGES } else { n };
                    return true;
                }
                Err(libc::EAGAIN) => break,
                // The headers are as the kernel left them: nothing was written.
                Err(_) => batch.prepare(),
            }
        }
        batch.ask = 1;
        false
    }

    /// How many came, or what the kernel says. The call for one is quicker than the call for several.
    #[inline]
    fn receive_once(&self, batch: &mut RxBatch) -> Result<usize, libc::c_int> {
        let (fd, flags, headers) = (self.as_raw_fd(), libc::MSG_DONTWAIT, batch.headers.as_mut_ptr());
        let came = if batch.ask == 1 {
            // SAFETY: the first header is prepared, and leads to memory of the batch.
            let octets = unsafe { libc::recvmsg(fd, &raw mut (*headers).msg_hdr, flags) };
            batch.headers[0].msg_len = octets.max(0) as libc::c_uint;
            if octets < 0 { -1 } else { 1 }
        } else {
            // SAFETY: `ask` headers are prepared, likewise.
            unsafe { libc::recvmmsg(fd, headers, batch.ask as libc::c_uint, flags as _, ptr::null_mut()) }
        };
        usize::try_from(came).map_err(|_| io::Error::last_os_error().raw_os_error().unwrap_or(0))
    }

    /// Drops what has come.
    pub(crate) fn drain(&self) {
        let mut octet = [0];
        loop {
            // SAFETY: one octet, alive during the call.
            let n = unsafe { libc::recv(self.as_raw_fd(), octet.as_mut_ptr().cast(), 1, libc::MSG_DONTWAIT) };
            if n < 0 && io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock {
                return;
            }
        }
    }
}
