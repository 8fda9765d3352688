//! The library under test, OFED's original library, and child processes that load them.
//!
//! A registry is global to the process and reads its environment once. So each test of the registry
//! needs a new process: the test program starts itself with the name of one test, see [`Child`].

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LOCAL, RTLD_NOW};

#[path = "../../../../registry/tests/support/mod.rs"]
#[allow(dead_code, reason = "the tests of the registry use the rest of this module")]
mod vendor;
pub(crate) use vendor::Vendor;

const LIBRARY: &str = "LIBDAT2_UNDER_TEST";

/// Returns the path of our libdat2: in `OPENDAT_DIST` if that is set (by `cargo xtask test`),
/// otherwise of a library that is built now.
pub(crate) fn ours() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| match std::env::var_os("OPENDAT_DIST") {
        Some(dist) => Path::new(&dist).join("lib/libdat2.so.2"),
        None => build(),
    })
}

/// Builds the library, because cargo does not build the cdylib of a dependency. A separate target
/// directory avoids waiting for a running `cargo`.
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

/// Returns the path of OFED's original library, if it is installed.
pub(crate) fn original() -> Option<PathBuf> {
    let path = PathBuf::from("/usr/lib/x86_64-linux-gnu/libdat2.so.2");
    if path.exists() {
        return Some(path);
    }
    println!("SKIP: no {} (package libdapl2)", path.display());
    None
}

/// This test program in a child process that runs one ignored test.
pub(crate) struct Child(Command);

impl Child {
    pub(crate) fn new(test: &str, library: &Path, conf: &Path) -> Child {
        let mut command = Command::new(std::env::current_exe().expect("the test has a path"));
        command.args(["--ignored", "--exact", test, "--nocapture", "--test-threads=1"]);
        command
            .env(LIBRARY, library)
            .env("DAT_OVERRIDE", conf)
            .env("OPENDAT_PARAMS", "builtin=off");
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

    /// Runs the child process and returns its standard output. If the child fails, this test fails.
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

/// In a child process: loads the library, either into the global scope, as for a linked library, or
/// locally, as a plug-in system does. Returns `None` if no parent has started this test.
pub(crate) fn load(global: bool) -> Option<Library> {
    let path = std::env::var_os(LIBRARY)?;
    let scope = if global { RTLD_GLOBAL } else { RTLD_LOCAL };
    // SAFETY: the library is ours or the distribution's; its constructors do nothing unusual.
    Some(unsafe { Library::open(Some(path), RTLD_NOW | scope) }.expect("the library loads"))
}
