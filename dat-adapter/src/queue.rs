//! Queue pairs.

use std::time::Instant;

use adapter::{ConnectionRequest, Engine, PeerAddress, Target};
use dat_core::Result;
use dat_core::provider::{
    Allocated, BindWr, Close, Connect, Datagram, PostError, Queue, ReadDepth, RecvWr, RemoteQp,
    SendWr,
};

use crate::error::error;
use crate::transport::Adapter;
use crate::upcall::remote_qp;

/// A queue pair.
pub struct Qp<E: Engine>(pub(crate) adapter::Qp<E>);

// SAFETY: the promises of `Queue`, by their numbers:
// 1. rnic completes each work request once and in order, from the slot of the ring that it was
//    posted to.
// 2. The engine completes requests only in its own calls, and not after `remove_qp`, which the drop
//    of `adapter::Qp` calls under the engine lock.
// 3. rnic counts the requests that have left the ring. Unsignalled requests leave the ring without
//    a completion. A queue pair that was never connected and is not flushed discards its receives.
// 4. rnic calls the closure that `Transport::qp` passes whenever a message takes a buffer.
unsafe impl<E: Engine> Queue<Adapter<E>> for Qp<E> {
    #[inline]
    unsafe fn post_send(&self, wr: &SendWr<'_>) -> std::result::Result<(), PostError> {
        // SAFETY: the caller keeps the memory of the segments valid, and is the only one that
        // posts.
        unsafe { self.0.post_send(wr) }
    }

    unsafe fn post_bind(&self, wr: &BindWr<'_, Adapter<E>>) -> std::result::Result<u32, PostError> {
        // The functions return `None` only while the window or the region is being dropped.
        let window = wr.window.0.window().ok_or(PostError::Unsupported)?;
        let view = match &wr.view {
            Some(view) => Some(rnic::View {
                region: view.region.0.region().ok_or(PostError::Bounds)?,
                addr: view.addr,
                len: view.len,
                access: view.access,
                zero_based: view.zero_based,
            }),
            None => None,
        };
        let wr = rnic::BindWr { id: wr.id, window, view, signalled: wr.signalled, quiet: wr.quiet };
        // SAFETY: the caller is the only one that posts.
        unsafe { self.0.post_bind(&wr) }
    }

    #[inline]
    unsafe fn post_recv(&self, wr: &RecvWr<'_>) -> std::result::Result<(), PostError> {
        // SAFETY: the caller keeps the memory of the segments valid, and is the only one that
        // posts.
        unsafe { self.0.post_recv(wr) }
    }

    #[inline]
    unsafe fn post_datagram(
        &self,
        wr: &Datagram<'_, Adapter<E>>,
    ) -> std::result::Result<(), PostError> {
        let PeerAddress { ip, route, q_key } = *wr.address;
        let wr = rnic::DatagramWr {
            id: wr.id,
            to: rnic::Destination { address: ip, route, qpn: wr.qpn, q_key },
            immediate: wr.immediate,
            segments: wr.segments,
            signalled: wr.signalled,
            solicited: wr.solicited,
            quiet: wr.quiet,
        };
        // SAFETY: the caller keeps the memory of the segments valid, and is the only one that
        // posts.
        unsafe { self.0.post_datagram(&wr) }
    }

    fn resolve(&self, number: u64, to: &Connect<'_>) -> Result<()> {
        self.0.resolve(number, &target(to)).map_err(error)
    }

    fn answer(
        &self,
        request: ConnectionRequest<E>,
        private: &[u8],
    ) -> Result<RemoteQp<Adapter<E>>> {
        self.0.answer(request, private).map(remote_qp).map_err(error)
    }

    fn connect(&self, to: &Connect<'_>) -> Result<()> {
        self.0.connect(&target(to)).map_err(error)
    }

    fn accept(
        &self,
        request: ConnectionRequest<E>,
        private: &[u8],
        depth: ReadDepth,
    ) -> Result<()> {
        self.0.accept(request, private, depth).map_err(error)
    }

    fn disconnect(&self, how: Close) {
        self.0.disconnect(how);
    }

    fn allocated(&self) -> Option<Allocated> {
        let buffers = self.0.allocated();
        Some(Allocated { buffers, span: buffers })
    }

    unsafe fn carried_out(&self) -> u64 {
        self.0.carried_out()
    }

    fn withdrawn(&self) -> usize {
        if self.0.discards_receives() { self.0.allocated() } else { 0 }
    }
}

fn target<'a>(to: &Connect<'a>) -> Target<'a> {
    Target {
        peer: to.peer(),
        private: to.private,
        deadline: to.timeout.and_then(|timeout| Instant::now().checked_add(timeout)),
        depth: to.depth,
    }
}
