//! `dat doctor`: lists on one screen why RDMA does not work on this host, with a remedy for each
//! finding.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use measurement::text_table::{Colour, colour, wrapped};
use measurement::units::{plural, ranges};
use registry::List;
use registry::host::names_in;
use rustix::process::{Resource, getrlimit};
use serde::Serialize;
use telemetry::printable;

use crate::check::{DEFAULT_LIMIT, Unusable};
use crate::output::{print, print_json};
use crate::{check, list, parameters, programs};

#[derive(Args)]
pub(crate) struct Options {
    /// Print one JSON document instead of text
    #[arg(long)]
    json: bool,
}

/// A finding: the subject that was examined, its state, and the remedy.
#[derive(Serialize)]
struct Finding {
    /// The subject that was examined.
    subject: &'static str,
    state: State,
    message: String,
    /// The remedy, if there is one.
    fix: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Fine,
    /// A feature that not every user needs is missing.
    Note,
    /// A feature that every user needs does not work.
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

/// Examines the host. Returns whether there is no problem.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let list = List::from_environment(dat::builtins());
    let host = Host::default();
    let mut findings = registry(&list);
    findings.extend(adapters(&list));
    findings.extend(programs::SONAMES.map(program));
    findings
        .extend(environment(env::vars_os().map(|(name, value)| (to_text(&name), to_text(&value)))));
    findings.push(memlock());
    findings.push(port(ROCE_PORT));
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
            let mut begin = format!("{word}  {subject:<width$}  ");
            // Control characters are replaced, because a file name or a variable may contain any
            // character.
            let (message, fix) = (printable(message), fix.as_deref().map(printable));
            for line in message.lines().chain(fix.as_deref().into_iter().flat_map(str::lines)) {
                text += &format!("{}\n", wrapped(&format!("{begin}{line}"), &indent));
                begin.clone_from(&indent);
            }
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

// ---- DAT ----------------------------------------------------------------------------------------

/// Reports the state of the registry file.
fn registry(list: &List) -> Vec<Finding> {
    let errors = list.errors();
    let Some(file) = list.file() else {
        let message = "no file: there are only the built-in entries";
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
    let Unusable { lines: warned, not_started } = check::unusable_lines(list);
    vec![match errors {
        [] if !warned.is_empty() => {
            let message = format!(
                "{shown}: {} unusable: {}",
                match warned.len() {
                    1 => "1 entry is".to_owned(),
                    count => format!("{count} entries are"),
                },
                cut(&format!("lines {}", ranges(&warned)))
            );
            Finding::note("registry", message, advice)
        }
        [] if not_started > 0 => {
            let message = format!(
                "{shown}: no errors, but the providers of {} were not started",
                plural(not_started, "entry", "entries")
            );
            Finding::note("registry", message, format!("{advice} --limit N"))
        }
        [] => Finding::fine("registry", format!("{shown}: no errors")),
        [error] => Finding::problem("registry", error.to_string(), advice),
        [error, more @ ..] => {
            Finding::problem("registry", format!("{error}; and {} more", more.len()), advice)
        }
    }]
}

/// Cuts a long list of line numbers after about 60 characters.
fn cut(text: &str) -> String {
    const MAX_CHARS: usize = 60;
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => {
            format!("{} ...", text[..end].rsplit_once(',').map_or(text, |(whole, _)| whole))
        }
        None => text.to_owned(),
    }
}

/// Reports whether the built-in entries open.
fn adapters(list: &List) -> Vec<Finding> {
    let candidates = list.candidates().into_iter();
    if list.builtins_off() {
        let message = "the built-in adapters are turned off by builtin=off in OPENDAT_PARAMS";
        let remedy = "remove builtin=off from OPENDAT_PARAMS";
        // Without built-in adapters, it is enough that one adapter of the registry file opens.
        let usable: Vec<_> =
            candidates.filter(|candidate| list::unused(&candidate.entry).is_none()).collect();
        return vec![match list::any_opens(&usable, DEFAULT_LIMIT) {
            Some(true) => Finding::note("adapters", message, remedy),
            Some(false) => {
                Finding::problem("adapters", format!("no adapter opens: {message}"), remedy)
            }
            None => Finding::problem(
                "adapters",
                format!("none of the {DEFAULT_LIMIT} adapters that were tried opens: {message}"),
                remedy,
            ),
        }];
    }
    let (mut open, mut findings) = (Vec::new(), Vec::new());
    for candidate in candidates.filter(|candidate| candidate.builtin.is_some()) {
        let name = candidate.entry.ia_name.clone();
        match list::open(candidate) {
            Ok(()) => open.push(name),
            // If the host has no RDMA device, it is no problem that verbs does not open. Another
            // finding reports that there is no device.
            Err(_) if name == "verbs" && !Path::new(SYSFS_DEVICES).exists() => {}
            Err(why) => findings.push(Finding::problem(
                "adapters",
                format!("{name} does not open: {why}"),
                format!("follow the message, or see dat list --all and docs/{name}.md"),
            )),
        }
    }
    if !open.is_empty() {
        findings.insert(0, Finding::fine("adapters", format!("{} open", open.join(", "))));
    }
    findings
}

/// Reports which uDAPL library programs load. The program `dat` itself needs no library.
fn program(soname: &'static str) -> Finding {
    let subject = "programs";
    let remedy = match programs::own_library_directory() {
        Some(directory) => format!("export LD_LIBRARY_PATH={}", directory.display()),
        None => {
            "build ours with cargo xtask dist and set LD_LIBRARY_PATH to its lib directory, or \
                 install the packages"
                .to_owned()
        }
    };
    match programs::library_path(soname) {
        Some(path) if programs::is_ours(&path) => {
            Finding::fine(subject, format!("load OpenDAT's {}", path.display()))
        }
        Some(path) => Finding::note(
            subject,
            format!("load {}, which is not OpenDAT's and has no adapter built in", path.display()),
            remedy,
        ),
        None => Finding::note(subject, format!("no {soname} found"), remedy),
    }
}

/// Converts a variable's name or value to text.
fn to_text(text: &OsStr) -> String {
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
            let message = format!("{name} is not a variable that OpenDAT reads");
            return Some(Finding::problem(
                "environment",
                message,
                format!("did you mean {meant}?"),
            ));
        }
        let fault = parameters::fault_of_variable(name, value)?;
        Some(Finding::problem("environment", fault, format!("correct the value, or unset {name}")))
    });
    let known = set.iter().filter(|(name, _)| parameters::misspelt(name).is_none());
    let words: Vec<String> = known.map(|(name, value)| format!("{name}={value}")).collect();
    let in_force = match words.is_empty() {
        true => Finding::fine("environment", "no environment variable changes the behavior"),
        false => Finding::note(
            "environment",
            words.join(" "),
            "these variables apply to every program that is started from here, except set-user-ID \
             programs",
        ),
    };
    std::iter::once(in_force).chain(faults).collect()
}

