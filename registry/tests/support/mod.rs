//! A vendor's provider for tests: C code that is compiled during the test and logs each call.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

const MANIFEST_DIR: &str = env!("CARGO_MANIFEST_DIR");

/// A compiled copy of the provider, its log and a registry file, in a temporary directory.
pub(crate) struct Vendor {
    directory: TempDir,
}

impl Vendor {
    /// Compiles the provider. Without a C compiler, prints that the test is skipped and returns
    /// `None`.
    pub(crate) fn build() -> Option<Vendor> {
        Vendor::build_with(&[])
    }

    /// Like [`Vendor::build`], with additional compiler arguments.
    pub(crate) fn build_with(arguments: &[&str]) -> Option<Vendor> {
        let root = if MANIFEST_DIR.ends_with("v2") { "../.." } else { ".." };
        let root = Path::new(MANIFEST_DIR).join(root);
        let directory = tempfile::tempdir().expect("a temporary directory");
        let output = Command::new("cc")
            .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-g", "-I"])
            .arg(root.join("libdat/include"))
            .arg(root.join("registry/tests/support/provider.c"))
            .args(arguments)
            .arg("-o")
            .arg(directory.path().join("libfake.so"))
            .output();
        let output = match output {
            Ok(output) => output,
            Err(error) => {
                println!("SKIP: cc does not run ({error}; package gcc)");
                return None;
            }
        };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(Vendor { directory })
    }

    pub(crate) fn library(&self) -> PathBuf {
        self.directory.path().join("libfake.so")
    }

    pub(crate) fn conf(&self) -> PathBuf {
        self.directory.path().join("dat.conf")
    }

    /// Writes the registry file. In `text`, `LIB` stands for the provider and `LOG` for the
    /// parameter that names its log.
    pub(crate) fn write_conf(&self, text: &str) {
        let log = format!("log={}", self.log_file().display());
        let text = text.replace("LIB", &self.library().display().to_string()).replace("LOG", &log);
        std::fs::write(self.conf(), text).expect("the registry file is written");
    }

    fn log_file(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    /// Returns and clears the log.
    pub(crate) fn log(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.log_file()).unwrap_or_default();
        let _ = std::fs::remove_file(self.log_file());
        text.lines().map(str::to_owned).collect()
    }

    /// Whether the provider's library is mapped into this process.
    pub(crate) fn is_loaded(&self) -> bool {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("the process has maps");
        maps.contains(&self.library().display().to_string())
    }
}
