//! `dat doctor`: why RDMA does not work here, on one screen, each finding with what to do.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use registry::host::names_in;
use registry::report::printable;
use registry::{Candidate, List};
use rustix::process::{Resource, getrlimit};
use serde::Serialize;

use crate::output::{print, print_json};
use crate::table::{Colour, colour};
use crate::units::{plural, ranges};
use crate::{check, list, parameters, programs};

#[derive(Args)]
pub(crate) struct Options {
    /// Print one JSON document instead of text
    #[arg(long)]
    json: bool,
}

/// What was looked at, and what it is like.
#[derive(Serialize)]
struct Finding {
    /// What was looked at.
    subject: &'static str,
    state: State,
    message: String,
    /// What to do.
    fix: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Fine,
    /// Something that not everyone needs is not there.
    Note,
    /// Something does not work that should.
    Problem,
}

#[derive(Serialize)]
struct Document {
    findings: Vec<Finding>,
}

impl Finding {
    fn fine(subject: &'static str, message: impl Into<String>) -> Finding {
        Finding { subject, state: State::Fine, message: message.into(), fix: None }
    }

    fn note(subject: &'static str, message: impl Into<String>, fix: impl Into<String>) -> Finding {
        Finding { subject, state: State::Note, message: message.into(), fix: Some(fix.into()) }
    }

    fn problem(
        subject: &'static str,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) -> Finding {
        Finding { subject, state: State::Problem, message: message.into(), fix: Some(fix.into()) }
    }
}

/// Looks; true if there is no problem.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let list = List::from_environment(dat::builtins());
    let host = Host::default();
    let mut findings = registry(&list);
    findings.extend(adapters(&list));
    findings.extend(programs::SONAMES.map(program));
    findings.extend(environment(env::vars_os().map(|(name, value)| (shown(&name), shown(&value)))));
    findings.push(memlock());
    findings.push(port(PORT));
    findings.push(headers());
    findings.push(libraries(&host));
    findings.extend(host.devices());
    findings.extend(host.modules());
    let document = Document { findings };
    match options.json {
        true => print_json(&document)?,
        false => print(&document.text())?,
    }
    Ok(document.findings.iter().all(|finding| finding.state != State::Problem))
}

impl Document {
    fn text(&self) -> String {
        let width = self.findings.iter().map(|finding| finding.subject.len()).max().unwrap_or(0);
        let mut text = String::new();
        for Finding { subject, state, message, fix } in &self.findings {
            let word = match state {
                State::Fine => colour("fine   ", Colour::Good),
                State::Note => colour("note   ", Colour::Strong),
                State::Problem => colour("problem", Colour::Bad),
            };
            let indent = " ".repeat("problem".len() + 2 + width + 2);
            // A file's name or a variable may hold anything.
            let message = printable(message).replace('\n', &format!("\n{indent}"));
            text += &format!("{word}  {subject:<width$}  {message}\n");
            text += &fix
                .as_ref()
                .map_or_else(String::new, |fix| format!("{indent}{}\n", printable(fix)));
        }
        let problems =
            self.findings.iter().filter(|finding| finding.state == State::Problem).count();
        let summary = match problems {
            0 => "no problem found".to_owned(),
            1 => "1 problem".to_owned(),
            n => format!("{n} problems"),
        };
        text + &colour(&summary, Colour::Faint) + "\n"
    }
}

// ---- DAT ----------------------------------------------------------------------------------------------------------

