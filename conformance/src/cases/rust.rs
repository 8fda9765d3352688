//! Cases about the Rust API (the crate `dat`), which must report the same as the C functions that
//! it calls.

use std::time::Duration;

use dat::{Access, Adapter, Close, ConnectionEvent, EndpointState, ErrorKind, Event, Status};

use crate::binding::REGISTRY;
use crate::case::{Row, must};
use crate::check::{Outcome, ensure, ensure_equal, failed};
use crate::rig::Rig;
use crate::time_limits::event_timeout;

fn event_timeout_us() -> Option<Duration> {
    Some(event_timeout())
}

pub(super) const CASES: &[Row] = &[
    must(
        "rust/attributes",
        "crate dat: Adapter::attributes",
        "The attributes that the crate dat returns are those that dat_ia_query returns.",
        |rig| {
            let adapter = open(rig)?;
            let attributes = adapter.attributes();
            ensure_equal("the largest message", attributes.max_message, rig.attr.max_message_size)?;
            ensure_equal(
                "private data",
                attributes.max_private_data as i32,
                rig.provider.max_private_data_size,
            )
        },
    ),
    must(
        "rust/unknown-name",
        "crate dat: Adapter::open_in",
        "The crate dat reports that an unknown adapter is not found.",
        |_| match Adapter::open_in(&REGISTRY, "no such adapter") {
            Ok(_) => Err(failed("an unknown adapter has opened")),
            Err(error) => ensure_equal("the error", error.kind(), ErrorKind::ProviderNotFound),
        },
    ),
    must(
        "rust/state-error",
        "crate dat: Endpoint::disconnect",
        "A method of the crate dat returns an invalid-state error if the endpoint is in a wrong \
         state.",
        |rig| {
            let adapter = open(rig)?;
            let (zone, events) = (or_failed(adapter.zone())?, or_failed(adapter.dispatcher(16))?);
            let mut endpoint = or_failed(adapter.endpoint().zone(&zone).events(&events).create())?;
            match endpoint.disconnect(Close::Abrupt) {
                Ok(()) => Err(failed("the disconnect of an unconnected EP has succeeded")),
                Err(error) => ensure_equal("the error", error.kind(), ErrorKind::InvalidState),
            }
        },
    ),
    must(
        "rust/message",
        "crate dat: the example",
        "With the crate dat, two endpoints can be connected and can exchange a message.",
        |rig| {
            let adapter = open(rig)?;
            let (mut events, mut calls) =
                (or_failed(adapter.dispatcher(16))?, or_failed(adapter.dispatcher(4))?);
            let zone = or_failed(adapter.zone())?;
            let endpoint = || or_failed(adapter.endpoint().zone(&zone).events(&events).create());
            let (mut active, mut passive) = (endpoint()?, endpoint()?);
            let listener = or_failed(adapter.listen_any(&calls))?;
            let address =
                adapter.attributes().address.ok_or_else(|| failed("the adapter has no address"))?;
            or_failed(active.connect(address, listener.qualifier(), b"hi", event_timeout_us()))?;
            let Event::ConnectionRequest(request) = or_failed(calls.wait(event_timeout_us()))?
            else {
                return Err(failed("the event is not a connection request"));
            };
            ensure(
                or_failed(request.private_data())?.starts_with(b"hi"),
                "the private data are not those that were sent",
            )?;
            or_failed(request.accept(&mut passive, b""))?;
            for _ in 0..2 {
                let event = or_failed(events.wait(event_timeout_us()))?;
                let up = matches!(
                    event,
                    Event::Connection { event: ConnectionEvent::Established { .. }, .. }
                );
                ensure(up, format_args!("the event is {event:?}"))?;
            }
            ensure_equal("the state", or_failed(active.state())?, EndpointState::Connected)?;
            let mut from = or_failed(zone.register(vec![0; 8], Access::LOCAL))?;
            let to = or_failed(zone.register(vec![0; 8], Access::LOCAL))?;
            or_failed(from.store(0, b"in Rust!"))?;
            or_failed(passive.post_receive(&[or_failed(to.segment(0..8))?], 1))?;
            or_failed(active.post_send(&[or_failed(from.segment(0..8))?], 2, Default::default()))?;
            for _ in 0..2 {
                match or_failed(events.wait(event_timeout_us()))? {
                    Event::Completion(completion) => {
                        ensure_equal("the status", completion.status, Status::Success)?
                    }
                    other => return Err(failed(format_args!("the event is {other:?}"))),
                }
            }
            let mut message = [0; 8];
            or_failed(to.load(0, &mut message))?;
            ensure_equal("the message", &message, b"in Rust!")
        },
    ),
];

fn open(rig: &Rig) -> Outcome<Adapter> {
    or_failed(Adapter::open_in(&REGISTRY, &rig.name().to_string_lossy()))
}

/// Converts an error of the Rust API to a failed case, with the text of the error.
#[track_caller]
fn or_failed<T>(result: dat::Result<T>) -> Outcome<T> {
    result.map_err(failed)
}
