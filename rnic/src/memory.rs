//! Accesses of engines to registered memory. Each access is checked against the memory key at the
//! time of the access, because a region may be deregistered between two calls.

use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use libc::iovec;

use crate::key::{KeyError, Keys, Right, Scope};
use crate::qp::Work;
use crate::wr::Segment;

/// The reason for which an atomic operation is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicError {
    /// The key does not grant the peer this access.
    Key(KeyError),
    /// The target is not aligned to its size.
    Misaligned,
}

/// Calls `piece` with the address and the length of each contiguous part of a range of memory,
/// after checking that `by` may access the part. The range starts `offset` octets into the segments
/// and has `len` octets.
#[inline]
pub(crate) fn pieces(
    keys: &Keys,
    (by, right): (Scope, Right),
    segments: &[Segment],
    mut offset: usize,
    mut len: usize,
    mut piece: impl FnMut(*mut u8, usize),
) -> Result<(), KeyError> {
    for segment in segments {
        if len == 0 {
            break;
        }
        let size = segment.len as usize;
        if offset >= size {
            offset -= size;
            continue;
        }
        let n = len.min(size - offset);
        let addr = keys.check(segment.key, by, segment.addr + offset as u64, n as u64, right)?;
        piece(with_exposed_provenance_mut(addr as usize), n);
        (offset, len) = (0, len - n);
    }
    Ok(())
}

/// Performs an atomic operation on eight octets for a peer with the scope `by`. Returns the
/// previous value of the octets.
pub(crate) fn update(
    keys: &Keys,
    by: Scope,
    (key, to): (u32, u64),
    apply: impl Fn(u64) -> u64,
) -> Result<u64, AtomicError> {
    let size = size_of::<u64>() as u64;
    let addr = keys.check(key, by, to, size, Right::RemoteAtomic).map_err(AtomicError::Key)?;
    if !addr.is_multiple_of(align_of::<AtomicU64>() as u64) {
        return Err(AtomicError::Misaligned);
    }
    // SAFETY: the target is eight aligned octets of registered memory; `keys.check` has just
    // allowed this access.
    let target = unsafe { AtomicU64::from_ptr(with_exposed_provenance_mut(addr as usize)) };
    let changed = |original| Some(apply(original)).filter(|&value| value != original);
    Ok(target
        .fetch_update(Ordering::AcqRel, Ordering::Acquire, changed)
        .unwrap_or_else(|original| original))
}

/// Copies octets that a peer writes. The last octets are written last, in one store. The rest may
/// be copied in any order, as the string instructions of processors do. The last octets must come
/// last, because RDMA adapters write in ascending order and programs such as `dtest -D` rely on
/// that: they poll the last octet.
///
/// # Safety
/// The requirements of [`std::ptr::copy_nonoverlapping`] for `len` octets apply.
#[inline]
pub unsafe fn place(to: *mut u8, from: *const u8, len: usize) {
    let end = to.addr() + len;
    let fits = |size: &usize| len >= *size && end.is_multiple_of(*size);
    let Some(size) = [8, 4, 2, 1].into_iter().find(fits) else { return };
    // SAFETY: the caller guarantees that both ranges are valid, and a store of this size is
    // aligned.
    unsafe {
        to.copy_from_nonoverlapping(from, len - size);
        let (to, last) = (to.add(len - size), from.add(len - size));
        match size {
            8 => {
                let word = last.cast::<u64>().read_unaligned();
                AtomicU64::from_ptr(to.cast()).store(word, Ordering::Release);
            }
            4 => {
                let word = last.cast::<u32>().read_unaligned();
                AtomicU32::from_ptr(to.cast()).store(word, Ordering::Release);
            }
            2 => {
                let word = last.cast::<u16>().read_unaligned();
                AtomicU16::from_ptr(to.cast()).store(word, Ordering::Release);
            }
            _ => AtomicU8::from_ptr(to).store(last.read(), Ordering::Release),
        }
    }
}

