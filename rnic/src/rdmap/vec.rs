//! The buffers of one system call. An engine has one set of buffers for all its streams. The
//! streams keep nothing in the buffers between calls.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use libc::iovec;
use wire::iwarp::mpa::fpdu;

use super::tx::Part;
use crate::memory::try_copy;

/// The maximum number of elements of one scatter or gather call: UIO_MAXIOV of Linux.
const MAX_IOV: usize = 1024;
/// The maximum number of elements that name registered memory in one scatter read. The next call
/// reads the rest of the octets.
const MAX_DIRECT: usize = 16;

/// The frames of one gather write.
pub struct TxVec {
    stage: Stage,
    used: usize,
    iov: Vec<iovec>,
    octets: usize,
    pub(super) parts: Vec<Part>,
    /// The gathering that has filled the vector.
    gather_id: GatherId,
    /// The size of the TCP segments if each trailer must lie in one segment. 0 if there is no such
    /// requirement.
    segment: usize,
    /// The number of octets between the start of a segment and the first octet of the vector.
    record: usize,
}

// SAFETY: only the holder of the engine lock, whichever thread that is, uses the addresses in
// `iov`.
unsafe impl Send for TxVec {}

impl TxVec {
    /// The approximate maximum number of octets that are gathered for one call. A frame that was
    /// started is completed.
    pub(super) const MAX_OCTETS: usize = 1 << 20;
    /// The size of the stage, which holds headers, trailers and copied payload. It has room for two
    /// FPDUs of the maximum length.
    const STAGE: usize = 2 * fpdu::fpdu_len(fpdu::MAX_ULPDU);

    /// Creates an empty vector, with some 150 KiB of memory.
    pub fn new() -> Self {
        TxVec {
            stage: Stage::new(Self::STAGE),
            used: 0,
            iov: Vec::with_capacity(MAX_IOV),
            octets: 0,
            parts: Vec::with_capacity(256),
            gather_id: GatherId::default(),
            segment: 0,
            record: 0,
        }
    }

    /// The memory to send, in order. It is valid until the stream that has filled the vector is
    /// called again, and only while the caller holds the engine lock. If there is only one element,
    /// `send` suffices instead of `sendmsg`.
    pub fn iov(&self) -> &[iovec] {
        &self.iov
    }

    /// The total number of octets in the vector.
    pub fn octets(&self) -> usize {
        self.octets
    }

    /// Whether TCP must start a segment after the last octet of the vector (`MSG_EOR`).
    #[inline]
    pub fn ends_record(&self) -> bool {
        self.segment > 0
    }

    /// Empties the vector for a new gathering, which begins `record` octets after the start of a
    /// segment.
    pub(super) fn begin(&mut self, gather_id: GatherId, segment: usize, record: usize) {
        self.gather_id = gather_id;
        (self.used, self.octets) = (0, 0);
        self.iov.clear();
        self.parts.clear();
        (self.segment, self.record) = (segment, record);
    }

    /// Returns whether the gathering `gather_id` has filled the vector.
    #[inline]
    pub(super) fn was_filled_by(&self, gather_id: GatherId) -> bool {
        self.gather_id == gather_id
    }

    /// Returns whether the trailer of the next frame, which takes `len` more octets, would lie
    /// across two segments. Returns false for the first frame of a vector, because waiting would
    /// not help.
    #[inline]
    pub(super) fn splits(&self, len: usize, trailer: usize) -> bool {
        self.segment > 0
            && self.octets > 0
            && (1..trailer).contains(&((self.record + self.octets + len) % self.segment))
    }

    /// Returns whether there is room for `staged` more octets in the stage and for `elements` more
    /// elements.
    #[inline]
    pub(super) fn has_room(&self, staged: usize, elements: usize) -> bool {
        self.used + staged <= self.stage.len && self.iov.len() + elements <= MAX_IOV
    }

    /// Returns the next octets of the stage, for the caller to fill. The caller has checked
    /// [`has_room`](Self::has_room).
    #[inline]
    pub(super) fn staged(&mut self, len: usize) -> &mut [u8] {
        let at = self.used;
        self.used += len;
        &mut self.stage.octets_mut()[at..at + len]
    }

