//! The guest as a machine: QEMU, and the wire to the guest, a tap device with the addresses of a
//! host on the wire. The machine ends when this program ends.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use opendat_tests::{
    Dist, PROVIDERS, Skip, Stop, VERBS, c_preload, c_program, find_program, has_own_network,
};
use tempfile::TempDir;

use super::{in_guest, relay};
use crate::host::{Family, WIRE, finish, here};

/// The guest of these tests, which boots when the first of them needs it.
pub(super) struct Machine {
    image: PathBuf,
    dist: Result<Dist, Skip>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    guest: Option<Arc<Guest>>,
    /// Whether this project's libraries and programs are installed in the guest.
    is_installed: bool,
    /// The number of guests that have died before this one.
    crashes: usize,
    /// The reason why no guest can be started on this machine.
    unavailable: Option<Stop>,
}

/// The number of guests that may die. If a kernel dies in a test, the death is printed and says
/// nothing about this project; more deaths than this are a failure. The siw of Linux 6.12 does die:
/// its sending thread (siw_tx_hdt, called from siw_sq_resume) reads an SGE behind the last one.
const MAX_CRASHES: usize = 2;

/// The guest's address on the wire, which its rxe uses.
pub(super) const RXE: &str = Family::V4.addresses()[1];
/// The address in the guest's network namespace "apart" (`tests/guest/apart`), which none of the
/// kernel's RDMA devices has.
pub(super) const APART: &str = "10.78.0.2";

impl Machine {
    pub(super) fn new(image: &Path, dist: &Result<Dist, Skip>) -> Machine {
        let (image, dist) = (image.to_owned(), dist.clone());
        Machine { image, dist, state: Mutex::default() }
    }

    /// Runs a test with a guest that has this RDMA device over a wire of this MTU. With `installed`
    /// the guest has this project's libraries and the program `dat` in /tmp/dist, and a network
    /// "apart". If the guest dies, the test runs once more with another guest.
    pub(super) fn run<R>(
        &self,
        (device, mtu): (&'static str, u32),
        installed: bool,
        test: impl Fn(&Guest) -> Result<R, Stop>,
    ) -> Result<R, Stop> {
        let once = |guest: &Guest| {
            guest.device(device, mtu)?;
            test(guest)
        };
        let guest = self.guest(installed)?;
        match once(&guest) {
            Err(_) if guest.is_dead() => {
                drop(guest);
                let guest = self.guest(installed)?;
                once(&guest).map_err(|stop| guest.with_kernel_log(stop))
            }
            ended => ended.map_err(|stop| guest.with_kernel_log(stop)),
        }
    }

    fn guest(&self, installed: bool) -> Result<Arc<Guest>, Stop> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(dead) = state.guest.take_if(|guest| guest.is_dead()) {
            println!("\nthe guest's kernel or its emulator has died; {}", dead.console_tail());
            *state = State { crashes: state.crashes + 1, ..State::default() };
        }
        if let Some(stop) = &state.unavailable {
            return Err(stop.clone());
        }
        if state.crashes > MAX_CRASHES {
            return Err(Stop::Fail(format!(
                "{} guests have died; their consoles are printed above",
                state.crashes
            )));
        }
        let guest = match &state.guest {
            Some(guest) => Arc::clone(guest),
            None => match Guest::boot(&self.image) {
                Ok(guest) => Arc::clone(state.guest.insert(Arc::new(guest))),
                Err(stop) => return Err(state.unavailable.insert(stop).clone()),
            },
        };
        if installed && !state.is_installed {
            guest.install(&self.dist.clone()?)?;
            state.is_installed = true;
        }
        Ok(guest)
    }
}

pub(crate) struct Guest {
    qemu: Mutex<Child>,
    /// The guest's RDMA device, and the wire's MTU.
    device: Mutex<Option<(&'static str, u32)>>,
    /// The directory that the guest mounts read-only at /share.
    share: TempDir,
    /// The directory of the console's output.
    dir: TempDir,
}

const CONSOLE: &str = "console";
/// The library that all programs in the guest preload.
const STAYS_LOADED: &str = "stays_loaded";
/// The time limit of a boot under emulation, on a machine that does other work.
const BOOT_LIMIT: Duration = Duration::from_secs(300);
/// The time limit of a command in the guest. On a real machine, such a command takes almost no
/// time.
const COMMAND_LIMIT: Duration = Duration::from_secs(120);

impl Guest {
    /// Boots the image that `tests/guest/build.sh` has built.
    pub(crate) fn boot(image: &Path) -> Result<Self, Stop> {
        Self::boot_with(image, "-accel tcg,thread=multi -smp 2")
    }

