//! Cases whose peer is another process, which the case can stop or kill.

use dat_sys::*;

use crate::case::{Row, must};
use crate::check::{ensure, ensure_equal, failed, ok};
use crate::rig::event_name;

pub(super) const CASES: &[Row] = &[
    must(
        "dat_ep_connect/another-process",
        "DESCRIPTION",
        "An endpoint can connect to an endpoint of another process, and can read that process's \
         memory.",
        |rig| {
            let ((ep, peer), memory) = (rig.pair_with_peer_process()?, rig.memory(8)?);
            memory.store(0, &[0xff; 8]);
            ok(rig.read(
                ep.ep,
                &[memory.all()],
                1,
                &DAT_RMR_TRIPLET { segment_length: 8, ..peer.memory },
            ))?;
            rig.completes(ep.request, 1, DAT_DTO_SUCCESS)?;
            ensure_equal("the data read from the peer", memory.load(0, 8), vec![0; 8])
        },
    ),
    must(
        "dat_ep_connect/silent-peer",
        "DESCRIPTION: timeout",
        "If the peer does not answer a connection attempt in time, the event is \"timed out\" or \
         \"unreachable\", and the EP is disconnected.",
        |rig| {
            let ((_, peer), ep) = (rig.pair_with_peer_process()?, rig.ep()?);
            peer.stop_process()?;
            ok(rig.connect_within(ep.ep, peer.qualifier, b"", 100_000))?;
            let number = rig.event(ep.connect)?.event_number;
            let ends = [DAT_CONNECTION_EVENT_TIMED_OUT, DAT_CONNECTION_EVENT_UNREACHABLE];
            ensure(ends.contains(&number), format_args!("the event is {}", event_name(number)))?;
            rig.state_is(ep.ep, DAT_EP_STATE_DISCONNECTED)
        },
    ),
    must(
        "dat_ep_disconnect/peer-dies",
        "DESCRIPTION: transport errors",
        "If the process of the peer dies, the EP is disconnected with an event, and its operations \
         are flushed.",
        |rig| {
            let ((ep, peer), memory) = (rig.pair_with_peer_process()?, rig.memory(64)?);
            ok(rig.recv(ep.ep, &[memory.part(0, 8)], 1))?;
            peer.stop_process()?;
            ok(rig.read(
                ep.ep,
                &[memory.part(8, 8)],
                2,
                &DAT_RMR_TRIPLET { segment_length: 8, ..peer.memory },
            ))?;
            drop(peer);
            let number = rig.event(ep.connect)?.event_number;
            let ends = [DAT_CONNECTION_EVENT_BROKEN, DAT_CONNECTION_EVENT_DISCONNECTED];
            ensure(ends.contains(&number), format_args!("the event is {}", event_name(number)))?;
            rig.completes(ep.recv, 1, DAT_DTO_ERR_FLUSHED)?;
            let read = rig.completion(ep.request)?;
            match read.cookie == 2 && read.status != DAT_DTO_SUCCESS {
                true => rig.state_is(ep.ep, DAT_EP_STATE_DISCONNECTED),
                false => Err(failed(format_args!("the completion is {read:?}"))),
            }
        },
    ),
    must(
        "dat_ep_disconnect/silent-peer",
        "DESCRIPTION: abrupt",
        "An abrupt disconnect does not wait for a peer that does not answer, nor for RDMA reads \
         that the peer still has to answer.",
        |rig| {
            let ((ep, peer), memory) = (rig.pair_with_peer_process()?, rig.memory(8)?);
            peer.stop_process()?;
            ok(rig.read(
                ep.ep,
                &[memory.all()],
                1,
                &DAT_RMR_TRIPLET { segment_length: 8, ..peer.memory },
            ))?;
            ok(rig.api.dat_ep_disconnect(ep.ep, DAT_CLOSE_ABRUPT_FLAG))?;
            rig.completes(ep.request, 1, DAT_DTO_ERR_FLUSHED)?;
            rig.connection(ep.connect, DAT_CONNECTION_EVENT_DISCONNECTED)?;
            rig.keep(peer);
            Ok(())
        },
    ),
    must(
        "dat_cr_accept/peer-is-gone",
        "DESCRIPTION: events",
        "If the caller no longer exists when its request is accepted, the EP is disconnected with \
         an event, and its receives are flushed.",
        |rig| {
            let ((_, mut peer), listener, ep) =
                (rig.pair_with_peer_process()?, rig.listen()?, rig.ep()?);
            peer.connect(listener.qualifier)?;
            let (arrival, memory) = (rig.request_event(listener.evd)?, rig.memory(8)?);
            ok(rig.recv(ep.ep, &[memory.all()], 1))?;
            peer.stop_process()?;
            ok(rig.accept(arrival.cr, ep.ep, b""))?;
            drop(peer);
            rig.connection(ep.connect, DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR)?;
            rig.completes(ep.recv, 1, DAT_DTO_ERR_FLUSHED)?;
            rig.state_is(ep.ep, DAT_EP_STATE_DISCONNECTED)
        },
    ),
];
