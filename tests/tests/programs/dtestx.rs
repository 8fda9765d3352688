//! Runs `dtestx`, which tests the InfiniBand extension: RDMA writes with immediate data, compare
//! and swap, and fetch and add, in both directions at once; counters; and a query of an adapter
//! that is not open.

use std::process::Command;
use std::time::Instant;

use opendat_tests::{Provider, Registry, Running, Stop, find_program};

use crate::Case;
use crate::pair::{LIMIT, Pair, Route, bad_lines, missing_texts};
use crate::rendezvous::{Answer, Rendezvous};

/// The line that a server prints when it listens, if it runs with verbose output.
const LISTENS: &str = "Server waiting for connect[0] request";

pub(crate) fn cases(provider: &Provider) -> Vec<Case> {
    let counters = pair("counters", &["-p", "-v", "-b", "65536"], counters);
    let mut cases = vec![plain(), counters, query()];
    if !provider.datagrams {
        cases.push(datagrams_are_refused());
    }
    cases
}

/// Returns the case in which both programs run with their default options.
pub(crate) fn plain() -> Case {
    pair("plain", &[], |_, _| Vec::new())
}

/// Runs dtestx with its default options between this server and client.
pub(crate) fn between(registry: &Registry, route: &Route<'_>) -> Result<(), Stop> {
    run(registry, route, &[], |_, _| Vec::new())
}

/// Returns a case with a server and a client that have these options. `more` returns further
/// complaints about the output of one side.
fn pair(name: &str, args: &'static [&'static str], more: fn(&str, &str) -> Vec<String>) -> Case {
    Case::new(format!("dtestx::{name}"), move |registry| {
        run(registry, &Route::LOOPBACK, args, more)
    })
}

fn run(
    registry: &Registry,
    route: &Route<'_>,
    args: &[&str],
    more: fn(&str, &str) -> Vec<String>,
) -> Result<(), Stop> {
    let program = find_program("dtestx", "dapl2-utils")?;
    let command = |role: &[&str]| {
        let mut command = Command::new(&program);
        command.args(["-P", registry.ia()]).args(args).args(role);
        command
    };
    let rendezvous = Rendezvous::new(route, LISTENS, Answer::Echo);
    let pair = Pair::run(
        registry,
        route,
        command(&["-s", "-v"]),
        |server| rendezvous.relay_message(server),
        [("client", route.client, command(&["-h", rendezvous.at()]))],
    )?;
    let mut complaints = Vec::new();
    for (who, text, immediate, in_memory) in [
        ("server", &pair.server.text, "Server received immed_data=0x7777", "Client written data"),
        ("client", &pair.client.text, "Client received immed_data=0x1111", "Server data"),
    ] {
        let expected = [
            immediate,
            in_memory,
            "RDMA_WRITE_WITH_IMMEDIATE_DATA test - PASSED",
            "CMP_SWAP test - PASSED",
            "FETCH_ADD test - PASSED",
            "IB extension test - immed/atomic test PASSED",
        ];
        complaints.extend(missing_texts(who, text, &expected));
        complaints.extend(bad_lines(
            who,
            text,
            &["ERROR", "rror ", "Skipping", "unexpected"],
            &["DCNT_"],
        ));
        complaints.extend(more(who, text));
    }
    pair.verdict(&complaints).map_err(Stop::Fail)
}

/// Checks that the counters in the output of a side have counted all its operations.
fn counters(who: &str, text: &str) -> Vec<String> {
    let counted = |name: &str| {
        let value = text.lines().find_map(|line| {
            line.trim().split_once(": ")?.1.strip_prefix(name)?.strip_prefix(" = ")
        });
        value.and_then(|value| value.trim().parse::<u64>().ok())
    };
    let wrong = |&(name, expected): &(&str, u64)| {
        let found = counted(name);
        (found != Some(expected))
            .then(|| format!("{who} counts {name} = {found:?}, not {expected}"))
    };
    const EXPECTED: &[(&str, u64)] = &[
        // A side registers ten buffers of the given size, and one buffer for atomic operations.
        ("DCNT_IA_LMR_CREATE", 11),
        ("DCNT_IA_PZ_CREATE", 1),
        ("DCNT_IA_EP_CREATE", 1),
        ("DCNT_EP_POST_SEND", 1),
        ("DCNT_EP_POST_SEND_DATA", 16),
        ("DCNT_EP_POST_RECV", 7),
        ("DCNT_EP_POST_RECV_DATA", 7 * 65536),
        ("DCNT_EP_POST_WRITE_IMM", 1),
        ("DCNT_EP_POST_WRITE_IMM_DATA", 65536),
        ("DCNT_EP_POST_CMP_SWAP", 1),
        ("DCNT_EP_POST_FETCH_ADD", 2),
        ("DCNT_EP_RECV", 1),
        ("DCNT_EP_RECV_DATA", 16),
        ("DCNT_EP_RECV_RDMA_IMM", 1),
        ("DCNT_EP_RECV_RDMA_IMM_DATA", 65536),
        ("DCNT_EP_DISCONNECT", 1),
    ];
    EXPECTED.iter().filter_map(wrong).collect()
}

/// Returns the case of `-q`, which queries an adapter by name without connecting.
fn query() -> Case {
    Case::new("dtestx::query", |registry| {
        let ended = alone(registry, &["-q"])?;
        let mut complaints = Vec::new();
        for name in ["COUNTERS", "IB_FETCH_AND_ADD", "IB_CMP_AND_SWAP", "IB_IMMED_DATA"] {
            complaints.extend(missing_texts("dtestx", &ended.text, &[&format!("DAT_{name}=TRUE")]));
        }
        ended.succeeded("dtestx").map_err(|why| complaints.join("\n") + &why)?;
        if complaints.is_empty() {
            Ok(())
        } else {
            Err(Stop::Fail(complaints.join("\n") + &ended.text))
        }
    })
}

/// Returns the case of `-u` for a provider without datagrams: dat_ep_create must fail, and dtestx
/// must report that failure.
fn datagrams_are_refused() -> Case {
    Case::new("dtestx::datagrams_are_refused", |registry| {
        let ended = alone(registry, &["-u"])?;
        let refusal = "dat_ep_create returned DAT_MODEL_NOT_SUPPORTED";
        match (ended.status.code(), ended.text.contains(refusal)) {
            (Some(1), true) => Ok(()),
            (code, _) => {
                Err(Stop::Fail(format!("ended with {code:?}, without {refusal:?}\n{}", ended.text)))
            }
        }
    })
}

/// Runs dtestx without a peer.
fn alone(registry: &Registry, args: &[&str]) -> Result<opendat_tests::Ended, Stop> {
    let mut command = Command::new(find_program("dtestx", "dapl2-utils")?);
    command.args(["-P", registry.ia()]).args(args);
    Ok(Running::start("dtestx", command, registry, Instant::now() + LIMIT)?.end()?)
}
