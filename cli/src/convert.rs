//! `dat convert`: converts a registry file from one format to the other.

use std::io::{Write, stderr};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use registry::entry::{Entry, ParseError};
use registry::{conf, toml};
use serde::Serialize;

use crate::output::{print, print_json};

#[derive(Args)]
pub(crate) struct Options {
    /// The file: TOML if its name ends in .toml, dat.conf if it ends in .conf, else decided by its
    /// content
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print one JSON document instead: the entries, with the keys of TOML
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Document<'f> {
    interface: Vec<Interface<'f>>,
}

/// An entry, with the keys of TOML.
#[derive(Serialize)]
struct Interface<'f> {
    name: &'f str,
    api: String,
    threadsafe: bool,
    default: bool,
    library: &'f str,
    version: String,
    params: &'f str,
    platform_params: &'f str,
}

impl<'f> From<&'f Entry> for Interface<'f> {
    fn from(entry: &'f Entry) -> Self {
        let Entry { ia_name, api, threadsafe, default, library, provider_version, .. } = entry;
        Interface {
            name: ia_name,
            api: api.to_string(),
            threadsafe: *threadsafe,
            default: *default,
            library,
            version: provider_version.to_string(),
            params: &entry.ia_params,
            platform_params: &entry.platform_params,
        }
    }
}

/// A parsed registry file.
pub(crate) struct File {
    pub(crate) text: Vec<u8>,
    pub(crate) is_toml: bool,
    pub(crate) entries: Vec<Entry>,
    pub(crate) errors: Vec<ParseError>,
}

/// Reads a registry file in either of its two formats.
pub(crate) fn read(path: &Path) -> Result<File> {
    let text = registry::list::read(path).with_context(|| format!("reading {}", path.display()))?;
    let is_toml = match path.extension().and_then(|extension| extension.to_str()) {
        Some("toml") => true,
        Some("conf") => false,
        _ => looks_like_toml(&text),
    };
    let (entries, errors) =
        if is_toml { toml::parse(path, &text) } else { conf::parse(path, &text) };
    Ok(File { text, is_toml, entries, errors })
}

/// Prints the file in the other format. A file with errors is not converted, because the output
/// would lack entries.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let File { is_toml, entries, errors, .. } = read(&options.file)?;
    for error in &errors {
        writeln!(stderr(), "{error}")?;
    }
    match errors.len() {
        0 => {}
        1 => bail!("nothing was converted: correct this error first"),
        _ => bail!("nothing was converted: correct these {} errors first", errors.len()),
    }
    let converted = match options.json {
        true => {
            let document = Document { interface: entries.iter().map(Interface::from).collect() };
            print_json(&document)?;
            return Ok(true);
        }
        false if is_toml => conf::write(&entries),
        false => toml::write(&entries),
    };
    print(&converted)?;
    Ok(true)
}

/// Returns whether the first line of content begins with `[[`, as in `[[interface]]`. An IA name in
/// a dat.conf could also begin with `[[`, but no known name does.
fn looks_like_toml(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    let mut lines = text.trim_start_matches('\u{feff}').lines().map(str::trim);
    lines
        .find(|line| !line.is_empty() && !line.starts_with('#'))
        .is_some_and(|line| line.starts_with("[["))
}
