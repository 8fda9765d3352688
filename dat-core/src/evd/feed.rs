//! Endpoints' completion streams that feed an EVD.
//!
//! Each stream has the completion flags of its endpoint, and each completion wakes or does not wake as the flags of its own
//! stream say. The standard lets streams share an EVD only if their flags match (uDAPL 1.2, dat_ep_create, usage); OFED's
//! library never checks that, and MPI libraries give one EVD to streams that differ. So streams may differ, unless the
//! adapter was opened with `strict=on`.

use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering};

use dat_sys::*;

use super::Evd;
use crate::handle::{Node, Ref};
use crate::provider::Transport;

/// One completion stream of an endpoint, which feeds an EVD as long as this lives. Made and dropped under the adapter's
/// control lock.
pub(crate) struct Feed<T: Transport> {
    evd: Ref<Evd<T>>,
    flags: DAT_COMPLETION_FLAGS,
}

/// How many streams with which completion flags feed an EVD. Written under the adapter's control lock, read by anybody.
#[derive(Default)]
pub(super) struct Streams([AtomicU32; STREAM_FLAGS.len()]);

/// The completion flags that a stream may have, each a value of its own; streams of requests have all but the last.
pub(crate) const STREAM_FLAGS: [DAT_COMPLETION_FLAGS; 4] = [
    DAT_COMPLETION_DEFAULT_FLAG,
    DAT_COMPLETION_EVD_THRESHOLD_FLAG,
    DAT_COMPLETION_UNSIGNALLED_FLAG,
    DAT_COMPLETION_SOLICITED_WAIT_FLAG,
];

impl Streams {
    /// The number of streams with these flags.
    fn of(&self, flags: DAT_COMPLETION_FLAGS) -> &AtomicU32 {
        // Attributes with any other flags are refused before a stream is made of them.
        &self.0[STREAM_FLAGS.iter().position(|&kind| kind == flags).unwrap_or(0)]
    }

    fn has(&self, flags: DAT_COMPLETION_FLAGS) -> bool {
        self.of(flags).load(Ordering::Relaxed) > 0
    }

    /// The completion flags of all streams if they agree; the default flag if they differ, or if there is no stream.
    pub(super) fn agreed(&self) -> DAT_COMPLETION_FLAGS {
        let mut kinds = STREAM_FLAGS.into_iter().filter(|&flags| self.has(flags));
        match (kinds.next(), kinds.next()) {
            (Some(flags), None) => flags,
            _ => DAT_COMPLETION_DEFAULT_FLAG,
        }
    }

    /// Whether the completion queue is to be armed for solicited completions only. `quiet`: the transport tells completions
    /// that were posted quiet from others, so that completions of streams with default flags are solicited ones
    /// ([`Attrs::quiet`](crate::provider::Attrs::quiet)).
    pub(super) fn solicited(&self, quiet: bool) -> bool {
        let solicited = self.has(DAT_COMPLETION_SOLICITED_WAIT_FLAG);
        let unsignalled = self.has(DAT_COMPLETION_UNSIGNALLED_FLAG);
        match quiet {
            true => solicited || unsignalled,
            false => solicited && self.agreed() == DAT_COMPLETION_SOLICITED_WAIT_FLAG,
        }
    }

    /// Whether a stream with these flags may join by the letter of the standard.
    fn match_with(&self, flags: DAT_COMPLETION_FLAGS) -> bool {
        STREAM_FLAGS.into_iter().all(|kind| kind == flags || !self.has(kind))
    }
}

impl<T: Transport> Feed<T> {
    /// A stream with an endpoint's completion flags. None: the adapter is strict, and either the flags do not match those of
    /// the other streams, or some completions of the stream would not wake and the EVD takes other events than completions.
    pub(crate) fn new(evd: &Node<Evd<T>>, flags: DAT_COMPLETION_FLAGS) -> Option<Self> {
        let (streams, attrs) = (&evd.bell.streams, evd.ia.transport.attrs());
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
        Some(Feed { evd: Ref::new(evd), flags })
    }

    /// The EVD.
    pub(crate) fn evd(&self) -> Ref<Evd<T>> {
        self.evd.clone()
    }
}

impl<T: Transport> Drop for Feed<T> {
    fn drop(&mut self) {
        let (streams, attrs) = (&self.evd.bell.streams, self.evd.ia.transport.attrs());
        let before = streams.solicited(attrs.quiet);
        streams.of(self.flags).fetch_sub(1, Ordering::Relaxed);
        if streams.solicited(attrs.quiet) != before {
            self.evd.streams_changed();
        }
    }
}

impl<T: Transport> Node<Evd<T>> {
    /// From now on a CNO hears of other completions than before. This may run beside a call on the EVD, since
    /// whoever changes an endpoint need not be the one who uses its EVDs.
    fn streams_changed(&self) {
        // SAFETY: whoever has the taking side has the lock, unless it is a waiter.
        let renotify = || unsafe { self.renotify() };
        let alone = if self.ia.thread_safe { self.slot().try_locked(renotify) } else { None };
        if alone.is_none() {
            // The queue may be armed, or about to be, as it was to be armed before. Whoever is told now arms
            // it anew.
            self.bell.ring();
        }
    }
}

impl<T: Transport> Deref for Feed<T> {
    type Target = Node<Evd<T>>;
    fn deref(&self) -> &Node<Evd<T>> {
        self.evd.node()
    }
}