    /// Frees the last `len` octets of the stage, which were not added to the vector.
    pub(super) fn unstage(&mut self, len: usize) {
        self.used -= len;
    }

    /// Adds the last `len` octets of the stage to the vector.
    #[inline]
    pub(super) fn push_staged(&mut self, len: usize) {
        // SAFETY: `used` is at most the length of the stage, and `len` is at most `used`.
        let from = unsafe { self.stage.start.as_ptr().add(self.used - len) };
        self.octets += len;
        match self.iov.last_mut() {
            Some(last) if last.iov_base.cast::<u8>().wrapping_add(last.iov_len) == from => {
                last.iov_len += len;
            }
            _ if len > 0 => self.iov.push(iovec { iov_base: from.cast(), iov_len: len }),
            _ => {}
        }
    }

    /// Adds registered memory to the vector.
    #[inline]
    pub(super) fn push_memory(&mut self, addr: *mut u8, len: usize) {
        self.octets += len;
        self.iov.push(iovec { iov_base: addr.cast(), iov_len: len });
    }

    /// The current end of the vector, for [`truncate`](Self::truncate).
    #[inline]
    pub(super) fn position(&self) -> Position {
        let last_len = self.iov.last().map_or(0, |last| last.iov_len);
        Position { used: self.used, elements: self.iov.len(), last_len, octets: self.octets }
    }

    /// Removes the elements that were added after `position`.
    pub(super) fn truncate(&mut self, position: Position) {
        (self.used, self.octets) = (position.used, position.octets);
        self.iov.truncate(position.elements);
        if let Some(last) = self.iov.last_mut() {
            last.iov_len = position.last_len;
        }
    }

    /// Removes all messages except the first one. Returns whether any message was removed.
    #[cold]
    pub(super) fn keep_first(&mut self) -> bool {
        let [first, _, ..] = self.parts[..] else { return false };
        self.parts.truncate(1);
        self.octets = (first.to - first.from) as usize;
        let mut left = self.octets;
        self.iov.retain_mut(|element| {
            element.iov_len = element.iov_len.min(left);
            left -= element.iov_len;
            element.iov_len > 0
        });
        true
    }

    /// Copies all gathered octets. It creates no reference to registered memory, because other
    /// threads may write to it during the copy. Returns false if some of the memory is no longer
    /// mapped.
    ///
    /// # Safety
    /// The registered memory that was gathered is still registered.
    #[cold]
    pub(super) unsafe fn copy_to(&self, out: &mut Vec<u8>) -> bool {
        out.reserve(self.octets);
        self.iov.iter().all(|&iovec { iov_base, iov_len }| {
            // SAFETY: the element lies in the stage or in memory that is registered, as the caller
            // guarantees, and `out` has room for all elements.
            unsafe {
                let there = try_copy(iov_base.cast(), out.as_mut_ptr().add(out.len()), iov_len);
                out.set_len(out.len() + if there { iov_len } else { 0 });
                there
            }
        })
    }

    /// Copies `len` of the gathered octets, from the `skip`th one on. They must be in the stage, as
    /// all octets are if no registered memory was gathered.
    #[cold]
    pub(super) fn copy_staged_to(&self, out: &mut Vec<u8>, mut skip: usize, mut len: usize) {
        for element in &self.iov {
            let from = skip.min(element.iov_len);
            let n = len.min(element.iov_len - from);
            let at = element
                .iov_base
                .addr()
                .wrapping_sub(self.stage.start.addr().get())
                .wrapping_add(from);
            let staged = at.checked_add(n).and_then(|end| self.stage.octets().get(at..end));
            debug_assert!(staged.is_some(), "registered memory is not copied here");
            out.extend_from_slice(staged.unwrap_or_default());
            skip -= from;
            len -= n;
        }
    }
}

impl Default for TxVec {
    fn default() -> Self {
        Self::new()
    }
}

/// Identifies one gathering of one stream. The default value belongs to no stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct GatherId(u64);

impl GatherId {
    /// The number of IDs for the gatherings of one stream: enough for ten days at a million
    /// gatherings per second.
    const IDS_PER_STREAM: u64 = 1 << 40;