/// The registry's file.
fn registry(list: &List) -> Vec<Finding> {
    let errors = list.errors();
    let Some(file) = list.file() else {
        let message = "no file: only what is built in";
        return match errors.first() {
            Some(error) => vec![Finding::problem(
                "registry",
                error.to_string(),
                "name a file that can be read, or unset DAT_OVERRIDE",
            )],
            None => vec![Finding::fine("registry", message)],
        };
    };
    let shown = file.display();
    let advice = format!("dat check {shown}");
    let warned = check::warned_of(list);
    vec![match errors {
        [] if !warned.is_empty() => {
            let message = format!(
                "{shown}: {} will not open, or never be asked for: {}",
                plural(warned.len(), "entry", "entries"),
                wrapped(&format!("lines {}", ranges(&warned)))
            );
            Finding::note("registry", message, advice)
        }
        [] => Finding::fine("registry", format!("{shown}: no mistake is in it")),
        [error] => Finding::problem("registry", error.to_string(), advice),
        [error, more @ ..] => {
            Finding::problem("registry", format!("{error}; and {} more", more.len()), advice)
        }
    }]
}

/// Cut where a screen would be full of it.
fn wrapped(text: &str) -> String {
    const MOST: usize = 60;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => {
            format!("{} ...", text[..end].rsplit_once(',').map_or(text, |(whole, _)| whole))
        }
        None => text.to_owned(),
    }
}

/// The entries that are built in, opened.
fn adapters(list: &List) -> Vec<Finding> {
    let candidates = list.candidates().into_iter().enumerate();
    if list.builtins_off() {
        let message = "the adapters that are built in are turned off by OPENDAT_BUILTIN=0";
        let remedy = "unset OPENDAT_BUILTIN";
        // Those of a file may be what is wanted: it takes one that opens.
        let opens = |(index, _): (usize, &Candidate)| list::open(index).is_ok();
        return vec![
            match candidates.filter(|(_, candidate)| candidate.entry.usable()).any(opens) {
                true => Finding::note("adapters", message, remedy),
                false => {
                    Finding::problem("adapters", format!("no adapter opens: {message}"), remedy)
                }
            },
        ];
    }
    let (mut open, mut findings) = (Vec::new(), Vec::new());
    for (index, candidate) in candidates.filter(|(_, candidate)| candidate.builtin.is_some()) {
        let name = candidate.entry.ia_name.clone();
        match list::open(index) {
            Ok(()) => open.push(name),
            // Without a device there is nothing to mend: see below.
            Err(_) if name == "verbs" && !Path::new(DEVICES).exists() => {}
            Err(why) => findings.push(Finding::problem(
                "adapters",
                format!("{name} does not open: {why}"),
                format!("as it says, else dat list --all and docs/{name}.md"),
            )),
        }
    }
    if !open.is_empty() {
        findings.insert(0, Finding::fine("adapters", format!("{} open", open.join(", "))));
    }
    findings
}

/// Which library programs get. This program needs neither.
fn program(soname: &'static str) -> Finding {
    let subject = "programs";
    let remedy = match programs::directory_of_ours() {
        Some(directory) => format!("export LD_LIBRARY_PATH={}", directory.display()),
        None => "cargo xtask dist makes ours, and LD_LIBRARY_PATH says where it is; or install the packages"
            .to_owned(),
    };
    match programs::found(soname) {
        Some(path) if programs::is_ours(&path) => {
            Finding::fine(subject, format!("get OpenDAT's {}", path.display()))
        }
        Some(path) => Finding::note(
            subject,
            format!("get {}, which is not OpenDAT's and has no adapter built in", path.display()),
            remedy,
        ),
        None => Finding::note(subject, format!("find no {soname}"), remedy),
    }
}

/// Variables that change what is found here.
fn shown(text: &OsStr) -> String {
    text.to_string_lossy().into_owned()
}

fn environment(variables: impl Iterator<Item = (String, String)>) -> Vec<Finding> {
    let ours = |name: &str| {
        ["DAT_", "DAPL_", "OPENDAT_"].iter().any(|start| name.starts_with(start))
            || parameters::misspelt(name).is_some()
    };
    let mut set: Vec<(String, String)> = variables.filter(|(name, _)| ours(name)).collect();
    set.sort();
    let faults = set.iter().filter_map(|(name, value)| {
        if let Some(meant) = parameters::misspelt(name) {
            let message = format!("{name} is no variable that anything here heeds");
            return Some(Finding::problem(
                "environment",
                message,
                format!("did you mean {meant}?"),
            ));
        }
        let fault = parameters::fault_of_variable(name, value)?;
        Some(Finding::problem("environment", fault, format!("correct it, or unset {name}")))
    });
    let heeded = set.iter().filter(|(name, _)| parameters::misspelt(name).is_none());
    let words: Vec<String> = heeded.map(|(name, value)| format!("{name}={value}")).collect();
    let in_force = match words.is_empty() {
        true => Finding::fine("environment", "no variable changes anything"),
        false => Finding::note(
            "environment",
            words.join(" "),
            "in force for every program that is started from here",
        ),
    };
    std::iter::once(in_force).chain(faults).collect()
}

