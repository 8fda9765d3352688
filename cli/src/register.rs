//! `dat register` and `dat unregister`: add entries to a registry file and remove them, while other
//! programs read it.
//!
//! The rest of the file does not change, byte for byte, including comments, blank lines and lines
//! with errors. The file is replaced in one step, so that readers see either the old or the new
//! file. The file is locked until it has been replaced, so that two of these commands do not undo
//! each other's work.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Read, Write, stdout};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Args;
use measurement::text_table::{Colour, colour};
use registry::entry::{Api, Entry, Origin, ParseError, ProviderVersion};
use registry::list::DEFAULT_FILE;
use registry::{conf, toml};
use rustix::fs::{FlockOperation, OFlags, flock};
use serde_json::json;
use telemetry::printable;

use crate::check::{self, Concern};
use crate::output::print_json;
use crate::programs;

#[derive(Args)]
pub(crate) struct Register {
    /// The name that programs pass to dat_ia_open
    #[arg(value_name = "IA")]
    name: String,
    /// The provider's shared library: a path, or a name that the dynamic linker finds
    #[arg(value_name = "LIBRARY")]
    library: String,
    /// What the provider serves: a network device or an address; see its documentation
    #[arg(value_name = "PARAMETERS", default_value = "")]
    parameters: String,
    /// The API that the provider implements
    #[arg(long, value_name = "VERSION", default_value = "u2.0", value_parser = api)]
    api: Api,
    /// Also offer the entry to programs that need a thread-safe provider
    #[arg(long)]
    threadsafe: bool,
    /// Add the entry, but do not let programs use it
    #[arg(long)]
    nondefault: bool,
    /// The vendor and release of the provider
    #[arg(long, value_name = "VERSION", default_value = "unknown.0.0", value_parser = provider_version)]
    provider_version: ProviderVersion,
    /// Replace the entries with this name, API and thread safety
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    file: RegistryFile,
}

#[derive(Args)]
pub(crate) struct Unregister {
    /// The name of the entries to remove
    #[arg(value_name = "IA")]
    name: String,
    /// Remove only entries with this API
    #[arg(long, value_name = "VERSION", value_parser = api)]
    api: Option<Api>,
    /// Remove only entries with this library
    #[arg(long, value_name = "LIBRARY")]
    library: Option<String>,
    #[command(flatten)]
    file: RegistryFile,
}

#[derive(Args)]
struct RegistryFile {
    /// The registry file; by default the file that DAT_OVERRIDE names, or /etc/dat.conf if that
    /// variable is not set
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Print one JSON document instead of text
    #[arg(long)]
    json: bool,
}

fn api(text: &str) -> Result<Api, &'static str> {
    text.parse().map_err(|()| "expected u and two numbers, as in u2.0")
}

fn provider_version(text: &str) -> Result<ProviderVersion, &'static str> {
    text.parse().map_err(|()| "expected a name and two numbers, as in dapl.2.0")
}

/// Returns the library of the entry. A path becomes absolute. A name without a slash stays a name,
/// because the dynamic linker finds the library.
fn absolute_library(library: &str) -> Result<String> {
    if !library.contains('/') {
        // An exception is a library that came with this program, in a directory that the dynamic
        // linker does not search. Its name becomes a path.
        let beside = programs::own_library_directory().map(|directory| directory.join(library));
        let beside =
            beside.filter(|path| path.is_file() && programs::library_path(library).is_none());
        return Ok(beside
            .and_then(|path| path.to_str().map(ToOwned::to_owned))
            .unwrap_or(library.to_owned()));
    }
    let path = std::path::absolute(library).with_context(|| format!("the path of {library}"))?;
    path.into_os_string().into_string().map_err(|path| anyhow!("{} is not UTF-8", path.display()))
}

/// Adds an entry.
pub(crate) fn register(options: &Register) -> Result<bool> {
    let Register {
        name, library, parameters, api, threadsafe, nondefault, provider_version, ..
    } = options;
    let entry = Entry {
        ia_name: name.clone(),
        api: *api,
        threadsafe: *threadsafe,
        default: !nondefault,
        library: absolute_library(library)?,
        provider_version: provider_version.clone(),
        ia_params: parameters.clone(),
        platform_params: String::new(),
        origin: Origin::Program,
    };
    let path = options.file.path()?;
    edit(&path, |text| {
        let (entries, errors) = parse(&path, text);
        if let Some(error) = errors.first() {
            // A registry file may contain some invalid lines. But if no line is valid, the file is
            // probably not a registry file.
            ensure!(
                !entries.is_empty(),
                "{} is left alone: it has no valid entry ({error})",
                path.display()
            );
            ensure!(!is_toml(&path), "{error}; correct that first");
        }
        let same: Vec<&Entry> = entries.iter().filter(|old| old.same_interface(&entry)).collect();
        match same.first() {
            Some(old) if !options.replace => bail!(
                "{name} exists already, at {}: --replace replaces it, and `dat unregister \
                 {name}{}` removes it",
                old.origin,
                options
                    .file
                    .file
                    .as_ref()
                    .map_or_else(String::new, |file| format!(" --file {}", file.display()))
            ),
            _ => append_entry(&path, &remove_entries(&path, text, &same)?, &entry),
        }
    })?;
    options.file.print_result(
        &path,
        "registered",
        &[&entry],
        Some(check::concerns(&path, &entry)?),
    )?;
    Ok(true)
}

