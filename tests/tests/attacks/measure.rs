//! What an attack costs a transfer, beside what the same packets to a closed port cost it.

use std::env;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use opendat_tests::{Provider, Skip, Stop};

use crate::Attack;
use crate::scene::{Port, Scene};

/// Says for how many seconds each attack is to go on; then nothing is tested.
const SECONDS: &str = "OPENDAT_ATTACK_SECONDS";
/// The attack and its packets to a closed port take turns of so many seconds.
const TURN: u64 = 10;

/// Whether this is no test, and how many seconds were asked for.
pub(crate) fn wanted() -> Option<u64> {
    env::var(SECONDS).ok()?.parse().ok()
}

/// A row of the table.
#[derive(Default)]
struct Figures {
    /// Packets a second, and the transfer's octets a second: of the attack, and to a closed port.
    attack: (f64, f64),
    closed: (f64, f64),
    wrong: usize,
    lost: usize,
    refused: usize,
    newcomers: usize,
    /// ms.
    slowest: f64,
}

/// Measures the attacks whose names, or providers, contain one of these texts, or all, and prints a
/// table. It fails where octets, connections or newcomers were lost.
pub(crate) fn run(
    attacks: impl Iterator<Item = (&'static Provider, Attack)>,
    names: &[String],
    seconds: u64,
) -> ExitCode {
    let mut harmless = true;
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
                harmless &= figures.wrong + figures.lost + figures.refused == 0;
            }
            Err(Stop::Skip(Skip(reason))) => println!("| {name} | skipped: {reason} |"),
            Err(Stop::Fail(why)) => {
                println!("| {name} | failed |");
                eprintln!("{name}: {why}");
                harmless = false;
            }
        }
    }
    if harmless { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn measure(provider: &'static Provider, attack: Attack, seconds: u64) -> Result<Figures, Stop> {
    let scene = Scene::new(provider, attack)?;
    let turns = seconds.div_ceil(TURN).max(1);
    let turn = Duration::from_secs(seconds) / turns as u32;
    let mut figures = Figures::default();
    for _ in 0..turns {
        for port in [Port::Closed, Port::Open] {
            scene.attack(port)?;
            let before = scene.progress()?;
            thread::sleep(turn);
            let after = scene.progress()?;
            let octets = (after.octets - before.octets) as f64;
            match port {
                Port::Open => {
                    figures.attack.1 += octets;
                    let times = scene.newcomers();
                    figures.newcomers += after.newcomers - before.newcomers;
                    let slowest = times[before.newcomers..].iter().copied().fold(0.0, f64::max);
                    figures.slowest = figures.slowest.max(slowest);
                }
                Port::Closed => figures.closed.1 += octets,
            }
        }
    }
    let end = scene.progress()?;
    let (wrong, lost, refused) = (scene.transfer.wrong(), scene.transfer.lost(), scene.refused());
    if [&wrong, &lost, &refused].iter().any(|complaints| !complaints.is_empty()) {
        eprintln!("{}", scene.transfer.report(&[&wrong[..], &lost, &refused].concat().join("\n")));
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
            "| {name} | {:.0} | {:.1} MB/s | {:.0} | {:.1} MB/s | {:.2} | {wrong} | {lost} | {refused} \
             of {} | {slowest:.0} ms |",
            attack.0,
            attack.1 / 1e6,
            closed.0,
            closed.1 / 1e6,
            attack.1 / closed.1,
            newcomers + refused,
        );
    }
}
