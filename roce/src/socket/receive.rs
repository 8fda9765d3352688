//! Receives packets, several datagrams with one call.

use std::mem::zeroed;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::{io, ptr};

use super::{ECN_MARKED, ECN_MASK, Udp, address_of};

/// The maximum number of datagrams that one call reads. Each may be a batch of packets that the
/// kernel has merged (UDP_GRO).
const DATAGRAMS_PER_CALL: usize = 8;
/// The maximum length of a datagram or batch in octets.
const DATAGRAM_MAX_BYTES: usize = 65_535;

/// The buffers into which datagrams are read.
pub(crate) struct RxBatch {
    octets: Box<[u8]>,
    froms: Box<[libc::sockaddr_storage; DATAGRAMS_PER_CALL]>,
    controls: Box<[Control; DATAGRAMS_PER_CALL]>,
    headers: Box<[libc::mmsghdr; DATAGRAMS_PER_CALL]>,
    iovs: Box<[libc::iovec; DATAGRAMS_PER_CALL]>,
    filled: usize,
}

/// A buffer for the control messages with the length and the traffic class of the packets.
#[derive(Clone, Copy)]
#[repr(align(8))]
struct Control(
    #[expect(dead_code, reason = "only the kernel accesses it, through the header")] [u8; 64],
);

/// Packets of one sender that arrived together. Each packet has `size` octets, except that the last
/// packet may be shorter.
pub(crate) struct Datagrams<'a> {
    pub(crate) from: SocketAddr,
    pub(crate) octets: &'a [u8],
    pub(crate) size: usize,
    /// Whether a switch has marked the packets. False if the kernel does not
    /// [report](Udp::report_traffic_class) it. The kernel merges only packets of the same traffic
    /// class into a batch (`inet_gro_receive`, `ipv6_gro_receive`).
    pub(crate) marked: bool,
}

// SAFETY: the raw pointers refer to heap memory that the boxes in the same struct own.
unsafe impl Send for RxBatch {}

impl RxBatch {
    /// Allocates the buffers, about half a MiB in total.
    pub(crate) fn new() -> Self {
        // SAFETY: all of these types are plain data and valid when zeroed.
        unsafe {
            RxBatch {
                octets: vec![0; DATAGRAMS_PER_CALL * DATAGRAM_MAX_BYTES].into(),
                froms: Box::new(zeroed()),
                controls: Box::new([Control([0; 64]); DATAGRAMS_PER_CALL]),
                headers: Box::new(zeroed()),
                iovs: Box::new(zeroed()),
                filled: 0,
            }
        }
    }

    /// The number of [`Datagrams`] that the last [`Udp::receive`] has read.
    pub(crate) fn len(&self) -> usize {
        self.filled
    }