// ---- what softroce needs ------------------------------------------------------------------------------------------

/// RoCEv2's UDP port.
const PORT: u16 = 4791;

/// Whether a process can have this UDP port, which is RoCEv2's.
fn port(port: u16) -> Finding {
    let taken = [
        SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)),
        SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)),
    ]
    .into_iter()
    .any(|address| {
        UdpSocket::bind(address).is_err_and(|error| error.kind() == ErrorKind::AddrInUse)
    });
    let subject = "port 4791";
    if !taken {
        return Finding::fine(subject, "free for softroce");
    }
    match owners(port) {
        owners if owners.is_empty() && names_in(Path::new(DEVICES)).is_empty() => Finding::note(
            subject,
            "taken by a process of another user",
            "root sees whose; adapters of softroce share an address of one host only among one user's processes",
        ),
        owners if owners.is_empty() => Finding::note(
            subject,
            "taken by the kernel (rxe), or by a process of another user",
            "softroce uses the kernel's rxe then; `rdma link show` lists it, `rdma link delete` ends it",
        ),
        owners => Finding::note(
            subject,
            format!("taken by {}", owners.join(", ")),
            "adapters of softroce share an address of one host; anything else has to end first",
        ),
    }
}

/// The processes that have a UDP port, as far as this user may see.
fn owners(port: u16) -> Vec<String> {
    let inodes: Vec<String> = ["/proc/net/udp", "/proc/net/udp6"]
        .iter()
        .filter_map(|table| fs::read_to_string(table).ok())
        .flat_map(|table| sockets(&table, port))
        .collect();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut owners: Vec<String> = processes
        .filter_map(|process| {
            let pid: u32 = process.file_name().to_str()?.parse().ok()?;
            let mut files = fs::read_dir(process.path().join("fd")).ok()?.flatten();
            let is_one = |link: PathBuf| {
                inodes.iter().any(|inode| link.as_os_str() == format!("socket:[{inode}]").as_str())
            };
            files.any(|file| fs::read_link(file.path()).is_ok_and(is_one)).then(|| {
                let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
                format!("{} (process {pid})", name.trim())
            })
        })
        .collect();
    owners.sort();
    owners
}

/// The inodes of the sockets of a port, in the kernel's table.
fn sockets(table: &str, port: u16) -> Vec<String> {
    let suffix = format!(":{port:04X}");
    table
        .lines()
        .skip(1)
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            (fields.get(1)?.ends_with(&suffix))
                .then(|| fields.get(9).map(|inode| (*inode).to_owned()))?
        })
        .filter(|inode| inode != "0")
        .collect()
}

/// Whether batches leave with the IP identification that the ICRC needs.
fn headers() -> Finding {
    match provider_softroce::batches_are_as_they_should() {
        true => Finding::fine("IP headers", "as RoCEv2's checksum needs them, also in batches"),
        false => Finding::note(
            "IP headers",
            "batches of packets leave with an identification that cannot be told before",
            "softroce sends packet by packet over IPv4, which is slower: a newer kernel, or IPv6, has both",
        ),
    }
}

// ---- what verbs needs ---------------------------------------------------------------------------------------------

const DEVICES: &str = "/sys/class/infiniband";
const NODES: &str = "/dev/infiniband";

/// Octets that a program of some size registers.
const LOCKED: u64 = 64 << 20;

