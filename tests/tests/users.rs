//! Tests with several users of one host: programs of an unprivileged user, and of a user who finds
//! another user's adapters on an address. Only root can run programs as several users.
#![forbid(unsafe_code)]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use libtest_mimic::Arguments;
use opendat_tests::{
    Dist, PROVIDERS, Provider, Registry, Running, Skip, Stop, c_program, ends_with_ok,
    enter_network_of_all_users, find_program, has_own_network, trial,
};
use tempfile::TempDir;

/// The time limit of each of these tests.
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
            trials.push(trial(format!("{}::{name}", provider.ia), move || {
                run(&World::new(provider)?)
            }));
        };
        add("many_processes_without_a_privilege", many_processes);
        add("debians_programs_without_a_privilege", debians_programs);
        if provider.packets {
            add("an_address_belongs_to_one_user", one_address);
            add("names_that_another_user_takes_first_do_no_harm", |world| {
                attack(world, "squats").map(drop)
            });
            add("another_user_reaches_no_socket_of_an_adapter", |world| {
                attack(world, "connects").map(drop)
            });
            add("another_user_is_not_told_what_adapters_have_done", |world| {
                attack(world, "asks").map(drop)
            });
            add("another_user_receives_no_request_to_connect", |world| {
                attack(world, "listens").map(drop)
            });
            add("a_program_of_two_users_shares_the_port_of_neither", |world| {
                attack(world, "set_uid").map(drop)
            });
            add("a_program_with_the_rights_of_another_user_shares_no_port", other_rights);
            add("adapters_outlive_the_session_of_their_user", logout);
            add("each_network_namespace_has_adapters_of_its_own", two_namespaces);
            add("adapters_find_each_other_without_a_tmp_to_write_to", read_only_tmp);
        }
    }
    trials.push(trial("a_set_user_id_program_heeds_no_variables".to_owned(), || {
        set_user_id(&World::new(&PROVIDERS[0])?)
    }));
    opendat_tests::run(&arguments, trials)
}

/// Files that users other than root can read: the library, and the dat.conf that names the
/// provider.
struct World {
    dist: Dist,
    registry: Registry,
    dir: TempDir,
}

impl World {
    fn new(provider: &Provider) -> Result<Self, Stop> {
        if !has_own_network() {
            return Err(Skip(
                "no network namespace with all users (needs root, unshare and ip)".into(),
            )
            .into());
        }
        let dist = Dist::locate()?;
        let dir = tempfile::tempdir().expect("a temporary directory");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755))
            .expect("the owner of a file may change its mode");
        let registry = Registry::builtin(&dist.copy_library(dir.path()), provider);
        Ok(World { dist, registry, dir })
    }

    /// Returns the command, to be run as an unprivileged user that cannot gain privileges.
    fn as_nobody(&self, command: &Command) -> Result<Command, Skip> {
        let mut nobody = Command::new(find_program("setpriv", "util-linux")?);
        nobody.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all"]);
        nobody.arg("--no-new-privs").arg("--").arg(command.get_program()).args(command.get_args());
        Ok(nobody)
    }

    /// Returns the command for one side of dtestcm, which makes many connections. `role` makes it
    /// the server or the client.
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

