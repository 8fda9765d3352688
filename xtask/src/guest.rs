//! Tests of our providers together with the kernel's RDMA drivers. The kernel is Debian's, in a
//! virtual machine that `tests/guest/build.sh` builds from Debian's packages. The tests are in
//! `tests/tests/programs/guest/`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::cargo::{cargo, target, workspace};
use crate::dist::{self, Profile};
use crate::prerequisites::{self, is_root, on_path};
use crate::test::{Environment, Load, PROGRAMS, Prepared, Stage, Tests};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Number of rounds; each figure is the median of all rounds
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Instead, let the kernel's rxe write, read and send to softroce on a wire that loses packets
    #[arg(long, conflicts_with = "rounds")]
    loss: bool,
}

/// Measures provider-verbs and provider-softroce side by side with Debian's libdaplofa in the
/// guest, or rxe with softroce on a wire that loses packets. The figures have no required minimum,
/// so no figure makes the measurement fail.
pub(crate) fn measure(options: &Options) -> Result<bool> {
    prerequisites::provide(true);
    let dist = dist::build(Profile::Dist)?;
    let machine = match build()? {
        Guest::Built(machine) => machine,
        Guest::Unavailable(why) => bail!("this machine cannot run the guest: {why}"),
    };
    let mut command = cargo();
    command.args(["test", "--workspace", "--test", "programs", "--", "--nocapture"]);
    let environment = Environment { dist, settings: Vec::new() }.with("guest", machine);
    // With `guest-speed`, the test program measures this many rounds and does nothing else. With
    // `guest-loss`, it measures only the transfers on a wire that loses packets.
    let environment = match options.loss {
        true => environment.with("guest-loss", "on"),
        false => environment.with("guest-speed", options.rounds.to_string()),
    };
    environment.apply(&mut command);
    Ok(command.status().context("cargo does not start")?.success())
}

/// Returns the stage of the tests in the guest. If this machine cannot run the guest, the stage
/// counts as one skipped test.
pub(crate) fn stage(tests: &Tests) -> Result<Stage> {
    let (program, filter, environment) =
        (tests.program(PROGRAMS)?, tests.filter.clone(), tests.environment());
    Ok(Stage::new("the guest", move || {
        let environment = match build()? {
            Guest::Built(machine) => environment.with("guest", machine),
            Guest::Unavailable(why) => return Ok(Prepared::Cannot(why)),
        };
        let all: Vec<&str> = GROUPS.iter().flat_map(|(_, tests)| tests.iter().copied()).collect();
        let groups = GROUPS.iter().map(|(name, tests)| (*name, tests.join(",")));
        let groups = groups.chain([("guest, the rest", format!("!{}", all.join(",")))]);
        let job = |(name, share): (&str, String)| {
            program
                .job_of_share(name, &share, &environment, filter.as_deref(), Load::Guest)
                .transpose()
        };
        Ok(Prepared::Jobs(groups.filter_map(job).collect::<Result<_>>()?))
    }))
}

/// The result of building the guest.
enum Guest {
    /// The directory of the guest's files.
    Built(PathBuf),
    Unavailable(String),
}

fn build() -> Result<Guest> {
    if let Some(reason) = missing_prerequisite() {
        return Ok(Guest::Unavailable(reason));
    }
    let machine = target()?.join("guest");
    let mut build = Command::new("timeout");
    build.arg(BUILD_LIMIT_SECONDS).arg(workspace().join("tests/guest/build.sh")).arg(&machine);
    let output = build.output().context("tests/guest/build.sh does not start")?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    if output.status.code() == Some(EXIT_PACKAGES_UNAVAILABLE) {
        return Ok(Guest::Unavailable(format!("its packages cannot be downloaded\n{text}")));
    }
    ensure!(output.status.success(), "tests/guest/build.sh failed ({})\n{text}", output.status);
    Ok(Guest::Built(machine))
}

/// Groups of tests. Each group has a guest and a network of its own, and runs at the same time as
/// the other groups and tests: while the programs of one group wait, the programs of another group
/// compute. Each entry has the name of the group and the prefixes of its tests' names.
const GROUPS: [(&str, &[&str]); 5] = [
    (
        "guest, siw and our provider",
        &[
            "guest::siw::",
            "guest::conformance::verbs::",
            "guest::conformance::verbs_on_siw::",
            "guest::rxe::verbs::",
        ],
    ),
    // The conformance suite spends most of its time waiting for events that OFED's provider does
    // not report.
    (
        "guest, OFED's provider",
        &[
            "guest::conformance::ofa::",
            "guest::matrix::",
            "guest::verbs::siw::",
            "guest::verbs::with_ofa::",
        ],
    ),
    // These tests wait for outages that take real seconds.
    ("guest, outages", &["guest::rxe::outages::"]),
    // These tests wait for rxe's ACK timeouts.
    ("guest, loss", &["guest::rxe::loss::"]),
    ("guest, speed", &["guest::speed::small_operations_beside_libdaplofa"]),
];

/// The time limit of the build. It takes one minute, but a download may stall.
const BUILD_LIMIT_SECONDS: &str = "1200";

/// The exit status of `build.sh` if the packages cannot be downloaded.
const EXIT_PACKAGES_UNAVAILABLE: i32 = 77;

/// Returns the reason why this machine cannot run the guest, if there is one.
fn missing_prerequisite() -> Option<String> {
    if !cfg!(target_arch = "x86_64") {
        return Some("the guest is an x86-64 machine".to_owned());
    }
    if !is_root() {
        return Some("only root can connect a guest to a network".to_owned());
    }
    if !Path::new("/dev/net/tun").exists() {
        return Some("no /dev/net/tun".to_owned());
    }
    let programs = ["apt-get", "dpkg-deb", "gcc", "make", "strip", "xz"];
    let missing = programs.into_iter().find(|program| !on_path(program));
    missing.map(|program| format!("no {program}, which builds the guest from Debian's packages"))
}
