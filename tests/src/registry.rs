//! Selects the C library that a program loads, and the provider that it finds.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::{Dist, Provider, Skip, Version};

const DEBIAN_LIBDAT2: &str = "/usr/lib/x86_64-linux-gnu/libdat2.so.2";

/// The environment variable that tells the C programs of `programs/` which adapter to open.
const IA_VARIABLE: &str = "OPENDAT_TEST_IA";

/// A C library, and a dat.conf for the library.
#[derive(Debug)]
pub struct Registry {
    name: &'static str,
    ia: &'static str,
    library_path: Option<PathBuf>,
    /// Files that a process must have mapped if it uses this registry.
    maps: Vec<PathBuf>,
    conf: PathBuf,
    environment: Vec<(&'static str, String)>,
    /// The parameters in the environment variable OPENDAT_PARAMS.
    params: Vec<String>,
    _dir: TempDir,
}

impl Registry {
    /// Returns a registry with our libdat2.so.2, its built-in entries and an empty dat.conf.
    pub fn builtin(dist: &Dist, provider: &Provider) -> Self {
        Self::built_in("builtin", provider, dist, "libdat2.so.2")
    }

    /// Returns a registry like that of [`Registry::builtin`] for uDAPL 1.2 programs: with our
    /// libdat.so.1.
    pub fn builtin_1_2(dist: &Dist, provider: &Provider) -> Self {
        Self::built_in("builtin of 1.2", provider, dist, "libdat.so.1")
    }

    /// Returns a registry with our libdat2.so.2, without built-in entries. The dat.conf names the
    /// loadable provider.
    pub fn plugin(dist: &Dist, provider: &Provider) -> Self {
        Self::plugin_at(dist, provider, "")
    }

    /// Returns a registry like that of [`Registry::plugin`] with these ia_params.
    pub fn plugin_at(dist: &Dist, provider: &Provider, ia_params: &str) -> Self {
        let plugin = dist.plugin(provider);
        let conf = entry(provider.ia, "u2.0", &plugin, ia_params);
        Self::loaded("plugin", provider.ia, dist, "libdat2.so.2", &conf, plugin)
    }

    /// Returns a registry like that of [`Registry::plugin`] for uDAPL 1.2 programs: our
    /// libdat.so.1 loads the same provider for a u1.2 entry. Before that entry, the dat.conf has an
    /// entry for 2.0, which the library cannot use.
    pub fn plugin_1_2(dist: &Dist, provider: &Provider) -> Self {
        let plugin = dist.plugin(provider);
        let conf = ["u2.0", "u1.2"].map(|api| entry(provider.ia, api, &plugin, "")).concat();
        Self::loaded("plugin of 1.2", provider.ia, dist, "libdat.so.1", &conf, plugin)
    }

    /// Returns a registry with our libdat.so.1, without built-in entries. The dat.conf names this
    /// provider of uDAPL 1.2 as `vendor`.
    pub fn vendor_1_2(dist: &Dist, library: PathBuf) -> Self {
        let conf = format!(
            "vendor u1.2 nonthreadsafe default {} vendor.1.0 vendor \"\"\n",
            library.display()
        );
        Self::loaded("vendor of 1.2", "vendor", dist, "libdat.so.1", &conf, library)
    }

    /// Returns a registry with our library of this version. The dat.conf names this layered
    /// provider as `layered`, whose lower adapter is built in if `is_built_in`, and loaded
    /// otherwise.
    pub fn layered(
        dist: &Dist,
        version: Version,
        layered: &Path,
        lower: &Provider,
        is_built_in: bool,
    ) -> Self {
        let (api, library) = match version {
            Version::V1_2 => ("u1.2", "libdat.so.1"),
            Version::V2_0 => ("u2.0", "libdat2.so.2"),
        };
        let mut conf = entry("layered", api, layered, lower.ia);
        if !is_built_in {
            conf += &entry(lower.ia, api, &dist.plugin(lower), "");
        }
        let maps = vec![dist.lib().join(library)];
        Self::new("layered", "layered", Some(dist.lib()), is_built_in, &conf, maps)
    }

