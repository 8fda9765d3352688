//! Transfers between this host and a host behind a router, which is a third network namespace. The
//! kernel's tbf limits the rate of the router's interfaces and the length of their queues. The same
//! transfer runs over softroce and over tcp-emu, which is the kernel's TCP.
//!
//! A transfer passes if it ends without an error, if all octets arrive, and if softroce sends a
//! limited share of its octets in vain. The times are printed and not judged, because they depend
//! on what else the machine does. `cargo xtask test router::` runs these tests.

use libtest_mimic::Trial;
use opendat_tests::{Dist, PROVIDERS, Provider, Registry, Skip, Stop, find_program, trial};
use serde_json::Value;

use crate::dapltest::{self, Transaction};
use crate::host::{Namespace, WIRE, here, here_with};
use crate::pair::{ProgramPlace, Route};

/// The bottleneck: the rate of each of the router's interfaces in octets per second, and the octets
/// that may wait for each of them.
const RATE: u64 = 12_500_000;
const QUEUE: u64 = 128 << 10;
/// The share of octets that softroce may send in vain.
const MAX_WASTE: f64 = 0.25;

/// This host's address, and the router's address on the same wire.
const SERVER: [&str; 2] = ["10.77.1.1", "10.77.1.254"];
/// The address of the host behind the router, and the router's address on the same wire.
const CLIENT: [&str; 2] = ["10.77.2.1", "10.77.2.254"];

/// A transfer through the router.
struct Transfer {
    name: &'static str,
    transaction: &'static Transaction,
    /// The router's interface to the host that the data goes to.
    out: &'static str,
    /// Whether the router marks packets (ECN) before its queue is full.
    marks: bool,
}

const TRANSFERS: &[Transfer] = &[
    Transfer { name: "incast", transaction: &dapltest::INCAST, out: "far", marks: false },
    Transfer { name: "reads", transaction: &dapltest::READS, out: "far", marks: false },
    Transfer { name: "writes", transaction: &dapltest::WRITES, out: "near", marks: false },
    Transfer { name: "sends", transaction: &dapltest::SENDS, out: "near", marks: false },
    Transfer {
        name: "twenty_reads",
        transaction: &dapltest::READS_OF_20,
        out: "far",
        marks: false,
    },
    Transfer {
        name: "twenty_writes",
        transaction: &dapltest::WRITES_OF_20,
        out: "near",
        marks: false,
    },
    // The simulated networks have reads with marks.
    Transfer { name: "marked_writes", transaction: &dapltest::WRITES, out: "near", marks: true },
    Transfer { name: "marked_sends", transaction: &dapltest::SENDS, out: "near", marks: true },
];

/// A provider in a comparison.
struct Contender {
    name: &'static str,
    provider: &'static Provider,
    ia_params: &'static str,
    /// The number of octets of a full packet, from the IP header on.
    packet: u64,
    /// The number of octets of the headers of such a packet.
    headers: u64,
}

/// The headers are those of IPv4, UDP and BTH, and the ICRC.
const SOFTROCE: Contender = Contender {
    name: "softroce",
    provider: &PROVIDERS[1],
    ia_params: WIRE,
    packet: 1024 + 44,
    headers: 44,
};
/// The headers are those of IPv4, and of TCP with time stamps.
const TCP: Contender = Contender {
    name: "TCP",
    provider: &PROVIDERS[0],
    ia_params: "wire cc=cubic",
    packet: 1500,
    headers: 52,
};

pub(crate) fn trials(dist: &Result<Dist, Skip>) -> Vec<Trial> {
    let trials = TRANSFERS.iter().map(|transfer| {
        let dist = dist.clone();
        trial(format!("router::{}", transfer.name), move || transfer.compare(&dist?))
    });
    trials.collect()
}

impl Transfer {
    /// Runs the transfer over softroce and over TCP, prints what was measured, and judges it.
    fn compare(&self, dist: &Dist) -> Result<(), Stop> {
        for (program, package) in [("nft", "nftables"), ("tc", "iproute2")] {
            find_program(program, package)?;
        }
        println!("\n{}, {} Mbit/s, queue {} KiB", self.name, RATE * 8 / 1_000_000, QUEUE >> 10);
        let softroce = self.run(dist, &SOFTROCE)?;
        let tcp = self.run(dist, &TCP)?;
        println!("time / TCP's: {:.2}", softroce.seconds / tcp.seconds);
        let Measured { waste, dropped, marked, .. } = softroce;
        if waste > MAX_WASTE {
            return Err(format!("softroce has sent {waste:.3} of its octets in vain").into());
        }
        if self.marks && marked <= dropped {
            return Err(format!(
                "the router has marked {marked} packets of softroce and dropped {dropped}"
            )
            .into());
        }
        Ok(())
    }