    /// Returns the `n`-th batch of datagrams, or `None` if its source address is invalid.
    #[inline]
    pub(crate) fn get(&self, n: usize) -> Option<Datagrams<'_>> {
        let header = &self.headers[..self.filled][n];
        let octets = &self.octets[n * DATAGRAM_MAX_BYTES..]
            [..(header.msg_len as usize).min(DATAGRAM_MAX_BYTES)];
        let from = address_of(&self.froms[n], header.msg_hdr.msg_namelen)?;
        let Reported { size, marked } = self.reported(n);
        Some(Datagrams { from, octets, size: size.unwrap_or(octets.len()).max(1), marked })
    }

    /// What the kernel reports about the `n`-th batch.
    #[inline]
    fn reported(&self, n: usize) -> Reported {
        let header = &self.headers[n].msg_hdr;
        let mut reported = Reported { size: None, marked: false };
        // SAFETY: the kernel has filled the control buffer and has set its length in the header.
        // The length of each message depends on its type as read here.
        unsafe {
            let mut next = libc::CMSG_FIRSTHDR(header);
            while let Some(cmsg) = next.as_ref() {
                let data = libc::CMSG_DATA(cmsg);
                match (cmsg.cmsg_level, cmsg.cmsg_type) {
                    (libc::SOL_UDP, libc::UDP_GRO) => {
                        let size = data.cast::<libc::c_int>().read_unaligned();
                        reported.size = usize::try_from(size).ok();
                    }
                    (libc::SOL_IP, libc::IP_TOS) => reported.set_traffic_class(data.read()),
                    (libc::SOL_IPV6, libc::IPV6_TCLASS) => {
                        let class = data.cast::<libc::c_int>().read_unaligned();
                        reported.set_traffic_class(class as u8);
                    }
                    _ => {}
                }
                next = libc::CMSG_NXTHDR(header, cmsg);
            }
        }
        reported
    }

    fn prepare(&mut self, count: usize) {
        let (octets, controls) = (self.octets.as_mut_ptr(), self.controls.as_mut_ptr());
        for n in 0..count {
            self.iovs[n] = libc::iovec {
                iov_base: octets.wrapping_add(n * DATAGRAM_MAX_BYTES).cast(),
                iov_len: DATAGRAM_MAX_BYTES,
            };
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

/// What the kernel reports about a batch of packets.
struct Reported {
    /// The length of each packet. `None` if the batch is a single packet.
    size: Option<usize>,
    marked: bool,
}

impl Reported {
    fn set_traffic_class(&mut self, traffic_class: u8) {
        self.marked = traffic_class & ECN_MASK == ECN_MARKED;
    }
}

/// Chooses the fastest way to read a socket from its recent traffic.
pub(crate) struct ReceiveStrategy {
    /// Whether the kernel merges packets into batches (UDP_GRO).
    uses_gro: bool,
    /// The number of single packets since the last batch.
    consecutive_singles: u32,
    /// The number of consecutive reads that found packets.
    consecutive_reads: u32,
    /// Whether the marks of switches are read. Then the fastest call cannot be used.
    reads_marks: bool,
}

/// After this number of single packets no more batches are expected, and UDP_GRO is turned off. A
/// packet is then read with a faster call.
const SINGLES_BEFORE_GRO_OFF: u32 = 256;
/// After this number of successful reads each call asks for several datagrams. Before that, it
/// would cost time to ask for a second datagram that has not arrived.
const READS_BEFORE_BATCHES: u32 = 2;
/// The maximum number of errors that one read skips. Each error concerns a packet that was sent
/// earlier.
const ERRORS_PER_READ_MAX: u32 = 16;

impl Default for ReceiveStrategy {
    fn default() -> Self {
        ReceiveStrategy {
            uses_gro: true,
            consecutive_singles: 0,
            consecutive_reads: 0,
            reads_marks: false,
        }
    }
}

impl ReceiveStrategy {
    /// The strategy for a socket that other processes read, too: each call asks for several
    /// datagrams, and the socket's options stay unchanged.
    pub(crate) fn for_shared_socket() -> Self {
        ReceiveStrategy { consecutive_reads: READS_BEFORE_BATCHES, ..ReceiveStrategy::default() }
    }

    /// Reads the marks of switches from now on. The kernel must
    /// [report](Udp::report_traffic_class) the traffic class of packets.
    pub(crate) fn read_marks(&mut self) {
        self.reads_marks = true;
    }

    /// Whether the marks of switches are read.
    pub(crate) fn reads_marks(&self) -> bool {
        self.reads_marks
    }
}

impl Udp {
    /// Reads the datagrams that have arrived. Returns whether any datagram had arrived.
    #[inline]
    pub(crate) fn receive(&self, batch: &mut RxBatch, strategy: &mut ReceiveStrategy) -> bool {
        let count =
            if strategy.consecutive_reads < READS_BEFORE_BATCHES { 1 } else { DATAGRAMS_PER_CALL };
        batch.filled = 0;
        // The kernel reports an error of an earlier packet once, instead of reading. After several
        // such errors there may still be datagrams to read.
        for _ in 0..ERRORS_PER_READ_MAX {
            match self.receive_once(batch, count, strategy.uses_gro || strategy.reads_marks) {
                Ok(n) => {
                    batch.filled = n;
                    strategy.consecutive_reads = strategy.consecutive_reads.saturating_add(1);
                    let is_single = n == 1 && batch.reported(0).size.is_none();
                    strategy.consecutive_singles =
                        if is_single { strategy.consecutive_singles.saturating_add(1) } else { 0 };
                    if n == DATAGRAMS_PER_CALL && !strategy.uses_gro {
                        strategy.uses_gro = true;
                        self.set_gro(true);
                    }
                    return true;
                }
                Err(libc::EAGAIN) => break,
                Err(_) => {}
            }
        }
        if strategy.consecutive_reads > 0 {
            strategy.consecutive_reads = 0;
            // Turn UDP_GRO off only now that the socket is empty. A batch that was merged before
            // could not be distinguished from a single packet.
            if strategy.uses_gro && strategy.consecutive_singles >= SINGLES_BEFORE_GRO_OFF {
                strategy.uses_gro = false;
                self.set_gro(false);
            }
        }
        false
    }

    /// Receives with one system call. Returns the number of datagrams, or the kernel's error
    /// number. `with_control` says whether control messages are read. Without them a faster call
    /// reads a single datagram.
    #[inline]
    fn receive_once(
        &self,
        batch: &mut RxBatch,
        count: usize,
        with_control: bool,
    ) -> Result<usize, libc::c_int> {
        let (fd, flags) = (self.as_raw_fd(), libc::MSG_DONTWAIT);
        batch.prepare(count);
        let headers = batch.headers.as_mut_ptr();
        let received = if count > 1 {
            // SAFETY: the first `count` headers are prepared and refer to memory of the batch.
            unsafe {
                libc::recvmmsg(fd, headers, count as libc::c_uint, flags as _, ptr::null_mut())
                    as isize
            }
        } else {
            let header = &mut batch.headers[0];
            let msg = &mut header.msg_hdr;
            // SAFETY: the first header is prepared and refers to memory of the batch.
            let octets = unsafe {
                if with_control {
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
        match received {
            0 => Ok(1),
            n => usize::try_from(n)
                .map_err(|_| io::Error::last_os_error().raw_os_error().unwrap_or(0)),
        }
    }

    /// Discards all datagrams that have arrived.
    pub(crate) fn drain(&self) {
        let mut octet = [0];
        loop {
            // SAFETY: the buffer of one octet is valid for writes during the call.
            let n = unsafe {
                libc::recv(self.as_raw_fd(), octet.as_mut_ptr().cast(), 1, libc::MSG_DONTWAIT)
            };
            if n < 0 && io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock {
                return;
            }
        }
    }
}