    /// The first ID of a new stream.
    pub(super) fn first() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(GatherId::IDS_PER_STREAM);
        GatherId(NEXT.fetch_add(Self::IDS_PER_STREAM, Ordering::Relaxed))
    }

    /// Makes the vectors that were gathered until now invalid.
    #[inline]
    pub(super) fn renew(&mut self) {
        self.0 = self.0.wrapping_add(1);
    }
}

/// A position at the end of a [`TxVec`], to which the vector can be truncated.
#[derive(Clone, Copy)]
pub(super) struct Position {
    used: usize,
    elements: usize,
    last_len: usize,
    octets: usize,
}

/// The destinations of one scatter read.
pub struct RxVec {
    stage: Stage,
    iov: Vec<iovec>,
    octets: usize,
    /// The number of octets that go straight to their destination in registered memory.
    direct: usize,
}

// SAFETY: only the holder of the engine lock, whichever thread that is, uses the addresses in
// `iov`.
unsafe impl Send for RxVec {}

impl RxVec {
    const STAGE: usize = 64 << 10;
    /// The size of a short stage: a trailer, the next header, and little more.
    const SHORT_STAGE: usize = 256;

    /// Creates an empty vector, with a stage of 64 KiB.
    pub fn new() -> Self {
        let iov = Vec::with_capacity(MAX_DIRECT + 1);
        RxVec { stage: Stage::new(Self::STAGE), iov, octets: 0, direct: 0 }
    }

    /// The memory to read into, in order. It is valid for as long as [`TxVec::iov`] is. If there is
    /// only one element, `recv` suffices instead of `readv`.
    pub fn iov(&self) -> &[iovec] {
        &self.iov
    }

    /// The total length of the memory to read into. If a read returned fewer octets, the socket is
    /// empty, or the kernel has met memory that is no longer accessible.
    pub fn octets(&self) -> usize {
        self.octets
    }

    /// The number of octets, from the first one, that go straight to their destination.
    #[inline]
    pub(super) fn direct(&self) -> usize {
        self.direct
    }

    pub(super) fn clear(&mut self) {
        self.iov.clear();
        (self.octets, self.direct) = (0, 0);
    }

    /// Adds a destination in registered memory. Returns false if there is no room for another
    /// element.
    #[inline]
    pub(super) fn push_direct(&mut self, addr: *mut u8, len: usize) -> bool {
        if self.iov.len() == MAX_DIRECT {
            return false;
        }
        self.iov.push(iovec { iov_base: addr.cast(), iov_len: len });
        self.octets += len;
        self.direct += len;
        true
    }

    /// Adds the stage, as the last element.
    #[inline]
    pub(super) fn push_stage(&mut self, short: bool) {
        let len = if short { Self::SHORT_STAGE } else { self.stage.len };
        self.iov.push(iovec { iov_base: self.stage.start.as_ptr().cast(), iov_len: len });
        self.octets += len;
    }

    /// Splits `n` octets that were read. Returns the number of octets that went straight to their
    /// destination, and the octets in the stage.
    #[inline]
    pub(super) fn split(&mut self, n: usize) -> (usize, &[u8]) {
        let direct = n.min(self.direct);
        let staged = (n - direct).min(self.stage.len);
        (direct, &self.stage.octets()[..staged])
    }
}

impl Default for RxVec {
    fn default() -> Self {
        Self::new()
    }
}

/// A buffer whose address is passed to system calls. It is raw memory, so that no reference to it
/// exists during a call.
struct Stage {
    start: NonNull<u8>,
    len: usize,
}

impl Stage {
    fn new(len: usize) -> Self {
        let layout = Self::layout(len);
        // SAFETY: the length of both stages is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        Stage { start: NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout)), len }
    }

    const fn layout(len: usize) -> Layout {
        // SAFETY: the alignment is a power of two, and the lengths are far from overflow.
        unsafe { Layout::from_size_align_unchecked(len, 64) }
    }

    #[inline]
    fn octets(&self) -> &[u8] {
        // SAFETY: `new` has allocated and zeroed the memory. It is written only through a mutable
        // borrow, by its owner or the kernel.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    #[inline]
    fn octets_mut(&mut self) -> &mut [u8] {
        // SAFETY: `new` has allocated and zeroed the memory. The result borrows `self`.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // SAFETY: `new` has allocated the memory with this layout.
        unsafe { dealloc(self.start.as_ptr(), Self::layout(self.len)) }
    }
}
