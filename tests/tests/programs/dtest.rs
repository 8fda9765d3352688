//! `dtest`: a connection with private data, RDMA writes and reads, and ping-pong of messages.

use std::process::Command;

use opendat_tests::{Registry, Stop, find_program, is_torn};

use crate::Case;
use crate::pair::{Pair, Route, bad_lines, missing_texts};
use crate::rendezvous::{Answer, Rendezvous};

/// The line that a server prints when it listens.
const LISTENS: &str = "Server waiting for connect request";

/// A set of options, and the phases that both sides run with these options.
struct Variant {
    name: &'static str,
    args: &'static [&'static str],
    phases: &'static [Phase],
}

#[derive(Clone, Copy)]
enum Phase {
    /// 1000 RDMA writes in each direction. The contents are checked at the end.
    Write,
    /// Four RDMA reads, whose contents are checked, then 100 ping-pongs of messages.
    ReadAndPing,
    /// RDMA writes that are answered by RDMA writes. While they wait, both sides poll memory and do
    /// not call DAT.
    WritePingPong,
}

const WRITE_READ_PING: &[Phase] = &[Phase::Write, Phase::ReadAndPing];
/// The burst (`-B`) is a multiple of the signal rate (`-S`), as it is by default. Otherwise dtest
/// overwrites its buffer while the last, unsignalled writes from this buffer are under way.
const VARIANTS: &[Variant] = &[
    Variant { name: "cno", args: &["-c", "-b", "65536"], phases: WRITE_READ_PING },
    Variant { name: "polling", args: &["-p", "-b", "65536"], phases: WRITE_READ_PING },
    Variant {
        name: "polling_one_byte_more",
        args: &["-p", "-b", "65537"],
        phases: WRITE_READ_PING,
    },
    Variant { name: "times", args: &["-t", "-B", "200", "-S", "8"], phases: WRITE_READ_PING },
    Variant { name: "delayed_accept", args: &["-d", "1", "-b", "4096"], phases: WRITE_READ_PING },
    Variant { name: "write_only", args: &["-w", "-b", "262144"], phases: &[Phase::Write] },
    Variant { name: "write_only_one_way", args: &["-w", "-u", "-b", "262144"], phases: &[] },
    Variant { name: "write_pingpong", args: &["-W"], phases: &[Phase::WritePingPong] },
    Variant {
        name: "write_pingpong_checked",
        args: &["-D", "-b", "4096"],
        phases: &[Phase::WritePingPong],
    },
    Variant {
        name: "write_pingpong_sizes",
        args: &["-W", "-a", "-b", "1024"],
        phases: &[Phase::WritePingPong],
    },
];

pub(crate) fn cases() -> Vec<Case> {
    let variants = VARIANTS.iter().map(|variant| case(variant.name, variant.args, variant.phases));
    std::iter::once(plain()).chain(variants).collect()
}

/// Returns the case without options, in which each write has 4 MiB.
pub(crate) fn plain() -> Case {
    case("plain", &[], WRITE_READ_PING)
}

/// Returns the case with small sizes under valgrind: dtest must not access memory that is not
/// allocated, and must have no leaks.
pub(crate) fn under_valgrind() -> Case {
    Case::new("dtest::plain", |registry| {
        run(registry, &Route::LOOPBACK, Some(VALGRIND), &["-b", "4096"], WRITE_READ_PING)
    })
}

const VALGRIND: &[&str] = &[
    "--quiet",
    "--error-exitcode=9",
    "--leak-check=full",
    "--show-leak-kinds=definite",
    "--errors-for-leak-kinds=definite",
    "--num-callers=40",
    concat!("--suppressions=", env!("CARGO_MANIFEST_DIR"), "/tests/programs/dtest.supp"),
];

/// Runs dtest with small sizes between this server and client.
pub(crate) fn between(registry: &Registry, route: &Route<'_>) -> Result<(), Stop> {
    run(registry, route, None, &["-b", "65537"], WRITE_READ_PING)
}

