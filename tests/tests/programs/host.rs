//! Another host: a network namespace with a wire (a veth pair) to this program's namespace. The
//! namespace ends with the process that holds it, which ends with this program.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use opendat_tests::{Skip, Stop, has_own_network};

/// The name of the wire's device on both hosts.
pub(crate) const WIRE: &str = "wire";

#[derive(Clone, Copy, Debug)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    /// Returns two addresses: this host's address, then the other host's address.
    pub(crate) const fn addresses(self) -> [&'static str; 2] {
        match self {
            Family::V4 => ["10.77.0.1", "10.77.0.2"],
            // dapltest copies the first 16 octets of a socket address, so these addresses have only
            // zeros in the other octets.
            Family::V6 => ["fd77:0:0:1::", "fd77:0:0:2::"],
        }
    }

    /// The arguments of `ip addr` that give an address to the wire's device.
    pub(crate) fn addr_arguments(self, address: &str) -> String {
        // No other host has the address, so there is no need to look for duplicates first.
        let nodad = if let Family::V6 = self { " nodad" } else { "" };
        format!("{address}/{} dev {WIRE}{nodad}", self.prefix())
    }

    /// Returns the length of the address prefix of the wire's subnet in bits.
    pub(crate) fn prefix(self) -> u8 {
        match self {
            Family::V4 => 24,
            Family::V6 => 48,
        }
    }
}

/// A network namespace, which a process of its own holds.
pub(crate) struct Namespace {
    holder: Child,
}

impl Namespace {
    pub(crate) fn new() -> Result<Self, Stop> {
        if !has_own_network() {
            return Err(Skip(
                "no network namespaces (they need unshare, ip and the permission)".into(),
            )
            .into());
        }
        let mut holder = Command::new("unshare")
            .args(["--net", "--", "sh", "-c", "ip link set lo up && echo up && exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("unshare: {error}"))?;
        let mut line = String::new();
        let read = holder.stdout.take().map(|output| BufReader::new(output).read_line(&mut line));
        let namespace = Namespace { holder };
        match read {
            Some(Ok(_)) if line == "up\n" => Ok(namespace),
            _ => Err(format!("the other host did not start: {line:?}").into()),
        }
    }

    /// Returns the ID of the process that holds the namespace.
    pub(crate) fn id(&self) -> u32 {
        self.holder.id()
    }

    /// Returns a command that starts the same program in the namespace.
    pub(crate) fn command(&self, program: &Command) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.id())).arg("--");
        command.arg(program.get_program()).args(program.get_args());
        for (name, value) in program.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }

    /// Runs a command in the namespace. The words of the command are separated by blanks.
    pub(crate) fn run(&self, command: &str) -> Result<(), String> {
        self.run_with(command, "")
    }

    /// Does the same as `run` with this input for the command.
    pub(crate) fn run_with(&self, command: &str, input: &str) -> Result<(), String> {
        finish_with(&mut self.command(&words(command)), input)
    }

    /// Returns what the command prints.
    pub(crate) fn output(&self, command: &str) -> Result<String, String> {
        let output = self.command(&words(command)).output();
        let output = output.map_err(|error| format!("{command}: {error}"))?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(format!("{command}: {}", String::from_utf8_lossy(&output.stderr))),
        }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        self.holder.wait().ok();
    }
}

/// The other host, with its end of the wire.
pub(crate) struct Host {
    family: Family,
    namespace: Namespace,
}

impl Host {
    /// Creates a host that has addresses of this family alone, with packets of at most `mtu` octets
    /// on the wire.
    pub(crate) fn new(family: Family, mtu: u32) -> Result<Self, Stop> {
        let host = Host { family, namespace: Namespace::new()? };
        here(&format!(
            "ip link add {WIRE} type veth peer name {WIRE} netns {}",
            host.namespace.id()
        ))?;
        let [near, far] = family.addresses().map(|address| family.addr_arguments(address));
        let set = |run: &dyn Fn(&str) -> Result<(), String>, addr_arguments: &str| {
            run(&format!("ip addr add {addr_arguments}"))?;
            run(&format!("ip link set {WIRE} mtu {mtu} up"))
        };
        set(&here, &near)?;
        set(&|command| host.namespace.run(command), &far)?;
        Ok(host)
    }

