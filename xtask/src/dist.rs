//! `cargo xtask dist`: what a user installs, laid out as it is installed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::cargo::{cargo, target, workspace};

/// `libdat2.so.2`: the soname number is the C library's, the rest is ours.
const LIBDAT2: &str = "libdat2.so.2.0.0";

/// Builds and lays out everything; answers the root of the layout.
pub(crate) fn build() -> Result<PathBuf> {
    let built = cargo()
        .args(["build", "--release", "-p", "libdat2", "-p", "provider-tcp-emu-plugin", "-p", "cli"])
        .status()
        .context("cargo does not start")?;
    ensure!(built.success(), "cargo build --release failed ({built})");

    let target = target()?;
    let (release, root) = (target.join("release"), target.join("dist"));
    // Laid out beside and swapped in: whoever looks never sees half of it.
    let stage = target.join("dist.new");
    remove(&stage)?;
    for dir in ["lib/pkgconfig", "include/dat2", "bin", "share"] {
        fs::create_dir_all(stage.join(dir)).with_context(|| format!("cannot create {dir}"))?;
    }
    libraries(&release, &stage.join("lib"))?;
    headers(&stage.join("include/dat2"))?;
    copy(&release.join("dat"), &stage.join("bin/dat"))?;
    copy(&workspace().join("dat.conf"), &stage.join("share/dat.conf"))?;

    remove(&root)?;
    fs::rename(&stage, &root).with_context(|| format!("cannot move {} into place", stage.display()))?;
    Ok(root)
}

fn libraries(release: &Path, lib: &Path) -> Result<()> {
    copy(&release.join("libdat2.so"), &lib.join(LIBDAT2))?;
    for (link, points_to) in [("libdat2.so.2", LIBDAT2), ("libdat2.so", "libdat2.so.2")] {
        symlink(points_to, lib.join(link)).with_context(|| format!("cannot link {link}"))?;
    }
    copy(&release.join("libdat_tcp_emu.so"), &lib.join("libdat_tcp_emu.so"))?;
    let pc = lib.join("pkgconfig/dat2.pc");
    fs::write(&pc, pkg_config()).with_context(|| format!("cannot write {}", pc.display()))
}

fn headers(include: &Path) -> Result<()> {
    let source = workspace().join("libdat/include/dat2");
    let entries = fs::read_dir(&source).with_context(|| format!("no headers in {}", source.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "h") {
            copy(&path, &include.join(path.file_name().unwrap_or_default()))?;
        }
    }
    Ok(())
}

/// Relocatable: the whole tree may be moved or packed.
fn pkg_config() -> String {
    format!(
        "prefix=${{pcfiledir}}/../..\n\
         libdir=${{prefix}}/lib\n\
         includedir=${{prefix}}/include\n\
         \n\
         Name: dat2\n\
         Description: Direct Access Transport (uDAPL) 2.0\n\
         Version: {}\n\
         Cflags: -I${{includedir}}\n\
         Libs: -L${{libdir}} -ldat2\n",
        env!("CARGO_PKG_VERSION")
    )
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

fn remove(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", dir.display()))
        }
        _ => Ok(()),
    }
}
