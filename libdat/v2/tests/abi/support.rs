//! The library under test, the original next to it, and processes of their own to load them into.
//!
//! A registry is one for a process and reads its environment once, so every look at it takes a new process: the test
//! program starts itself again with the name of one test, see [`Child`].

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LOCAL, RTLD_NOW};

#[path = "../../../../registry/tests/support/mod.rs"]
#[allow(dead_code, reason = "the tests of the registry use more of it")]
mod vendor;
pub(crate) use vendor::Vendor;

const LIBRARY: &str = "LIBDAT2_UNDER_TEST";

/// Our libdat2: the one of OPENDAT_DIST (`cargo xtask test` sets it), else built here and now.
pub(crate) fn ours() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| match std::env::var_os("OPENDAT_DIST") {
        Some(dist) => Path::new(&dist).join("lib/libdat2.so.2"),
        None => build(),
    })
}

/// Cargo builds a cdylib for nobody but itself. Its own target directory, so that a running `cargo` is not waited for.
fn build() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libdat2");
    let output = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--package", "libdat2", "--target-dir"])
        .arg(&target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env_remove("CARGO_TARGET_DIR")
        .output()
        .expect("cargo starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    target.join("debug/libdat2.so")
}

/// The original, where it is installed.
pub(crate) fn original() -> Option<PathBuf> {
    let path = PathBuf::from("/usr/lib/x86_64-linux-gnu/libdat2.so.2");
    if path.exists() {
        return Some(path);
    }
    println!("SKIP: no {} (package libdapl2)", path.display());
    None
}

/// This test program once more, with one ignored test of it.
pub(crate) struct Child(Command);

impl Child {
    pub(crate) fn new(test: &str, library: &Path, conf: &Path) -> Child {
        let mut command = Command::new(std::env::current_exe().expect("the test has a path"));
        command.args(["--ignored", "--exact", test, "--nocapture", "--test-threads=1"]);
        command.env(LIBRARY, library).env("DAT_OVERRIDE", conf).env("OPENDAT_BUILTIN", "0");
        command.env_remove("DAT_DBG_TYPE").env_remove("DAT_DBG_DEST");
        Child(command)
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Child {
        self.0.env(name, value);
        self
    }

    pub(crate) fn output(mut self) -> Output {
        self.0.output().expect("the test program starts")
    }

    /// Runs it; what it printed on standard output. Its failure is this test's.
    pub(crate) fn run(self) -> String {
        let output = self.output();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "{}\n{text}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        text
    }
}

/// In a child: the library, in the global scope as a linked one is, or hidden as a plug-in system loads it.
/// `None` where no parent started this test.
pub(crate) fn load(global: bool) -> Option<Library> {
    let path = std::env::var_os(LIBRARY)?;
    let scope = if global { RTLD_GLOBAL } else { RTLD_LOCAL };
    // SAFETY: a library of ours or of the distribution, whose constructors do nothing unusual.
    Some(unsafe { Library::open(Some(path), RTLD_NOW | scope) }.expect("the library loads"))
}