    /// Boots with one processor whose clock counts instructions, so that a measurement gives the
    /// same figures on each host.
    pub(super) fn boot_counting(image: &Path) -> Result<Self, Stop> {
        Self::boot_with(image, "-accel tcg,thread=single -smp 1 -icount shift=0,sleep=on")
    }

    fn boot_with(image: &Path, processors: &str) -> Result<Self, Stop> {
        if !has_own_network() {
            return Err(Skip(
                "no network namespaces (they need unshare, ip and the permission)".into(),
            )
            .into());
        }
        here(&format!("ip tuntap add dev {WIRE} mode tap"))?;
        let mut addresses = Vec::new();
        for family in [Family::V4, Family::V6] {
            let [near, far] = family.addresses();
            here(&format!("ip addr add {}", family.addr_arguments(near)))?;
            addresses.push(format!("{far}/{}", family.prefix()));
        }
        // The queue has room for everything that two endpoints may have requested, because a tap
        // device drops packets that its reader takes too late.
        here(&format!("ip link set {WIRE} txqueuelen 10000 up"))?;

        let dir =
            tempfile::tempdir().map_err(|error| format!("no temporary directory: {error}"))?;
        let console = dir.path().join(CONSOLE);
        let share =
            tempfile::tempdir().map_err(|error| format!("no temporary directory: {error}"))?;
        c_preload(STAYS_LOADED, share.path())?;
        let (shared, addresses) = (share.path().to_owned(), addresses.join(","));
        let start = || start(image, processors, &console, &shared, &addresses);
        let guest = Guest { qemu: Mutex::new(start()?), device: Mutex::default(), share, dir };
        let deadline = Instant::now() + BOOT_LIMIT;
        while TcpStream::connect_timeout(&guest.control(), Duration::from_secs(1)).is_err() {
            let output = fs::read_to_string(&console).unwrap_or_default();
            if Instant::now() > deadline {
                return Err(format!("the guest did not boot; its console:\n{output}").into());
            }
            // The kernel modifies its own code while it boots. On a busy host the emulator
            // sometimes executes such code half modified.
            if output.contains("Oops: ") || output.contains("Kernel panic") {
                guest.end();
                *guest.qemu() = start()?;
            }
            thread::sleep(Duration::from_millis(50));
        }
        // In the guest Debian's provider is registered under the name of each of this project's
        // adapters, for the wire's device.
        for family in [Family::V4, Family::V6] {
            for ia in PROVIDERS.iter().chain([&VERBS]).map(|provider| provider.ia) {
                let entry = format!(
                    "{ia} u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 \"{} 0\" \"\"",
                    family.addresses()[1]
                );
                guest.run(&format!(
                    "echo '{entry}' >>{}",
                    GuestEnvironment::debian(family).conf()
                ))?;
            }
        }
        Ok(guest)
    }

    /// Copies this project's libraries, without debugging information, and registry files to
    /// /tmp/dist in the guest, and makes the network "apart".
    fn install(&self, dist: &Dist) -> Result<(), Stop> {
        let strip = find_program("strip", "binutils")?;
        let share = self.share.path();
        let failed = |error: std::io::Error| Stop::Fail(format!("{}: {error}", share.display()));
        for dir in ["lib", "bin"] {
            fs::create_dir(share.join(dir)).map_err(failed)?;
        }
        let plugins = PROVIDERS.iter().chain([&VERBS]).map(|provider| provider.library);
        for library in plugins.chain(["libdat2.so.2"]) {
            let mut command = Command::new(&strip);
            command.arg("--strip-debug").arg(dist.lib().join(library));
            finish(command.arg("-o").arg(share.join("lib").join(library)))?;
        }
        let mut command = Command::new(&strip);
        finish(command.arg("--strip-debug").arg(dist.dat()).arg("-o").arg(share.join("bin/dat")))?;
        for (name, family) in [("dat.ipv4", Family::V4), ("dat.ipv6", Family::V6)] {
            fs::write(share.join(name), in_guest::conf_as_ours(family)).map_err(failed)?;
        }
        fs::write(share.join("dat.within"), in_guest::conf()).map_err(failed)?;
        here("ip route add 10.78.0.0/24 via 10.77.0.2")?;
        self.run(
            "/apart && mkdir /tmp/dist && cd /share && \
             cp -r lib bin dat.ipv4 dat.ipv6 dat.within /tmp/dist/",
        )?;
        Ok(())
    }

