//! Lists third-party works that are linked into the programs and libraries we ship, with the
//! notices that their licences require.

use std::collections::{BTreeMap, BTreeSet};
use std::env::consts::ARCH;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::cargo::cargo;

/// Returns the list of works linked into these packages, followed by every notice once, with the
/// works to which it applies.
pub(crate) fn of(packages: &[String]) -> Result<String> {
    let mut text = String::from(
        "OpenDAT has parts of these works linked into it, all unmodified, and of the standard \
         library of\nRust (MIT OR Apache-2.0, its contributors). Behind the list are their \
         notices; of a work that\ncomes under MIT or Apache-2.0, as we choose, that of MIT.\n\n",
    );
    let mut notices: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for work in linked_into(packages)? {
        let name = format!("{} {}", work.name, work.version);
        text += &format!("{name}: {}\n", work.license.as_deref().unwrap_or("see its notice"));
        for notice in work.notices()? {
            notices.entry(notice).or_default().push(name.clone());
        }
    }
    for (notice, whose) in notices {
        text += &format!(
            "\n{}\n{}\n\n{}\n",
            "-".repeat(80),
            whose.join("\n"),
            notice.trim_matches('\n')
        );
    }
    Ok(text)
}

/// The output of `cargo metadata`.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    version: String,
    license: Option<String>,
    /// The source of the package; `None` for our own packages.
    source: Option<String>,
    manifest_path: PathBuf,
}

/// Returns works by name and version. Code that only runs in the compiler, and dependencies of
/// tests, are not linked.
fn linked_into(packages: &[String]) -> Result<Vec<Dependency>> {
    let target = format!("{ARCH}-unknown-linux-gnu");
    let mut tree = vec![
        "tree",
        "--edges=normal,no-proc-macro",
        "--prefix=none",
        "--format={p}",
        "--target",
        &target,
    ];
    tree.extend(packages.iter().flat_map(|package| ["-p", package]));
    let tree = run_cargo(&tree)?;
    // A line of cargo's output is `clap v4.6.7`, possibly followed by more.
    let words = |line: &str| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
    let linked: BTreeSet<String> = tree.lines().map(words).collect();

    let metadata = run_cargo(&["metadata", "--format-version=1", "--filter-platform", &target])?;
    let metadata: Metadata = serde_json::from_str(&metadata)
        .context("the output of cargo metadata has an unexpected form")?;
    let is_linked =
        |work: &Dependency| linked.contains(&format!("{} v{}", work.name, work.version));
    let others =
        metadata.packages.into_iter().filter(|work| work.source.is_some() && is_linked(work));
    let mut works: Vec<Dependency> = others.collect();
    works.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    Ok(works)
}

/// Returns the output of a cargo command.
fn run_cargo(arguments: &[&str]) -> Result<String> {
    let output =
        cargo().args(arguments).arg("--locked").output().context("cargo does not start")?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo {} failed: {stderr}", arguments[0]);
    String::from_utf8(output.stdout).context("the output of cargo is not UTF-8")
}

impl Dependency {
    /// Returns the licence texts in the work's root directory.
    fn notices(&self) -> Result<Vec<String>> {
        let root = self.manifest_path.parent().context("a manifest is in a directory")?;
        let mut files = Vec::new();
        for entry in
            fs::read_dir(root).with_context(|| format!("cannot read {}", root.display()))?
        {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
            let begins = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];
            if begins.iter().any(|begin| name.starts_with(begin)) && path.is_file() {
                files.push((name, path));
            }
        }
        if files.iter().any(|(name, _)| name.contains("MIT")) {
            files.retain(|(name, _)| !name.contains("APACHE"));
        }
        files.sort();
        let read = |(_, path): &(_, PathBuf)| {
            let text = fs::read_to_string(path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            Ok(text.replace("\r\n", "\n"))
        };
        files.iter().map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::linked_into;
    use crate::dist;

    #[test]
    fn what_is_linked_is_listed_and_nothing_else() {
        let linked =
            linked_into(&dist::packages().expect("the packages are listed")).expect("cargo knows");
        let lists = |name: &str| linked.iter().any(|work| work.name == name);
        assert!(["libc", "clap", "mio", "toml", "socket2"].into_iter().all(lists));
        // The list must not contain a procedural macro, the macro's dependency, a test dependency,
        // one of our crates, or xtask itself.
        assert!(
            !["clap_derive", "syn", "proptest", "foldhash", "opendat-wire", "xtask"]
                .into_iter()
                .any(lists)
        );
    }

    #[test]
    fn whatever_is_linked_has_a_notice() {
        for work in
            linked_into(&dist::packages().expect("the packages are listed")).expect("cargo knows")
        {
            assert!(!work.notices().expect("files that can be read").is_empty(), "{}", work.name);
        }
    }
}
