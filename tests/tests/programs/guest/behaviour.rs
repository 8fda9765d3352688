//! Tests of behaviour that need C programs of this project (`programs/*.c`), in the guest.
//! `tests/behaviour.rs` has these tests over the other providers.

use std::process::Command;

use opendat_tests::{Dist, Registry, Stop, ends_with_ok};

use crate::pair::{LIMIT, ProgramPlace, Route};

/// A program and its arguments.
#[derive(Clone, Copy)]
pub(super) struct Behaviour {
    pub(super) name: &'static str,
    program: &'static str,
    args: &'static [&'static str],
}

const fn behaviour(
    name: &'static str,
    program: &'static str,
    args: &'static [&'static str],
) -> Behaviour {
    Behaviour { name, program, args }
}

pub(super) const BEHAVIOURS: &[Behaviour] = &[
    behaviour("a_killed_target", "killed_peer", &["target"]),
    behaviour("a_killed_writer", "killed_peer", &["writer"]),
    behaviour("a_killed_peer_that_was_idle", "killed_peer", &["idle"]),
    behaviour("children", "forks", &["graceful"]),
    behaviour("children_and_an_abrupt_end", "forks", &["abrupt"]),
    behaviour("calls_that_nobody_answers", "no_answer", &["10.77.0.99", "203.0.113.1"]),
    behaviour("suppressed_requests", "quiet", &["suppressed"]),
    behaviour("requests_without_an_evd", "quiet", &["mute"]),
    behaviour("requests_that_are_all_suppressed", "quiet", &["only"]),
    behaviour("unsignalled_requests", "quiet", &["unsignalled"]),
    behaviour("a_small_message_is_copied_when_it_is_posted", "inline", &[]),
    behaviour("a_bind_behind_a_send_that_waits", "binds", &["late"]),
    behaviour("a_bind_queue_that_is_flushed", "binds", &["flushed"]),
    behaviour("a_bind_of_what_the_peer_has_invalidated", "binds", &["invalidated"]),
    behaviour("a_first_receive_that_is_late", "late_receive", &["own"]),
    behaviour("a_first_receive_of_an_srq_that_is_late", "late_receive", &["shared"]),
    behaviour("waits_poll_as_long_as_is_said", "spin", &[]),
    behaviour("a_target_that_computes", "one_sided", &["compute"]),
    behaviour("connections_leave_nothing_behind", "connection_cycles", &["50"]),
    behaviour("connections_leave_nothing_on_a_full_evd", "soak", &["100"]),
    behaviour("wrong_handles", "bad_handles", &[]),
    behaviour("a_signal_interrupts_a_wait", "interrupted", &["waits"]),
    behaviour("a_stop_or_a_debugger_interrupts_no_wait", "interrupted", &["stopped"]),
    behaviour("a_storm_of_signals", "interrupted", &["storm"]),
    behaviour("ends_at_any_moment", "exits", &["40"]),
    behaviour("a_handler_that_exits", "handler_closes", &["asleep"]),
    behaviour("a_handler_that_closes_at_any_moment", "handler_closes", &["moment", "30"]),
    behaviour("a_handler_that_closes_and_returns", "handler_closes", &["returns"]),
];

/// Tests that may behave differently over siw.
pub(super) const SIW: &[Behaviour] = &[
    behaviour("a_killed_target", "killed_peer", &["target"]),
    behaviour("a_killed_writer", "killed_peer", &["writer"]),
    behaviour("an_endpoint_that_the_device_fails", "ep_broken", &[]),
    behaviour("children", "forks", &["graceful"]),
    behaviour("suppressed_requests", "quiet", &["suppressed"]),
    behaviour("requests_without_an_evd", "quiet", &["mute"]),
    behaviour("requests_that_are_all_suppressed", "quiet", &["only"]),
    behaviour("unsignalled_requests", "quiet", &["unsignalled"]),
    behaviour("connections_leave_nothing_behind", "connection_cycles", &["50"]),
    behaviour("ends_at_any_moment", "exits", &["40"]),
];

/// Tests that may behave differently over IPv6.
pub(super) const IPV6: &[Behaviour] = &[
    behaviour("a_killed_target", "killed_peer", &["target"]),
    behaviour("calls_that_nobody_answers", "no_answer", &["fd77:0:0:99::", "2001:db8::1"]),
];

impl Behaviour {
    pub(super) fn run(
        &self,
        dist: &Dist,
        registry: &Registry,
        route: &Route<'_>,
    ) -> Result<(), Stop> {
        let ProgramPlace::Guest(guest, _) = route.server else {
            unreachable!("the server runs in the guest")
        };
        let [_, program] = guest.c_program(dist, self.program)?;
        let mut command = Command::new(program);
        command
            .args(self.args)
            .env("OPENDAT_TEST_IA", registry.ia())
            .env("OPENDAT_TEST_ADDRESS", route.to);
        Ok(ends_with_ok(self.program, route.server.command(command), registry, LIMIT)?)
    }
}
