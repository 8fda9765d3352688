//! Completion streams of endpoints that feed an EVD.
//!
//! Each stream has the completion flags of its endpoint. These flags decide which completions of
//! the stream wake a waiter.
//!
//! Streams may share an EVD only if their flags match. If the EVD was also created for other events
//! than completions, the flags are `DAT_COMPLETION_EVD_THRESHOLD_FLAG` (uDAPL 1.2, dat_ep_create,
//! usage). The exceptions are in [`relaxed`](crate::relaxed).

use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering};

use dat_sys::*;

use super::Evd;
use crate::handle::{Node, Ref};
use crate::provider::{Attrs, Transport};

/// What a completion stream consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stream {
    /// The operations whose completions the stream has.
    pub of: StreamOf,
    /// The completion flags of the stream.
    pub flags: DAT_COMPLETION_FLAGS,
}

/// The operations of one completion stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamOf {
    /// Receives.
    Receives,
    /// Sends, RDMA operations and binds.
    Requests,
}

impl Stream {
    /// Whether a stream can have these flags.
    pub(crate) fn is_valid(self) -> bool {
        Stream::all().any(|stream| stream == self)
    }

    /// All streams that there can be.
    fn all() -> impl Iterator<Item = Stream> {
        let of = |of| STREAM_FLAGS.into_iter().map(move |flags| Stream { of, flags });
        // A request cannot be solicited.
        of(StreamOf::Receives).chain(of(StreamOf::Requests).take(STREAM_FLAGS.len() - 1))
    }
}

/// One completion stream of an endpoint. The stream feeds an EVD while this value exists. Streams
/// are created and dropped under the adapter's control lock.
pub(crate) struct CompletionStream<T: Transport> {
    evd: Ref<Evd<T>>,
    stream: Stream,
}

/// The number of streams that feed an EVD, by [`StreamOf`] and by the completion flags. Only a
/// thread that holds the adapter's control lock writes these numbers. Any thread reads them.
#[derive(Default)]
pub(super) struct Streams([[AtomicU32; STREAM_FLAGS.len()]; 2]);

/// The values that the completion flags of a stream may have. A stream of requests cannot have the
/// last value.
const STREAM_FLAGS: [DAT_COMPLETION_FLAGS; 4] = [
    DAT_COMPLETION_DEFAULT_FLAG,
    DAT_COMPLETION_EVD_THRESHOLD_FLAG,
    DAT_COMPLETION_UNSIGNALLED_FLAG,
    DAT_COMPLETION_SOLICITED_WAIT_FLAG,
];

impl Streams {
    /// The counter of such streams.
    fn counter(&self, Stream { of, flags }: Stream) -> &AtomicU32 {
        // Attributes with other flags are refused before a stream is created.
        &self.0[of as usize][STREAM_FLAGS.iter().position(|&kind| kind == flags).unwrap_or(0)]
    }

    fn has(&self, stream: Stream) -> bool {
        self.counter(stream).load(Ordering::Relaxed) > 0
    }

    fn has_any(&self, flags: DAT_COMPLETION_FLAGS) -> bool {
        [StreamOf::Receives, StreamOf::Requests]
            .into_iter()
            .any(|of| self.has(Stream { of, flags }))
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
        solicited || quiet && self.has_any(DAT_COMPLETION_UNSIGNALLED_FLAG)
    }

    /// Whether the stream may share the EVD with the existing streams.
    fn match_with(&self, stream: Stream, attrs: &Attrs) -> bool {
        Stream::all()
            .filter(|&other| self.has(other))
            .all(|other| other.flags == stream.flags || attrs.streams_may_differ(stream, other))
    }
}

impl<T: Transport> Evd<T> {
    /// The kinds of events for which the EVD was created, without completions. They count even if
    /// nothing feeds them yet: a service point may begin to feed them at any time, and its call has
    /// no status for a conflict with the flags of the EVD's completions.
    pub(crate) fn other_streams(&self) -> DAT_EVD_FLAGS {
        self.flags & !(DAT_EVD_DTO_FLAG | DAT_EVD_RMR_BIND_FLAG)
    }
}

impl<T: Transport> CompletionStream<T> {
    /// Lets a stream feed an EVD. Returns `None` in one of these cases:
    ///
    /// - The stream's flags do not match the flags of the EVD's other streams.
    /// - The EVD also accepts events that are not completions, and the stream's flags are not
    ///   `DAT_COMPLETION_EVD_THRESHOLD_FLAG`.
    pub(crate) fn new(evd: &Node<Evd<T>>, stream: Stream) -> Option<Self> {
        let (streams, attrs) = (&evd.shared.streams, evd.ia.transport.attrs());
        let others = evd.other_streams();
        let fits = others == 0
            || stream.flags == DAT_COMPLETION_EVD_THRESHOLD_FLAG
            || attrs.may_join_others(stream, others);
        if !fits || !streams.match_with(stream, attrs) {
            return None;
        }
        let before = streams.solicited(attrs.quiet);
        streams.counter(stream).fetch_add(1, Ordering::Relaxed);
        if streams.solicited(attrs.quiet) != before {
            evd.streams_changed();
        }
        Some(CompletionStream { evd: Ref::new(evd), stream })
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
        streams.counter(self.stream).fetch_sub(1, Ordering::Relaxed);
        if streams.solicited(attrs.quiet) != before {
            self.evd.streams_changed();
        }
    }
}

impl<T: Transport> Node<Evd<T>> {
    /// Arms the completion queue again after the streams have changed, because the CNO may now need
    /// to know of other completions. Another thread may be in a call on the EVD at the same time:
    /// one thread may change an endpoint whose EVDs another thread uses.
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
