//! A running attack, with a transfer and newcomers. A newcomer is a client of
//! `programs/newcomers.c`: it connects during the attack, exchanges one message and disconnects.

use std::process::Command;
use std::time::{Duration, Instant};

use opendat_tests::{
    Dist, Provider, Registry, Running, Skip, Stop, c_program, find_program, has_own_network,
};
use tempfile::TempDir;

use crate::Attack;
use crate::host::{Family, Host, finish};
use crate::transfer::Transfer;

/// The time limit of every step. The limit is long because the attack and other load may slow a
/// step down.
pub(crate) const TIME_LIMIT: Duration = Duration::from_secs(600);
/// The number of newcomers that a test waits for. There are ten per second.
const NEWCOMERS_PER_TEST: usize = 20;

/// The UDP port of RoCEv2.
const ROCE_PORT: u16 = 4791;
/// A port that is closed for UDP and TCP.
const CLOSED_PORT: u16 = 4790;
/// The port at which newcomers are served.
const NEWCOMERS_PORT: u16 = 21980;

/// The location from which the attacker attacks.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum AttackerLocation {
    AnotherUser,
    AnotherHost,
}

/// Whether the attacker sends its packets to the victim's open ports or to a closed port.
#[derive(Clone, Copy)]
pub(crate) enum Port {
    Open,
    Closed,
}

/// The programs of an attack. Dropping this structure ends the programs.
pub(crate) struct AttackRun {
    pub(crate) transfer: Transfer,
    attacker: Running,
    newcomers: Running,
    _registry: Registry,
    _dir: TempDir,
    _host: Option<Host>,
}

/// What the attacker, the transfer and the newcomers have done so far.
#[derive(Clone, Copy, Default)]
pub(crate) struct Progress {
    /// The number of packets or connection attempts to the open ports so far, and the seconds that
    /// the attacker took for them. `closed` has the same for a closed port.
    pub(crate) open: (u64, f64),
    pub(crate) closed: (u64, f64),
    /// The number of octets that the transfer has moved.
    pub(crate) octets: u64,
    pub(crate) newcomers: usize,
}

impl AttackRun {
    /// Starts the transfer and the newcomers. The attacker is ready, but does not attack yet.
    pub(crate) fn new(provider: &'static Provider, attack: Attack) -> Result<Self, Stop> {
        check_user_change()?;
        let dist = Dist::locate()?;
        let host = match attack.from {
            AttackerLocation::AnotherUser => None,
            AttackerLocation::AnotherHost => Some(Host::new(Family::V4, 1500)?),
        };
        let [victim, source] = match (&host, provider.packets) {
            (Some(_), _) => Family::V4.addresses(),
            // The attacker sends its packets from the same address as the peer of the transfer.
            (None, true) => ["127.0.0.1", "127.0.0.1"],
            // The attacker uses up all ports of its address, and the newcomers need ports of
            // another address.
            (None, false) => ["127.0.0.1", "127.0.0.2"],
        };
        let dir = tempfile::tempdir().expect("a temporary directory");
        let registry = Registry::builtin(&dist, provider).with("OPENDAT_TEST_ADDRESS", victim);
        let deadline = Instant::now() + TIME_LIMIT;
        let start = |label, command| Running::start(label, command, &registry, deadline);

        let server = Transfer::serve(&registry, deadline)?;
        let mut attacker = Command::new(c_program(&dist, "attacker", dir.path())?);
        let [service, closed] = [NEWCOMERS_PORT, CLOSED_PORT].map(|port| port.to_string());
        let rate = attack.rate.to_string();
        attacker.args([attack.kind, &rate, source, victim, &service, &closed]);
        attacker.args(match provider.packets {
            true => vec![ROCE_PORT.to_string()],
            // dapltest takes each request for that of its next client.
            false if attack.kind == "unconfirmed_callers" => vec![NEWCOMERS_PORT.to_string()],
            false => vec![server.port().to_string(), NEWCOMERS_PORT.to_string()],
        });
        if let Some(host) = &host {
            attacker = host.namespace().command(&attacker);
        }
        let attacker = start("attacker", attacker)?;
        if ["stale_requests", "injections"].contains(&attack.kind) {
            attacker.wait_for("listening")?;
        }
        let transfer = server.transfer(&registry, victim, deadline)?;
        attacker.wait_for("ready").map_err(|why| why + &transfer.report("is still running"))?;

        let mut newcomers = Command::new(c_program(&dist, "newcomers", dir.path())?);
        newcomers.args([NEWCOMERS_PORT.to_string(), attack.endpoints.to_string()]);
        let newcomers = start("newcomers", newcomers)?;
        newcomers.wait_for("newcomer ")?;
        let attack_run = AttackRun {
            transfer,
            attacker,
            newcomers,
            _registry: registry,
            _dir: dir,
            _host: host,
        };
        Ok(attack_run)
    }