    /// Returns the address by which the other host knows this one.
    pub(crate) fn near(&self) -> &'static str {
        self.family.addresses()[0]
    }

    /// Returns the namespace of the other host.
    pub(crate) fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Removes this host's address.
    pub(crate) fn take_address(&self) -> Result<(), String> {
        here(&format!(
            "ip addr del {}",
            self.family.addr_arguments(self.near()).replace(" nodad", "")
        ))
    }

    /// Adds this host's address again.
    pub(crate) fn give_address(&self) -> Result<(), String> {
        here(&format!("ip addr add {}", self.family.addr_arguments(self.near())))
    }

    /// Sets the MTU of this host's end of the wire.
    pub(crate) fn set_mtu_here(mtu: u32) -> Result<(), String> {
        here(&format!("ip link set {WIRE} mtu {mtu}"))
    }

    /// Sets this host's end of the wire "down" or "up".
    pub(crate) fn set_link_here(to: &str) -> Result<(), String> {
        here(&format!("ip link set {WIRE} {to}"))
    }

    /// Gives this host its address of a family, if it does not have it.
    pub(crate) fn restore_address(family: Family) -> Result<(), String> {
        here(&format!("ip addr replace {}", family.addr_arguments(family.addresses()[0])))
    }

    /// Sets the other host's end of the wire "down" or "up".
    pub(crate) fn set_link_there(&self, to: &str) -> Result<(), String> {
        self.namespace.run(&format!("ip link set {WIRE} {to}"))
    }

    /// Sends a signal to the programs of this name on this host.
    pub(crate) fn signal_here(signal: &str, program: &str) -> Result<(), String> {
        send_signal(signal, program, "thread-self")
    }

    /// Sends a signal to the programs of this name on the other host.
    pub(crate) fn signal_there(&self, signal: &str, program: &str) -> Result<(), String> {
        send_signal(signal, program, &self.namespace.id().to_string())
    }

    /// Adds a rule to this host's firewall for incoming ("input") or outgoing ("output") packets.
    pub(crate) fn filter(hook: &str, rule: &str) -> Result<(), String> {
        let rules = format!(
            "table inet outage {{ chain rules {{\n\
             type filter hook {hook} priority 0\n{rule}\n}}\n}}\n"
        );
        here_with("nft -f -", &rules)
    }

    /// Makes this host's firewall refuse incoming packets for this many seconds. The kernel's clock
    /// ends the refusal. A connection ends if it is refused for half as long again, so the duration
    /// must not depend on when a program gets to remove the rule.
    pub(crate) fn refuse(seconds: u64) -> Result<(), String> {
        let rules = format!(
            "table inet outage {{
                set now {{
                    type inet_proto; flags timeout
                    elements = {{ tcp timeout {seconds}s, udp timeout {seconds}s }}
                }}
                chain rules {{
                    type filter hook input priority 0
                    iifname {WIRE} meta l4proto @now reject
                }}
            }}\n"
        );
        here_with("nft -f -", &rules)
    }

    /// Removes the firewall's rules.
    pub(crate) fn filter_nothing() -> Result<(), String> {
        here("nft delete table inet outage")
    }

    /// Makes the wire unreliable in both directions: packets are lost (2 %), duplicated (1 %) and
    /// late (2 %).
    ///
    /// The function works with kernels that lack netem, because it uses rules of nftables, and a
    /// slow class of HTB for the late packets.
    pub(crate) fn make_unreliable(&self) -> Result<(), Stop> {
        let [near, far] = self.family.addresses();
        let table = match self.family {
            Family::V4 => "ip",
            Family::V6 => "ip6",
        };
        for (peer, run) in [
            (far, &here_with as &dyn Fn(&str, &str) -> _),
            (near, &|command: &str, input: &str| self.namespace.run_with(command, input)),
        ] {
            let rules = format!(
                "table {table} bad {{
                    chain in {{
                        type filter hook input priority 0
                        iifname {WIRE} numgen random mod 100 < 2 drop
                    }}
                    chain out {{
                        type filter hook output priority 0
                        oifname {WIRE} numgen random mod 100 < 2 meta priority set 1:2
                        oifname {WIRE} numgen random mod 100 < 1 dup to {peer} device {WIRE}
                    }}
                }}\n"
            );
            run("nft -f -", &rules)?;
            run(&format!("tc qdisc add dev {WIRE} root handle 1: htb default 1"), "")?;
            run(
                &format!(
                    "tc class add dev {WIRE} parent 1: classid 1:1 htb rate 10gbit quantum 60000"
                ),
                "",
            )?;
            run(
                &format!(
                    "tc class add dev {WIRE} parent 1: classid 1:2 htb rate 100mbit quantum 60000"
                ),
                "",
            )?;
        }
        Ok(())
    }

    /// Drops the first DREQ that comes to this host.
    pub(crate) fn drop_first_dreq(&self) -> Result<(), Stop> {
        // The ID of a MAD's attribute follows the headers of UDP, BTH and DETH and half of the
        // MAD's own header.
        let rules = format!(
            "table inet ends {{
                set dropped {{ type inet_service; flags dynamic,timeout; timeout 1h; }}
                chain in {{
                    type filter hook input priority 0
                    iifname {WIRE} udp dport 4791 @th,352,16 0x15 udp dport != @dropped \
                        add @dropped {{ udp dport }} drop
                }}
            }}\n"
        );
        Ok(here_with("nft -f -", &rules)?)
    }

    /// Returns the number of DREQs that were dropped.
    pub(crate) fn dropped_dreqs() -> usize {
        let output = words("nft list set inet ends dropped").output();
        output.map_or(0, |output| String::from_utf8_lossy(&output.stdout).matches("4791").count())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // The device is removed at once, so that the next host can be created. The rest of the
        // namespace ends with its last process.
        here(&format!("ip link del {WIRE}")).ok();
        here("nft delete table inet ends").ok();
        here("nft delete table inet outage").ok();
    }
}