/// Removes entries.
pub(crate) fn unregister(options: &Unregister) -> Result<bool> {
    let Unregister { name, api, library, file } = options;
    let path = file.path()?;
    ensure!(path.exists(), "there is no registry file {}", path.display());
    let mut gone = Vec::new();
    edit(&path, |text| {
        let (entries, _) = parse(&path, text);
        let is_meant = |entry: &&Entry| {
            entry.ia_name == *name
                && api.is_none_or(|api| entry.api == api)
                && library.as_ref().is_none_or(|library| entry.library == *library)
        };
        let meant: Vec<&Entry> = entries.iter().filter(is_meant).collect();
        ensure!(
            !meant.is_empty(),
            "{} has no entry called {name}{}: `dat check {0}` checks the file, `dat list` lists \
             all entries that programs find",
            path.display(),
            if api.is_some() || library.is_some() { " with that API and library" } else { "" }
        );
        gone = meant.iter().map(|&entry| entry.clone()).collect();
        remove_entries(&path, text, &meant)
    })?;
    file.print_result(&path, "unregistered", &gone.iter().collect::<Vec<_>>(), None)?;
    Ok(true)
}

impl RegistryFile {
    /// Returns the path of the file, with symbolic links resolved.
    fn path(&self) -> Result<PathBuf> {
        let path = match (&self.file, std::env::var_os("DAT_OVERRIDE")) {
            (Some(file), _) => file.clone(),
            (None, Some(file)) if !file.is_empty() => file.into(),
            (None, Some(_)) => {
                bail!("DAT_OVERRIDE is set but empty: use --file FILE, or unset it")
            }
            (None, None) => DEFAULT_FILE.into(),
        };
        match fs::canonicalize(&path) {
            Ok(path) => Ok(path),
            // The file does not exist yet. It is created later.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(path),
            Err(error) => Err(error).with_context(|| format!("finding {}", path.display())),
        }
    }

    /// Prints what was done, and the reasons for which the new entry may be unusable.
    fn print_result(
        &self,
        path: &Path,
        what: &str,
        entries: &[&Entry],
        concerns: Option<Vec<Concern>>,
    ) -> Result<()> {
        let lines: Vec<String> =
            entries.iter().map(|entry| conf::Line(entry).to_string()).collect();
        if self.json {
            let mut document = json!({ "file": path.display().to_string(), what: lines });
            if let Some(concerns) = concerns {
                document["concerns"] = json!(concerns);
            }
            print_json(&document)?;
        } else {
            for line in lines {
                writeln!(stdout(), "{what} in {}: {}", path.display(), printable(&line))?;
            }
            for Concern { message, help } in concerns.into_iter().flatten() {
                writeln!(
                    stdout(),
                    "{} {}",
                    colour("warning:", Colour::Strong),
                    printable(&message)
                )?;
                help.iter().try_for_each(|help| writeln!(stdout(), "    {}", printable(help)))?;
            }
        }
        Ok(())
    }
}

// ---- text ---------------------------------------------------------------------------------------

/// Decides the format as the registry does ([`registry::List`]).
fn is_toml(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "toml")
}

fn parse(path: &Path, text: &[u8]) -> (Vec<Entry>, Vec<ParseError>) {
    if is_toml(path) { toml::parse(path, text) } else { conf::parse(path, text) }
}

/// Appends an entry to the text.
fn append_entry(path: &Path, text: &[u8], entry: &Entry) -> Result<Vec<u8>> {
    let is_toml = is_toml(path);
    let entries = std::slice::from_ref(entry);
    let added = if is_toml { toml::write(entries) } else { conf::write(entries) };
    let mut new = text.to_vec();
    if !new.is_empty() && !new.ends_with(b"\n") {
        new.push(b'\n');
    }
    if is_toml && !new.is_empty() {
        new.push(b'\n');
    }
    new.extend(added.as_bytes());
    // The new text must contain the same entry when it is parsed. It does not if, for example, the
    // name has 300 octets or contains a NUL.
    let (before, after) = (parse(path, text), parse(path, &new));
    if let Some(error) = after.1.get(before.1.len()) {
        bail!("this is not a valid entry: {}", error.kind);
    }
    ensure!(
        after.0.last().is_some_and(|last| last.same_fields(entry)),
        "this entry would not be read back unchanged"
    );
    Ok(new)
}

