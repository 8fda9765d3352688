//! dat-core's contract for transports, kept by the device of this host (`OPENDAT_VERBS`: its ia_params).
//!
//! `cargo test` leaves this out: it takes a host with an RDMA device. Of 52 cases, when last tried, the
//! kernel's rxe (6.12) passed 38. These fail:
//!
//! | case | why |
//! |---|---|
//! | `solicited_waits_…` (2) | an event that is armed cannot be taken back, so the first is a race; quiet completions are not filtered |
//! | `posts_are_checked`, `unsupported_operations_are_refused`, `atomic_operations_are_checked` | the device checks, in its own way |
//! | `addresses_may_count_from_zero` | the kernel wants such a region to start with a page |
//! | `a_shared_queue_…` | rxe takes the buffers to be of the endpoint's domain, which `Attrs::srq_across_pds` says |
//! | `watermarks_…` | buffers held count when completions are taken, so one more message is let in |
//! | `a_send_does_not_invalidate_a_region` | rxe ends the connection and says so by the receive alone: the peer hears that it was disconnected |
//! | `a_send_invalidates_a_window` | not one of type 1, as it is; with `window(true)` it passes |
//! | `a_bind_is_carried_out_in_order`, `the_sink_of_a_read_may_be_a_window` | there are no reads into windows |
//! | `a_dropped_window_is_unbound` | at the end: a region that a window shows cannot be dropped; dat-core drops none |
//! | `a_flushed_bind_…` | at the end: rxe takes no request before there is a connection; dat-core posts none |

use dat_core::mem_transport::contract::rig::expect_unreported_waits;
use dat_core::provider::Provider;
use provider_verbs::{Adapter, Verbs};

fn pair() -> (Adapter, Adapter) {
    expect_unreported_waits(true);
    (open(), open())
}

fn open() -> Adapter {
    let params = std::env::var("OPENDAT_VERBS").unwrap_or_default();
    Verbs.open("verbs", &params).unwrap_or_else(|e| panic!("{params}: {e}"))
}

dat_core::transport_contract!(pair);
