//! The guest as a machine: QEMU, and the wire to it, a tap device that has the addresses of a near host. It goes away with us.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use opendat_tests::{Dist, PROVIDERS, Skip, Stop, VERBS, c_program, find_program, has_own_network};
use tempfile::TempDir;

use super::{relay, within};
use crate::host::{Family, WIRE, finish, here};

/// The guest of these tests, which boots when the first of them wants it.
pub(super) struct Machine {
    image: PathBuf,
    dist: Result<Dist, Skip>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    guest: Option<Arc<Guest>>,
    /// Whether what we have built is in there.
    is_settled: bool,
    /// So many have died before it.
    died: usize,
    /// There cannot be one.
    never: Option<Stop>,
}

/// A kernel that dies of what a test does is no verdict on us, and is printed; one that does so again and again is. Linux 6.12's
/// siw does: a thread of its own that sends (siw_tx_hdt, out of siw_sq_resume) follows an SGE behind the last one.
const DEATHS: usize = 2;

/// The guest's address on the wire, which its rxe has.
pub(super) const RXE: &str = Family::V4.addresses()[1];
/// The address in its network namespace "apart" (`tests/guest/apart`), which no kernel's RDMA device has.
pub(super) const APART: &str = "10.78.0.2";

impl Machine {
    pub(super) fn new(image: &Path, dist: &Result<Dist, Skip>) -> Machine {
        let (image, dist) = (image.to_owned(), dist.clone());
        Machine { image, dist, state: Mutex::default() }
    }

    /// Runs a test with a guest that has this device over a wire of this MTU; `settled`: and our libraries and the program `dat` in
    /// /tmp/dist, and a network "apart". Where the guest dies, it runs once more, with another one.
    pub(super) fn run<R>(
        &self,
        (device, mtu): (&'static str, u32),
        settled: bool,
        test: impl Fn(&Guest) -> Result<R, Stop>,
    ) -> Result<R, Stop> {
        let once = |guest: &Guest| {
            guest.device(device, mtu)?;
            test(guest)
        };
        let guest = self.guest(settled)?;
        match once(&guest) {
            Err(_) if guest.is_dead() => {
                drop(guest);
                let guest = self.guest(settled)?;
                once(&guest).map_err(|stop| guest.testify(stop))
            }
            ended => ended.map_err(|stop| guest.testify(stop)),
        }
    }

    fn guest(&self, settled: bool) -> Result<Arc<Guest>, Stop> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(dead) = state.guest.take_if(|guest| guest.is_dead()) {
            println!("\nthe guest has died, its kernel or its emulator; {}", dead.last_words());
            *state = State { died: state.died + 1, ..State::default() };
        }
        if let Some(stop) = &state.never {
            return Err(stop.clone());
        }
        if state.died > DEATHS {
            return Err(Stop::Fail(format!("{} guests have died, see above", state.died)));
        }
        let guest = match &state.guest {
            Some(guest) => Arc::clone(guest),
            None => match Guest::boot(&self.image) {
                Ok(guest) => Arc::clone(state.guest.insert(Arc::new(guest))),
                Err(stop) => return Err(state.never.insert(stop).clone()),
            },
        };
        if settled && !state.is_settled {
            guest.move_in(&self.dist.clone()?)?;
            state.is_settled = true;
        }
        Ok(guest)
    }
}

pub(crate) struct Guest {
    qemu: Mutex<Child>,
    /// The RDMA device that it has, and the wire's MTU.
    device: Mutex<Option<(&'static str, u32)>>,
    /// The guest's /share, which it may read.
    share: TempDir,
    /// Where its console is written.
    dir: TempDir,
}

const CONSOLE: &str = "console";
/// Under emulation, on a machine that has other things to do.
const BOOT: Duration = Duration::from_secs(300);
/// For a command that takes no time elsewhere.
const SHORTLY: Duration = Duration::from_secs(120);

impl Guest {
    /// Boots what `tests/guest/build.sh` has made.
    pub(crate) fn boot(image: &Path) -> Result<Self, Stop> {
        Self::boot_with(image, "-accel tcg,thread=multi -smp 2")
    }

    /// With one processor, whose clock counts its instructions: what is measured there is the same on each host.
    pub(super) fn boot_counting(image: &Path) -> Result<Self, Stop> {
        Self::boot_with(image, "-accel tcg,thread=single -smp 1 -icount shift=0,sleep=on")
    }

