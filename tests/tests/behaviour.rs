//! Tests of behaviour that need C programs of this project (`programs/*.c`), over each provider: a
//! killed peer, leaks, one-sided progress, wrong handles, allocations, signals, forks, and the end
//! of the process.
#![forbid(unsafe_code)]

use std::fs;
use std::process::ExitCode;
use std::time::Duration;

use libtest_mimic::Arguments;
use opendat_tests::{
    Dist, PROVIDERS, Provider, Registry, Skip, Stop, c_program, compiled, ends_with_ok,
    enter_own_network, has_own_network, trial,
};

/// The time limit of a program on a busy machine. The limit is long, because it only ends a program
/// that hangs.
const LIMIT: Duration = Duration::from_secs(600);

/// A behaviour, and the program that tests the behaviour.
struct Behaviour {
    name: &'static str,
    program: &'static str,
    args: &'static [&'static str],
    registry: fn(&Dist, &Provider) -> Result<Registry, Skip>,
}

const BEHAVIOURS: &[Behaviour] = &[
    built_in("a_killed_target_disconnects_the_writer", "killed_peer", &["target"]),
    built_in("a_killed_writer_disconnects_the_target", "killed_peer", &["writer"]),
    under(
        Registry::debian,
        "a_killed_peer_is_noticed_under_debians_registry_too",
        "killed_peer",
        &["target"],
    ),
    built_in("a_peer_that_was_called_may_be_stopped", "stopped_peer", &["called"]),
    built_in("a_peer_that_has_called_may_be_stopped", "stopped_peer", &["caller"]),
    built_in("suppressed_requests_give_their_places_back", "quiet", &["suppressed"]),
    built_in("requests_without_an_evd_give_their_places_back", "quiet", &["mute"]),
    built_in("requests_that_are_all_suppressed_give_their_places_back", "quiet", &["only"]),
    built_in("unsignalled_requests_give_their_places_back", "quiet", &["unsignalled"]),
    built_in("an_rmr_is_bound_that_the_peer_has_invalidated", "binds", &["invalidated"]),
    built_in("one_sided_operations_complete_while_the_target_computes", "one_sided", &["compute"]),
    built_in("one_sided_operations_complete_while_the_target_sleeps", "one_sided", &["sleep"]),
    built_in("one_sided_operations_of_a_polling_initiator_complete", "one_sided", &["poll"]),
    built_in("a_completed_write_may_be_announced_on_another_connection", "announced", &[]),
    under(
        Registry::debian,
        "one_sided_operations_complete_under_debians_registry_too",
        "one_sided",
        &["compute"],
    ),
    built_in("a_first_receive_may_be_posted_after_the_message_has_come", "late_receive", &["own"]),
    built_in(
        "the_first_receive_of_an_srq_may_be_posted_after_the_messages",
        "late_receive",
        &["shared"],
    ),
    under(plugin, "a_first_receive_may_be_late_with_a_loaded_provider", "late_receive", &["own"]),
    built_in("a_service_point_takes_requests_at_once", "listens_at_once", &[]),
    built_in("connections_leave_nothing_behind", "connection_cycles", &[]),
    built_in(
        "connections_of_suppressed_requests_leave_nothing_on_a_full_evd",
        "soak",
        &["50000", "apart"],
    ),
    built_in("a_thousand_connections_at_a_time_lose_nothing", "thousand_connections", &[]),
    built_in(
        "round_trips_of_one_that_blocks_come_beside_idle_connections",
        "beside_idle",
        &["wait", "1000", "50"],
    ),
    built_in(
        "round_trips_of_one_that_polls_come_beside_idle_connections",
        "beside_idle",
        &["poll", "1000", "50"],
    ),
    under(in_own_network, "a_peer_without_a_route_is_told_apart", "no_way", &["route"]),
    built_in("extended_operations_get_the_arguments_of_a_c_program", "extended", &[]),
    built_in("killed_neighbours_disturb_nobody_else_on_their_address", "neighbours", &[]),
    built_in("wrong_handles_are_refused_by_every_function", "bad_handles", &[]),
    built_in("a_connected_program_that_does_nothing_is_woken_by_nobody", "idle", &[]),
    built_in("moving_data_allocates_nothing", "allocations", &[]),
    built_in("calls_without_memory_say_so", "no_memory", &[]),
    under(plugin, "calls_of_a_loaded_provider_without_memory_say_so", "no_memory", &[]),
    built_in("a_signal_interrupts_a_wait_and_loses_nothing", "interrupted", &["waits"]),
    built_in("a_stop_or_a_debugger_interrupts_no_wait", "interrupted", &["stopped"]),
    built_in("a_storm_of_signals_disturbs_no_transfer", "interrupted", &["storm"]),
    built_in("a_storm_of_signals_does_not_keep_an_adapter_from_opening", "interrupted", &["open"]),
    built_in("a_cancelled_thread_leaves_its_wait_in_order", "cancelled", &["waits"]),
    built_in("a_call_that_does_not_wait_is_not_cancelled", "cancelled", &["calls"]),
    built_in("a_thread_may_be_cancelled_while_it_connects", "cancelled", &["cycles"]),
    built_in("a_late_signal_ends_no_uncancellable_thread", "cancelled", &["late"]),
    built_in("a_proxy_agent_may_end_its_thread", "cancelled", &["agent"]),
    under(plugin, "a_cancelled_thread_leaves_a_loaded_provider", "cancelled", &["waits"]),
    under(
        Registry::debian,
        "a_cancelled_thread_leaves_its_wait_under_debians_registry_too",
        "cancelled",
        &["waits"],
    ),
    built_in("children_of_a_connected_process_disturb_nothing", "forks", &["graceful"]),
    built_in("a_child_does_not_keep_a_connection_open", "forks", &["abrupt"]),
    built_in("calls_fit_on_stacks_of_the_promised_sizes", "small_stacks", &["256", "64"]),
    under(
        plugin,
        "calls_of_a_loaded_provider_fit_on_stacks_of_the_promised_sizes",
        "small_stacks",
        &["256", "64"],
    ),
    built_in("a_server_that_changes_its_root_accepts", "chroot", &[]),
    built_in("a_process_may_end_at_any_moment", "exits", &["400"]),
    under(plugin, "a_process_with_a_loaded_provider_may_end_at_any_moment", "exits", &["400"]),
    built_in("a_handler_that_exits_closes_what_its_thread_waits_on", "handler_closes", &["asleep"]),
    under(
        Registry::debian,
        "a_handler_that_exits_closes_it_under_debians_registry_too",
        "handler_closes",
        &["asleep"],
    ),
    built_in("a_handler_may_close_at_any_moment", "handler_closes", &["moment", "200"]),
    under(
        Registry::debian,
        "a_handler_may_close_at_any_moment_under_debians_registry_too",
        "handler_closes",
        &["moment", "50"],
    ),
    under(
        plugin,
        "a_handler_may_close_a_loaded_provider_at_any_moment",
        "handler_closes",
        &["moment", "50"],
    ),
    built_in(
        "a_handler_may_close_while_its_thread_queries_the_adapter",
        "handler_closes",
        &["call", "200"],
    ),
    built_in("a_wait_that_a_handler_closes_ends_when_it_returns", "handler_closes", &["returns"]),
    under(
        Registry::debian,
        "a_wait_that_a_handler_closes_ends_under_debians_registry_too",
        "handler_closes",
        &["returns"],
    ),
    under(
        Registry::debian,
        "a_signal_interrupts_a_wait_under_debians_registry_too",
        "interrupted",
        &["waits"],
    ),
    under(
        Registry::debian,
        "a_stop_or_a_debugger_interrupts_no_wait_under_debians_registry",
        "interrupted",
        &["stopped"],
    ),
];