    /// Attacks until enough newcomers were served and the transfer has moved octets.
    pub(crate) fn run_test(&self) -> Result<(), Stop> {
        self.attack(Port::Open)?;
        self.attacker.wait_for("open ")?;
        let before = self.progress()?;
        let mut newcomers = before.newcomers + NEWCOMERS_PER_TEST;
        loop {
            self.newcomers
                .wait_for_times("newcomer ", newcomers)
                .map_err(|why| why + &self.transfer.report("is still running"))?;
            self.check()?;
            let now = self.progress()?;
            if now.octets > before.octets && now.open.0 > before.open.0 {
                return Ok(());
            }
            newcomers += 1;
        }
    }

    /// Sends the attacker's packets to `port` from now on.
    pub(crate) fn attack(&self, port: Port) -> Result<(), String> {
        let signal = match port {
            Port::Open => "USR1",
            Port::Closed => "USR2",
        };
        let kill = format!("kill -{signal} {}", self.attacker.id());
        finish(Command::new("sh").arg("-c").arg(kill))
    }

    /// Checks that no octet of the transfer is wrong, no connection was lost, no newcomer was
    /// refused, and the attacker still runs.
    pub(crate) fn check(&self) -> Result<(), String> {
        let complaints =
            [self.transfer.corruption_reports(), self.transfer.failure_reports(), self.refusals()]
                .concat();
        if self.attacker.has_ended() {
            return Err(self.attacker.report("has ended"));
        }
        match complaints.is_empty() {
            true => Ok(()),
            false => Err(self.transfer.report(&complaints.join("\n"))),
        }
    }

    /// Returns the messages about newcomers that were not served.
    pub(crate) fn refusals(&self) -> Vec<String> {
        let output = self.newcomers.said();
        let mut refused: Vec<_> =
            output.lines().filter(|line| line.starts_with("refused")).map(str::to_owned).collect();
        if self.newcomers.has_ended() {
            refused.push(self.newcomers.report("has ended"));
        }
        refused
    }

    /// Returns, for each newcomer that was served, the milliseconds from its call until its message
    /// came back.
    pub(crate) fn newcomer_times(&self) -> Vec<f64> {
        let output = self.newcomers.said();
        let times =
            output.lines().filter_map(|line| line.strip_prefix("newcomer ")?.strip_suffix(" ms"));
        times.filter_map(|time| time.parse().ok()).collect()
    }

    pub(crate) fn progress(&self) -> Result<Progress, String> {
        let output = self.attacker.said();
        let last = |word: &str| {
            let line = output.lines().rev().find_map(|line| line.strip_prefix(word))?;
            let (packets, seconds) = line.split_once(' ')?;
            Some((packets.parse().ok()?, seconds.parse().ok()?))
        };
        Ok(Progress {
            open: last("open ").unwrap_or_default(),
            closed: last("closed ").unwrap_or_default(),
            octets: self.transfer.octets()?,
            newcomers: self.newcomer_times().len(),
        })
    }
}

/// Checks that the attacker can change its user.
fn check_user_change() -> Result<(), Stop> {
    if !has_own_network() {
        return Err(
            Skip("no network namespace (needs unshare, ip, and the permission)".into()).into()
        );
    }
    let mut change_user = Command::new(find_program("setpriv", "util-linux")?);
    change_user.args(["--reuid=65534", "--regid=65534", "--clear-groups", "true"]);
    match finish(&mut change_user) {
        Ok(()) => Ok(()),
        Err(_) => Err(Skip("this user cannot become another one (needs root)".into()).into()),
    }
}
