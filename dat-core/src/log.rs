//! Log events, through the crate `tracing`. A program with a subscriber of its own gets them. For
//! other programs [`telemetry::log`] writes them if the environment asks for it. Only control
//! operations and failures are logged. An operation that is posted and completes successfully is
//! not.
//!
//! | target | level | what |
//! |---|---|---|
//! | `dat::ia` | info | an adapter is opened or closed |
//! | | warn | an asynchronous error |
//! | `dat::cm` | debug | a connection is requested; a request arrives or is answered |
//! | | info | a connection is established or disconnected |
//! | | warn | an attempt fails; a connection breaks, with the cause in `because` |
//! | `dat::ep` | debug | an endpoint changes its state |
//! | `dat::dto` | warn | an operation completes with an error; `debug` if it was flushed |
//! | | info | a message waits for a receive; once for each such message |
//! | `dat::evd` | warn | there is no room for an event |
//! | `dat::api` | debug | a call is refused; `trace`: each other control call |
//! | `dat::wake` | trace | a thread falls asleep, wakes another, is awake: [`telemetry::trace`] |
//!
//! Fields:
//!
//! - `ia`: the name of the adapter.
//! - `ep`, `cr`: the handles that the consumer has. For `dat::api`, `handle` is that of the call.
//! - `connection`: a number for each connection of an endpoint and each attempt at one, counted
//!   through the process.
//! - `local` and `peer`: the ends of the connection.

use std::sync::atomic::{AtomicU64, Ordering};

use dat_sys::describe::{completion_name, operation_name};
use dat_sys::*;
use telemetry::Hex;
use tracing::{debug, trace, warn};

use crate::error::Result;

/// Logs the end of a control call, or a refused call on the data path. `handle` is the first
/// argument of the call.
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

/// A new number for a connection, or an attempt at one, of this process.
pub(crate) fn next_connection_number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

/// Logs an operation that has completed without success.
pub(crate) fn log_failed_dto(
    ia: &str,
    ep: usize,
    connection: u64,
    dto: &DAT_DTO_COMPLETION_EVENT_DATA,
) {
    // SAFETY: all variants of the union are one word, which has no invalid values.
    let cookie = unsafe { dto.user_cookie.as_64 };
    let operation = operation_name(dto.operation);
    let status = completion_name(dto.status);
    match dto.status {
        DAT_DTO_ERR_FLUSHED => {
            debug!(
                target: "dat::dto", ia, ep = %Hex(ep), connection, operation, cookie, status,
                "flushed"
            )
        }
        _ => {
            warn!(
                target: "dat::dto", ia, ep = %Hex(ep), connection, operation, cookie, status,
                "failed"
            )
        }
    }
}
