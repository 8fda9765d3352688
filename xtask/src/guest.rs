//! `cargo xtask guest`: our providers and the kernel's RDMA drivers, face to face. The kernel is Debian's, in a virtual
//! machine that `tests/guest/build.sh` makes of Debian's packages; the tests are those of `tests/tests/programs/guest/`.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cargo::{target, workspace};
use crate::prerequisites::{is_root, on_path};
use crate::tally::Tally;
use crate::test::{count_all, programs, verdict};
use crate::{dist, prerequisites};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Run the tests whose name contains this
    filter: Option<String>,
}

/// As [`crate::test::run`], the tests with the guest only.
pub(crate) fn run(options: &Options) -> Result<bool> {
    prerequisites::provide();
    let tally = tests(&dist::build()?, options.filter.as_deref())?;
    Ok(verdict(&tally, false))
}

/// Runs them. Where there can be no guest they count as one that is skipped.
pub(crate) fn tests(dist: &Path, filter: Option<&str>) -> Result<Tally> {
    let machine = target()?.join("guest");
    if let Some(reason) = obstacle() {
        return Ok(Tally::of_skip("the guest", &reason));
    }
    println!("building the guest in {}", machine.display());
    let mut build = Command::new("timeout");
    build.arg(BUILD_LIMIT).arg(workspace().join("tests/guest/build.sh")).arg(&machine);
    let built = build.status();
    let built = built.context("tests/guest/build.sh does not start")?;
    match built.code() {
        Some(0) => {}
        Some(CANNOT_BE_HAD) => {
            return Ok(Tally::of_skip("the guest", "its packages cannot be downloaded, see above"));
        }
        _ => bail!("tests/guest/build.sh failed ({built})"),
    }
    let group = |share: String| {
        let mut command = programs(dist, filter, &share);
        command.env("OPENDAT_GUEST", &machine);
        command
    };
    let rest = group(format!("!{}", GROUPS.concat().join(",")));
    count_all(std::iter::once(rest).chain(GROUPS.map(|tests| group(tests.join(",")))))
}

/// Runs at the same time as the rest, each with a guest and a network of its own: while the programs of one wait, those of
/// another compute. What their names begin with.
const GROUPS: [&[&str]; 3] = [
    &[
        "guest::siw::",
        "guest::conformance::verbs::",
        "guest::conformance::verbs_on_siw::",
        "guest::rxe::verbs::",
    ],
    // The first waits most of the time for what OFED's provider does not do.
    &["guest::conformance::ofa::", "guest::matrix::", "guest::verbs::siw::", "guest::verbs::with_ofa::"],
    &["guest::speed::verbs_keeps_up_with_libdaplofa"],
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
