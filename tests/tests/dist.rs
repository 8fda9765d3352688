//! Tests that the layout of `cargo xtask dist` can be installed and used as it is.
#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;
use std::process::Command;

use opendat_tests::{
    Dist, PROVIDERS, Registry, Skip, VERBS, Version, c_program_by_pkg_config, c_vendor,
    find_program, skip,
};

fn with_dist(test: impl Fn(&Dist) -> Result<(), Skip>) {
    if let Err(reason) = Dist::locate().and_then(|dist| test(&dist)) {
        skip(&reason);
    }
}

/// Returns the standard output of a program that must succeed.
fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} ended with {}\n{stderr}", output.status);
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn the_library_has_its_soname_and_the_links_lead_to_it() {
    with_dist(|dist| {
        for (link, points_to) in [
            ("libdat.so", "libdat.so.1"),
            ("libdat.so.1", "libdat.so.1.0.2"),
            ("libdat2.so", "libdat2.so.2"),
            ("libdat2.so.2", "libdat2.so.2.0.0"),
        ] {
            let link = dist.lib().join(link);
            assert_eq!(
                fs::read_link(&link).ok().as_deref(),
                Some(Path::new(points_to)),
                "{}",
                link.display()
            );
        }
        let readelf = find_program("readelf", "binutils")?;
        for expected in ["libdat.so.1", "libdat2.so.2"] {
            let dynamic = output(Command::new(&readelf).arg("-dW").arg(dist.lib().join(expected)));
            let soname = dynamic.lines().find(|line| line.contains("(SONAME)")).expect("a soname");
            assert!(soname.contains(&format!("[{expected}]")), "{soname}");
        }
        Ok(())
    });
}

#[test]
fn nothing_but_the_c_library_is_needed_at_run_time() {
    with_dist(|dist| {
        let readelf = find_program("readelf", "binutils")?;
        let may_need = [
            "libc.so.6",
            "libgcc_s.so.1",
            "libm.so.6",
            "libdl.so.2",
            "libpthread.so.0",
            "ld-linux",
        ];
        let libraries = ["libdat.so.1", "libdat2.so.2"].map(|name| dist.lib().join(name));
        let plugins = PROVIDERS.iter().chain([&VERBS]).map(|provider| dist.plugin(provider));
        for library in libraries.into_iter().chain(plugins) {
            let dynamic = output(Command::new(&readelf).arg("-dW").arg(&library));
            for line in dynamic.lines().filter(|line| line.contains("(NEEDED)")) {
                assert!(
                    may_need.iter().any(|name| line.contains(name)),
                    "{}: {line}",
                    library.display()
                );
            }
        }
        Ok(())
    });
}

/// Tests that the layout also works in another directory. The C program's build knows only that
/// directory and finds everything in it through pkg-config.
#[test]
fn a_moved_tree_serves_a_c_program_through_pkg_config() {
    with_dist(|dist| {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let moved = dir.path().join("moved");
        output(Command::new("cp").arg("-a").arg(dist.lib().parent().expect("a tree")).arg(&moved));

        for name in ["dat", "dat2"] {
            let pkg_config = [("PKG_CONFIG_PATH", &*moved.join("lib/pkgconfig"))];
            let program = c_program_by_pkg_config(name, &pkg_config, dir.path())?;
            for provider in PROVIDERS {
                let mut run = Command::new(&program);
                let registry = Registry::builtin(dist, provider);
                registry.apply(&mut run);
                run.arg(provider.ia).env("LD_LIBRARY_PATH", moved.join("lib"));
                assert_eq!(output(&mut run), format!("opened {}\n", provider.ia), "{name}");
            }
        }
        Ok(())
    });
}

#[test]
fn every_line_of_the_shipped_dat_conf_names_a_library_that_is_shipped() {
    with_dist(|dist| {
        let conf = dist.lib().with_file_name("share").join("dat.conf");
        let text = fs::read_to_string(&conf).expect("share/dat.conf");
        let entries = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
        let libraries: Vec<&str> =
            entries.map(|line| line.split_whitespace().nth(4).expect("8 fields")).collect();
        assert!(!libraries.is_empty(), "{} has no entry", conf.display());
        for library in libraries {
            assert!(dist.lib().join(library).exists(), "{library} is not shipped");
        }
        Ok(())
    });
}

