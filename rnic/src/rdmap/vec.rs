//! What one system call moves: buffers of an engine, shared by all its streams, which keep nothing in them between calls.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use libc::iovec;
use wire::iwarp::mpa::fpdu;

use super::tx::Part;
use crate::memory::try_copy;

/// Elements of one scatter or gather call at most (Linux' UIO_MAXIOV is 1024).
const MAX_IOV: usize = 1024;
/// Elements that name registered memory in one scatter read at most; what is beyond comes with the next.
const MAX_DIRECT: usize = 16;

/// The frames of one gather write.
pub struct TxVec {
    stage: Stage,
    used: usize,
    iov: Vec<iovec>,
    bytes: usize,
    pub(super) parts: Vec<Part>,
    /// Who has gathered these.
    turn: Turn,
    /// Octets of a TCP segment that is to hold trailers whole; 0: none is.
    segment: usize,
    /// Octets before these since a segment began.
    record: usize,
}

// SAFETY: the addresses in `iov` are for the one who holds the engine lock, whatever thread that is.
unsafe impl Send for TxVec {}

impl TxVec {
    /// Octets gathered for one call, more or less: a frame that has begun is not cut.
    pub(super) const MAX_BYTES: usize = 1 << 20;
    /// Headers, trailers and what is copied: room for the longest FPDU and much more.
    const STAGE: usize = 2 * fpdu::fpdu_len(fpdu::MAX_ULPDU);

    /// Empty, with its memory: some 150 KiB.
    pub fn new() -> Self {
        TxVec {
            stage: Stage::new(Self::STAGE),
            used: 0,
            iov: Vec::with_capacity(MAX_IOV),
            bytes: 0,
            parts: Vec::with_capacity(256),
            turn: Turn::default(),
            segment: 0,
            record: 0,
        }
    }

    /// What to send, in order. Valid until the next call of the stream that filled it, under the same hold of the engine
    /// lock. One element: `send` will do.
    pub fn iov(&self) -> &[iovec] {
        &self.iov
    }

    /// Octets in all.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What comes after all of this is to begin a TCP segment (`MSG_EOR`).
    #[inline]
    pub fn ends_record(&self) -> bool {
        self.segment > 0
    }

    /// Begins anew, `record` octets after the beginning of a segment.
    pub(super) fn begin(&mut self, turn: Turn, segment: usize, record: usize) {
        self.turn = turn;
        (self.used, self.bytes) = (0, 0);
        self.iov.clear();
        self.parts.clear();
        (self.segment, self.record) = (segment, record);
    }

    /// Whether this turn has filled it.
    #[inline]
    pub(super) fn is_of(&self, turn: Turn) -> bool {
        self.turn == turn
    }

    /// Whether the trailer that `len` more octets end with would lie across two segments. Never of the first frame: nothing
    /// is gained by waiting.
    #[inline]
    pub(super) fn splits(&self, len: usize, trailer: usize) -> bool {
        self.segment > 0
            && self.bytes > 0
            && (1..trailer).contains(&((self.record + self.bytes + len) % self.segment))
    }

    /// Whether there is room for `staged` more octets of stage and `elements` more of `iov`.
    #[inline]
    pub(super) fn has_room(&self, staged: usize, elements: usize) -> bool {
        self.used + staged <= self.stage.len && self.iov.len() + elements <= MAX_IOV
    }

    /// The next octets of the stage, to be filled; [`has_room`](Self::has_room) said yes.
    #[inline]
    pub(super) fn staged(&mut self, len: usize) -> &mut [u8] {
        let at = self.used;
        self.used += len;
        &mut self.stage.bytes()[at..at + len]
    }

    /// Takes back the last `len` octets that were staged, which have not been gathered.
    pub(super) fn unstage(&mut self, len: usize) {
        self.used -= len;
    }

    /// Gathers the last `len` octets that were staged.
    #[inline]
    pub(super) fn push_staged(&mut self, len: usize) {
        // SAFETY: `used` is at most the stage's length, and `len` at most `used`.
        let from = unsafe { self.stage.start.as_ptr().add(self.used - len) };
        self.bytes += len;
        match self.iov.last_mut() {
            Some(last) if last.iov_base.cast::<u8>().wrapping_add(last.iov_len) == from => {
                last.iov_len += len;
            }
            _ if len > 0 => self.iov.push(iovec { iov_base: from.cast(), iov_len: len }),
            _ => {}
        }
    }

    /// Gathers registered memory.
    #[inline]
    pub(super) fn push_memory(&mut self, addr: *mut u8, len: usize) {
        self.bytes += len;
        self.iov.push(iovec { iov_base: addr.cast(), iov_len: len });
    }

    /// Where the vector ends now, for [`cut`](Self::cut).
    #[inline]
    pub(super) fn mark(&self) -> Mark {
        let last_len = self.iov.last().map_or(0, |last| last.iov_len);
        Mark { used: self.used, elements: self.iov.len(), last_len, bytes: self.bytes }
    }

    /// Takes back what was added since.
    pub(super) fn cut(&mut self, mark: Mark) {
        (self.used, self.bytes) = (mark.used, mark.bytes);
        self.iov.truncate(mark.elements);
        if let Some(last) = self.iov.last_mut() {
            last.iov_len = mark.last_len;
        }
    }