    fn boot_with(image: &Path, processors: &str) -> Result<Self, Stop> {
        if !has_own_network() {
            return Err(Skip(
                "no network namespaces (they need unshare, ip, and the permission)".into(),
            )
            .into());
        }
        here(&format!("ip tuntap add dev {WIRE} mode tap"))?;
        let mut addresses = Vec::new();
        for family in [Family::V4, Family::V6] {
            let [near, far] = family.addresses();
            here(&format!("ip addr add {}", family.given(near)))?;
            addresses.push(format!("{far}/{}", family.prefix()));
        }
        // Room for all that two endpoints may have asked for: a tap loses what its reader is late for.
        here(&format!("ip link set {WIRE} txqueuelen 10000 up"))?;

        let dir =
            tempfile::tempdir().map_err(|error| format!("no temporary directory: {error}"))?;
        let console = dir.path().join(CONSOLE);
        let share =
            tempfile::tempdir().map_err(|error| format!("no temporary directory: {error}"))?;
        let (shared, addresses) = (share.path().to_owned(), addresses.join(","));
        let start = || start(image, processors, &console, &shared, &addresses);
        let guest = Guest { qemu: Mutex::new(start()?), device: Mutex::default(), share, dir };
        let deadline = Instant::now() + BOOT;
        while TcpStream::connect_timeout(&guest.control(), Duration::from_secs(1)).is_err() {
            let said = fs::read_to_string(&console).unwrap_or_default();
            if Instant::now() > deadline {
                return Err(format!("the guest does not come up; its console:\n{said}").into());
            }
            // The kernel changes its own code while it starts, and on a busy host the emulator sometimes runs it half changed.
            if said.contains("Oops: ") || said.contains("Kernel panic") {
                guest.end();
                *guest.qemu() = start()?;
            }
            thread::sleep(Duration::from_millis(50));
        }
        // Debian's provider has, behind the name that each of our adapters has here, the wire's device there.
        for family in [Family::V4, Family::V6] {
            for ia in PROVIDERS.iter().chain([&VERBS]).map(|provider| provider.ia) {
                let entry = format!(
                    "{ia} u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 \"{} 0\" \"\"",
                    family.addresses()[1]
                );
                guest.run(&format!("echo '{entry}' >>{}", There::debian(family).conf()))?;
            }
        }
        Ok(guest)
    }

    /// Puts what we have built, without what only debuggers want, and registry files into its /tmp/dist, and makes the network.
    fn move_in(&self, dist: &Dist) -> Result<(), Stop> {
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
            fs::write(share.join(name), within::conf_as_ours(family)).map_err(failed)?;
        }
        fs::write(share.join("dat.within"), within::conf()).map_err(failed)?;
        here("ip route add 10.78.0.0/24 via 10.77.0.2")?;
        self.run(
            "/apart && mkdir /tmp/dist && cp -r /share/lib /share/bin /share/dat.ipv4 /share/dat.ipv6 /share/dat.within /tmp/dist/",
        )?;
        Ok(())
    }

    /// Makes this (`rxe`, `siw`) the guest's one RDMA device, over a wire with this MTU.
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

    /// Whether that is what it has.
    pub(crate) fn has_device(&self, device: &str) -> bool {
        let current = self.device.lock().unwrap_or_else(PoisonError::into_inner);
        current.is_some_and(|(name, _)| name == device)
    }

    /// Whether its siw asks for CRCs.
    pub(crate) fn want_crc(&self, want: bool) -> Result<(), String> {
        let line = format!("echo {} >/sys/module/siw/parameters/mpa_crc_required", u8::from(want));
        self.run(&line).map(drop)
    }

    /// A program of ours, to be found here and, at the second path, there.
    pub(crate) fn c_program(&self, dist: &Dist, name: &str) -> Result<[PathBuf; 2], Skip> {
        Ok([c_program(dist, name, self.share.path())?, Path::new("/share").join(name)])
    }

    /// Waits until a program there listens on this port of the RDMA device. (rping says so just before it does.)
    pub(crate) fn wait_for_listener(&self, port: &str) -> Result<(), String> {
        let listens = format!("rdma resource show cm_id | grep LISTEN | grep -q :{port}");
        self.run(&format!("for i in $(seq 1200); do {listens} && exit; sleep 0.05; done; echo nobody listens on {port}; exit 1")).map(drop)
    }

    /// The program, to be run in the guest. Killing what stands for it here kills it.
    pub(crate) fn command(&self, program: &Command, there: There) -> Command {
        let environment = program.get_envs().filter_map(|(name, value)| Some((name, value?)));
        let environment =
            environment.map(|(name, value)| format!("{}={}", name.display(), quoted(value)));
        let words = std::iter::once(program.get_program()).chain(program.get_args()).map(quoted);
        let line = format!(
            "{} {} exec {} stdbuf -oL -eL {}",
            there.registry,
            environment.collect::<Vec<_>>().join(" "),
            there.network,
            words.collect::<Vec<_>>().join(" ")
        );
        relay::command(self.control(), &line)
    }

