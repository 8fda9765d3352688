//! Tests the packages and the tarball that `cargo xtask package` makes. The packages are installed
//! in an otherwise clean Debian, in place of Debian's own DAPL packages, and Debian's unmodified
//! programs run over them. `cargo xtask test packages::` builds both and runs these tests, and no
//! others.

mod debian;

use std::fs;
use std::path::{Path, PathBuf};

use libtest_mimic::Trial;
use opendat_tests::{
    Dist, PROVIDERS, Registry, Skip, Stop, c_program_by_pkg_config, setting, trial,
};

use crate::dtest;
use crate::pair::{ProgramPlace, Route};

pub(crate) use debian::Debian;

/// Two directories: `dir` contains the packages, and `debian` contains the Debian that
/// `tests/packages/build.sh` has built.
#[derive(Clone)]
pub(crate) struct Packages {
    dir: PathBuf,
    debian: PathBuf,
}

/// Returns the packages if these tests must run.
pub(crate) fn made() -> Option<Packages> {
    Some(Packages { dir: setting("packages")?.into(), debian: setting("debian")?.into() })
}

pub(crate) fn trials(packages: &Packages, dist: &Result<Dist, Skip>) -> Vec<Trial> {
    let test = |&(name, run): &(&str, Test)| {
        let (packages, dist) = (packages.clone(), dist.clone());
        trial(format!("packages::{name}"), move || {
            let debian = Debian::unpack(&packages.debian)?;
            run(&World { debian, packages, dist: dist? })
        })
    };
    TESTS.iter().map(test).collect()
}

type Test = fn(&World) -> Result<(), Stop>;

const TESTS: &[(&str, Test)] = &[
    ("debians_programs_run_over_ours", debians_programs),
    ("a_c_program_is_compiled_against_ours", a_c_program),
    ("ours_replace_debians_and_debians_replace_ours", ours_replace_debians_and_back),
    ("the_tarball_works_wherever_it_is", the_tarball),
];

/// A Debian, and the packages and layout that can be installed there.
struct World {
    debian: Debian,
    packages: Packages,
    dist: Dist,
}

const RUNTIME_PACKAGE: &str = "opendat_";
const DEVELOPMENT_PACKAGE: &str = "opendat-dev_";
const LIBDIR: &str = "/usr/lib/x86_64-linux-gnu";

fn debians_programs(world: &World) -> Result<(), Stop> {
    let debian = &world.debian;
    world.install(&[RUNTIME_PACKAGE], "dapl2-utils")?;
    world.dtest_is_over("opendat")?;
    if debian.run("dpkg -s libdapl2").is_ok() {
        return Err("Debian's libdapl2 is installed, too".to_owned().into());
    }
    world.has_adapters("dat")?;
    let conf = "/usr/share/doc/opendat/dat.conf";
    world.has_adapters(&format!("OPENDAT_PARAMS=builtin=off DAT_OVERRIDE={conf} dat"))?;
    world.has_manual(&["man1", "man5"])?;
    for file in [
        "bash-completion/completions/dat",
        "zsh/vendor-completions/_dat",
        "doc/opendat/docs/softroce.md",
        "doc/opendat/cli/schema/list.json",
    ] {
        debian.run(&format!("test -s /usr/share/{file}"))?;
    }

    let named = debian.run("cat /var/lib/dpkg/info/opendat.shlibs")?;
    expect_equal("shlibs", &named, "libdat2 2 libdapl2\nlibdat 1 libdat1\n")?;

    let registry = Registry::builtin(&world.dist, &PROVIDERS[0]);
    let inside = ProgramPlace::Debian(debian);
    dtest::between(&registry, &Route { server: inside, client: inside, ..Route::LOOPBACK })?;

    debian.run("apt-get -q -y purge opendat")?;
    let left = debian.run(
        "find /etc /usr /var/lib/dpkg/info -name '*libdat*' -o -name 'dat.*' -o -name '*opendat*'",
    )?;
    Ok(expect_equal("left behind", &left, "")?)
}

fn a_c_program(world: &World) -> Result<(), Stop> {
    let debian = &world.debian;
    world.install(&[RUNTIME_PACKAGE, DEVELOPMENT_PACKAGE], "")?;
    // The compiler is this host's. The headers and libraries are those in the Debian installation.
    let (root, pkgconfig) = (debian.at("/"), debian.at(LIBDIR).join("pkgconfig"));
    let all = Path::new("1");
    let there = [
        ("PKG_CONFIG_SYSROOT_DIR", &*root),
        ("PKG_CONFIG_LIBDIR", &*pkgconfig),
        ("PKG_CONFIG_ALLOW_SYSTEM_CFLAGS", all),
        ("PKG_CONFIG_ALLOW_SYSTEM_LIBS", all),
    ];
    for name in ["dat", "dat2"] {
        c_program_by_pkg_config(name, &there, &debian.at("/srv"))?;
        debian
            .run(&format!("/srv/open {}", PROVIDERS[0].ia))
            .map_err(|why| format!("{name}: {why}"))?;
    }
    Ok(())
}