fn memlock() -> Finding {
    let subject = "memlock";
    let advice = "ulimit -l unlimited; for good in /etc/security/limits.conf; containers: --ulimit memlock=-1";
    match getrlimit(Resource::Memlock).current {
        _ if may_lock_all(&fs::read_to_string("/proc/self/status").unwrap_or_default()) => {
            Finding::fine(subject, "this user may lock any memory (CAP_IPC_LOCK)")
        }
        None => Finding::fine(subject, "any memory may be locked"),
        Some(limit) if limit >= LOCKED => {
            Finding::fine(subject, format!("{} MiB may be locked", limit >> 20))
        }
        Some(limit) => {
            let message = format!(
                "{} KiB may be locked: verbs devices register no more than that",
                limit >> 10
            );
            Finding::note(subject, message, advice)
        }
    }
}

/// Whether the limit is not heeded, by /proc/PID/status (capabilities(7)). In containers root has not always that right.
fn may_lock_all(status: &str) -> bool {
    const CAP_IPC_LOCK: u32 = 14;
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective
        .and_then(|set| u64::from_str_radix(set.trim(), 16).ok())
        .is_some_and(|set| set >> CAP_IPC_LOCK & 1 == 1)
}

fn libraries(host: &Host) -> Finding {
    match provider_verbs::device::libraries().map_err(|error| error.reason) {
        Ok(()) => Finding::fine("libraries", "libibverbs and librdmacm load"),
        Err(error) if host.has_devices() => Finding::problem(
            "libraries",
            error,
            "Fedora, RHEL: libibverbs librdmacm; SUSE: libibverbs1 librdmacm1",
        ),
        Err(error) => {
            Finding::note("libraries", error, "only RDMA devices need them, and there is none here")
        }
    }
}

/// What of the host is looked at for RDMA devices.
struct Host {
    sysfs: PathBuf,
    nodes: PathBuf,
    modules: PathBuf,
    release: String,
}

impl Default for Host {
    fn default() -> Self {
        let release =
            fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned();
        Host {
            sysfs: DEVICES.into(),
            nodes: NODES.into(),
            modules: Path::new("/lib/modules").join(&release),
            release,
        }
    }
}

impl Host {
    fn has_devices(&self) -> bool {
        !names_in(&self.sysfs).is_empty()
    }

    /// The devices, and whether this user may use them.
    fn devices(&self) -> Vec<Finding> {
        let devices = names_in(&self.sysfs);
        if devices.is_empty() {
            let fix = match self.has_module("rdma_rxe") {
                true => {
                    "tcp-emu and softroce need none; as root: rdma link add rxe0 type rxe netdev eth0"
                }
                false => "tcp-emu and softroce need none",
            };
            return vec![Finding::note("devices", "this host has no RDMA device", fix)];
        }
        let mut findings: Vec<Finding> = devices.iter().map(|device| self.device(device)).collect();
        findings.push(self.node("rdma_cm", "modprobe rdma_ucm"));
        let uverbs: Vec<String> =
            names_in(&self.nodes).into_iter().filter(|name| name.starts_with("uverbs")).collect();
        match uverbs.is_empty() {
            true => findings.push(self.node("uverbs0", "modprobe ib_uverbs")),
            false => {
                findings.extend(uverbs.iter().map(|name| self.node(name, "modprobe ib_uverbs")))
            }
        }
        findings
    }

    fn device(&self, device: &str) -> Finding {
        let port = self.sysfs.join(device).join("ports/1");
        let read = |file: &str| {
            let text = fs::read_to_string(port.join(file)).unwrap_or_default();
            // As in "4: ACTIVE".
            text.trim().rsplit(": ").next().unwrap_or_default().to_owned()
        };
        let (state, layer) = (read("state"), read("link_layer"));
        let netdev = read("gid_attrs/ndevs/0");
        let message = format!(
            "{device}: {layer}, {state}, of {}",
            if netdev.is_empty() { "no network device" } else { &netdev }
        );
        match state.as_str() {
            "ACTIVE" => Finding::fine("devices", message),
            _ => Finding::problem(
                "devices",
                message,
                format!("ip link set {netdev} up; see rdma link show"),
            ),
        }
    }