    /// Keeps the first message alone, if there are others: says whether there were.
    #[cold]
    pub(super) fn keep_first(&mut self) -> bool {
        let [first, _, ..] = self.parts[..] else { return false };
        self.parts.truncate(1);
        self.bytes = (first.to - first.from) as usize;
        let mut left = self.bytes;
        self.iov.retain_mut(|element| {
            element.iov_len = element.iov_len.min(left);
            left -= element.iov_len;
            element.iov_len > 0
        });
        true
    }

    /// Copies all that was gathered. No reference is made to registered memory, where others may write
    /// meanwhile. False: some of that memory is not there any more.
    ///
    /// # Safety
    /// The registered memory that was gathered still is registered.
    #[cold]
    pub(super) unsafe fn copy_to(&self, out: &mut Vec<u8>) -> bool {
        out.reserve(self.bytes);
        self.iov.iter().all(|&iovec { iov_base, iov_len }| {
            // SAFETY: the element is in the stage or in memory that is registered, as the caller says; there
            // is room for all.
            unsafe {
                let there = try_copy(iov_base.cast(), out.as_mut_ptr().add(out.len()), iov_len);
                out.set_len(out.len() + if there { iov_len } else { 0 });
                there
            }
        })
    }

    /// Copies `len` of the gathered octets, `skip` octets from the start: those of them that are in the
    /// stage, as all are where nothing is gathered from registered memory.
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

/// Names one gathering of one stream. The default is none's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Turn(u64);

impl Turn {
    /// Turns of each stream: as many as it takes in ten days of a million a second.
    const EACH: u64 = 1 << 40;

    /// For a new stream.
    pub(super) fn first() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(Turn::EACH);
        Turn(NEXT.fetch_add(Self::EACH, Ordering::Relaxed))
    }

    /// What was gathered until now is not accepted any more.
    #[inline]
    pub(super) fn end(&mut self) {
        self.0 = self.0.wrapping_add(1);
    }
}

/// A length of a [`TxVec`].
#[derive(Clone, Copy)]
pub(super) struct Mark {
    used: usize,
    elements: usize,
    last_len: usize,
    bytes: usize,
}

/// Where the octets of one scatter read go.
pub struct RxVec {
    stage: Stage,
    iov: Vec<iovec>,
    bytes: usize,
    /// Of these, octets that go to their place.
    direct: usize,
}

// SAFETY: as of `TxVec`.
unsafe impl Send for RxVec {}

impl RxVec {
    const STAGE: usize = 64 << 10;
    /// Room for a trailer, the next header, and little more.
    const SHORT_STAGE: usize = 256;

    /// Empty, with a staging buffer of 64 KiB.
    pub fn new() -> Self {
        let iov = Vec::with_capacity(MAX_DIRECT + 1);
        RxVec { stage: Stage::new(Self::STAGE), iov, bytes: 0, direct: 0 }
    }

    /// Where to read to, in order. Valid as [`TxVec::iov`] is. One element: `recv` will do.
    pub fn iov(&self) -> &[iovec] {
        &self.iov
    }

    /// Octets in all: a read that gives fewer has emptied the socket, or met memory that is not there any more.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Octets of these, the first, that go to their place.
    #[inline]
    pub(super) fn direct(&self) -> usize {
        self.direct
    }

    pub(super) fn clear(&mut self) {
        self.iov.clear();
        (self.bytes, self.direct) = (0, 0);
    }

    /// Adds octets of their place; false: no more elements.
    #[inline]
    pub(super) fn push_direct(&mut self, addr: *mut u8, len: usize) -> bool {
        if self.iov.len() == MAX_DIRECT {
            return false;
        }
        self.iov.push(iovec { iov_base: addr.cast(), iov_len: len });
        self.bytes += len;
        self.direct += len;
        true
    }

    /// Adds the stage, as the last element.
    #[inline]
    pub(super) fn push_stage(&mut self, short: bool) {
        let len = if short { Self::SHORT_STAGE } else { self.stage.len };
        self.iov.push(iovec { iov_base: self.stage.start.as_ptr().cast(), iov_len: len });
        self.bytes += len;
    }

    /// Of `n` octets read, those that went to their place, and those in the stage.
    #[inline]
    pub(super) fn split(&mut self, n: usize) -> (usize, &[u8]) {
        let direct = n.min(self.direct);
        let staged = (n - direct).min(self.stage.len);
        (direct, &self.stage.bytes()[..staged])
    }
}

impl Default for RxVec {
    fn default() -> Self {
        Self::new()
    }
}

/// A buffer whose address is given to system calls: raw, so that no reference to it is ever held across one.
struct Stage {
    start: NonNull<u8>,
    len: usize,
}

impl Stage {
    fn new(len: usize) -> Self {
        let layout = Self::layout(len);
        // SAFETY: both stages have a length that is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        Stage { start: NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout)), len }
    }

    const fn layout(len: usize) -> Layout {
        // SAFETY: the alignment is a power of two, the lengths are far from overflow.
        unsafe { Layout::from_size_align_unchecked(len, 64) }
    }

    #[inline]
    fn octets(&self) -> &[u8] {
        // SAFETY: allocated and zeroed in `new`; only who has it borrowed as mutable writes there, or has the
        // kernel do so.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    #[inline]
    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: allocated and zeroed in `new`; borrowed as long as `self`.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.start.as_ptr(), Self::layout(self.len)) }
    }
}