/// Tests for providers that send packets themselves.
const WITH_PACKETS: &[Behaviour] = &[
    built_in("echoed_messages_give_their_places_back", "echo_completions", &["20000"]),
    // A send over iWARP completes even if the peer has not posted a receive.
    built_in("a_bind_comes_after_a_send_that_waits", "binds", &["late"]),
    built_in("a_queue_of_binds_is_flushed_and_none_is_lost", "binds", &["flushed"]),
    under(
        in_a_bad_network,
        "a_killed_target_is_noticed_in_a_bad_network",
        "killed_peer",
        &["target"],
    ),
    under(
        in_a_bad_network,
        "a_killed_writer_is_noticed_in_a_bad_network",
        "killed_peer",
        &["writer"],
    ),
];

/// Tests for providers that have datagrams.
const WITH_DATAGRAMS: &[Behaviour] =
    &[built_in("an_endpoint_has_a_thousand_peers_in_little_memory", "thousand_peers", &[])];

/// Tests for providers that have a socket for each connection.
const WITH_STREAMS: &[Behaviour] = &[
    under(
        without_shared_memory,
        "a_completed_write_may_be_announced_on_another_connection_over_tcp",
        "announced",
        &[],
    ),
    under(in_own_network, "ports_that_are_used_up_are_no_unreachable_peer", "no_way", &["ports"]),
    under(
        for_many_connections,
        "round_trips_come_beside_ten_thousand_idle_connections",
        "beside_idle",
        &["wait", "10000", "50"],
    ),
];