    fn node(&self, name: &str, module: &str) -> Finding {
        let path = self.nodes.join(name);
        let shown = path.display();
        let containers = "containers: --device /dev/infiniband";
        match OpenOptions::new().read(true).write(true).open(&path) {
            Ok(_) => Finding::fine("nodes", format!("{shown} can be opened")),
            Err(error) if error.kind() == ErrorKind::NotFound => Finding::problem(
                "nodes",
                format!("{shown} is not there"),
                format!("{module}; {containers}"),
            ),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => Finding::problem(
                "nodes",
                format!("{shown} may not be opened by this user"),
                format!("chmod 666 {shown}, or the rules of the package rdma-core; {containers}"),
            ),
            Err(error) => Finding::problem("nodes", format!("{shown}: {error}"), containers),
        }
    }

    /// Whether the kernel has a module: loaded, built in, or to be loaded.
    fn has_module(&self, module: &str) -> bool {
        let listed = ["modules.dep", "modules.builtin"]
            .map(|file| fs::read_to_string(self.modules.join(file)).unwrap_or_default())
            .concat();
        let mut files = listed.lines().map(|line| {
            let path = line.split(':').next().unwrap_or_default();
            path.rsplit('/').next().unwrap_or_default()
        });
        is_loaded(module) || files.any(|file| file.split('.').next() == Some(module))
    }

    /// The kernel's drivers in software: loaded, there, or in which package.
    fn modules(&self) -> Vec<Finding> {
        [("rdma_rxe", "RoCEv2 in software"), ("siw", "iWARP in software")]
            .map(|(module, what)| {
                let subject = "modules";
                match (is_loaded(module), self.has_module(module)) {
                    (true, _) => Finding::fine(subject, format!("{module} ({what}) is loaded")),
                    (false, true) => Finding::note(
                        subject,
                        format!("{module} ({what}) is not loaded"),
                        format!("modprobe {module}"),
                    ),
                    (false, false) => Finding::note(
                        subject,
                        format!("the kernel {} has no {module} ({what})", self.release),
                        package(&self.release),
                    ),
                }
            })
            .into()
    }
}

fn is_loaded(module: &str) -> bool {
    Path::new("/sys/module").join(module).exists()
}

