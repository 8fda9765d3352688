//! The test suite of dat-core's transport contract, run with an RDMA device of this host.
//! `OPENDAT_TEST=verbs=PARAMS` in the environment sets the ia_params of the device.
//!
//! `cargo test` does not run this, because it needs a host with an RDMA device. When the suite was
//! last run, the kernel's rxe (6.12) passed 38 of 52 cases. These cases fail:
//!
//! - `solicited_waits_…` (2 cases): an armed notification cannot be withdrawn, so the first case
//!   depends on timing; quiet completions are not filtered.
//! - `posts_are_checked`, `what_is_not_offered_is_refused`, `atomic_operations_are_checked`: the
//!   device makes these checks, and its rules differ.
//! - `addresses_may_count_from_zero`: the kernel requires a zero-based region to start at a page
//!   boundary.
//! - `a_shared_queue_…`: rxe assumes that the buffers belong to the endpoint's protection domain,
//!   as `Attrs::srq_across_pds` reports.
//! - `watermarks_…`: held buffers are counted when completions are taken, so one more message is
//!   accepted.
//! - `a_send_does_not_invalidate_a_region`: rxe ends the connection and reports that only by the
//!   receive; the peer sees a disconnect.
//! - `a_send_invalidates_a_window`: a window of type 1 cannot be invalidated; with `window(true)`
//!   the case would pass.
//! - `a_bind_takes_its_turn`, `a_read_may_end_in_a_window`: there are no reads into windows.
//! - `a_dropped_window_is_unbound`: the last step drops a region that a window shows, which fails.
//!   dat-core never drops a region that a window shows.
//! - `a_flushed_bind_…`: the last step posts a request before there is a connection, which rxe
//!   refuses. dat-core posts no such request.

use dat_core::provider::Provider;
use provider_loopback::contract::rig::expect_no_word_of_waits;
use provider_verbs::{Adapter, Verbs};

fn pair() -> (Adapter, Adapter) {
    expect_unreported_waits(true);
    (open(), open())
}

fn open() -> Adapter {
    let settings = std::env::var("OPENDAT_TEST").unwrap_or_default();
    let params = settings.split(';').find_map(|setting| setting.strip_prefix("verbs="));
    let params = params.unwrap_or_default();
    Verbs.open("verbs", params).unwrap_or_else(|e| panic!("{params}: {e}"))
}

provider_loopback::transport_contract!(pair);