const fn built_in(
    name: &'static str,
    program: &'static str,
    args: &'static [&'static str],
) -> Behaviour {
    under(builtin, name, program, args)
}

const fn under(
    registry: fn(&Dist, &Provider) -> Result<Registry, Skip>,
    name: &'static str,
    program: &'static str,
    args: &'static [&'static str],
) -> Behaviour {
    Behaviour { name, program, args, registry }
}

fn builtin(dist: &Dist, provider: &Provider) -> Result<Registry, Skip> {
    Ok(Registry::builtin(dist, provider))
}

fn in_a_bad_network(dist: &Dist, provider: &Provider) -> Result<Registry, Skip> {
    let network = "net=loss=2%,duplicate=1%,reorder=2%,seed=4";
    Ok(Registry::builtin(dist, provider).with_params(network))
}

fn without_shared_memory(dist: &Dist, provider: &Provider) -> Result<Registry, Skip> {
    Ok(Registry::builtin(dist, provider).with_params("shm=off"))
}

/// Returns the registry for a program that changes settings of its network namespace.
fn in_own_network(dist: &Dist, provider: &Provider) -> Result<Registry, Skip> {
    match has_own_network() {
        true => Ok(Registry::builtin(dist, provider)),
        false => Err(Skip(
            "there is no network namespace (needs unshare, ip, and the permission)".to_owned(),
        )),
    }
}

/// Returns the registry for 10,000 connections. Each process needs a descriptor for each
/// connection, and one process needs a port for each connection.
fn for_many_connections(dist: &Dist, provider: &Provider) -> Result<Registry, Skip> {
    const DESCRIPTORS: u64 = 10_500;
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let hard = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files")?.split_whitespace().nth(1));
    // If there is no limit, the file has a word in place of a number.
    if let Some(hard) =
        hard.and_then(|hard| hard.parse::<u64>().ok()).filter(|&hard| hard < DESCRIPTORS)
    {
        return Err(Skip(format!(
            "the limit of descriptors is {hard} (ulimit -Hn), but the test needs {DESCRIPTORS}"
        )));
    }
    let registry = in_own_network(dist, provider)?;
    fs::write("/proc/sys/net/ipv4/ip_local_port_range", "20000 65535")
        .map_err(|error| Skip(format!("the range of local ports cannot be extended: {error}")))?;
    Ok(registry)
}

fn plugin(dist: &Dist, provider: &Provider) -> Result<Registry, Skip> {
    Ok(Registry::plugin(dist, provider))
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    if !arguments.list {
        enter_own_network();
    }
    // Trials run one at a time, because some of these programs use all processors.
    arguments.test_threads = Some(1);
    let trials = PROVIDERS.iter().flat_map(|provider| {
        let name = move |behaviour: &Behaviour| format!("{}::{}", provider.ia, behaviour.name);
        let of_wire = if provider.packets { WITH_PACKETS } else { WITH_STREAMS };
        let of_datagrams = if provider.datagrams { WITH_DATAGRAMS } else { &[] };
        BEHAVIOURS
            .iter()
            .chain(of_wire)
            .chain(of_datagrams)
            .map(move |behaviour| trial(name(behaviour), || behaviour.run(provider)))
    });
    opendat_tests::run(&arguments, trials.collect())
}

impl Behaviour {
    fn run(&self, provider: &Provider) -> Result<(), Stop> {
        let dist = Dist::locate()?;
        let registry = (self.registry)(&dist, provider)?;
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut command = compiled(&c_program(&dist, self.program, dir.path())?);
        command.args(self.args);
        Ok(ends_with_ok(self.program, command, &registry, LIMIT)?)
    }
}