/// Where a kernel's modules of RDMA are, by what its release is called.
fn package(release: &str) -> String {
    match release {
        r if r.contains("-cloud-") => {
            "Debian: linux-image-amd64 has it, the cloud kernel has not; softroce and tcp-emu need no module"
                .to_owned()
        }
        r if r.ends_with("-generic")
            || r.ends_with("-aws")
            || r.ends_with("-azure")
            || r.ends_with("-gcp") =>
        {
            format!("Ubuntu: linux-modules-extra-{release}; softroce and tcp-emu need no module")
        }
        r if r.contains(".el") || r.contains(".fc") => {
            format!("Fedora, RHEL: kernel-modules-extra-{release}; softroce and tcp-emu need no module")
        }
        r if r.contains("WSL") => {
            "Microsoft's kernel for WSL has none; softroce and tcp-emu need no module".to_owned()
        }
        _ => "softroce and tcp-emu need no module".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_of_a_port_is_named() {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = socket.local_addr().expect("it").port();
        let this = format!("(process {})", std::process::id());
        let finding = super::port(port);
        assert_eq!(finding.state, State::Note);
        assert!(
            finding.message.starts_with("taken by ") && finding.message.contains(&this),
            "{}",
            finding.message
        );
        drop(socket);
        assert!(!owners(port).iter().any(|owner| owner.ends_with(&this)));
        assert_eq!(super::port(port).message, "free for softroce");
    }

    #[test]
    fn the_right_to_lock_memory_is_that_of_its_capability() {
        assert!(may_lock_all("Name:\tdat\nCapEff:\t000001ffffffffff\n"), "root of a host");
        assert!(
            !may_lock_all("CapEff:\t00000000a80425fb\n"),
            "root of a container, as Docker makes it"
        );
        assert!(!may_lock_all(""));
    }

    #[test]
    fn sockets_are_found_by_their_local_port() {
        let table = "  sl  local_address rem_address st tx_queue rx_queue tr tm->when retrnsmt uid timeout inode\n\
                     1: 00000000:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000 0 0 4711 2 0 0\n\
                     2: 00000000:0035 0100007F:12B7 07 00000000:00000000 00:00000000 00000000 0 0 4712 2 0 0\n\
                     3: 00000000:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000 0 0 0 2 0 0\n";
        assert_eq!(sockets(table, PORT), ["4711"], "that of the kernel has no inode");
    }

    /// As a host has it that has two devices, one of them down, and modules of a distribution.
    fn host() -> (tempfile::TempDir, Host) {
        let dir = tempfile::tempdir().expect("a directory");
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().expect("one")).expect("made");
            fs::write(path, text).expect("written");
        };
        for (device, state) in [("mlx5_0", "4: ACTIVE"), ("rxe0", "1: DOWN")] {
            write(&format!("sys/{device}/ports/1/state"), &format!("{state}\n"));
            write(&format!("sys/{device}/ports/1/link_layer"), "Ethernet\n");
            write(&format!("sys/{device}/ports/1/gid_attrs/ndevs/0"), "eth0\n");
        }
        write("dev/uverbs0", "");
        write(
            "modules/modules.dep",
            "kernel/drivers/infiniband/sw/opendat_none/opendat_none.ko.xz: kernel/x.ko\n",
        );
        let host = Host {
            sysfs: dir.path().join("sys"),
            nodes: dir.path().join("dev"),
            modules: dir.path().join("modules"),
            release: "6.1.0-18-cloud-amd64".to_owned(),
        };
        (dir, host)
    }

    #[test]
    fn devices_and_nodes_that_are_not_as_they_should_be_are_problems() {
        let (_dir, host) = host();
        let findings = host.devices();
        let says = |state: State, text: &str| {
            findings.iter().any(|finding| finding.state == state && finding.message.contains(text))
        };
        assert!(says(State::Fine, "mlx5_0: Ethernet, ACTIVE, of eth0"));
        assert!(says(State::Problem, "rxe0: Ethernet, DOWN, of eth0"));
        assert!(says(State::Problem, "rdma_cm is not there"));
        assert!(says(State::Fine, "uverbs0 can be opened"));
    }

    #[test]
    fn the_package_of_a_module_is_named_as_the_kernel_is() {
        assert!(package("6.1.0-18-cloud-amd64").starts_with("Debian: linux-image-amd64"));
        assert!(package("6.8.0-31-generic").contains("linux-modules-extra-6.8.0-31-generic"));
        assert!(package("5.14.0-427.el9.x86_64").contains("kernel-modules-extra"));
        assert!(package("5.15.146.1-microsoft-standard-WSL2").contains("WSL"));
    }

    #[test]
    fn variables_in_force_are_told() {
        let set = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let findings = environment(
            [set("HOME", "/"), set("OPENDAT_BUILTIN", "0"), set("DAPL_DBG_TYPE", "1")].into_iter(),
        );
        assert_eq!(findings[0].message, "DAPL_DBG_TYPE=1 OPENDAT_BUILTIN=0");
        assert_eq!(environment(std::iter::empty())[0].state, State::Fine);
        let findings = environment([set("OPENDAT_SPIN_US", "soon")].into_iter());
        assert_eq!(findings[1].state, State::Problem);
        assert_eq!(findings[1].message, "OPENDAT_SPIN_US=soon: expected 0 to 1000000 microseconds");
        let findings = environment([set("OPENDAT_NETT", "loss=1%")].into_iter());
        assert_eq!(findings[1].fix.as_deref(), Some("did you mean OPENDAT_NET?"));
    }
}
