//! `cargo xtask bench --peers`: measures OpenDAT and the programs of UCX and libfabric in turn,
//! over shared memory and over TCP.

mod network;
mod programs;
mod text_table;

use std::fs;

use anyhow::{Context, Result, ensure};

use super::Bar;
use crate::cargo::{cargo, target};
use network::{Namespace, Network};
use programs::Programs;
use text_table::{FOOT, Measured};

/// Measures, and prints a table for each network.
pub(super) fn run(rounds: u32) -> Result<()> {
    let status = cargo().args(["build", "--release", "-p", "cli"]).status();
    let status = status.context("cargo does not start")?;
    ensure!(status.success(), "cargo build failed ({status})");
    let programs = Programs::find(target()?.join("release/dat"));
    measure("One host, shared memory", &Network::SharedMemory, &programs, rounds)?;
    let control = fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control")
        .context("the system's congestion control cannot be read")?;
    let title = format!(
        "TCP over loopback; the system's congestion control is {}, and OpenDAT chooses cubic or \
         reno on one host",
        control.trim()
    );
    measure(&title, &Network::Tcp, &programs, rounds)?;
    match Namespace::with_reno() {
        Ok(namespace) => {
            let network = Network::TcpReno(namespace);
            measure("TCP over loopback, reno", &network, &programs, rounds)?;
        }
        Err(error) => println!("\nleft out: TCP over loopback with reno: {error:#}"),
    }
    println!("\n{FOOT}");
    Ok(())
}

fn measure(title: &str, network: &Network, programs: &Programs, rounds: u32) -> Result<()> {
    let mut measured: Vec<Measured> = rows(network).into_iter().map(Measured::new).collect();
    for round in 1..=rounds {
        eprintln!("{title}: round {round} of {rounds}");
        for Measured { row, ours, ucx, libfabric } in &mut measured {
            ours.push(programs.ours(row, network)?);
            ucx.extend(programs.ucx(row, network)?);
            libfabric.extend(programs.libfabric(row, network)?);
        }
    }
    println!("\n{title}: medians of the rounds, number of rounds: {rounds}\n");
    print!("{}", text_table::print(&measured));
    Ok(())
}

/// A row of the table: an operation, and what is measured of it.
#[derive(Clone, Copy)]
struct Row {
    name: &'static str,
    /// The operation, as in `dat bench --operations`.
    operation: &'static str,
    /// The test of `ucx_perftest`.
    ucx_test: &'static str,
    /// The size of a message in octets.
    size: u32,
    /// The number of outstanding operations.
    window: u32,
    /// How many operations the peers' programs measure.
    operations: u32,
    quantity: Quantity,
    bar: Option<(Bar, Library)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Quantity {
    /// The median of half a round trip in microseconds.
    Median,
    /// The mean of half a round trip in microseconds.
    Mean,
    /// Millions of operations per second.
    Rate,
    /// Thousands of millions of octets per second.
    Bandwidth,
}

/// A library that is compared with OpenDAT.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Library {
    Ucx,
    Libfabric,
}

/// The number of octets that the peers' programs write or read for a row of large messages.
const OCTETS: u32 = 1 << 30;
const MAX_LARGE_MESSAGES: u32 = 100_000;

fn rows(network: &Network) -> Vec<Row> {
    let is_shared = matches!(network, Network::SharedMemory);
    let (round_trips, sends) = if is_shared { (200_000, 2_000_000) } else { (20_000, 500_000) };
    let small = |name, quantity, bar| Row {
        name,
        operation: "send",
        ucx_test: "tag_lat",
        size: 64,
        window: 1,
        operations: round_trips,
        quantity,
        bar,
    };
    let bar = is_shared.then_some((Bar::AtMost(1.5), Library::Libfabric));
    let large = |name, operation, ucx_test, size| Row {
        name,
        operation,
        ucx_test,
        size,
        window: 16,
        operations: (OCTETS / size).min(MAX_LARGE_MESSAGES),
        quantity: Quantity::Bandwidth,
        bar: Some((Bar::AtLeast(1.0), Library::Ucx)),
    };
    vec![
        small("64 B half round trip, median, µs", Quantity::Median, None),
        small("64 B half round trip, mean, µs", Quantity::Mean, bar),
        Row {
            ucx_test: "tag_bw",
            window: 64,
            operations: sends,
            ..small(
                "64 B sends, window 64, million/s",
                Quantity::Rate,
                Some((Bar::AtLeast(2.0), Library::Ucx)),
            )
        },
        large("4 KiB writes, GB/s", "write", "ucp_put_bw", 4 << 10),
        large("64 KiB writes, GB/s", "write", "ucp_put_bw", 64 << 10),
        large("1 MiB writes, GB/s", "write", "ucp_put_bw", 1 << 20),
        large("4 KiB reads, GB/s", "read", "ucp_get", 4 << 10),
        large("64 KiB reads, GB/s", "read", "ucp_get", 64 << 10),
        large("1 MiB reads, GB/s", "read", "ucp_get", 1 << 20),
    ]
}