// ---- what softroce needs ------------------------------------------------------------------------

/// The UDP port of RoCEv2.
const ROCE_PORT: u16 = 4791;

/// Reports whether a process can bind this UDP port.
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
        owners if owners.is_empty() && names_in(Path::new(SYSFS_DEVICES)).is_empty() => {
            Finding::note(
                subject,
                "taken by a process of another user",
                "root can see which process it is; on one address of a host, only the processes of \
                 one user can share the port for softroce",
            )
        }
        owners if owners.is_empty() => Finding::note(
            subject,
            "taken by the kernel (rxe), or by a process of another user",
            "if it is rxe, softroce uses rxe; `rdma link show` lists it, `rdma link delete` \
             removes it",
        ),
        owners => Finding::note(
            subject,
            format!("taken by {}", owners.join(", ")),
            "softroce adapters can share the port; any other process that uses it must end first",
        ),
    }
}

/// Returns the processes that use a UDP port, as far as this user may see them.
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

/// Returns the inodes of a port's sockets in the kernel's table.
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

/// Reports whether the packets of a batch leave with the IP identification that the ICRC needs.
fn headers() -> Finding {
    match roce::gso_headers_fit_icrc() {
        true => Finding::fine("IP headers", "correct for RoCEv2's checksum, also in batches"),
        false => Finding::note(
            "IP headers",
            "in batches of packets, the IP identification is not predictable",
            "over IPv4, softroce sends one packet per call, which is slower; a newer kernel \
             or IPv6 avoids that",
        ),
    }
}

// ---- what verbs needs ---------------------------------------------------------------------------

const SYSFS_DEVICES: &str = "/sys/class/infiniband";
const DEVICE_NODES: &str = "/dev/infiniband";

/// The number of octets that a program of moderate size registers.
const MODERATE_LOCKED_BYTES: u64 = 64 << 20;

fn memlock() -> Finding {
    let subject = "memlock";
    let advice = "ulimit -l unlimited; permanently in /etc/security/limits.conf; containers: \
                  --ulimit memlock=-1";
    match getrlimit(Resource::Memlock).current {
        _ if may_lock_all(&fs::read_to_string("/proc/self/status").unwrap_or_default()) => {
            Finding::fine(subject, "this user may lock any memory (CAP_IPC_LOCK)")
        }
        None => Finding::fine(subject, "any memory may be locked"),
        Some(limit) if limit >= MODERATE_LOCKED_BYTES => {
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

/// Returns whether /proc/PID/status shows CAP_IPC_LOCK, which lifts the limit (capabilities(7)).
/// The root user of a container does not always have that capability.
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
            Finding::note("libraries", error, "only RDMA devices need them, and this host has none")
        }
    }
}

