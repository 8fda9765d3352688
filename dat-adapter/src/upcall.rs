//! The events of an engine as upcalls of dat-core.

use adapter::{Engine, Event};
use dat_core::provider::{RemoteQp, Sink, Upcall};

use crate::transport::Adapter;

/// Returns the sink of an engine that passes each event to dat-core.
pub(crate) fn sink<E: Engine>(sink: Sink<Adapter<E>>) -> adapter::Sink<E> {
    adapter::Sink::new(move |event| sink.call(upcall(event)))
}

fn upcall<E: Engine>(event: Event<'_, E>) -> Upcall<'_, Adapter<E>> {
    match event {
        Event::Request { request, service, from, to, private } => {
            Upcall::Request { request, service, from, to, private }
        }
        Event::Resolved { number, remote, peer, private } => {
            Upcall::Resolved { number, remote: remote_qp(remote), peer, private }
        }
        Event::Unresolved { number, why } => Upcall::Unresolved { number, why },
        Event::Established { private, peer, local, depth } => {
            Upcall::Established { private, peer, local, depth }
        }
        Event::Rejected { by_peer, private } => Upcall::Rejected { by_peer, private },
        Event::Unreachable { because } => Upcall::Unreachable { because },
        Event::TimedOut => Upcall::TimedOut,
        Event::AcceptFailed => Upcall::AcceptFailed,
        Event::Disconnected => Upcall::Disconnected,
        Event::Broken { because } => Upcall::Broken { because },
        Event::ReceiverNotReady { octets, whole } => Upcall::ReceiverNotReady { octets, whole },
        Event::Cause(cause) => Upcall::Cause(cause),
    }
}

pub(crate) fn remote_qp<E: Engine>(remote: adapter::RemoteQp) -> RemoteQp<Adapter<E>> {
    let adapter::RemoteQp { address, qpn, own_qpn } = remote;
    RemoteQp { address, qpn, own_qpn }
}
