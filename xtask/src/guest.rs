//! Our providers and the kernel's RDMA drivers, face to face. The kernel is Debian's, in a virtual machine
//! that `tests/guest/build.sh` makes of Debian's packages; the tests are those of
//! `tests/tests/programs/guest/`.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::cargo::{cargo, target, workspace};
use crate::dist::{self, Profile};
use crate::prerequisites::{self, is_root, on_path};
use crate::test::{Environment, Load, PROGRAMS, Prepared, Stage, Tests};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Of how many rounds; the figures are those of the middle
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

/// Measures provider-verbs and provider-softroce beside Debian's libdaplofa in the guest; judges nothing.
pub(crate) fn measure(options: &Options) -> Result<bool> {
    prerequisites::provide(true);
    let dist = dist::build(Profile::Dist)?;
    let machine = match build()? {
        Made::Machine(environment) => environment,
        Made::Cannot(why) => bail!("there is no guest: {why}"),
    };
    let mut command = cargo();
    command.args(["test", "--workspace", "--test", "programs", "--", "--nocapture"]).envs(machine);
    let status = command.env("OPENDAT_DIST", dist).env(ROUNDS, options.rounds.to_string()).status();
    Ok(status.context("cargo does not start")?.success())
}

/// Tells the program that nothing but this is wanted.
const ROUNDS: &str = "OPENDAT_GUEST_SPEED";

/// The tests with the guest. Where there can be none they count as one that is skipped.
pub(crate) fn stage(tests: &Tests) -> Result<Stage> {
    let (program, filter, environment) =
        (tests.program(PROGRAMS)?, tests.filter.clone(), tests.environment());
    Ok(Stage::new("the guest", move || {
        let mut environment = environment;
        match build()? {
            Made::Machine(machine) => environment.extend(machine),
            Made::Cannot(why) => return Ok(Prepared::Cannot(why)),
        }
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

/// What comes of building it.
enum Made {
    /// What tells the tests where it is.
    Machine(Environment),
    Cannot(String),
}

fn build() -> Result<Made> {
    if let Some(reason) = obstacle() {
        return Ok(Made::Cannot(reason));
    }
    let machine = target()?.join("guest");
    let mut build = Command::new("timeout");
    build.arg(BUILD_LIMIT).arg(workspace().join("tests/guest/build.sh")).arg(&machine);
    let output = build.output().context("tests/guest/build.sh does not start")?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    if output.status.code() == Some(CANNOT_BE_HAD) {
        return Ok(Made::Cannot(format!("its packages cannot be downloaded\n{said}")));
    }
    ensure!(output.status.success(), "tests/guest/build.sh failed ({})\n{said}", output.status);
    Ok(Made::Machine(vec![("OPENDAT_GUEST", machine)]))
}

/// Groups of tests that run at the same time as the rest, each with a guest and a network of its own: while
/// the programs of one group wait, those of another compute. Each has a name, and the beginnings of the names
/// of its tests.
const GROUPS: [(&str, &[&str]); 4] = [
    (
        "guest, siw and our provider",
        &[
            "guest::siw::",
            "guest::conformance::verbs::",
            "guest::conformance::verbs_on_siw::",
            "guest::rxe::verbs::",
        ],
    ),
    // The conformance suite waits most of the time for what OFED's provider does not do.
    (
        "guest, OFED's provider",
        &[
            "guest::conformance::ofa::",
            "guest::matrix::",
            "guest::verbs::siw::",
            "guest::verbs::with_ofa::",
        ],
    ),
    // They wait for outages of real seconds.
    ("guest, outages", &["guest::rxe::outages::"]),
    ("guest, speed", &["guest::speed::small_operations_beside_libdaplofa"]),
];

/// Seconds. It takes one minute; a download may stand still.
const BUILD_LIMIT: &str = "1200";

/// How `build.sh` says so.
const CANNOT_BE_HAD: i32 = 77;

/// Why there can be no guest on this machine.
fn obstacle() -> Option<String> {
    if !cfg!(target_arch = "x86_64") {
        return Some("it is one of x86-64".to_owned());
    }
    if !is_root() {
        return Some("this is not root, who may plug a guest into a network".to_owned());
    }
    if !Path::new("/dev/net/tun").exists() {
        return Some("no /dev/net/tun".to_owned());
    }
    let programs = ["apt-get", "dpkg-deb", "gcc", "make", "strip", "xz"];
    let missing = programs.into_iter().find(|program| !on_path(program));
    missing.map(|program| format!("no {program}, with which it is made of Debian's packages"))
}
