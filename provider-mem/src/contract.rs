//! The contract of [`Transport`](dat_core::provider::Transport) as test cases for any transport.
//!
//! A case gets two adapters that reach each other, or the same adapter twice. The case panics if
//! the transport breaks a promise. No case depends on a certain transport.
//! [`transport_contract!`](crate::transport_contract) makes one `#[test]` of each case. On some
//! wires, a remote failure is reported to the requester only as the end of the connection. The
//! cases permit that. No case sleeps except to wait for an event, for at most
//! [`rig::EVENT_TIMEOUT`].

mod connections;
mod data;
mod datagrams;
mod extended;
mod not_ready;
mod queues;
pub mod rig;
mod windows;

pub use connections::*;
pub use data::*;
pub use datagrams::*;
pub use extended::*;
pub use not_ready::*;
pub use queues::*;
pub use windows::*;

/// Makes a test of each contract case. The argument opens two adapters that reach each other: `||
/// (a, b)`.
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
            // Cases about messages for which no receive is posted.
            a_message_waits_for_its_receive
            each_message_that_waits_is_reported_once
            a_sender_is_stopped_until_there_are_receives
            messages_wait_for_buffers_of_a_shared_queue
            a_connection_ends_while_a_message_waits
            // Windows.
            a_window_permits_access_until_it_is_bound_again
            a_bind_is_carried_out_in_order
            windows_are_checked_like_regions
            a_scoped_window_is_for_one_connection
            addresses_may_count_from_zero
            a_send_invalidates_a_window
            a_send_does_not_invalidate_a_region
            the_sink_of_a_read_may_be_a_window
            binds_are_checked
            a_flushed_bind_leaves_the_window_unchanged
            a_dropped_window_is_unbound
            // Cases about immediate data and atomic operations.
            unsupported_operations_are_refused
            a_write_with_immediate_data_is_one_operation
            atomic_operations_return_the_old_value
            atomic_operations_are_checked
            // Queues.
            unsignalled_requests_complete_silently
            an_armed_queue_makes_one_upcall
            solicited_waits_ignore_other_completions
            solicited_waits_ignore_quiet_posts
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
            an_unanswered_request_times_out
            a_graceful_close_carries_out_posted_requests
            an_abrupt_close_flushes
            posts_after_the_end_are_flushed
            both_may_close_at_once
            a_dropped_queue_pair_disconnects
            an_attempt_can_be_abandoned
            connections_come_and_go
            // Datagrams.
            datagrams_are_supported_or_refused
            an_address_is_resolved_with_private_data
            a_request_for_datagrams_is_rejected
            nobody_listening_for_datagrams_is_a_failure
            a_full_backlog_is_a_failure
            an_unanswered_request_for_datagrams_times_out
            addresses_are_resolved_in_any_order
            an_attempt_ends_with_its_queue_pair
            datagrams_of_every_size_arrive
            immediate_data_arrive_with_a_datagram
            one_queue_pair_has_many_peers
            a_datagram_needs_a_buffer
            a_shared_queue_serves_datagrams
            unsignalled_datagrams_complete_silently
            datagrams_are_checked
            an_abrupt_close_of_datagrams_flushes
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