/// The directories in which RDMA devices and their kernel modules are looked up.
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
            sysfs: SYSFS_DEVICES.into(),
            nodes: DEVICE_NODES.into(),
            modules: Path::new("/lib/modules").join(&release),
            release,
        }
    }
}

impl Host {
    fn has_devices(&self) -> bool {
        !names_in(&self.sysfs).is_empty()
    }

    /// Reports the devices, and whether this user may use them.
    fn devices(&self) -> Vec<Finding> {
        let devices = names_in(&self.sysfs);
        if devices.is_empty() {
            let fix = match self.has_module("rdma_rxe") {
                true => {
                    "tcp-emu and softroce need none; as root: rdma link add rxe0 type rxe netdev \
                     eth0"
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
            // The file `state` contains a number and a word, such as "4: ACTIVE". Only the word is
            // kept.
            text.trim().rsplit(": ").next().unwrap_or_default().to_owned()
        };
        let (state, layer) = (read("state"), read("link_layer"));
        let netdev = read("gid_attrs/ndevs/0");
        let message = format!(
            "{device}: {layer}, {state}, on {}",
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
                format!("{shown} does not exist"),
                format!("{module}; {containers}"),
            ),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => Finding::problem(
                "nodes",
                format!("{shown} may not be opened by this user"),
                format!("chmod 666 {shown}, or install rdma-core for its udev rules; {containers}"),
            ),
            Err(error) => Finding::problem("nodes", format!("{shown}: {error}"), containers),
        }
    }

    /// Returns whether the kernel has a module: loaded, built in, or loadable.
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

    /// Reports whether the kernel's software drivers are loaded or available, and if not, which
    /// package contains them.
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

/// Returns the package that contains the RDMA modules of a kernel with this release.
fn package(release: &str) -> String {
    match release {
        r if r.contains("-cloud-") => {
            "Debian: linux-image-amd64 has it, the cloud kernel does not; softroce and tcp-emu \
             need no module"
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
            format!(
                "Fedora, RHEL: kernel-modules-extra-{release}; softroce and tcp-emu need no module"
            )
        }
        r if r.contains("WSL") => {
            "Microsoft's WSL kernel has none; softroce and tcp-emu need no module".to_owned()
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
        let port = socket.local_addr().expect("the socket is bound").port();
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
        assert!(
            may_lock_all("Name:\tdat\nCapEff:\t000001ffffffffff\n"),
            "root of a host may lock all memory"
        );
        assert!(
            !may_lock_all("CapEff:\t00000000a80425fb\n"),
            "root of a container, as Docker makes it, may not lock all memory"
        );
        assert!(!may_lock_all(""));
    }

    #[test]
    fn sockets_are_found_by_their_local_port() {
        let table = "  sl  local_address rem_address st tx_queue rx_queue tr tm->when retrnsmt uid \
             timeout inode\n\
             1: 00000000:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000 \
              0 0 4711 2 0 0\n\
             2: 00000000:0035 0100007F:12B7 07 00000000:00000000 00:00000000 00000000 \
              0 0 4712 2 0 0\n\
             3: 00000000:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000 \
              0 0 0 2 0 0\n";
        assert_eq!(
            sockets(table, ROCE_PORT),
            ["4711"],
            "the kernel's socket has no inode and must not be listed"
        );
    }

    /// A host with two devices, one of them down, and the modules of a distribution.
    fn host() -> (tempfile::TempDir, Host) {
        let dir = tempfile::tempdir().expect("a directory");
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().expect("the path has a parent"))
                .expect("the directory can be made");
            fs::write(path, text).expect("the file can be written");
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
        assert!(says(State::Fine, "mlx5_0: Ethernet, ACTIVE, on eth0"));
        assert!(says(State::Problem, "rxe0: Ethernet, DOWN, on eth0"));
        assert!(says(State::Problem, "rdma_cm does not exist"));
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
            [set("HOME", "/"), set("OPENDAT_PARAMS", "mtu=1024"), set("DAPL_DBG_TYPE", "1")]
                .into_iter(),
        );
        assert_eq!(findings[0].message, "DAPL_DBG_TYPE=1 OPENDAT_PARAMS=mtu=1024");
        assert_eq!(environment(std::iter::empty())[0].state, State::Fine);
        let findings = environment([set("OPENDAT_PARAMS", "spin=soon")].into_iter());
        assert_eq!(findings[1].state, State::Problem);
        assert_eq!(
            findings[1].message,
            "OPENDAT_PARAMS: spin=soon: expected 0 to 1000000 microseconds"
        );
        let findings = environment([set("OPENDAT_PARAM", "mtu=1024")].into_iter());
        assert_eq!(findings[1].fix.as_deref(), Some("did you mean OPENDAT_PARAMS?"));
    }
}
