//! Completion streams of endpoints that feed an EVD.
//!
//! Each stream has the completion flags of its endpoint. These flags decide which completions of
//! the stream wake a waiter.
//!
//! The standard lets streams share an EVD only if their flags match (uDAPL 1.2, dat_ep_create,
//! usage). OFED's library never checks that, and MPI libraries connect streams with different flags
//! to one EVD. Therefore this library lets the flags differ, unless the adapter was opened with
//! `strict=on`.

use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering};

use dat_sys::*;

use super::Evd;
use crate::handle::{Node, Ref};
use crate::provider::Transport;

/// One completion stream of an endpoint. The stream feeds an EVD while this value exists. Streams
/// are created and dropped under the adapter's control lock.
pub(crate) struct CompletionStream<T: Transport> {
    evd: Ref<Evd<T>>,
    flags: DAT_COMPLETION_FLAGS,
}

/// The number of streams that feed an EVD, for each value of the completion flags. Only a thread
/// that holds the adapter's control lock writes these numbers. Any thread reads them.
#[derive(Default)]
pub(super) struct Streams([AtomicU32; STREAM_FLAGS.len()]);

/// The values that the completion flags of a stream may have. A stream of requests cannot have the
/// last value.
pub(crate) const STREAM_FLAGS: [DAT_COMPLETION_FLAGS; 4] = [
    DAT_COMPLETION_DEFAULT_FLAG,
    DAT_COMPLETION_EVD_THRESHOLD_FLAG,
    DAT_COMPLETION_UNSIGNALLED_FLAG,
    DAT_COMPLETION_SOLICITED_WAIT_FLAG,
];

impl Streams {
    /// The counter of streams with these flags.
    fn of(&self, flags: DAT_COMPLETION_FLAGS) -> &AtomicU32 {
        // Attributes with other flags are refused before a stream is created.
        &self.0[STREAM_FLAGS.iter().position(|&kind| kind == flags).unwrap_or(0)]
    }

    fn has_any(&self, flags: DAT_COMPLETION_FLAGS) -> bool {
        self.of(flags).load(Ordering::Relaxed) > 0
    }

    /// The completion flags that all streams have in common. If the streams have different flags,
    /// or if there is no stream, the result is the default flag.
    pub(super) fn common_flags(&self) -> DAT_COMPLETION_FLAGS {
        let mut kinds = STREAM_FLAGS.into_iter().filter(|&flags| self.has_any(flags));
        match (kinds.next(), kinds.next()) {
            (Some(flags), None) => flags,
            _ => DAT_COMPLETION_DEFAULT_FLAG,
        }
    }

    /// Whether the completion queue must be armed for solicited completions only. `quiet` says
    /// whether the transport distinguishes completions of work requests that were posted quiet. If
    /// it does, completions of streams with default flags count as solicited
    /// ([`Attrs::quiet`](crate::provider::Attrs::quiet)).
    pub(super) fn solicited(&self, quiet: bool) -> bool {
        let solicited = self.has_any(DAT_COMPLETION_SOLICITED_WAIT_FLAG);
        let unsignalled = self.has_any(DAT_COMPLETION_UNSIGNALLED_FLAG);
        match quiet {
            true => solicited || unsignalled,
            false => solicited && self.common_flags() == DAT_COMPLETION_SOLICITED_WAIT_FLAG,
        }
    }

    /// Whether the standard lets a stream with these flags share the EVD with the existing streams.
    fn match_with(&self, flags: DAT_COMPLETION_FLAGS) -> bool {
        STREAM_FLAGS.into_iter().all(|kind| kind == flags || !self.has_any(kind))
    }
}

impl<T: Transport> CompletionStream<T> {
    /// Creates a stream with the completion flags of an endpoint. Returns `None` if the adapter is
    /// strict and one of these holds:
    ///
    /// - The flags do not match the flags of the EVD's other streams.
    /// - Some completions of the stream would not wake a waiter, and the EVD also accepts events
    ///   that are not completions.
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
    /// Arms the completion queue again after the streams have changed, because the CNO may now need
    /// to know of other completions. Another thread may be in a call on the EVD at the same time,
    /// because the thread that changes an endpoint need not be the thread that uses the endpoint's
    /// EVDs.
    fn streams_changed(&self) {
        // SAFETY: the lock of the handle gives the right to dequeue, unless there is a waiter.
        let renotify = || unsafe { self.renotify() };
        let renotified = if self.ia.thread_safe { self.slot().try_locked(renotify) } else { None };
        if renotified.is_none() {
            // The queue may still be armed for the former streams. Notify the waiter or the CNO.
            // The thread that is notified arms the queue again.
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
