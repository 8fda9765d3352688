//! Which libdat2.so.2 a program gets, and what it finds behind the name `tcp-emu`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::{Dist, Skip};

const DEBIAN_LIBDAT2: &str = "/usr/lib/x86_64-linux-gnu/libdat2.so.2";

/// The IA name that every test opens.
const IA: &str = "tcp-emu";

/// A libdat2 and a dat.conf for it.
#[derive(Debug)]
pub struct Registry {
    name: &'static str,
    library_path: Option<PathBuf>,
    builtin: bool,
    /// Files that a process under this registry must have mapped.
    maps: Vec<PathBuf>,
    conf: PathBuf,
    _dir: TempDir,
}

impl Registry {
    /// Our libdat2.so.2 and its built-in entry; the dat.conf is empty.
    pub fn builtin(dist: &Dist) -> Self {
        let library = dist.lib().join("libdat2.so.2");
        Self::new("builtin", Some(dist.lib()), true, "", vec![library])
    }

    /// Our libdat2.so.2 without built-in entries; the dat.conf names the loadable provider.
    pub fn plugin(dist: &Dist) -> Self {
        let maps = vec![dist.lib().join("libdat2.so.2"), dist.plugin()];
        Self::new("plugin", Some(dist.lib()), false, &entry(&dist.plugin()), maps)
    }

    /// As [`Registry::builtin`], for programs of uDAPL 1.2: our libdat.so.1.
    pub fn builtin_1_2(dist: &Dist) -> Self {
        Self::new("builtin of 1.2", Some(dist.lib()), true, "", vec![dist.lib().join("libdat.so.1")])
    }

    /// As [`Registry::plugin`], for programs of uDAPL 1.2: our libdat.so.1 loads the same provider for a u1.2 entry. An
    /// entry for 2.0, which it cannot use, comes first.
    pub fn plugin_1_2(dist: &Dist) -> Self {
        let plugin = dist.plugin();
        let conf = entry(&plugin) + &entry(&plugin).replace("u2.0", "u1.2");
        Self::new(
            "plugin of 1.2",
            Some(dist.lib()),
            false,
            &conf,
            vec![dist.lib().join("libdat.so.1"), plugin],
        )
    }

    /// Our libdat.so.1 without built-in entries, and this provider of uDAPL 1.2 as `vendor`.
    pub fn vendor_1_2(dist: &Dist, provider: &Path) -> Self {
        let conf =
            format!("vendor u1.2 nonthreadsafe default {} vendor.1.0 vendor \"\"\n", provider.display());
        let maps = vec![dist.lib().join("libdat.so.1"), provider.to_owned()];
        Self::new("vendor of 1.2", Some(dist.lib()), false, &conf, maps)
    }

    /// Debian's own libdat2.so.2; the dat.conf names the loadable provider.
    pub fn debian(dist: &Dist) -> Result<Self, Skip> {
        let library = PathBuf::from(DEBIAN_LIBDAT2);
        if !library.exists() {
            return Err(Skip(format!("no {DEBIAN_LIBDAT2} (package libdapl2)")));
        }
        Ok(Self::new("debian", None, false, &entry(&dist.plugin()), vec![library, dist.plugin()]))
    }

    fn new(
        name: &'static str,
        library_path: Option<PathBuf>,
        builtin: bool,
        conf: &str,
        maps: Vec<PathBuf>,
    ) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("dat.conf");
        fs::write(&path, conf).expect("dat.conf can be written");
        Self { name, library_path, builtin, maps, conf: path, _dir: dir }
    }

    /// Short name, for names of tests.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The IA name to give to a program.
    pub fn ia(&self) -> &'static str {
        IA
    }

    /// Sets a program's environment: this registry and nothing else that could change what DAT does.
    pub fn apply(&self, command: &mut Command) {
        let inherited = std::env::vars_os().map(|(name, _)| name).filter(|name| {
            let name = name.to_string_lossy();
            ["DAT_", "DAPL_", "OPENDAT_", "LD_"].iter().any(|prefix| name.starts_with(prefix))
        });
        for name in inherited {
            command.env_remove(name);
        }
        command.env("DAT_OVERRIDE", &self.conf);
        if let Some(path) = &self.library_path {
            command.env("LD_LIBRARY_PATH", path);
        }
        if !self.builtin {
            command.env("OPENDAT_BUILTIN", "0");
        }
    }

    /// Did the process really load the libraries that this registry is about? `maps` is /proc/PID/maps.
    pub fn check_maps(&self, maps: &str) -> Result<(), String> {
        for library in &self.maps {
            let file =
                fs::canonicalize(library).map_err(|error| format!("{}: {error}", library.display()))?;
            if !maps.lines().any(|line| line.ends_with(&*file.to_string_lossy())) {
                return Err(format!("the program has not loaded {}", file.display()));
            }
        }
        Ok(())
    }
}

fn entry(plugin: &Path) -> String {
    format!("{IA} u2.0 nonthreadsafe default {} opendat.0.1 \"\" \"\"\n", plugin.display())
}