    /// Makes this device (`rxe` or `siw`) the guest's only RDMA device, over a wire with this MTU.
    pub(crate) fn device(&self, device: &'static str, mtu: u32) -> Result<(), String> {
        let mut current = self.device.lock().unwrap_or_else(PoisonError::into_inner);
        if *current != Some((device, mtu)) {
            *current = None;
            here(&format!("ip link set {WIRE} mtu {mtu}"))?;
            self.run(&format!("/device {device} {mtu}"))?;
            *current = Some((device, mtu));
        }
        Ok(())
    }

    /// Returns whether the guest's current RDMA device has this name.
    pub(crate) fn has_device(&self, device: &str) -> bool {
        let current = self.device.lock().unwrap_or_else(PoisonError::into_inner);
        current.is_some_and(|(name, _)| name == device)
    }

    /// Sets whether the guest's siw requires CRCs.
    pub(crate) fn want_crc(&self, want: bool) -> Result<(), String> {
        let line = format!("echo {} >/sys/module/siw/parameters/mpa_crc_required", u8::from(want));
        self.run(&line).map(drop)
    }

    /// Compiles a program of this project. Returns its path on this host and its path in the guest.
    pub(crate) fn c_program(&self, dist: &Dist, name: &str) -> Result<[PathBuf; 2], Skip> {
        Ok([c_program(dist, name, self.share.path())?, Path::new("/share").join(name)])
    }

    /// Waits until a program in the guest listens on this port of the RDMA device. (rping prints
    /// that it listens just before it does.)
    pub(crate) fn wait_for_listener(&self, port: &str) -> Result<(), String> {
        let listens = format!("rdma resource show cm_id | grep LISTEN | grep -q :{port}");
        self.run(&format!(
            "for i in $(seq 1200); do {listens} && exit; sleep 0.05; done; \
             echo no program listens on {port}; exit 1"
        ))
        .map(drop)
    }

    /// Returns a command that runs the program in the guest. Killing the local process of this
    /// command also kills the program in the guest.
    pub(crate) fn command(&self, program: &Command, there: GuestEnvironment) -> Command {
        let environment = program.get_envs().filter_map(|(name, value)| Some((name, value?)));
        let environment =
            environment.map(|(name, value)| format!("{}={}", name.display(), quoted(value)));
        let words = std::iter::once(program.get_program()).chain(program.get_args()).map(quoted);
        let line = format!(
            "{} {} LD_PRELOAD=/share/{STAYS_LOADED}.so exec {} stdbuf -oL -eL {}",
            there.registry,
            environment.collect::<Vec<_>>().join(" "),
            there.network,
            words.collect::<Vec<_>>().join(" ")
        );
        relay::command(self.control(), &line)
    }

    /// Returns the directory that is the guest's /share.
    pub(super) fn share(&self) -> &Path {
        self.share.path()
    }

    /// Runs a line of shell in the guest and returns its output.
    pub(crate) fn run(&self, line: &str) -> Result<String, String> {
        self.run_for(line, COMMAND_LIMIT)
    }

    /// Does the same as `run` for a command that may print nothing for this long.
    pub(super) fn run_for(&self, line: &str, patience: Duration) -> Result<String, String> {
        let failed = |error: std::io::Error| format!("{line}, in the guest: {error}");
        let mut stream =
            TcpStream::connect_timeout(&self.control(), COMMAND_LIMIT).map_err(failed)?;
        stream.set_read_timeout(Some(patience)).map_err(failed)?;
        writeln!(stream, "{line}").map_err(failed)?;
        let mut output = String::new();
        stream.read_to_string(&mut output).map_err(failed)?;
        match relay::exit_status(output.lines().last().unwrap_or_default()) {
            Some(0) => Ok(output),
            _ => Err(format!("{line}, in the guest: {output}")),
        }
    }

    /// Adds the latest messages of the guest's kernel to a failure.
    pub(crate) fn with_kernel_log(&self, stop: Stop) -> Stop {
        match stop {
            Stop::Skip(_) => stop,
            Stop::Fail(why) => {
                let output = self.run("dmesg | tail -n 20");
                let output =
                    output.unwrap_or_else(|error| format!("{error}\n{}", self.console_tail()));
                Stop::Fail(format!("{why}\n--- the guest's kernel\n{output}"))
            }
        }
    }

    /// Returns the end of the console's output, where a kernel that dies prints the reason.
    fn console_tail(&self) -> String {
        let output = fs::read(self.dir.path().join(CONSOLE)).unwrap_or_default();
        let output = String::from_utf8_lossy(&output);
        let lines: Vec<&str> = output.lines().collect();
        format!("its console:\n{}", lines[lines.len().saturating_sub(80)..].join("\n"))
    }

