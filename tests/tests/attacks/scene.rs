//! An attack, and what goes on meanwhile: a transfer, and newcomers.

use std::process::Command;
use std::time::{Duration, Instant};

use opendat_tests::{
    Dist, Provider, Registry, Running, Skip, Stop, c_program, find_program, has_own_network,
};
use tempfile::TempDir;

use crate::Attack;
use crate::host::{Family, Host, finish};
use crate::transfer::Transfer;

/// How long any of this may take beside an attack, on a machine that has other things to do.
pub(crate) const LIMIT: Duration = Duration::from_secs(600);
/// Newcomers that are waited for in a test; they come ten times a second.
const NEWCOMERS: usize = 15;

/// RoCEv2's port.
const ROCE: u16 = 4791;
/// Nobody has it, for UDP nor for TCP.
const CLOSED: u16 = 4790;
/// Where newcomers are served.
const SERVICE: u16 = 21980;

/// Where an attacker is.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum From {
    AnotherUser,
    AnotherHost,
}

/// Where the attacker's packets go.
#[derive(Clone, Copy)]
pub(crate) enum Port {
    Open,
    Closed,
}

/// All of it, until this is dropped.
pub(crate) struct Scene {
    pub(crate) transfer: Transfer,
    attacker: Running,
    newcomers: Running,
    _registry: Registry,
    _dir: TempDir,
    _host: Option<Host>,
}

/// How far everything is.
#[derive(Clone, Copy, Default)]
pub(crate) struct Progress {
    /// Packets, or attempts, to open ports and to a closed one, and the seconds that they took.
    pub(crate) open: (u64, f64),
    pub(crate) closed: (u64, f64),
    /// Octets that the transfer has moved.
    pub(crate) octets: u64,
    pub(crate) newcomers: usize,
}

impl Scene {
    /// Starts the transfer and the newcomers. The attacker knows what it needs to know, and rests.
    pub(crate) fn new(provider: &'static Provider, attack: Attack) -> Result<Self, Stop> {
        may_be_another_user()?;
        let dist = Dist::locate()?;
        let host = match attack.from {
            From::AnotherUser => None,
            From::AnotherHost => Some(Host::new(Family::V4, 1500)?),
        };
        let [victim, source] = match (&host, provider.packets) {
            (Some(_), _) => Family::V4.addresses(),
            // Of the peer's own address.
            (None, true) => ["127.0.0.1", "127.0.0.1"],
            // The ports of callers are used up; those of its own address are the newcomers'.
            (None, false) => ["127.0.0.1", "127.0.0.2"],
        };
        let dir = tempfile::tempdir().expect("a temporary directory");
        let registry = Registry::builtin(&dist, provider).with("OPENDAT_TEST_ADDRESS", victim);
        let deadline = Instant::now() + LIMIT;
        let start = |label, command| Running::start(label, command, &registry, deadline);

        let server = Transfer::serve(&registry, deadline)?;
        let mut attacker = Command::new(c_program(&dist, "attacker", dir.path())?);
        attacker.args([attack.kind, source, victim, &CLOSED.to_string()]);
        attacker.args(match provider.packets {
            true => vec![ROCE.to_string()],
            false => vec![server.port().to_string(), SERVICE.to_string()],
        });
        if let Some(host) = &host {
            attacker = host.command(&attacker);
        }
        let attacker = start("attacker", attacker)?;
        if ["stale_requests", "injections"].contains(&attack.kind) {
            attacker.wait_for("listens")?;
        }
        let transfer = server.transfer(&registry, victim, deadline)?;
        attacker.wait_for("rests").map_err(|why| why + &transfer.report("goes on"))?;

        let mut newcomers = Command::new(c_program(&dist, "newcomers", dir.path())?);
        newcomers.arg(SERVICE.to_string());
        let newcomers = start("newcomers", newcomers)?;
        newcomers.wait_for("newcomer ")?;
        let scene =
            Scene { transfer, attacker, newcomers, _registry: registry, _dir: dir, _host: host };
        Ok(scene)
    }

    /// The attack goes on until a number of newcomers were served, and the transfer has come on.
    pub(crate) fn survives(&self) -> Result<(), Stop> {
        self.attack(Port::Open)?;
        self.attacker.wait_for("open ")?;
        let before = self.progress()?;
        let mut newcomers = before.newcomers + NEWCOMERS;
        loop {
            self.newcomers
                .wait_for_times("newcomer ", newcomers)
                .map_err(|why| why + &self.transfer.report("goes on"))?;
            self.check()?;
            let now = self.progress()?;
            if now.octets > before.octets && now.open.0 > before.open.0 {
                return Ok(());
            }
            newcomers += 1;
        }
    }

    /// From now on the attacker's packets go there.
    pub(crate) fn attack(&self, port: Port) -> Result<(), String> {
        let signal = match port {
            Port::Open => "USR1",
            Port::Closed => "USR2",
        };
        let kill = format!("kill -{signal} {}", self.attacker.id());
        finish(Command::new("sh").arg("-c").arg(kill))
    }

    /// Everything must be as without the attack.
    pub(crate) fn check(&self) -> Result<(), String> {
        let complaints = [self.transfer.wrong(), self.transfer.lost(), self.refused()].concat();
        if self.attacker.has_ended() {
            return Err(self.attacker.report("has given up"));
        }
        match complaints.is_empty() {
            true => Ok(()),
            false => Err(self.transfer.report(&complaints.join("\n"))),
        }
    }

    /// Newcomers who were not served.
    pub(crate) fn refused(&self) -> Vec<String> {
        let said = self.newcomers.said();
        let mut refused: Vec<_> =
            said.lines().filter(|line| line.starts_with("refused")).map(str::to_owned).collect();
        if self.newcomers.has_ended() {
            refused.push(self.newcomers.report("have ended"));
        }
        refused
    }

    /// How long each newcomer took, in ms.
    pub(crate) fn newcomers(&self) -> Vec<f64> {
        let said = self.newcomers.said();
        let times =
            said.lines().filter_map(|line| line.strip_prefix("newcomer ")?.strip_suffix(" ms"));
        times.filter_map(|time| time.parse().ok()).collect()
    }

    pub(crate) fn progress(&self) -> Result<Progress, String> {
        let said = self.attacker.said();
        let last = |word: &str| {
            let line = said.lines().rev().find_map(|line| line.strip_prefix(word))?;
            let (packets, seconds) = line.split_once(' ')?;
            Some((packets.parse().ok()?, seconds.parse().ok()?))
        };
        Ok(Progress {
            open: last("open ").unwrap_or_default(),
            closed: last("closed ").unwrap_or_default(),
            octets: self.transfer.octets()?,
            newcomers: self.newcomers().len(),
        })
    }
}

/// The attacker changes its user.
fn may_be_another_user() -> Result<(), Stop> {
    if !has_own_network() {
        return Err(
            Skip("no network namespace (needs unshare, ip, and the permission)".into()).into()
        );
    }
    let mut become_other = Command::new(find_program("setpriv", "util-linux")?);
    become_other.args(["--reuid=65534", "--regid=65534", "--clear-groups", "true"]);
    match finish(&mut become_other) {
        Ok(()) => Ok(()),
        Err(_) => Err(Skip("this user cannot become another one (needs root)".into()).into()),
    }
}
