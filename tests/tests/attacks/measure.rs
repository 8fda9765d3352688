//! Measures how much throughput an attack costs a transfer, compared to the same packets sent to a
//! closed port.

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use opendat_tests::{Provider, Skip, Stop, setting};

use crate::Attack;
use crate::attack_run::{AttackRun, Port};

/// The length of a turn in seconds. The attacker takes turns: it sends packets to the open ports in
/// one turn, and the same packets to a closed port in the next turn.
const TURN_SECONDS: u64 = 10;

/// Returns for how many seconds each attack must be measured, or `None` if this program must run
/// the tests.
pub(crate) fn requested_seconds() -> Option<u64> {
    setting("attack-seconds")?.parse().ok()
}

/// A row of the printed table, which shows the results of one attack.
#[derive(Default)]
struct Figures {
    /// Packets per second, and octets of the transfer per second, while the packets go to the open
    /// ports. `closed` has the same figures while the packets go to a closed port.
    attack: (f64, f64),
    closed: (f64, f64),
    wrong: usize,
    lost: usize,
    refused: usize,
    newcomers: usize,
    /// The time that the slowest newcomer needed, in milliseconds.
    slowest: f64,
}

/// Measures the attacks whose names or providers contain one of `names`, or all attacks, and prints
/// a table. The function fails if octets were wrong, connections were lost or newcomers were
/// refused.
pub(crate) fn run(
    attacks: impl Iterator<Item = (&'static Provider, Attack)>,
    names: &[String],
    seconds: u64,
) -> ExitCode {
    let mut passed = true;
    println!(
        "| attack | packets/s | beside it | packets/s to a closed port | beside them | ratio \
         | octets wrong | connections lost | newcomers refused | slowest newcomer |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for (provider, attack) in attacks {
        let name = format!("{}: {}", provider.ia, attack.name.replace('_', " "));
        let is_wanted = |text: &String| attack.name.contains(text) || provider.ia.contains(text);
        if !names.is_empty() && !names.iter().any(is_wanted) {
            continue;
        }
        match measure(provider, attack, seconds) {
            Ok(figures) => {
                figures.print(&name);
                passed &= figures.wrong + figures.lost + figures.refused == 0;
            }
            Err(Stop::Skip(Skip(reason))) => println!("| {name} | skipped: {reason} |"),
            Err(Stop::Fail(why)) => {
                println!("| {name} | failed |");
                eprintln!("{name}: {why}");
                passed = false;
            }
        }
    }
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn measure(provider: &'static Provider, attack: Attack, seconds: u64) -> Result<Figures, Stop> {
    let attack_run = AttackRun::new(provider, attack)?;
    let turns = seconds.div_ceil(TURN_SECONDS).max(1);
    let turn = Duration::from_secs(seconds) / turns as u32;
    let mut figures = Figures::default();
    for _ in 0..turns {
        for port in [Port::Closed, Port::Open] {
            attack_run.attack(port)?;
            let before = attack_run.progress()?;
            thread::sleep(turn);
            let after = attack_run.progress()?;
            let octets = (after.octets - before.octets) as f64;
            match port {
                Port::Open => {
                    figures.attack.1 += octets;
                    let times = attack_run.newcomer_times();
                    figures.newcomers += after.newcomers - before.newcomers;
                    let slowest = times[before.newcomers..].iter().copied().fold(0.0, f64::max);
                    figures.slowest = figures.slowest.max(slowest);
                }
                Port::Closed => figures.closed.1 += octets,
            }
        }
    }
    let end = attack_run.progress()?;
    let (wrong, lost, refused) = (
        attack_run.transfer.corruption_reports(),
        attack_run.transfer.failure_reports(),
        attack_run.refusals(),
    );
    if [&wrong, &lost, &refused].iter().any(|complaints| !complaints.is_empty()) {
        eprintln!(
            "{}",
            attack_run.transfer.report(&[&wrong[..], &lost, &refused].concat().join("\n"))
        );
    }
    (figures.wrong, figures.lost, figures.refused) = (wrong.len(), lost.len(), refused.len());
    let time = seconds.max(1) as f64;
    (figures.attack.0, figures.closed.0) = (rate(end.open), rate(end.closed));
    (figures.attack.1, figures.closed.1) = (figures.attack.1 / time, figures.closed.1 / time);
    Ok(figures)
}

fn rate((packets, seconds): (u64, f64)) -> f64 {
    if seconds > 0.0 { packets as f64 / seconds } else { 0.0 }
}

impl Figures {
    fn print(&self, name: &str) {
        let Figures { attack, closed, wrong, lost, refused, newcomers, slowest } = self;
        println!(
            "| {name} | {:.0} | {:.1} MB/s | {:.0} | {:.1} MB/s | {:.2} | {wrong} | {lost} \
             | {refused} of {} | {slowest:.0} ms |",
            attack.0,
            attack.1 / 1e6,
            closed.0,
            closed.1 / 1e6,
            attack.1 / closed.1,
            newcomers + refused,
        );
    }
}