/// Returns the number of octets that this host has received from the wire.
pub(crate) fn received() -> u64 {
    let all = fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    let line = all.lines().find_map(|line| line.trim().strip_prefix(WIRE)?.strip_prefix(':'));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Waits until this many octets have arrived since the call. Returns false if the limit expires
/// first.
pub(crate) fn wait_for(octets: u64, limit: Duration, mut over: impl FnMut() -> bool) -> bool {
    let (start, from) = (Instant::now(), received());
    while received().saturating_sub(from) < octets {
        if over() || start.elapsed() > limit {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
    true
}

pub(crate) fn here(command: &str) -> Result<(), String> {
    here_with(command, "")
}

/// Runs a command on this host with this input.
pub(crate) fn here_with(command: &str, input: &str) -> Result<(), String> {
    finish_with(&mut words(command), input)
}

/// Waits for a command that must succeed.
pub(crate) fn finish(command: &mut Command) -> Result<(), String> {
    finish_with(command, "")
}

/// Sends a signal to all processes that run `program` and have the same network namespace as the
/// process `of`, which is a name in /proc.
fn send_signal(signal: &str, program: &str, of: &str) -> Result<(), String> {
    let network = |process: &str| fs::read_link(format!("/proc/{process}/ns/net")).ok();
    let wanted = network(of).ok_or("the network namespace of the process is not known")?;
    let is_one = |process: &String| {
        fs::read_to_string(format!("/proc/{process}/comm"))
            .is_ok_and(|name| name.trim_end() == program)
            && network(process).as_ref() == Some(&wanted)
    };
    let all = fs::read_dir("/proc").map_err(|error| format!("/proc: {error}"))?;
    let processes: Vec<String> =
        all.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).filter(is_one).collect();
    if processes.is_empty() {
        return Err(format!("no {program} to send SIG{signal} to"));
    }
    finish(Command::new("sh").arg("-c").arg(format!("kill -{signal} {}", processes.join(" "))))
}

fn words(command: &str) -> Command {
    let mut words = command.split_whitespace();
    let mut command = Command::new(words.next().expect("a program"));
    command.args(words);
    command
}

fn finish_with(command: &mut Command, input: &str) -> Result<(), String> {
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let run = |command: &mut Command| {
        let mut child = command.spawn()?;
        child.stdin.take().map(|mut stdin| stdin.write_all(input.as_bytes())).transpose()?;
        child.wait_with_output()
    };
    let output = run(command).map_err(|error| format!("{command:?}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr))),
    }
}
