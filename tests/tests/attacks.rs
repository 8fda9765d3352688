//! A transfer beside attacks of another user of the host who does nothing else: no octet is wrong, no connection is lost, and
//! everybody who calls is served. Only root can be several users.
//!
//! `OPENDAT_ATTACK_SECONDS=60` measures as well: it runs each attack for so long, and the same against a port that nobody has,
//! and prints what the transfers have left of each other.
#![forbid(unsafe_code)]

#[path = "attacks/attacker.rs"]
mod attacker;

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use libtest_mimic::Arguments;
use opendat_tests::{
    Dist, PROVIDERS, Provider, Registry, Running, Skip, Stop, enter_network_of_all_users, find_program,
    has_own_network, trial,
};
use tempfile::TempDir;

use attacker::Attack;

/// How long any program may take.
const LIMIT: Duration = Duration::from_secs(600);
/// Of dapltest's server.
const PORT: u16 = 21950;
/// Nobody has it, for UDP nor for TCP.
const CLOSED: u16 = 4790;
/// Rounds of an attack and of the same against a closed port.
const ROUNDS: u32 = 2;

/// Those of providers that send packets, and of those that have streams, with the port that is attacked.
const ON_PACKETS: [(&str, Attack, u16); 4] = [
    ("noise", Attack::Noise, wire::rocev2::UDP_PORT),
    ("forged_requests", Attack::Requests, wire::rocev2::UDP_PORT),
    ("guessed_packets", Attack::Packets, wire::rocev2::UDP_PORT),
    ("local_sockets", Attack::LocalSockets, wire::rocev2::UDP_PORT),
];
const ON_STREAMS: [(&str, Attack, u16); 2] =
    [("silent_callers", Attack::SilentCallers, PORT), ("loud_callers", Attack::LoudCallers, PORT)];

fn main() -> ExitCode {
    if attacker::is_attacker() {
        return attacker::attack();
    }
    let mut arguments = Arguments::from_args();
    if !arguments.list {
        enter_network_of_all_users();
    }
    arguments.test_threads = Some(1);
    let seconds = env::var("OPENDAT_ATTACK_SECONDS").ok().and_then(|text| text.parse().ok());
    let trials = PROVIDERS.iter().flat_map(|provider| {
        let attacks: &[(&str, Attack, u16)] = if provider.packets { &ON_PACKETS } else { &ON_STREAMS };
        attacks.iter().map(move |&(name, attack, port)| {
            trial(format!("{}::beside_{name}", provider.ia), move || {
                let world = World::new(provider)?;
                match seconds {
                    Some(seconds) => world.measure(name, attack, port, Duration::from_secs(seconds)),
                    None => world.transfers_beside(attack, port, Duration::from_secs(1)).map(drop),
                }
            })
        })
    });
    opendat_tests::run(&arguments, trials.collect())
}

struct World {
    registry: Registry,
    /// A copy of this program, for the attacker.
    program: PathBuf,
    _dir: TempDir,
}

/// What has come of transfers beside an attack.
struct Outcome {
    transfers: u32,
    seconds: f64,
    /// What the attacker has said last.
    attempts: String,
}

impl Outcome {
    fn rate(&self) -> f64 {
        f64::from(self.transfers) / self.seconds
    }
}

impl World {
    fn new(provider: &Provider) -> Result<Self, Stop> {
        if !has_own_network() {
            return Err(
                Skip("no network namespace with all users (needs root, unshare and ip)".into()).into()
            );
        }
        let dir = tempfile::tempdir().expect("a temporary directory");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("its owner may");
        let program = dir.path().join("attacker");
        fs::copy(env::current_exe().expect("it has a name"), &program).expect("there is room");
        let registry = Registry::builtin(&Dist::locate()?, provider);
        Ok(World { registry, program, _dir: dir })
    }

    /// One transfer after the other, each of a client that calls anew, for so long at least.
    fn transfers_beside(&self, attack: Attack, port: u16, time: Duration) -> Result<Outcome, Stop> {
        let deadline = Instant::now() + LIMIT + time;
        let start = |label, command| Running::start(label, command, &self.registry, deadline);
        let server = start("server", self.dapltest(&["-T", "S"])?)?;
        server.wait_for("Service Point Ready")?;
        let attacker = start("attacker", self.as_nobody(attacker::command(&self.program, attack, port))?)?;
        attacker.wait_for("attempts")?;
        let (begin, mut transfers) = (Instant::now(), 0);
        while begin.elapsed() < time {
            let transfer = ["-T", "T", "-s", "127.0.0.1", "-t", "2", "-w", "2", "-i", "1000", "-V"];
            let operations = "client SR 4096 2 server SR 1024 3 client RW 65536 1 server RR 16384 1";
            let mut command = self.dapltest(&transfer)?;
            command.args(operations.split_whitespace());
            let client = start("client", command)?.end()?;
            client.succeeded("client").map_err(|why| why + &server.report("serves it"))?;
            let (all, rest) = ("----- Stats ---- : 2 threads, 2 EPs", ["mismatch", "ERROR", "error"]);
            if !client.text.contains(all) || rest.iter().any(|word| client.text.contains(word)) {
                return Err(format!("the transfer went wrong:\n{}", client.text).into());
            }
            transfers += 1;
        }
        let seconds = begin.elapsed().as_secs_f64();
        if attacker.has_ended() {
            return Err(attacker.report("has given up").into());
        }
        let said = attacker.kill()?.text;
        let attempts = said.trim_end().lines().last().unwrap_or_default().to_owned();
        start("quitting client", self.dapltest(&["-T", "Q", "-s", "127.0.0.1"])?)?.end()?;
        server.end()?.succeeded("server")?;
        Ok(Outcome { transfers, seconds, attempts })
    }

    fn measure(&self, name: &str, attack: Attack, port: u16, time: Duration) -> Result<(), Stop> {
        let mut ratios = Vec::new();
        for _ in 0..ROUNDS {
            let [beside, closed] =
                [port, CLOSED].map(|port| self.transfers_beside(attack, port, time / ROUNDS));
            let (beside, closed) = (beside?, closed?);
            println!(
                "\n{} {name}: {:.2} transfers/s of {} ({}); to a closed port {:.2} of {} ({})",
                self.registry.ia(),
                beside.rate(),
                beside.transfers,
                beside.attempts,
                closed.rate(),
                closed.transfers,
                closed.attempts
            );
            ratios.push(beside.rate() / closed.rate());
        }
        println!("{} {name}: ratios {ratios:.2?}", self.registry.ia());
        Ok(())
    }

    fn dapltest(&self, test: &[&str]) -> Result<Command, Skip> {
        let mut command = Command::new(find_program("dapltest", "dapl2-utils")?);
        command.args(test).args(["-D", self.registry.ia(), "-n", &PORT.to_string()]);
        Ok(command)
    }

    /// The command of a user who is nobody in particular.
    fn as_nobody(&self, command: Command) -> Result<Command, Skip> {
        let mut nobody = Command::new(find_program("setpriv", "util-linux")?);
        nobody.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
        nobody
            .arg(command.get_program())
            .envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        Ok(nobody)
    }
}
