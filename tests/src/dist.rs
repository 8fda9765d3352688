//! Finds the libraries and programs under test.

use std::path::{Path, PathBuf};
use std::{env, fs};

use crate::{Provider, Skip};

const LIBRARY: &str = "libdat2.so.2";

/// The layout that `cargo xtask dist` creates: `lib/`, `include/`, `bin/`, `share/`.
#[derive(Debug, Clone)]
pub struct Dist {
    root: PathBuf,
}

impl Dist {
    /// Returns `OPENDAT_DIST` if set (`cargo xtask test` sets it), else the layout in the target
    /// directory of this test.
    pub fn locate() -> Result<Self, Skip> {
        let root = match env::var_os("OPENDAT_DIST") {
            Some(root) => PathBuf::from(root),
            None => layout_of_this_build()
                .ok_or_else(|| Skip("this test lies outside a target directory".into()))?,
        };
        let library = root.join("lib").join(LIBRARY);
        if library.exists() {
            return Ok(Self { root });
        }
        Err(Skip(format!("{} is not built: run `cargo xtask test`", library.display())))
    }

    /// Copies libdat2.so.2 alone into a directory, for users who cannot read the library's own
    /// directory.
    pub fn copy_library(&self, into: &Path) -> Self {
        let copy = Self { root: into.to_owned() };
        let copied = fs::create_dir_all(copy.lib())
            .and_then(|()| fs::copy(self.lib().join(LIBRARY), copy.lib().join(LIBRARY)));
        copied.expect("the directory has room for a copy of the library");
        copy
    }

    /// Returns the root directory of the layout.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the directory of libdat2.so.2 and of the loadable providers.
    pub fn lib(&self) -> PathBuf {
        self.root.join("lib")
    }

    /// Returns the directory to pass to a C compiler with `-I`.
    pub fn include(&self) -> PathBuf {
        self.root.join("include")
    }

    /// Returns the program `dat`.
    pub fn dat(&self) -> PathBuf {
        self.root.join("bin/dat")
    }

    /// Returns the path of the provider's loadable library.
    pub fn plugin(&self, provider: &Provider) -> PathBuf {
        self.lib().join(provider.library)
    }
}

/// Returns the directory `<target>/test-dist` if this test program is
/// `<target>/<profile>/deps/<test>`.
fn layout_of_this_build() -> Option<PathBuf> {
    Some(env::current_exe().ok()?.ancestors().nth(3)?.join("test-dist"))
}

/// Returns the path of a program of the Linux distribution, which must be on `PATH`. `package` is
/// the package that contains the program.
pub fn find_program(name: &str, package: &str) -> Result<PathBuf, Skip> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|program| Path::is_file(program))
        .ok_or_else(|| Skip(format!("{name} is not installed (package {package})")))
}