    /// Returns a registry with Debian's own libdat2.so.2. The dat.conf names the loadable provider.
    pub fn debian(dist: &Dist, provider: &Provider) -> Result<Self, Skip> {
        let library = PathBuf::from(DEBIAN_LIBDAT2);
        if !library.exists() {
            return Err(Skip(format!("no {DEBIAN_LIBDAT2} (package libdapl2)")));
        }
        let plugin = dist.plugin(provider);
        let conf = entry(provider.ia, "u2.0", &plugin, "");
        Ok(Self::new("debian", provider.ia, None, false, &conf, vec![library, plugin]))
    }

    fn built_in(name: &'static str, provider: &Provider, dist: &Dist, library: &str) -> Self {
        let maps = vec![dist.lib().join(library)];
        Self::new(name, provider.ia, Some(dist.lib()), true, "", maps)
    }

    fn loaded(
        name: &'static str,
        ia: &'static str,
        dist: &Dist,
        library: &str,
        conf: &str,
        plugin: PathBuf,
    ) -> Self {
        let maps = vec![dist.lib().join(library), plugin];
        Self::new(name, ia, Some(dist.lib()), false, conf, maps)
    }

    fn new(
        name: &'static str,
        ia: &'static str,
        library_path: Option<PathBuf>,
        builtin: bool,
        conf: &str,
        maps: Vec<PathBuf>,
    ) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        // Programs of other users must also be able to read the directory.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755))
            .expect("the owner of a directory may change its mode");
        let path = dir.path().join("dat.conf");
        fs::write(&path, conf).expect("dat.conf can be written");
        let environment = Vec::new();
        let params = if builtin { Vec::new() } else { vec!["builtin=off".to_owned()] };
        Self { name, ia, library_path, maps, conf: path, environment, params, _dir: dir }
    }

    /// Adds a variable to the environment of programs.
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.environment.push((name, value.into()));
        self
    }

    /// Adds parameters to the OPENDAT_PARAMS of programs.
    pub fn with_params(mut self, params: &str) -> Self {
        self.params.push(params.to_owned());
        self
    }

    /// Returns a short name of the registry, which is part of test names.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the IA name that a program must open.
    pub fn ia(&self) -> &'static str {
        self.ia
    }

    /// Sets a program's environment: this registry and its variables. All other variables that
    /// affect DAT are removed.
    pub fn apply(&self, command: &mut Command) {
        let inherited = std::env::vars_os().map(|(name, _)| name).filter(|name| {
            let name = name.to_string_lossy();
            ["DAT_", "DAPL_", "OPENDAT_", "LD_"].iter().any(|prefix| name.starts_with(prefix))
        });
        for name in inherited {
            command.env_remove(name);
        }
        command.env("DAT_OVERRIDE", &self.conf).env(IA_VARIABLE, self.ia);
        for (name, value) in &self.environment {
            command.env(name, value);
        }
        if let Some(path) = &self.library_path {
            command.env("LD_LIBRARY_PATH", path);
        }
        if !self.params.is_empty() {
            command.env("OPENDAT_PARAMS", self.params.join(" "));
        }
    }

    /// Checks that the process has really loaded the libraries of this registry. `maps` is
    /// /proc/PID/maps.
    pub fn check_maps(&self, maps: &str) -> Result<(), String> {
        for library in &self.maps {
            let file = fs::canonicalize(library)
                .map_err(|error| format!("{}: {error}", library.display()))?;
            if !maps.lines().any(|line| line.ends_with(&*file.to_string_lossy())) {
                return Err(format!("the program has not loaded {}", file.display()));
            }
        }
        Ok(())
    }
}

fn entry(ia: &str, api: &str, library: &Path, ia_params: &str) -> String {
    format!(
        "{ia} {api} nonthreadsafe default {} opendat.0.1 \"{ia_params}\" \"\"\n",
        library.display()
    )
}