    /// What is in the guest's /share.
    pub(super) fn share(&self) -> &Path {
        self.share.path()
    }

    /// Runs a line of shell in the guest; answers what it prints.
    pub(crate) fn run(&self, line: &str) -> Result<String, String> {
        self.run_for(line, SHORTLY)
    }

    /// The same, of one that may say nothing for so long.
    pub(super) fn run_for(&self, line: &str, patience: Duration) -> Result<String, String> {
        let failed = |error: std::io::Error| format!("{line}, in the guest: {error}");
        let mut stream = TcpStream::connect_timeout(&self.control(), SHORTLY).map_err(failed)?;
        stream.set_read_timeout(Some(patience)).map_err(failed)?;
        writeln!(stream, "{line}").map_err(failed)?;
        let mut said = String::new();
        stream.read_to_string(&mut said).map_err(failed)?;
        match relay::exit_status(said.lines().last().unwrap_or_default()) {
            Some(0) => Ok(said),
            _ => Err(format!("{line}, in the guest: {said}")),
        }
    }

    /// What its kernel has said lately, in addition to what went wrong.
    pub(crate) fn testify(&self, stop: Stop) -> Stop {
        match stop {
            Stop::Skip(_) => stop,
            Stop::Fail(why) => {
                let said = self.run("dmesg | tail -n 20");
                let said = said.unwrap_or_else(|error| format!("{error}\n{}", self.last_words()));
                Stop::Fail(format!("{why}\n--- the guest's kernel\n{said}"))
            }
        }
    }

    /// The end of its console, where a kernel that dies says why.
    fn last_words(&self) -> String {
        let said = fs::read(self.dir.path().join(CONSOLE)).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        let lines: Vec<&str> = said.lines().collect();
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

    /// Its emulator ends with its kernel; and a kernel that is stuck answers nobody.
    fn is_dead(&self) -> bool {
        let has_ended = !matches!(self.qemu().try_wait(), Ok(None));
        has_ended || TcpStream::connect_timeout(&self.control(), SHORTLY).is_err()
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
        // For the next one.
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
    // Unpacked, not installed: it finds neither its libraries nor its data by itself.
    let libraries =
        ["qemu/usr/lib/x86_64-linux-gnu", "qemu/lib/x86_64-linux-gnu"].map(file).join(":");
    // What is on the wire, for Wireshark, which does not know the header of a packet that is not finished yet.
    let capture = std::env::var_os("OPENDAT_GUEST_CAPTURE");
    let offload = if capture.is_some() { "off" } else { "on" };
    let machine = format!(
        "-M q35 {processors} -cpu max -m 1024 -nodefaults -no-user-config -display none -no-reboot \
         -netdev tap,id=wire,ifname={WIRE},script=no,downscript=no,vnet_hdr={offload} \
         -device virtio-net-pci,netdev=wire,host_mtu=9000,romfile="
    );
    // norandmaps: the emulator keeps what it has translated by its address, and else does it again for each process.
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
        command
            .args(["-object", &format!("filter-dump,id=dump,netdev=wire,file={}", file.display())]);
    }
    command.spawn().map_err(|error| Stop::Fail(format!("QEMU does not start: {error}")))
}

/// What surrounds a program in the guest, in words of its shell.
#[derive(Clone, Copy)]
pub(crate) struct There {
    /// Variables of its environment that say what registry it has, the file first.
    pub(super) registry: &'static str,
    /// What takes it to a network of its own, if it is to have one.
    pub(super) network: &'static str,
}

impl There {
    /// Debian's, with its provider behind each of our names, for the wire's address of this family.
    pub(super) fn debian(family: Family) -> There {
        let registry = match family {
            Family::V4 => "DAT_OVERRIDE=/tmp/dat.ipv4",
            Family::V6 => "DAT_OVERRIDE=/tmp/dat.ipv6",
        };
        There { registry, network: "" }
    }

    /// Debian's registry and provider.
    pub(super) fn is_debians(self) -> bool {
        [Family::V4, Family::V6]
            .map(|family| There::debian(family).registry)
            .contains(&self.registry)
    }

    fn conf(self) -> &'static str {
        self.registry.trim_start_matches("DAT_OVERRIDE=")
    }
}

/// A word for a shell.
fn quoted(word: &std::ffi::OsStr) -> String {
    format!("'{}'", word.display().to_string().replace('\'', r"'\''"))
}