#[test]
fn the_conformance_suite_asks_a_provider_behind_any_library() {
    with_dist(|dist| {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let conf = dir.path().join("dat.conf");
        let entry = |safety: &str, api: &str| {
            let plugin = dist.plugin(&PROVIDERS[0]);
            format!("x u{api} {safety} default {} opendat.0.1 \"\" \"\"\n", plugin.display())
        };
        let safeties = ["nonthreadsafe", "threadsafe"];
        let entries = safeties.map(|safety| entry(safety, "2.0") + &entry(safety, "1.2"));
        fs::write(&conf, entries.concat()).expect("dat.conf can be written");
        let dat = |library: &Path| {
            let mut command = Command::new(dist.lib().join("../bin/dat"));
            command.args(["conformance", "--json", "--provider", "x", "dat_pz_free", "--library"]);
            command.arg(library).arg("--registry").arg(&conf).env("OPENDAT_PARAMS", "builtin=off");
            command
        };
        let debian = Path::new("/usr/lib/x86_64-linux-gnu/libdat2.so.2");
        let ours = ["libdat2.so.2", "libdat.so.1"].map(|name| dist.lib().join(name));
        for library in ours.iter().map(|path| &**path).chain(debian.exists().then_some(debian)) {
            let json = output(&mut dat(library));
            assert!(json.contains("\"verdict\": \"passed\""), "{json}");
        }
        Ok(())
    });
}

#[test]
fn a_provider_that_does_not_open_is_no_verdict() {
    with_dist(|dist| {
        let vendor = Path::new("/usr/lib/x86_64-linux-gnu/libdaplofa.so.2");
        if !vendor.exists() {
            return Err(Skip(format!("no {} (package libdapl2)", vendor.display())));
        }
        let dir = tempfile::tempdir().expect("a temporary directory");
        let conf = dir.path().join("dat.conf");
        let line = format!(
            "ofa u2.0 nonthreadsafe default {} dapl.2.0 \"none0 0\" \"\"\n",
            vendor.display()
        );
        fs::write(&conf, line).expect("dat.conf can be written");
        for library in
            [dist.lib().join("libdat2.so.2"), "/usr/lib/x86_64-linux-gnu/libdat2.so.2".into()]
        {
            let mut command = Command::new(dist.lib().join("../bin/dat"));
            command.args(["conformance", "--provider", "ofa", "--library"]).arg(&library);
            let ended = command.arg("--registry").arg(&conf).output().expect("the program starts");
            let stderr = String::from_utf8_lossy(&ended.stderr);
            assert_eq!(ended.status.code(), Some(2), "{}: {stderr}", library.display());
            assert!(
                stderr.contains("ofa through ") && stderr.contains("cannot be opened"),
                "{stderr}"
            );
        }
        Ok(())
    });
}

#[test]
fn a_vendors_provider_that_does_little_fails_what_it_does_not() {
    with_dist(|dist| {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (provider, conf) =
            (c_vendor(dist, "vendor_1_2", Version::V1_2, dir.path())?, dir.path().join("dat.conf"));
        let line =
            format!("vendor u1.2 nonthreadsafe default {} v.1.0 vendor \"\"\n", provider.display());
        fs::write(&conf, line).expect("dat.conf can be written");
        let mut command = Command::new(dist.lib().join("../bin/dat"));
        command.args([
            "conformance",
            "--json",
            "--provider",
            "vendor",
            "dat_ep_create",
            "dat_srq_",
            "--library",
        ]);
        command.arg(dist.lib().join("libdat.so.1")).arg("--registry").arg(&conf);
        let ended = command.output().expect("the program starts");
        assert_eq!(ended.status.code(), Some(1), "{}", String::from_utf8_lossy(&ended.stderr));
        // The vendor's provider implements none of the functions that these cases test. A case that
        // tests nothing must not pass.
        let json = String::from_utf8_lossy(&ended.stdout);
        assert!(json.matches("\"verdict\": \"failed\"").count() > 50, "{json}");
        assert!(!json.contains("died of signal"), "{json}");
        // A null handle leads to no provider, so the library itself refuses the handle.
        let document: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        let cases = document["cases"].as_array().expect("cases");
        let passed = cases.iter().filter(|case| case["verdict"] == "passed");
        let ids: Vec<_> = passed.filter_map(|case| case["id"].as_str()).collect();
        assert!(ids.iter().all(|id| id.ends_with("/null-handle")), "{ids:?}");
        Ok(())
    });
}