/// Copies registered memory through the kernel. Returns false if part of the memory is no longer
/// mapped, in which case an ordinary copy would end the process with a signal. The function costs a
/// system call and a lookup of each page, so it is only for rare cases.
///
/// # Safety
/// The requirements of [`std::ptr::copy_nonoverlapping`] apply, except that `from` may be unmapped.
#[cold]
pub(crate) unsafe fn try_copy(from: *const u8, to: *mut u8, len: usize) -> bool {
    let there = iovec { iov_base: from.cast_mut().cast(), iov_len: len };
    let here = iovec { iov_base: to.cast(), iov_len: len };
    let copied = match cfg!(miri) {
        true => -1,
        // SAFETY: the kernel writes only to `to`, which the caller allows, and checks the memory
        // that it reads.
        false => unsafe { libc::process_vm_readv(libc::getpid(), &here, 1, &there, 1, 0) },
    };
    let is_refused = || {
        let error = std::io::Error::last_os_error().raw_os_error();
        cfg!(miri) || matches!(error, Some(libc::ENOSYS | libc::EPERM))
    };
    if copied < 0 && is_refused() {
        // The system call failed because a sandbox forbids it. SAFETY: the caller guarantees that
        // the ranges are valid. If `from` has been unmapped, this copy ends the process.
        unsafe { to.copy_from_nonoverlapping(from, len) };
        return true;
    }
    usize::try_from(copied) == Ok(len)
}

/// Copies from and to registered memory. [`Work`] is used under an engine lock. The owner of a
/// region takes each engine lock after it has dropped the region and before the memory is unmapped,
/// so the memory exists for the duration of an access.
impl Work {
    /// Fills `out` from the segments of a request, starting `offset` octets into them.
    #[inline]
    pub fn gather(
        &self,
        segments: &[Segment],
        offset: usize,
        out: &mut [u8],
    ) -> Result<(), KeyError> {
        let by = (self.scope(), Right::LocalRead);
        let mut rest = out;
        pieces(self.keys(), by, segments, offset, rest.len(), |from, len| {
            let (piece, after) = std::mem::take(&mut rest).split_at_mut(len);
            // SAFETY: `from` is registered memory that was just checked to be readable; `out` is
            // not part of it.
            unsafe { piece.as_mut_ptr().copy_from_nonoverlapping(from, len) };
            rest = after;
        })
    }

    /// Places octets in segments, starting `offset` octets into them. `by` says whose rights apply.
    /// For the segments of a receive, `by` is the scope that [`recv_segments`](Self::recv_segments)
    /// returns, and [`Right::LocalWrite`]. For the segments of a request, `by` is
    /// [`scope`](Self::scope), and the right that belongs to the use of its segments
    /// ([`OpFacts::local`](crate::OpFacts::local)). Returns an error unless the right is
    /// [`Right::LocalWrite`] or [`Right::RemoteWrite`].
    #[inline]
    pub fn scatter(
        &self,
        by: (Scope, Right),
        segments: &[Segment],
        offset: usize,
        octets: &[u8],
    ) -> Result<(), KeyError> {
        if !matches!(by.1, Right::LocalWrite | Right::RemoteWrite) {
            return Err(KeyError::Access);
        }
        let mut rest = octets;
        pieces(self.keys(), by, segments, offset, rest.len(), |at, len| {
            let (piece, after) = rest.split_at(len);
            // SAFETY: `at` is registered memory that was just checked to be writable; `octets` are
            // not part of it.
            unsafe { at.copy_from_nonoverlapping(piece.as_ptr(), len) };
            rest = after;
        })
    }

