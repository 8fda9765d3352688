//! Users of one host: programs of somebody without any privilege, and of somebody who finds another user's adapters on an
//! address. Only root can be several users.
#![forbid(unsafe_code)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use libtest_mimic::Arguments;
use opendat_tests::{
    Dist, PROVIDERS, Provider, Registry, Running, Skip, Stop, c_program, ends_with_ok,
    enter_network_of_all_users, find_program, has_own_network, trial,
};
use tempfile::TempDir;

/// How long any of this may take.
const LIMIT: Duration = Duration::from_secs(600);

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    if !arguments.list {
        enter_network_of_all_users();
    }
    arguments.test_threads = Some(1);
    let mut trials = Vec::new();
    for provider in PROVIDERS {
        let mut add = |name, run: fn(&World) -> Result<(), Stop>| {
            trials.push(trial(format!("{}::{name}", provider.ia), move || run(&World::new(provider)?)));
        };
        add("many_processes_without_a_privilege", many_processes);
        add("debians_programs_without_a_privilege", debians_programs);
        if provider.packets {
            add("an_address_belongs_to_one_user", one_address);
        }
    }
    trials.push(trial("a_set_user_id_program_heeds_no_variables".to_owned(), || {
        set_user_id(&World::new(&PROVIDERS[0])?)
    }));
    opendat_tests::run(&arguments, trials)
}

/// What users other than root can read: the library, and what names the provider.
struct World {
    dist: Dist,
    registry: Registry,
    dir: TempDir,
}

impl World {
    fn new(provider: &Provider) -> Result<Self, Stop> {
        if !has_own_network() {
            return Err(
                Skip("no network namespace with all users (needs root, unshare and ip)".into()).into()
            );
        }
        let dist = Dist::locate()?;
        let dir = tempfile::tempdir().expect("a temporary directory");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("its owner may");
        let registry = Registry::builtin(&dist.copy_library(dir.path()), provider);
        Ok(World { dist, registry, dir })
    }

    /// The command of a user who is nobody in particular, and never will be anybody else.
    fn as_nobody(&self, command: &Command) -> Result<Command, Skip> {
        let mut nobody = Command::new(find_program("setpriv", "util-linux")?);
        nobody.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all"]);
        nobody.arg("--no-new-privs").arg("--").arg(command.get_program()).args(command.get_args());
        Ok(nobody)
    }

    /// One side of many connections.
    fn dtestcm(&self, role: &[&str]) -> Result<Command, Skip> {
        let mut command = Command::new(find_program("dtestcm", "dapl2-utils")?);
        command.args(["-P", self.registry.ia(), "-p", PORT, "-c", "50", "-b", "50"]).args(role);
        Ok(command)
    }

    fn start(&self, label: &str, command: Command) -> Result<Running, String> {
        Running::start(label, command, &self.registry, Instant::now() + LIMIT)
    }
}

const PORT: &str = "21900";
const SERVER: &[&str] = &["-s"];
const CLIENT: &[&str] = &["-h", "127.0.0.1"];

/// Who starts a program with the rights of somebody else names no file for it.
fn set_user_id(world: &World) -> Result<(), Stop> {
    let (program, conf) = (world.dir.path().join("dat"), world.dir.path().join("dat.conf"));
    fs::copy(world.dist.dat(), &program).expect("there is room");
    fs::write(&conf, "planted u2.0 nonthreadsafe default libplanted.so vendor.1.0 \"\" \"\"\n")
        .expect("writes");
    let setpriv = find_program("setpriv", "util-linux")?;
    for (mode, heeded) in [(0o755, true), (0o4755, false)] {
        fs::set_permissions(&program, fs::Permissions::from_mode(mode)).expect("its owner may");
        let output = Command::new(&setpriv)
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
            .args([&program, std::path::Path::new("list")])
            .env("DAT_OVERRIDE", &conf)
            .output()
            .map_err(|error| format!("setpriv does not start: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        if !text.contains("tcp-emu") || text.contains("planted") != heeded {
            return Err(format!("mode {mode:o}: {text}{}", String::from_utf8_lossy(&output.stderr)).into());
        }
    }
    Ok(())
}

/// On one address, some of them killed.
fn many_processes(world: &World) -> Result<(), Stop> {
    let program = Command::new(c_program(&world.dist, "neighbours", world.dir.path())?);
    Ok(ends_with_ok("neighbours", world.as_nobody(&program)?, &world.registry, LIMIT)?)
}

fn debians_programs(world: &World) -> Result<(), Stop> {
    let server = world.start("server", world.as_nobody(&world.dtestcm(SERVER)?)?)?;
    server.wait_for("ready on port")?;
    let client = world.start("client", world.as_nobody(&world.dtestcm(CLIENT)?)?)?;
    for (who, side) in [("client", client), ("server", server)] {
        let ended = side.end()?;
        ended.succeeded(who)?;
        if !ended.text.contains("DAPL Connection Test Complete.") {
            return Err(format!("{who} is not complete:\n{}", ended.text).into());
        }
    }
    Ok(())
}

fn one_address(world: &World) -> Result<(), Stop> {
    let server = world.start("root's server", world.dtestcm(SERVER)?)?;
    server.wait_for("ready on port")?;
    let client = world.start("nobody's client", world.as_nobody(&world.dtestcm(CLIENT)?)?)?.end()?;
    let expected = "UDP port 4791 of 127.0.0.1 is taken: by adapters or a program of another user";
    match client.text.contains(expected) {
        true => Ok(()),
        false => Err(format!("nobody is not told:\n{}", client.text).into()),
    }
}