fn case(name: &str, args: &'static [&'static str], phases: &'static [Phase]) -> Case {
    Case::new(format!("dtest::{name}"), move |registry| {
        run(registry, &Route::LOOPBACK, None, args, phases)
    })
}

fn run(
    registry: &Registry,
    route: &Route<'_>,
    valgrind: Option<&[&str]>,
    args: &[&str],
    phases: &[Phase],
) -> Result<(), Stop> {
    let dtest = find_program("dtest", "dapl2-utils")?;
    let valgrind = valgrind.map(|options| Ok((find_program("valgrind", "valgrind")?, options)));
    let valgrind: Option<(_, _)> = valgrind.transpose().map_err(Stop::Skip)?;
    let command = |role: &[&str]| {
        let mut command = match &valgrind {
            None => Command::new(&dtest),
            Some((program, options)) => {
                let mut command = Command::new(program);
                command.args(*options).arg("--").arg(&dtest);
                command
            }
        };
        command.args(["-P", registry.ia()]).args(args).args(role);
        command
    };
    let rendezvous = Rendezvous::new(route, LISTENS, Answer::None);
    let pair = Pair::run(
        registry,
        route,
        command(&["-s"]),
        |server| rendezvous.relay_message(server),
        [("client", route.client, command(&["-h", rendezvous.at()]))],
    )?;
    pair.verdict(&complaints(&pair, phases)).map_err(Stop::Fail)
}

fn complaints(pair: &Pair, phases: &[Phase]) -> Vec<String> {
    let mut complaints = Vec::new();
    for (who, peer, text) in
        [("server", "client", &pair.server.text), ("client", "server", &pair.client.text)]
    {
        let label = who.to_uppercase();
        complaints.extend(missing_texts(who, text, &["CONNECTED!", "DAPL Test Complete. PASSED"]));
        complaints.extend(bad_lines(
            who,
            text,
            &["Error", "ERR", "FAILED", "Failed", "unexpected"],
            &[],
        ));
        for phase in phases {
            let wanted = match phase {
                Phase::Write => {
                    vec![format!("{label}: RDMA write buffer contains: {peer} RDMA write data...")]
                }
                Phase::ReadAndPing => vec!["PING DATA with SEND MSG".to_owned()],
                Phase::WritePingPong => {
                    vec!["RDMA WRITE PINGPONG".to_owned(), "RDMA write PingPong: (".to_owned()]
                }
            };
            let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
            complaints.extend(missing_texts(who, text, &wanted));
        }
    }
    if phases.iter().any(|phase| matches!(phase, Phase::ReadAndPing)) {
        complaints.extend(misread(pair));
    }
    complaints
}

/// Returns a complaint if a side has read the wrong text.
///
/// Each dtest puts the text that its peer must read into its buffer without synchronizing with the
/// peer. Therefore the side that is ahead may find its own text of the phase before, or a mix of
/// both texts. The side that is behind must find the peer's text. Neither side may find `blah,
/// blah, blah`, which was in its own buffer before the read.
fn misread(pair: &Pair) -> Option<String> {
    let found = |label: &str, text: &str| {
        let read = text.split_once(&format!("{label}: RCV RDMA read buffer contains: "));
        read.and_then(|(_, rest)| rest.lines().next()).unwrap_or_default().to_owned()
    };
    let (server, client) = (found("SERVER", &pair.server.text), found("CLIENT", &pair.client.text));
    let (by_server, by_client) =
        (server == "client RDMA read data...", client == "server RDMA read data...");
    let server_ahead = is_torn(&server, "server RDMA write data...", "client RDMA read data...");
    let client_ahead = is_torn(&client, "client RDMA write data...", "server RDMA read data...");
    let in_order = by_server && client_ahead || by_client && server_ahead;
    (!in_order).then(|| format!("the server has read {server:?}, the client has read {client:?}"))
}