/// Tests that a user who starts a set-user-ID program cannot name a file for the program to use.
fn set_user_id(world: &World) -> Result<(), Stop> {
    let (program, conf) = (world.dir.path().join("dat"), world.dir.path().join("dat.conf"));
    fs::copy(world.dist.dat(), &program).expect("the disk has room for the program");
    fs::write(&conf, "planted u2.0 nonthreadsafe default libplanted.so vendor.1.0 \"\" \"\"\n")
        .expect("the file can be written");
    let setpriv = find_program("setpriv", "util-linux")?;
    for (mode, heeded) in [(0o755, true), (0o4755, false)] {
        fs::set_permissions(&program, fs::Permissions::from_mode(mode))
            .expect("the owner of a file may change its mode");
        let output = Command::new(&setpriv)
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
            .args([&program, std::path::Path::new("list")])
            .env("DAT_OVERRIDE", &conf)
            .env("OPENDAT_PARAMS", "builtin=off")
            .output()
            .map_err(|error| format!("setpriv does not start: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let found = ["planted", "builtin=off"].map(|word| text.contains(word));
        if !text.contains("tcp-emu") || found != [heeded; 2] {
            return Err(format!(
                "mode {mode:o}: {text}{}",
                String::from_utf8_lossy(&output.stderr)
            )
            .into());
        }
    }
    Ok(())
}

/// Tests many processes on one address, some of which are killed.
fn many_processes(world: &World) -> Result<(), Stop> {
    let program = Command::new(c_program(&world.dist, "neighbours", world.dir.path())?);
    Ok(ends_with_ok("neighbours", world.as_nobody(&program)?, &world.registry, LIMIT)?)
}

/// Runs the attack program as root. The program itself starts the attacker as another user.
fn attack(world: &World, how: &str) -> Result<String, Stop> {
    let mut command = Command::new(c_program(&world.dist, "other_user", world.dir.path())?);
    command.arg(how);
    let ended = world.start("other_user", command)?.end()?;
    ended.succeeded("other_user")?;
    Ok(ended.text)
}

/// Tests set-user-ID and set-group-ID programs. In a set-group-ID program, the real and the
/// effective user are the same, but the kernel sets AT_SECURE.
fn other_rights(world: &World) -> Result<(), Stop> {
    let program = world.dir.path().join("dat");
    fs::copy(world.dist.dat(), &program).expect("the disk has room for the program");
    let setpriv = find_program("setpriv", "util-linux")?;
    for (mode, shares) in [(0o755, true), (0o4755, false), (0o2755, false)] {
        fs::set_permissions(&program, fs::Permissions::from_mode(mode))
            .expect("the owner of a file may change its mode");
        let output = Command::new(&setpriv)
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
            .arg(&program)
            .args(["query", world.registry.ia()])
            .output()
            .map_err(|error| format!("setpriv does not start: {error}"))?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        let is_refused =
            stderr.contains("not shared with a program that has the rights of another user");
        if output.status.success() != shares || is_refused == shares {
            let text = String::from_utf8_lossy(&output.stdout);
            return Err(format!("mode {mode:o}: {}\n{text}{stderr}", output.status).into());
        }
    }
    Ok(())
}

/// Removes the files that systemd-logind removes when a user logs out, while a server of that user
/// goes on.
fn logout(world: &World) -> Result<(), Stop> {
    let session = std::path::Path::new("/run/user/65534");
    fs::create_dir_all(session).expect("root may do this");
    std::os::unix::fs::chown(session, Some(65534), Some(65534)).expect("root may do this");
    fs::set_permissions(session, fs::Permissions::from_mode(0o700)).expect("root may do this");
    let server = world.start("server", world.as_nobody(&world.dtestcm(SERVER)?)?)?;
    server.wait_for("ready on port")?;
    fs::remove_dir_all(session).expect("root may do this");
    for file in fs::read_dir("/dev/shm").into_iter().flatten().flatten() {
        let is_theirs = file.metadata().is_ok_and(|metadata| metadata.uid() == 65534);
        if is_theirs && file.file_name().to_string_lossy().starts_with("opendat") {
            fs::remove_dir_all(file.path()).expect("root may do this");
        }
    }
    let client = world.start("client", world.as_nobody(&world.dtestcm(CLIENT)?)?)?;
    client.end()?.succeeded("client")?;
    Ok(server.end()?.succeeded("server")?)
}

/// Tests two servers with the same user, address, port and file system, in different network
/// namespaces.
fn two_namespaces(world: &World) -> Result<(), Stop> {
    let here = world.start("a server here", world.dtestcm(SERVER)?)?;
    here.wait_for("ready on port")?;
    let server = world.dtestcm(SERVER)?;
    let mut elsewhere = Command::new(find_program("unshare", "util-linux")?);
    elsewhere.args(["--net", "--", "sh", "-c", "ip link set lo up && exec \"$@\"", "sh"]);
    elsewhere.arg(server.get_program()).args(server.get_args());
    let elsewhere = world.start("a server elsewhere", elsewhere)?;
    elsewhere.wait_for("ready on port")?;
    elsewhere.kill()?;
    world.start("client", world.dtestcm(CLIENT)?)?.end()?.succeeded("client")?;
    Ok(here.end()?.succeeded("the server here")?)
}

/// Tests a user who cannot write to /tmp. The processes of this user must find each other through
/// /dev/shm instead.
fn read_only_tmp(world: &World) -> Result<(), Stop> {
    const READ_ONLY: &str =
        "mount --bind /tmp /tmp && mount -o remount,bind,ro /tmp && exec \"$@\"";
    let program = c_program(&world.dist, "neighbours", world.dir.path())?;
    let mut command = Command::new(find_program("unshare", "util-linux")?);
    command
        .args(["--mount", "--", "sh", "-c", READ_ONLY, "sh"])
        .arg(find_program("setpriv", "util-linux")?);
    command.args(["--reuid=65532", "--regid=65532", "--clear-groups", "--"]).arg(program);
    let result = ends_with_ok("neighbours", command, &world.registry, LIMIT);
    let directory = std::path::Path::new("/dev/shm/opendat-65532");
    let was_used = directory.exists();
    fs::remove_dir_all(directory).ok();
    match was_used {
        true => Ok(result?),
        false => Err(format!("{} was not created: {result:?}", directory.display()).into()),
    }
}

fn debians_programs(world: &World) -> Result<(), Stop> {
    let server = world.start("server", world.as_nobody(&world.dtestcm(SERVER)?)?)?;
    server.wait_for("ready on port")?;
    let client = world.start("client", world.as_nobody(&world.dtestcm(CLIENT)?)?)?;
    for (who, side) in [("client", client), ("server", server)] {
        let ended = side.end()?;
        ended.succeeded(who)?;
        if !ended.text.contains("DAPL Connection Test Complete.") {
            return Err(format!("{who} did not complete the test:\n{}", ended.text).into());
        }
    }
    Ok(())
}

fn one_address(world: &World) -> Result<(), Stop> {
    let server = world.start("root's server", world.dtestcm(SERVER)?)?;
    server.wait_for("ready on port")?;
    let client =
        world.start("nobody's client", world.as_nobody(&world.dtestcm(CLIENT)?)?)?.end()?;
    let expected = "UDP port 4791 of 127.0.0.1 is taken: by adapters or a program of another user";
    match client.text.contains(expected) {
        true => Ok(()),
        false => Err(format!("the client's output lacks {expected:?}:\n{}", client.text).into()),
    }
}
