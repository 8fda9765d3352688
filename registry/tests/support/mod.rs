//! A vendor's provider for tests: C code, compiled on the spot, with a log of what was done to it.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// A copy of the provider, its log, and a registry file, in a directory of their own.
pub(crate) struct Vendor {
    directory: TempDir,
}

impl Vendor {
    /// Compiles the provider; without a C compiler says that the test is skipped.
    pub(crate) fn build() -> Option<Vendor> {
        Vendor::build_with(&[])
    }

    /// The same, with more arguments for the compiler.
    pub(crate) fn build_with(arguments: &[&str]) -> Option<Vendor> {
        let root = if HERE.ends_with("v2") { "../.." } else { ".." };
        let root = Path::new(HERE).join(root);
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

    /// Writes the registry file; `LIB` and `LOG` in it stand for the provider and for a parameter naming its log.
    pub(crate) fn write_conf(&self, text: &str) {
        let log = format!("log={}", self.log_file().display());
        let text = text.replace("LIB", &self.library().display().to_string()).replace("LOG", &log);
        std::fs::write(self.conf(), text).expect("the registry file is written");
    }

    fn log_file(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    /// What happened since the last look.
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