    fn run(&self, dist: &Dist, contender: &Contender) -> Result<Measured, Stop> {
        let mark = self.marks.then_some(contender);
        let network = Network::new(self.out, mark)?;
        let registry = Registry::plugin_at(dist, contender.provider, contender.ia_params);
        let route = Route {
            to: SERVER[0],
            server: ProgramPlace::Here,
            client: ProgramPlace::Host(&network.client),
        };
        let seconds = self.transaction.time(&registry, &route)?;
        let (packets, octets) = network.counted(self.out)?;
        let sent = octets.saturating_sub(packets * contender.headers);
        if sent < self.transaction.octets() {
            return Err(format!("the router has counted only {sent} octets").into());
        }
        let waste = 1.0 - self.transaction.octets() as f64 / sent as f64;
        let dropped = network.dropped(self.out)?;
        let (marked, _) = network.counted("marked")?;
        println!(
            "{:<8} {seconds:>6.2} s  {:>5.1} % in vain  {dropped:>5} packets dropped  \
             {marked:>5} marked",
            contender.name,
            waste * 100.0
        );
        Ok(Measured { seconds, waste, dropped, marked })
    }
}

/// What was measured of a transfer.
struct Measured {
    seconds: f64,
    /// The share of the octets of payload that were sent more than once.
    waste: f64,
    /// The packets that the router has dropped, and those that it has marked.
    dropped: u64,
    marked: u64,
}

/// A host behind a router. The router has the interfaces "near", to this host, and "far".
struct Network {
    client: Namespace,
    router: Namespace,
}

impl Network {
    /// Creates the network. The router marks packets of `mark` on the way to its interface `out`.
    fn new(out: &str, mark: Option<&Contender>) -> Result<Self, Stop> {
        let network = Network { client: Namespace::new()?, router: Namespace::new()? };
        let Network { client, router } = &network;
        here(&format!("ip link add {WIRE} type veth peer name near netns {}", router.id()))?;
        router.run(&format!("ip link add far type veth peer name {WIRE} netns {}", client.id()))?;
        here_with("sh", &end(SERVER))?;
        client.run_with("sh", &end(CLIENT))?;
        router.run_with("sh", &middle())?;
        for interface in ["near", "far"] {
            router
                .run(&format!(
                    "tc qdisc add dev {interface} root tbf rate {RATE}bps burst 16k limit {QUEUE}"
                ))
                .map_err(Skip)?;
        }
        router.run_with("nft -f -", &rules(out, mark)).map_err(Skip)?;
        Ok(network)
    }

    /// Returns the value of a counter: packets, and octets from the IP header on.
    fn counted(&self, counter: &str) -> Result<(u64, u64), String> {
        let text = self.router.output(&format!("nft -j list counter ip router {counter}"))?;
        let number = |key: &str| {
            let value: Value = serde_json::from_str(&text).ok()?;
            let found = value["nftables"].as_array()?.iter().find_map(|it| it.get("counter"))?;
            found[key].as_u64()
        };
        number("packets").zip(number("bytes")).ok_or_else(|| format!("no {counter}: {text}"))
    }

    /// Returns the number of packets that an interface has dropped because its queue was full.
    fn dropped(&self, interface: &str) -> Result<u64, String> {
        let text = self.router.output(&format!("tc -s -j qdisc show dev {interface}"))?;
        let value: Option<Value> = serde_json::from_str(&text).ok();
        value.and_then(|value| value[0]["drops"].as_u64()).ok_or(text)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // The next network has an interface with the same name.
        here(&format!("ip link del {WIRE}")).ok();
    }
}

/// Returns the script that sets up a host with this address and this router. The host passes each
/// packet to the wire by itself, so that the router counts packets as they are on real wires. TCP
/// asks for marks.
fn end([address, router]: [&str; 2]) -> String {
    format!(
        "set -e
         ip addr add {address}/24 dev {WIRE}
         ip link set {WIRE} gso_max_segs 1 up
         ip route add default via {router}
         echo 1 >/proc/sys/net/ipv4/tcp_ecn\n"
    )
}

fn middle() -> String {
    format!(
        "set -e
         ip addr add {}/24 dev near
         ip addr add {}/24 dev far
         ip link set near up
         ip link set far up
         echo 1 >/proc/sys/net/ipv4/ip_forward\n",
        SERVER[1], CLIENT[1]
    )
}

/// Returns the router's rules. They count the packets that the router is to send, before its queues
/// drop any. A mark is set if full packets exceed nine tenths of the rate, and 60 of them would
/// wait at that rate. (A limit in octets would allow a whole second's octets at once.)
fn rules(out: &str, mark: Option<&Contender>) -> String {
    let mark = mark.map(|contender| {
        let packets = RATE * 9 / 10 / contender.packet;
        format!(
            "oifname {out} ip ecn {{ ect0, ect1 }} limit rate over {packets}/second \
             burst 60 packets ip ecn set ce counter name marked"
        )
    });
    format!(
        "table ip router {{
            counter near {{ }}
            counter far {{ }}
            counter marked {{ }}
            chain forward {{
                type filter hook forward priority 0
                oifname near counter name near
                oifname far counter name far
                {}
            }}
        }}\n",
        mark.unwrap_or_default()
    )
}
