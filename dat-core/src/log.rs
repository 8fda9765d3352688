//! Log events, through the crate `tracing`. A program that has its own subscriber gets the events.
//! For other programs [`telemetry::log`] writes them if the environment asks for it. Only control
//! operations and failures are logged. A posted operation that completes successfully is not
//! logged.
//!
//! | target | level | logged when |
//! |---|---|---|
//! | `dat::ia` | info | an adapter is opened or closed |
//! | `dat::ia` | warn | an adapter reports an asynchronous error |
//! | `dat::cm` | debug | a connection is requested; a connection request arrives or is answered |
//! | `dat::cm` | debug | a connection moves to shared memory (tcp-emu) |
//! | `dat::cm` | info | a connection is established or disconnected |
//! | `dat::cm` | warn | an attempt to connect fails; a connection breaks |
//! | `dat::ep` | debug | an endpoint changes its state |
//! | `dat::dto` | trace | an operation is flushed |
//! | `dat::dto` | debug | the first operation of a connection is flushed; a post is refused because of
//! |  |  | its memory |
//! | `dat::dto` | info | a message starts to wait because no receive is posted; a message has waited
//! |  |  | long because the peer has posted none |
//! | `dat::dto` | warn | an operation completes with an error other than DAT_DTO_ERR_FLUSHED |
//! | `dat::evd` | warn | an EVD has no room for an event, or loses completions |
//! | `dat::api` | debug | a call is refused |
//! | `dat::api` | trace | a control call succeeds or finds no event |
//! | `dat::wake` | trace | a thread falls asleep, wakes another or is awake: [`telemetry::trace`] |
//!
//! Fields:
//!
//! - `ia`: the name of the adapter.
//! - `ep`, `cr`: the handles of the endpoint and of the connection request.
//! - `handle`: the handle of the adapter, or for `dat::api` the handle on which the call is made.
//! - `connection`: the number of the connection or of the attempt to connect. Each number is used
//!   only once in the process.
//! - `because`: the cause in a sentence ([`crate::cause`]); `detail`: what the provider says about
//!   it, in the terms of its protocol.
//! - `local` and `peer`: the addresses of the two ends of the connection.

use std::sync::atomic::{AtomicU64, Ordering};

use dat_sys::describe::{completion_name, operation_name};
use dat_sys::*;
use telemetry::Hex;
use tracing::field::display;
use tracing::{debug, trace, warn};

use crate::cause::LastCause;
use crate::error::Result;

/// Logs the end of a control call, or a call on the data path that is refused. `handle` is the
/// first argument of the call.
pub(crate) fn log_call(name: &str, handle: usize, result: Result<()>) {
    match result {
        Err(error)
            if let DAT_TIMEOUT_EXPIRED | DAT_INTERRUPTED_CALL | DAT_QUEUE_EMPTY = error.kind() =>
        {
            trace!(target: "dat::api", handle = %Hex(handle), %error, "dat_{name} finds no event");
        }
        Ok(()) => trace!(target: "dat::api", handle = %Hex(handle), "dat_{name}"),
        Err(error) => {
            debug!(target: "dat::api", handle = %Hex(handle), %error, "dat_{name} is refused")
        }
    }
}

/// Returns a new number for a connection or an attempt to connect. The number is unique in this
/// process.
pub(crate) fn next_connection_number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// Logs an operation that has completed without success. An endpoint may have thousands of
/// receives, so only the first flushed operation of its connection has the level debug.
pub(crate) fn log_failed_dto(
    ia: &str,
    ep: usize,
    connection: u64,
    dto: &DAT_DTO_COMPLETION_EVENT_DATA,
    last_cause: &LastCause,
    is_first_flushed: impl FnOnce() -> bool,
) {
    // SAFETY: all variants of the union are one word, which has no invalid values.
    let cookie = unsafe { dto.user_cookie.as_64 };
    let operation = operation_name(dto.operation);
    let status = completion_name(dto.status);
    let because = || last_cause.sentence().map(display);
    match dto.status {
        DAT_DTO_ERR_FLUSHED if is_first_flushed() => {
            debug!(
                target: "dat::dto", ia, ep = %Hex(ep), connection, operation, cookie, status,
                because = because(), "flushed"
            )
        }
        DAT_DTO_ERR_FLUSHED => {
            trace!(
                target: "dat::dto", ia, ep = %Hex(ep), connection, operation, cookie, status,
                because = because(), "flushed"
            )
        }
        _ => {
            warn!(
                target: "dat::dto", ia, ep = %Hex(ep), connection, operation, cookie, status,
                because = because(), "failed"
            )
        }
    }
}
