//! `dtest`: connection with private data, RDMA writes and reads, ping-pong of messages.

use std::process::Command;

use opendat_tests::{Registry, Stop, find_program, is_torn};

use crate::Case;
use crate::pair::{Pair, Way, bad_lines, unsaid};
use crate::rendezvous::{Answer, Rendezvous};

/// What a server says when it listens.
const LISTENS: &str = "Server waiting for connect request";

/// What one set of options makes both sides do, and prove.
struct Variant {
    name: &'static str,
    args: &'static [&'static str],
    phases: &'static [Phase],
}

#[derive(Clone, Copy)]
enum Phase {
    /// 1000 RDMA writes in each direction, contents checked at the end.
    Write,
    /// Four RDMA reads and their contents, then 100 ping-pongs of messages.
    ReadAndPing,
    /// RDMA writes answered by RDMA writes; both sides watch memory and never call DAT for it.
    WritePingPong,
}

const WRITE_READ_PING: &[Phase] = &[Phase::Write, Phase::ReadAndPing];
/// The burst (`-B`) is a multiple of the signal rate (`-S`), as it is by default: else dtest overwrites its buffer while
/// the last, unsignalled writes from it are under way.
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

/// No options: 4 MiB a write.
pub(crate) fn plain() -> Case {
    case("plain", &[], WRITE_READ_PING)
}

/// Small, and under valgrind: no access to memory that is not there or not ours, and nothing left when it ends.
pub(crate) fn under_valgrind() -> Case {
    Case::new("dtest::plain", |registry| {
        run(registry, &Way::LOOPBACK, Some(VALGRIND), &["-b", "4096"], WRITE_READ_PING)
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

/// Small, between these two.
pub(crate) fn between(registry: &Registry, way: &Way<'_>) -> Result<(), Stop> {
    run(registry, way, None, &["-b", "65537"], WRITE_READ_PING)
}

fn case(name: &str, args: &'static [&'static str], phases: &'static [Phase]) -> Case {
    Case::new(format!("dtest::{name}"), move |registry| {
        run(registry, &Way::LOOPBACK, None, args, phases)
    })
}

fn run(
    registry: &Registry,
    way: &Way<'_>,
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
    let rendezvous = Rendezvous::new(way, LISTENS, Answer::None);
    let pair = Pair::run(
        registry,
        way,
        command(&["-s"]),
        |server| rendezvous.arrange(server),
        [("client", way.client, command(&["-h", rendezvous.at()]))],
    )?;
    pair.verdict(&complaints(&pair, phases)).map_err(Stop::Fail)
}

fn complaints(pair: &Pair, phases: &[Phase]) -> Vec<String> {
    let mut complaints = Vec::new();
    for (who, peer, text) in
        [("server", "client", &pair.server.text), ("client", "server", &pair.client.text)]
    {
        let label = who.to_uppercase();
        complaints.extend(unsaid(who, text, &["CONNECTED!", "DAPL Test Complete. PASSED"]));
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
            complaints.extend(unsaid(who, text, &wanted));
        }
    }
    if phases.iter().any(|phase| matches!(phase, Phase::ReadAndPing)) {
        complaints.extend(misread(pair));
    }
    complaints
}

/// A dtest puts the text that its peer shall read into its buffer without any word between the two. So the one that is
/// ahead may find there what it wrote itself in the phase before, or some octets of that and some of the text; the other,
/// which is behind, finds the text.
/// `blah, blah, blah` is what neither may find: that was in its own buffer before it read.
fn misread(pair: &Pair) -> Option<String> {
    let found = |label: &str, text: &str| {
        let said = text.split_once(&format!("{label}: RCV RDMA read buffer contains: "));
        said.and_then(|(_, rest)| rest.lines().next()).unwrap_or_default().to_owned()
    };
    let (server, client) = (found("SERVER", &pair.server.text), found("CLIENT", &pair.client.text));
    let (by_server, by_client) =
        (server == "client RDMA read data...", client == "server RDMA read data...");
    let server_ahead = is_torn(&server, "server RDMA write data...", "client RDMA read data...");
    let client_ahead = is_torn(&client, "client RDMA write data...", "server RDMA read data...");
    let in_order = by_server && client_ahead || by_client && server_ahead;
    (!in_order).then(|| format!("the server has read {server:?}, the client {client:?}"))
}
