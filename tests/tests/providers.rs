//! Tests dat_registry_list_providers of libdat2 and libdat.so.1 with a distribution's dat.conf,
//! which has dozens of entries.
#![forbid(unsafe_code)]

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use opendat_tests::{Dist, Skip, c_program, c_program_1_2, skip};

/// The entries of OFED's dat.conf as Debian ships it. Each tuple has a library, the suffix of the
/// entries' names, and the device and port of each entry. All entries are uDAPL 2.0, nonthreadsafe
/// and default.
const DEBIAN: &[(&str, &str, &str)] = &[
    ("libdaplofa.so.2", "", "ib0:0 ib1:0 eth2:0 eth3:0"),
    (
        "libdaploscm.so.2",
        "",
        "mlx4_0:1 mlx4_0:2 mthca0:1 mthca0:2 ipath0:1 ipath0:2 ehca0:1 qib0:1 qib0:2",
    ),
    (
        "libdaploscm.so.2",
        "s",
        "mlx4_1:1 mlx4_1:2 mlx5_0:1 mlx5_0:2 mlx5_1:1 mlx5_1:2 hfi1_0:1 hfi1_0:2 scif0:1",
    ),
    (
        "libdaploucm.so.2",
        "u",
        "mlx4_0:1 mlx4_0:2 mlx4_1:1 mlx4_1:2 mlx5_0:1 mlx5_0:2 mthca0:1 mthca0:2 scif0:1",
    ),
    (
        "libdaplomcm.so.2",
        "m",
        "mlx4_0:1 mlx4_0:2 mlx5_0:1 mlx5_0:2 qib0:1 qib0:2 hfi1_0:1 hfi1_0:2 scif0:1",
    ),
];

fn debian_dat_conf() -> String {
    let mut text = String::new();
    for (library, suffix, devices) in DEBIAN {
        for device in devices.split(' ') {
            let (device, port) = device.split_once(':').expect("a device and a port");
            writeln!(
                text,
                "ofa-v2-{device}-{port}{suffix} u2.0 nonthreadsafe default {library} dapl.2.0 \
                 \"{device} {port}\" \"\""
            )
            .expect("a string");
        }
    }
    text
}

/// Returns the number of providers under this dat.conf or the host's own, and the names that a
/// program with room for eight gets.
fn first_eight(dist: &Dist, program: &Path, conf: Option<&Path>) -> (usize, Vec<String>) {
    let mut command = Command::new(program);
    command
        .env("LD_LIBRARY_PATH", dist.lib())
        .env_remove("OPENDAT_PARAMS")
        .env_remove("DAT_OVERRIDE");
    command.envs(conf.map(|conf| ("DAT_OVERRIDE", conf)));
    let output = command.output().expect("the program starts");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("text");
    let mut lines = text.lines().map(ToOwned::to_owned);
    let count = lines.next().and_then(|count| count.parse().ok()).expect("a number");
    (count, lines.collect())
}

#[test]
fn ours_are_among_the_first_eight_of_a_distributions_file() {
    let test = || -> Result<(), Skip> {
        let (dist, dir) = (Dist::locate()?, tempfile::tempdir().expect("a directory"));
        let conf = dir.path().join("dat.conf");
        let lines = debian_dat_conf();
        fs::write(&conf, &lines).expect("the file can be written");
        let old = tempfile::tempdir().expect("a directory");
        let programs = [
            ("u2.0", c_program(&dist, "providers", dir.path())?),
            ("u1.2", c_program_1_2(&dist, "providers", old.path())?),
        ];
        for (api, program) in programs {
            let host = Path::new("/etc/dat.conf").exists().then_some(None);
            for conf in host.into_iter().chain([Some(conf.as_path())]) {
                let (count, listed) = first_eight(&dist, &program, conf);
                assert_eq!(listed.len(), 8, "{listed:?}");
                if conf.is_some() {
                    assert!(
                        count >= lines.lines().count() + 3,
                        "some entries are missing: {count}"
                    );
                }
                for ia in ["tcp-emu", "softroce", "verbs"] {
                    let ours = format!("{ia} {api}");
                    assert!(listed.contains(&ours), "{ours} under {conf:?}: {listed:?}");
                }
            }
        }
        Ok(())
    };
    if let Err(reason) = test() {
        skip(&reason);
    }
}
