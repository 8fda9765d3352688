//! The guest as a machine: QEMU, and the wire to it, a tap device that has the addresses of a near host. It goes away with us.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use opendat_tests::{Dist, Skip, Stop, c_program, has_own_network};
use tempfile::TempDir;

use super::relay;
use crate::host::{Family, WIRE, here};

pub(crate) struct Guest {
    qemu: Child,
    /// The RDMA device that it has, and the wire's MTU.
    device: Mutex<Option<(&'static str, u32)>>,
    /// The guest's /share, which it may read.
    share: TempDir,
    _dir: TempDir,
}

/// Under emulation, on a machine that has other things to do.
const BOOT: Duration = Duration::from_secs(120);
/// For a command that takes no time.
const SHORTLY: Duration = Duration::from_secs(30);

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
            return Err(
                Skip("no network namespaces (they need unshare, ip, and the permission)".into()).into()
            );
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

        let dir = tempfile::tempdir().map_err(|error| format!("no temporary directory: {error}"))?;
        let console = dir.path().join("console");
        let share = tempfile::tempdir().map_err(|error| format!("no temporary directory: {error}"))?;
        let qemu = start(image, processors, &console, share.path(), &addresses.join(","))?;
        let guest = Guest { qemu, device: Mutex::default(), share, _dir: dir };
        let deadline = Instant::now() + BOOT;
        while TcpStream::connect_timeout(&guest.control(), Duration::from_secs(1)).is_err() {
            if Instant::now() > deadline {
                let said = fs::read_to_string(&console).unwrap_or_default();
                return Err(format!("the guest does not come up; its console:\n{said}").into());
            }
            thread::sleep(Duration::from_millis(50));
        }
        // Debian's provider has, behind the name that each of our adapters has here, the wire's device there.
        for family in [Family::V4, Family::V6] {
            for ia in opendat_tests::PROVIDERS.iter().map(|provider| provider.ia) {
                let entry = format!(
                    "{ia} u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 \"{} 0\" \"\"",
                    family.addresses()[1]
                );
                guest.run(&format!("echo '{entry}' >>{}", conf(family)))?;
            }
        }
        Ok(guest)
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
        self.run(&format!("for i in $(seq 200); do {listens} && exit; sleep 0.05; done; exit 1")).map(drop)
    }

    /// The program, to be run in the guest, whose adapters have addresses of this family. Killing what stands for it
    /// here kills it.
    pub(crate) fn command(&self, program: &Command, family: Family) -> Command {
        let environment = program.get_envs().filter_map(|(name, value)| Some((name, value?)));
        let environment = environment.map(|(name, value)| format!("{}={}", name.display(), quoted(value)));
        let words = std::iter::once(program.get_program()).chain(program.get_args()).map(quoted);
        let line = format!(
            "DAT_OVERRIDE={} {} exec stdbuf -oL -eL {}",
            conf(family),
            environment.collect::<Vec<_>>().join(" "),
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
                let said = self.run("dmesg | tail -n 20").unwrap_or_else(|error| error);
                Stop::Fail(format!("{why}\n--- the guest's kernel\n{said}"))
            }
        }
    }

    fn control(&self) -> SocketAddr {
        let [_, far] = Family::V4.addresses();
        SocketAddr::new(far.parse().expect("an address"), relay::PORT)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.qemu.kill().ok();
        self.qemu.wait().ok();
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
    let libraries = ["qemu/usr/lib/x86_64-linux-gnu", "qemu/lib/x86_64-linux-gnu"].map(file).join(":");
    // What is on the wire, for Wireshark, which does not know the header of a packet that is not finished yet.
    let capture = std::env::var_os("OPENDAT_GUEST_CAPTURE");
    let offload = if capture.is_some() { "off" } else { "on" };
    let machine = format!(
        "-M q35 {processors} -cpu max -m 1024 -nodefaults -no-user-config -display none -no-reboot \
         -netdev tap,id=wire,ifname={WIRE},script=no,downscript=no,vnet_hdr={offload} \
         -device virtio-net-pci,netdev=wire,host_mtu=9000,romfile="
    );
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "--"])
        .arg(file("qemu/usr/bin/qemu-system-x86_64"))
        .args(["-L", &file("qemu/usr/share/qemu"), "-L", &file("qemu/usr/share/seabios")])
        .args(machine.split_whitespace())
        .args(["-fsdev", &format!("local,id=share,security_model=none,readonly=on,path={}", share.display())])
        .args(["-device", "virtio-9p-pci,fsdev=share,mount_tag=share"])
        .args(["-serial", &format!("file:{}", console.display())])
        .args(["-kernel", &file("vmlinuz"), "-initrd", &file("initrd")])
        .args(["-append", &format!("console=ttyS0 quiet panic=-1 mitigations=off wire={addresses}")])
        .env("LD_LIBRARY_PATH", libraries)
        .stdin(Stdio::null());
    if let Some(file) = capture {
        command.args(["-object", &format!("filter-dump,id=dump,netdev=wire,file={}", file.display())]);
    }
    command.spawn().map_err(|error| Stop::Fail(format!("QEMU does not start: {error}")))
}

/// The guest's dat.conf for addresses of this family.
fn conf(family: Family) -> &'static str {
    match family {
        Family::V4 => "/tmp/dat.ipv4",
        Family::V6 => "/tmp/dat.ipv6",
    }
}

/// A word for a shell.
fn quoted(word: &std::ffi::OsStr) -> String {
    format!("'{}'", word.display().to_string().replace('\'', r"'\''"))
}
