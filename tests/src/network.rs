//! A network of one's own. The ports that some programs insist on lie in the range from which the system
//! takes ports for clients (dtest's 45248, and a thousand in a row for `dapltest -T L`), so on the host any
//! of them may be taken; and RoCE has one UDP port for all processes.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Set in the process that is in its own network.
const INSIDE: &str = "OPENDAT_TEST_NETWORK";

/// Loopback works, and clients get their ports elsewhere.
const SET_UP: &str =
    "ip link set lo up && echo 61000 65535 > /proc/sys/net/ipv4/ip_local_port_range && exec \"$@\"";

/// Whether the network is our own.
pub fn has_own_network() -> bool {
    env::var_os(INSIDE).is_some()
}

/// Starts this program again in a network namespace of its own, where this user may make one. Elsewhere the
/// tests run on the host's network.
pub fn enter_own_network() {
    enter(&["--net", "--map-root-user"]);
}

/// The same where all users are those of the host, for programs of several of them. Only root may.
pub fn enter_network_of_all_users() {
    enter(&["--net"]);
}

fn enter(namespaces: &[&str]) {
    if has_own_network() {
        return;
    }
    let works =
        inside(namespaces, "true".as_ref()).output().is_ok_and(|output| output.status.success());
    let (Ok(program), true) = (env::current_exe(), works) else {
        eprintln!(
            "no network namespace (needs unshare, ip, and the permission): a port may be found in use"
        );
        return;
    };
    let error = inside(namespaces, program.as_os_str()).args(env::args_os().skip(1)).exec();
    eprintln!("this program does not start in a network namespace: {error}");
}

fn inside(namespaces: &[&str], program: &std::ffi::OsStr) -> Command {
    let mut command = Command::new("unshare");
    command.args(namespaces).args(["--", "sh", "-c", SET_UP, "sh"]).arg(program).env(INSIDE, "own");
    command
}