fn ours_replace_debians_and_back(world: &World) -> Result<(), Stop> {
    let debian = &world.debian;
    let theirs = "libdapl2 libdapl-dev dapl2-utils";
    world.install(&[], theirs)?;
    world.dtest_is_over("libdapl2")?;

    world.install(&[RUNTIME_PACKAGE, DEVELOPMENT_PACKAGE], "")?;
    world.dtest_is_over("opendat")?;
    world.has_manual(&["man1", "man3", "man5"])?;
    // Debian's libdapl2 leaves this file behind. The file's entries name libraries that are gone.
    debian.run("test -s /etc/dat.conf")?;
    world.has_adapters("dat")?;
    expect_equal("changed", &debian.run("dpkg --verify opendat opendat-dev")?, "")?;

    world.install(&[], theirs)?;
    world.dtest_is_over("libdapl2")?;
    expect_equal("changed", &debian.run(&format!("dpkg --verify {theirs}"))?, "")?;
    expect_equal("diverted", &debian.run("dpkg-divert --list '*dat.conf*'")?, "")?;
    expect_equal("broken", &debian.run("dpkg --audit")?, "")?;
    match debian.run("dpkg -s opendat-dev") {
        Ok(_) => Err("opendat-dev is still installed".to_owned().into()),
        Err(_) => Ok(()),
    }
}

/// Tests the tarball in a Debian installation without any package of this project. The tarball is
/// unpacked into another directory than that in which it was built.
fn the_tarball(world: &World) -> Result<(), Stop> {
    let debian = &world.debian;
    let tarball = world.packages.file("opendat-", ".tar.gz")?;
    debian.untar(&tarball, "/srv")?;
    let name = tarball.file_name().unwrap_or_default().to_string_lossy().replace(".tar.gz", "");
    let tree = format!("/srv/{name}");

    world.has_adapters(&format!("{tree}/bin/dat"))?;
    let libraries = format!("LD_LIBRARY_PATH={tree}/lib");
    let conf = format!("OPENDAT_PARAMS=builtin=off DAT_OVERRIDE={tree}/share/dat.conf");
    world.has_adapters(&format!("{libraries} {conf} {tree}/bin/dat"))?;
    let there = [("PKG_CONFIG_PATH", &*debian.at(&tree).join("lib/pkgconfig"))];
    for name in ["dat", "dat2"] {
        c_program_by_pkg_config(name, &there, &debian.at("/srv"))?;
        let opened = debian.run(&format!("{libraries} /srv/open {}", PROVIDERS[0].ia));
        opened.map_err(|why| format!("{name}: {why}"))?;
    }
    Ok(())
}

impl Packages {
    /// Returns the only file whose name has this start and end.
    fn file(&self, start: &str, end: &str) -> Result<PathBuf, String> {
        let entries =
            fs::read_dir(&self.dir).map_err(|error| format!("{}: {error}", self.dir.display()))?;
        let fits = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(start) && name.ends_with(end)
        };
        let found: Vec<PathBuf> =
            entries.flatten().map(|entry| entry.path()).filter(fits).collect();
        match &found[..] {
            [file] => Ok(file.clone()),
            _ => Err(format!(
                "expected exactly one {start}*{end} in {}, found {found:?}",
                self.dir.display()
            )),
        }
    }
}

impl World {
    /// Installs packages as a user does: this project's packages are downloaded files, and Debian's
    /// packages come from Debian.
    fn install(&self, ours: &[&str], theirs: &str) -> Result<(), String> {
        let mut files = String::new();
        for package in ours {
            let file = self.packages.file(package, ".deb")?;
            self.debian.put(&file, "/srv")?;
            files += &format!(" /srv/{}", file.file_name().unwrap_or_default().display());
        }
        self.debian
            .run(&format!("apt-get -q -y --no-install-recommends install{files} {theirs}"))
            .map(drop)
    }

    /// Checks that Debian's dtest loads the libdat2.so.2 of this package.
    fn dtest_is_over(&self, package: &str) -> Result<(), String> {
        let linked =
            self.debian.run("ldd /usr/bin/dtest | awk '$1 == \"libdat2.so.2\" { print $3 }'")?;
        let owner = self.debian.run(&format!("dpkg -S \"$(readlink -f {})\"", linked.trim()))?;
        // The name of the package is followed by a colon. For Debian's packages, the architecture
        // follows that colon.
        match owner.split(':').next() == Some(package) {
            true => Ok(()),
            false => Err(format!("dtest is linked with {linked}, which belongs to {owner}")),
        }
    }

    /// Checks that each provider that needs no device opens.
    fn has_adapters(&self, dat: &str) -> Result<(), String> {
        let listed = self.debian.run(&format!("{dat} list --usable"))?;
        match PROVIDERS.iter().find(|provider| !listed.contains(provider.ia)) {
            None => Ok(()),
            Some(provider) => Err(format!("{dat} does not list {}:\n{listed}", provider.ia)),
        }
    }

    /// Checks that every manual page of these sections is present, although dapl2-utils has a
    /// dat.conf(5) too.
    fn has_manual(&self, sections: &[&str]) -> Result<(), String> {
        let share = self.dist.lib().with_file_name("share");
        let mut pages = 0;
        for section in sections {
            let directory = share.join("man").join(section);
            for entry in fs::read_dir(&directory)
                .map_err(|error| format!("{}: {error}", directory.display()))?
            {
                let path = entry.map_err(|error| error.to_string())?.path();
                let page = path.file_name().unwrap_or_default().display();
                let shown = self.debian.run(&format!("zcat /usr/share/man/{section}/{page}.gz"))?;
                expect_equal(
                    &page.to_string(),
                    &shown,
                    &fs::read_to_string(&path).map_err(|error| error.to_string())?,
                )?;
                pages += 1;
            }
        }
        if pages > 1 { Ok(()) } else { Err("no manual pages are installed".to_owned()) }
    }
}

fn expect_equal(what: &str, found: &str, expected: &str) -> Result<(), String> {
    match found == expected {
        true => Ok(()),
        false => Err(format!("{what}: found {found:?}, expected {expected:?}")),
    }
}
