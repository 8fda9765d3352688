//! The contract of [`Transport`](dat_core::provider::Transport) as test cases, for any transport.
//!
//! A case takes two adapters that reach each other (or the same one twice), panics where a promise is broken, and
//! does not know the transport. [`transport_contract!`](crate::transport_contract) makes one `#[test]` of each.
//! A wire may report a remote failure at the requester only as the end of the connection; the cases allow that.
//! Nothing sleeps but to wait for something, and that for [`rig::PATIENCE`] at most.

mod connections;
mod data;
mod extended;
mod not_ready;
mod queues;
pub mod rig;
mod windows;

pub use connections::*;
pub use data::*;
pub use extended::*;
pub use not_ready::*;
pub use queues::*;
pub use windows::*;

/// Makes a test of each contract case; the argument opens two adapters that reach each other: `|| (a, b)`.
#[macro_export]
macro_rules! transport_contract {
    ($open:expr) => {
        $crate::transport_contract!(@cases $open;
            // Data.
            sends_arrive_in_order_and_complete
            every_size_arrives
            segments_are_gathered_and_scattered
            writes_land_where_they_should
            reads_fetch_what_is_there
            empty_operations_complete
            a_fence_waits_for_reads
            many_requests_in_both_directions
            too_long_a_message_breaks_the_connection
            forbidden_remote_access_breaks_the_connection
            posts_are_checked
            // Messages without a receive.
            a_message_waits_for_its_receive
            each_message_that_waits_is_told_of_once
            a_sender_is_stopped_until_there_are_receives
            messages_wait_for_buffers_of_a_shared_queue
            a_connection_ends_while_a_message_waits
            // Windows.
            a_window_lets_peers_in_until_it_is_bound_anew
            a_bind_takes_its_turn
            windows_are_checked_where_regions_are
            a_scoped_window_is_for_one_connection
            addresses_may_count_from_zero
            a_send_invalidates_a_window
            a_send_does_not_invalidate_a_region
            a_read_may_end_in_a_window
            binds_are_checked
            a_flushed_bind_leaves_the_window_as_it_was
            a_dropped_window_is_unbound
            // Immediate data and atomic operations.
            what_is_not_offered_is_refused
            a_write_with_immediate_data_is_one_operation
            atomic_operations_tell_what_was_there
            atomic_operations_are_checked
            // Queues.
            unsignalled_requests_complete_silently
            an_armed_queue_calls_once
            solicited_waits_ignore_the_rest
            solicited_waits_ignore_what_is_posted_quiet
            a_full_completion_queue_overflows
            resizing_loses_nothing
            a_shared_queue_serves_all_its_endpoints
            allocated_buffers_are_counted
            watermarks_limit_what_is_held
            upcalls_stop_at_drop
            a_sleeper_is_woken
            // Connections.
            private_data_and_addresses_arrive
            read_depths_are_agreed
            a_rejection_carries_private_data
            nobody_listening_is_a_rejection
            a_dropped_request_is_a_rejection
            a_full_backlog_is_a_rejection
            ports_are_exclusive
            an_unanswered_call_times_out
            a_graceful_close_carries_out_what_is_posted
            an_abrupt_close_flushes
            posts_after_the_end_are_flushed
            both_may_close_at_once
            a_dropped_queue_pair_disconnects
            an_attempt_can_be_abandoned
            connections_come_and_go
        );
    };
    (@cases $open:expr; $($case:ident)*) => {
        $(#[test]
        fn $case() {
            let (a, b) = ($open)();
            $crate::contract::$case(&a, &b);
        })*
    };
}
