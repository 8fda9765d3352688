//! Completion streams of endpoints that feed an EVD.
//!
//! Each stream has the completion flags of its endpoint. The flags of a completion's own stream
//! decide whether it wakes a waiter.
//!
//! The standard lets streams share an EVD only if their flags match (uDAPL 1.2, dat_ep_create,
//! usage). OFED's library never checks that, and MPI libraries connect streams with different flags
//! to one EVD. Therefore streams may differ, unless the adapter was opened with `strict=on`.

use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering};

use dat_sys::*;

use super::Evd;
use crate::handle::{Node, Ref};
use crate::provider::Transport;

/// One completion stream of an endpoint. It feeds an EVD as long as this value lives. It is created
/// and dropped under the adapter's control lock.
pub(crate) struct CompletionStream<T: Transport> {
    evd: Ref<Evd<T>>,
    flags: DAT_COMPLETION_FLAGS,
}

/// The number of streams that feed an EVD, for each value of the completion flags. Written under
/// the adapter's control lock, read by any thread.
#[derive(Default)]
pub(super) struct Streams([AtomicU32; STREAM_FLAGS.len()]);

/// The values that the completion flags of a stream may have. Streams of requests have all but the
/// last.
pub(crate) const STREAM_FLAGS: [DAT_COMPLETION_FLAGS; 4] = [
    DAT_COMPLETION_DEFAULT_FLAG,
    DAT_COMPLETION_EVD_THRESHOLD_FLAG,
    DAT_COMPLETION_UNSIGNALLED_FLAG,
    DAT_COMPLETION_SOLICITED_WAIT_FLAG,
];

impl Streams {
    /// The number of streams with these flags.
    fn of(&self, flags: DAT_COMPLETION_FLAGS) -> &AtomicU32 {
        // Attributes with other flags are refused before a stream is created.
        &self.0[STREAM_FLAGS.iter().position(|&kind| kind == flags).unwrap_or(0)]
    }

    fn has_any(&self, flags: DAT_COMPLETION_FLAGS) -> bool {
        self.of(flags).load(Ordering::Relaxed) > 0
    }

    /// The completion flags that all streams have. The default flag if the streams differ or if
    /// there is none.
    pub(super) fn common_flags(&self) -> DAT_COMPLETION_FLAGS {
        let mut kinds = STREAM_FLAGS.into_iter().filter(|&flags| self.has_any(flags));
        match (kinds.next(), kinds.next()) {
            (Some(flags), None) => flags,
            _ => DAT_COMPLETION_DEFAULT_FLAG,
        }
    }

    /// Whether the completion queue must be armed for solicited completions only. `quiet`: the
    /// transport distinguishes completions that were posted quiet, so completions of streams with
    /// default flags count as solicited ([`Attrs::quiet`](crate::provider::Attrs::quiet)).
    pub(super) fn solicited(&self, quiet: bool) -> bool {
        let solicited = self.has_any(DAT_COMPLETION_SOLICITED_WAIT_FLAG);
        let unsignalled = self.has_any(DAT_COMPLETION_UNSIGNALLED_FLAG);
        match quiet {
            true => solicited || unsignalled,
            false => solicited && self.common_flags() == DAT_COMPLETION_SOLICITED_WAIT_FLAG,
        }
    }

    /// Whether the standard lets a stream with these flags share the EVD.
    fn match_with(&self, flags: DAT_COMPLETION_FLAGS) -> bool {
        STREAM_FLAGS.into_iter().all(|kind| kind == flags || !self.has_any(kind))
    }
}

impl<T: Transport> CompletionStream<T> {
    /// Creates a stream with the completion flags of an endpoint. Returns `None` if the adapter is
    /// strict and one of these holds:
    ///
    /// - The flags do not match those of the other streams.
    /// - Some completions of the stream would not wake a waiter, and the EVD takes other events
    ///   than completions.
    pub(crate) fn new(evd: &Node<Evd<T>>, flags: DAT_COMPLETION_FLAGS) -> Option<Self> {
        let (streams, attrs) = (&evd.shared.streams, evd.ia.transport.attrs());
        if attrs.strict {
            let mixed = evd.flags & !(DAT_EVD_DTO_FLAG | DAT_EVD_RMR_BIND_FLAG) != 0;
            let selective =
                flags & (DAT_COMPLETION_UNSIGNALLED_FLAG | DAT_COMPLETION_SOLICITED_WAIT_FLAG) != 0;
            if (selective && mixed) || !streams.match_with(flags) {
                return None;
            }
        }
        let before = streams.solicited(attrs.quiet);
        streams.of(flags).fetch_add(1, Ordering::Relaxed);
        if streams.solicited(attrs.quiet) != before {
            evd.streams_changed();
        }
        Some(CompletionStream { evd: Ref::new(evd), flags })
    }

    /// The EVD that the stream feeds.
    pub(crate) fn evd(&self) -> Ref<Evd<T>> {
        self.evd.clone()
    }
}

impl<T: Transport> Drop for CompletionStream<T> {
    fn drop(&mut self) {
        let (streams, attrs) = (&self.evd.shared.streams, self.evd.ia.transport.attrs());
        let before = streams.solicited(attrs.quiet);
        streams.of(self.flags).fetch_sub(1, Ordering::Relaxed);
        if streams.solicited(attrs.quiet) != before {
            self.evd.streams_changed();
        }
    }
}

impl<T: Transport> Node<Evd<T>> {
    /// Re-arms the completion queue after the streams have changed, because the CNO may need to
    /// know of other completions now. This function may run concurrently with a call on the EVD,
    /// since the thread that changes an endpoint need not be the one that uses its EVDs.
    fn streams_changed(&self) {
        // SAFETY: the lock of the handle gives the taking side, unless there is a waiter.
        let renotify = || unsafe { self.renotify() };
        let renotified = if self.ia.thread_safe { self.slot().try_locked(renotify) } else { None };
        if renotified.is_none() {
            // The queue may have been armed for the former streams. The waiter or the CNO's
            // consumer that is notified now arms it again.
            self.shared.notify();
        }
    }
}

impl<T: Transport> Deref for CompletionStream<T> {
    type Target = Node<Evd<T>>;
    fn deref(&self) -> &Node<Evd<T>> {
        self.evd.node()
    }
}
