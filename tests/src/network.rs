//! A network namespace for tests. Some programs need ports in the range from which the kernel takes
//! client ports (dtest's 45248, and a thousand consecutive ports for `dapltest -T L`), so on the
//! host any of them may be in use. Also, RoCE has a single UDP port for all processes.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::setting;

/// The setting in `OPENDAT_TEST` that marks a process that runs in its own network namespace.
const OWN_NETWORK: &str = "own-network";

/// A shell script that enables loopback, and moves the client ports to another range.
const SETUP_SCRIPT: &str =
    "ip link set lo up && echo 61000 65535 > /proc/sys/net/ipv4/ip_local_port_range && exec \"$@\"";

/// Returns whether this process has its own network namespace.
pub fn has_own_network() -> bool {
    setting(OWN_NETWORK).is_some()
}

/// Restarts this program in a network namespace of its own, if this user may create one. Otherwise
/// the tests run on the host's network.
pub fn enter_own_network() {
    enter(&["--net", "--map-root-user"]);
}

/// Does the same as [`enter_own_network`] but keeps the host's users, for tests with programs of
/// several users. Only root may do this.
pub fn enter_network_of_all_users() {
    enter(&["--net"]);
}

fn enter(namespaces: &[&str]) {
    if has_own_network() {
        return;
    }
    let works = in_namespaces(namespaces, "true".as_ref())
        .output()
        .is_ok_and(|output| output.status.success());
    let (Ok(program), true) = (env::current_exe(), works) else {
        eprintln!(
            "no network namespace (needs unshare, ip, and the permission): a port may be found in \
             use"
        );
        return;
    };
    let error = in_namespaces(namespaces, program.as_os_str()).args(env::args_os().skip(1)).exec();
    eprintln!("this program does not start in a network namespace: {error}");
}

fn in_namespaces(namespaces: &[&str], program: &std::ffi::OsStr) -> Command {
    let others = env::var("OPENDAT_TEST").unwrap_or_default();
    let mut command = Command::new("unshare");
    command
        .args(namespaces)
        .args(["--", "sh", "-c", SETUP_SCRIPT, "sh"])
        .arg(program)
        .env("OPENDAT_TEST", format!("{OWN_NETWORK}=on;{others}"));
    command
}