/// Removes entries from the text: their lines, or their tables. Comments stay.
fn remove_entries(path: &Path, text: &[u8], entries: &[&Entry]) -> Result<Vec<u8>> {
    let lines: Vec<&[u8]> = text.split_inclusive(|&byte| byte == b'\n').collect();
    let mut gone = vec![false; lines.len()];
    for first in entries.iter().filter_map(|entry| line_of(entry)).map(|line| line - 1) {
        let count = if is_toml(path) { table_length(&lines[first..]) } else { 1 };
        gone[first..first + count].fill(true);
    }
    let new: Vec<u8> = lines
        .iter()
        .zip(&gone)
        .filter(|(_, gone)| !**gone)
        .flat_map(|(line, _)| line.to_vec())
        .collect();
    // The removal of whole lines may have damaged the file, for example if a string extends over
    // several lines. So the new text must contain all other entries.
    let ((before, old_errors), (after, new_errors)) = (parse(path, text), parse(path, &new));
    let kept =
        before.iter().filter(|entry| !entries.iter().any(|other| other.origin == entry.origin));
    let is_so = kept.clone().count() == after.len()
        && kept.zip(&after).all(|(kept, after)| kept.same_fields(after))
        && old_errors.len() == new_errors.len();
    ensure!(
        is_so,
        "{} is written in a way that cannot be edited safely: remove the entry by hand",
        path.display()
    );
    Ok(new)
}

/// Returns the number of lines of the table that begins with the first line, up to its last key.
fn table_length(lines: &[&[u8]]) -> usize {
    let begins = |line: &[u8], start: &[u8]| line.trim_ascii_start().starts_with(start);
    let next =
        lines.iter().skip(1).position(|line| begins(line, b"[")).map_or(lines.len(), |at| at + 1);
    let is_key = |line: &&[u8]| !line.trim_ascii().is_empty() && !begins(line, b"#");
    lines[..next].iter().rposition(is_key).map_or(1, |last| last + 1)
}

fn line_of(entry: &Entry) -> Option<usize> {
    match entry.origin {
        Origin::File { line, .. } => Some(line),
        Origin::Builtin | Origin::Program => None,
    }
}

// ---- file ---------------------------------------------------------------------------------------

/// Replaces the content of the file by the result of `change`.
fn edit(path: &Path, change: impl FnOnce(&[u8]) -> Result<Vec<u8>>) -> Result<()> {
    let is_new = !path.exists();
    let mut old = lock(path)?;
    let mut text = Vec::new();
    old.read_to_end(&mut text).with_context(|| format!("reading {}", path.display()))?;
    let new = change(&text).inspect_err(|_| {
        if is_new && text.is_empty() {
            let _ = fs::remove_file(path);
        }
    })?;
    let write = || -> std::io::Result<()> {
        let metadata = old.metadata()?;
        let directory =
            path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut file = tempfile::Builder::new().prefix(".dat.conf.").tempfile_in(directory)?;
        file.write_all(&new)?;
        file.as_file().set_permissions(Permissions::from_mode(metadata.mode() & 0o7777))?;
        // The new file gets the owner of the old file, if this user may set the owner.
        let _ = fchown(file.as_file(), Some(metadata.uid()), Some(metadata.gid()));
        file.as_file().sync_all()?;
        file.persist(path).map_err(|error| error.error)?;
        File::open(directory)?.sync_all()
    };
    write().with_context(|| format!("writing {}", path.display()))
}

/// Opens the file, creating it if necessary. Locks it against other commands of this kind until it
/// is dropped.
fn lock(path: &Path) -> Result<File> {
    loop {
        let open = || {
            // With O_NONBLOCK, opening does not block if the file is a pipe without a reader or
            // writer.
            let nonblocking = OFlags::NONBLOCK.bits() as i32;
            OpenOptions::new()
                .read(true)
                .append(true)
                .create(true)
                .custom_flags(nonblocking)
                .open(path)
        };
        let file = open().map_err(|error| {
            let what = match fs::metadata(path) {
                Err(_) => format!("creating {}", path.display()),
                Ok(_) => format!("opening {} to change it", path.display()),
            };
            let advice = match error.kind() {
                ErrorKind::PermissionDenied => {
                    "; use --file FILE for another file, and set DAT_OVERRIDE to it"
                }
                ErrorKind::NotFound => "; its directory does not exist",
                _ => "",
            };
            anyhow!("{what}: {error}{advice}")
        })?;
        ensure!(
            file.metadata().is_ok_and(|this| this.is_file()),
            "{} is not a regular file: it is left alone",
            path.display()
        );
        flock(&file, FlockOperation::LockExclusive)
            .with_context(|| format!("locking {}", path.display()))?;
        // The previous owner of the lock may have replaced the file. Then this lock is on the old
        // file, and the new file must be opened and locked.
        let is_it = |other: fs::Metadata| {
            file.metadata().is_ok_and(|this| (this.dev(), this.ino()) == (other.dev(), other.ino()))
        };
        if fs::metadata(path).is_ok_and(is_it) {
            return Ok(file);
        }
    }
}