    /// Fills `out` with memory that the peer reads. Checks all `rest` octets that remain of the
    /// read, so that no response is sent for a read that must fail. If `out` is longer than `rest`,
    /// checks the length of `out`.
    #[inline]
    pub fn fetch(
        &self,
        (key, from): (u32, u64),
        rest: u64,
        out: &mut [u8],
    ) -> Result<(), KeyError> {
        let rest = rest.max(out.len() as u64);
        let addr = self.keys().check(key, self.scope(), from, rest, Right::RemoteRead)?;
        // SAFETY: `from` is registered memory that was just checked to be readable by the peer.
        // `out` is not part of it.
        unsafe {
            out.as_mut_ptr()
                .copy_from_nonoverlapping(with_exposed_provenance(addr as usize), out.len())
        };
        Ok(())
    }

    /// Places octets that the peer writes. Checks all `rest` octets that remain of the write. If
    /// there are more `octets` than `rest`, checks them all.
    #[inline]
    pub fn store(&self, (key, to): (u32, u64), rest: u64, octets: &[u8]) -> Result<(), KeyError> {
        let rest = rest.max(octets.len() as u64);
        let addr = self.keys().check(key, self.scope(), to, rest, Right::RemoteWrite)?;
        let at: *mut u8 = with_exposed_provenance_mut(addr as usize);
        // SAFETY: `at` is registered memory that was just checked to be writable by the peer.
        // `octets` are not part of it.
        unsafe { place(at, octets.as_ptr(), octets.len()) };
        Ok(())
    }

    /// Performs an atomic operation of the peer on eight octets. Returns the previous value of the
    /// octets.
    pub fn update(
        &self,
        (key, to): (u32, u64),
        apply: impl Fn(u64) -> u64,
    ) -> Result<u64, AtomicError> {
        update(self.keys(), self.scope(), (key, to), apply)
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::time::{Duration, Instant};

    use super::{place, try_copy};

    /// For each copy size in octets, the number of copies in a batch.
    const MEASURED: [(usize, u32); 5] =
        [(64, 2000), (1024, 2000), (4096, 1000), (64 << 10, 100), (1 << 20, 5)];

    #[test]
    #[ignore = "not a test: it measures the times in the table of docs/unsafe.md"]
    fn what_a_copy_by_the_kernel_takes() {
        for (len, rounds) in MEASURED {
            let (from, mut to) = (vec![1u8; len], vec![0u8; len]);
            let (from, to) = (from.as_ptr(), to.as_mut_ptr());
            let measure = |copy: &dyn Fn(*const u8, *mut u8)| {
                let batch = || {
                    let start = Instant::now();
                    for _ in 0..rounds {
                        copy(black_box(from), black_box(to));
                    }
                    start.elapsed() / rounds
                };
                let mut times: Vec<Duration> = (0..100).map(|_| batch()).collect();
                times.sort();
                format!("{:.1?} (median {:.1?})", times[0], times[50])
            };
            // SAFETY: both buffers have `len` octets.
            let ours = measure(&|from, to| unsafe { to.copy_from_nonoverlapping(from, len) });
            // SAFETY: both buffers have `len` octets.
            let kernels = measure(&|from, to| assert!(unsafe { try_copy(from, to, len) }));
            println!("{len} octets: ordinary copy {ours}, copy by the kernel {kernels}");
        }
    }

    #[test]
    fn what_is_placed_is_there_and_nothing_beside_it() {
        let from: [u8; 40] = std::array::from_fn(|at| at as u8 + 1);
        for start in 0..=8 {
            for len in 0..from.len() {
                let mut memory = [0u64; 8];
                let at = memory.as_mut_ptr().cast::<u8>().wrapping_add(start);
                // SAFETY: the memory has 64 octets, of which at most 48 are used.
                unsafe { place(at, from.as_ptr(), len) };
                let octets: Vec<u8> = memory.iter().flat_map(|word| word.to_ne_bytes()).collect();
                let expected = [&[0; 8][..start], &from[..len]].concat();
                assert_eq!(octets[..start + len], expected, "{len} octets at {start}");
                assert!(
                    octets[start + len..].iter().all(|&octet| octet == 0),
                    "{len} octets at {start}"
                );
            }
        }
    }
}