    fn control(&self) -> SocketAddr {
        let [_, far] = Family::V4.addresses();
        SocketAddr::new(far.parse().expect("an address"), relay::PORT)
    }
}

impl Guest {
    fn qemu(&self) -> MutexGuard<'_, Child> {
        self.qemu.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the guest is dead. The emulator ends when its kernel ends. A kernel that
    /// hangs does not answer.
    fn is_dead(&self) -> bool {
        let has_ended = !matches!(self.qemu().try_wait(), Ok(None));
        has_ended || TcpStream::connect_timeout(&self.control(), COMMAND_LIMIT).is_err()
    }

    fn end(&self) {
        let mut qemu = self.qemu();
        qemu.kill().ok();
        qemu.wait().ok();
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.end();
        // The wire's device is removed, because the next guest creates a device with the same name.
        here(&format!("ip link delete {WIRE}")).ok();
    }
}

fn start(
    image: &Path,
    processors: &str,
    console: &Path,
    share: &Path,
    addresses: &str,
) -> Result<Child, Stop> {
    let file = |name: &str| image.join(name).display().to_string();
    // QEMU is unpacked and not installed, so it does not find its libraries and data by itself.
    let libraries =
        ["qemu/usr/lib/x86_64-linux-gnu", "qemu/lib/x86_64-linux-gnu"].map(file).join(":");
    // With this setting, the packets on the wire are captured in a format that Wireshark can
    // read while the file is still being written.
    let capture = opendat_tests::setting("guest-capture");
    let offload = if capture.is_some() { "off" } else { "on" };
    let machine = format!(
        "-M q35 {processors} -cpu max -m 1024 -nodefaults -no-user-config -display none -no-reboot \
         -netdev tap,id=wire,ifname={WIRE},script=no,downscript=no,vnet_hdr={offload} \
         -device virtio-net-pci,netdev=wire,host_mtu=9000,romfile="
    );
    // The option norandmaps helps the emulator, which caches translated code by its address, and
    // would otherwise translate the code again for each process.
    let kernel = format!(
        "console=ttyS0 quiet oops=panic panic=-1 mitigations=off norandmaps wire={addresses}"
    );
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "--"])
        .arg(file("qemu/usr/bin/qemu-system-x86_64"))
        .args(["-L", &file("qemu/usr/share/qemu"), "-L", &file("qemu/usr/share/seabios")])
        .args(machine.split_whitespace())
        .args([
            "-fsdev",
            &format!("local,id=share,security_model=none,readonly=on,path={}", share.display()),
        ])
        .args(["-device", "virtio-9p-pci,fsdev=share,mount_tag=share"])
        .args(["-serial", &format!("file:{}", console.display())])
        .args(["-kernel", &file("vmlinuz"), "-initrd", &file("initrd")])
        .args(["-append", &kernel])
        .env("LD_LIBRARY_PATH", libraries)
        .stdin(Stdio::null());
    if let Some(file) = capture {
        command.args(["-object", &format!("filter-dump,id=dump,netdev=wire,file={file}")]);
    }
    command.spawn().map_err(|error| Stop::Fail(format!("QEMU cannot be started: {error}")))
}

/// The environment of a program in the guest, as words for the guest's shell.
#[derive(Clone, Copy)]
pub(crate) struct GuestEnvironment {
    /// The environment variables that select the registry. The first variable names the dat.conf.
    pub(super) registry: &'static str,
    /// The command that runs a program in another network namespace, or nothing.
    pub(super) network: &'static str,
}

impl GuestEnvironment {
    /// Returns an environment with Debian's registry. Debian's provider is registered under each
    /// name of this project's providers, for the wire's address of this family.
    pub(super) fn debian(family: Family) -> GuestEnvironment {
        let registry = match family {
            Family::V4 => "DAT_OVERRIDE=/tmp/dat.ipv4",
            Family::V6 => "DAT_OVERRIDE=/tmp/dat.ipv6",
        };
        GuestEnvironment { registry, network: "" }
    }

    /// Returns whether the registry and the provider are Debian's.
    pub(super) fn is_debians(self) -> bool {
        [Family::V4, Family::V6]
            .map(|family| GuestEnvironment::debian(family).registry)
            .contains(&self.registry)
    }

    fn conf(self) -> &'static str {
        self.registry.trim_start_matches("DAT_OVERRIDE=")
    }
}

/// Quotes a word for a shell.
fn quoted(word: &std::ffi::OsStr) -> String {
    format!("'{}'", word.display().to_string().replace('\'', r"'\''"))
}
