//! `dat register` and `dat unregister`: entries of a registry file, put in and taken out while others read it.
//!
//! All that is not asked for stays as it is, byte for byte: comments, blank lines, lines with mistakes. The file is replaced in one
//! step, so that who reads it sees the old one or the new one, and locked meanwhile, so that two of these commands do not undo each
//! other's work.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Read, Write, stdout};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Args;
use registry::entry::{Api, Entry, Origin, ParseError, ProviderVersion};
use registry::list::DEFAULT_FILE;
use registry::report::printable;
use registry::{conf, toml};
use rustix::fs::{FlockOperation, OFlags, flock};
use serde_json::json;

use crate::check::{self, Concern};
use crate::output::print_json;
use crate::programs;
use crate::table::{Colour, colour};

#[derive(Args)]
pub(crate) struct Register {
    /// The name that programs will give to dat_ia_open
    #[arg(value_name = "IA")]
    name: String,
    /// The provider's shared library: a path, or a name that the dynamic linker finds
    #[arg(value_name = "LIBRARY")]
    library: String,
    /// What the provider is to serve: a network device, an address; as its documentation says
    #[arg(value_name = "PARAMETERS", default_value = "")]
    parameters: String,
    /// The API that the provider implements
    #[arg(long, value_name = "VERSION", default_value = "u2.0", value_parser = api)]
    api: Api,
    /// For programs that need a thread-safe provider, too
    #[arg(long)]
    threadsafe: bool,
    /// Keep the entry in the file, and programs from using it
    #[arg(long)]
    nondefault: bool,
    /// Who made the provider, and which release
    #[arg(long, value_name = "VERSION", default_value = "unknown.0.0", value_parser = provider_version)]
    provider_version: ProviderVersion,
    /// Put it in place of the entries of this name, API and thread safety
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    file: RegistryFile,
}

#[derive(Args)]
pub(crate) struct Unregister {
    /// The name of the entries to take out
    #[arg(value_name = "IA")]
    name: String,
    /// Only those of this API
    #[arg(long, value_name = "VERSION", value_parser = api)]
    api: Option<Api>,
    /// Only those of this library
    #[arg(long, value_name = "LIBRARY")]
    library: Option<String>,
    #[command(flatten)]
    file: RegistryFile,
}

#[derive(Args)]
struct RegistryFile {
    /// The registry file: that of DAT_OVERRIDE, else /etc/dat.conf
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

/// A library that is given by its path is found from wherever a program is started; a name is for the dynamic linker.
fn from_anywhere(library: &str) -> Result<String> {
    if !library.contains('/') {
        // One that came with this program, and that the dynamic linker would not find.
        let beside = programs::directory_of_ours().map(|directory| directory.join(library));
        let beside = beside.filter(|path| path.is_file() && programs::found(library).is_none());
        return Ok(beside
            .and_then(|path| path.to_str().map(ToOwned::to_owned))
            .unwrap_or(library.to_owned()));
    }
    let path = std::path::absolute(library).with_context(|| format!("the path of {library}"))?;
    path.into_os_string().into_string().map_err(|path| anyhow!("{} is not UTF-8", path.display()))
}

/// Puts an entry in.
pub(crate) fn register(options: &Register) -> Result<bool> {
    let Register {
        name, library, parameters, api, threadsafe, nondefault, provider_version, ..
    } = options;
    let entry = Entry {
        ia_name: name.clone(),
        api: *api,
        threadsafe: *threadsafe,
        default: !nondefault,
        library: from_anywhere(library)?,
        provider_version: provider_version.clone(),
        ia_params: parameters.clone(),
        platform_params: String::new(),
        origin: Origin::Program,
    };
    let path = options.file.path()?;
    edit(&path, |text| {
        let (entries, errors) = parse(&path, text);
        if let Some(error) = errors.first() {
            // Lines that are none may be in a registry's file; a file of nothing else is something else.
            ensure!(
                !entries.is_empty(),
                "{} is left alone: it has no entry, and what is in it is none ({error})",
                path.display()
            );
            ensure!(!is_toml(&path), "{error}; mend that first");
        }
        let same: Vec<&Entry> = entries.iter().filter(|old| old.same_interface(&entry)).collect();
        match same.first() {
            Some(old) if !options.replace => bail!(
                "{name} is there already, at {}: --replace puts this one in its place, and `dat unregister {name}{}` takes it \
                 out",
                old.origin,
                options
                    .file
                    .file
                    .as_ref()
                    .map_or_else(String::new, |file| format!(" --file {}", file.display()))
            ),
            _ => with(&path, &without(&path, text, &same)?, &entry),
        }
    })?;
    options.file.say(&path, "registered", &[&entry], Some(check::concerns(&path, &entry)?))?;
    Ok(true)
}

/// Takes entries out.
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
            "{} has no entry called {name}{}: `dat check {0}` reads it, `dat list` has all that programs find",
            path.display(),
            if api.is_some() || library.is_some() { " of that API and library" } else { "" }
        );
        gone = meant.iter().map(|&entry| entry.clone()).collect();
        without(&path, text, &meant)
    })?;
    file.say(&path, "unregistered", &gone.iter().collect::<Vec<_>>(), None)?;
    Ok(true)
}

impl RegistryFile {
    /// The file itself, where links lead.
    fn path(&self) -> Result<PathBuf> {
        let path = match (&self.file, std::env::var_os("DAT_OVERRIDE")) {
            (Some(file), _) => file.clone(),
            (None, Some(file)) if !file.is_empty() => file.into(),
            (None, Some(_)) => {
                bail!(
                    "DAT_OVERRIDE names no file: it is set and empty; say --file FILE, or unset it"
                )
            }
            (None, None) => DEFAULT_FILE.into(),
        };
        match fs::canonicalize(&path) {
            Ok(path) => Ok(path),
            // It will be made.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(path),
            Err(error) => Err(error).with_context(|| format!("finding {}", path.display())),
        }
    }

    /// What was done, and why that may be of no use.
    fn say(
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

// ---- text ---------------------------------------------------------------------------------------------------------

/// As the registry reads it ([`registry::List`]).
fn is_toml(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "toml")
}

fn parse(path: &Path, text: &[u8]) -> (Vec<Entry>, Vec<ParseError>) {
    if is_toml(path) { toml::parse(path, text) } else { conf::parse(path, text) }
}

/// The text with one more entry, at its end.
fn with(path: &Path, text: &[u8], entry: &Entry) -> Result<Vec<u8>> {
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
    // What is written has to come back: a name of 300 octets, a NUL.
    let (before, after) = (parse(path, text), parse(path, &new));
    if let Some(error) = after.1.get(before.1.len()) {
        bail!("this would be no entry: {}", error.kind);
    }
    ensure!(
        after.0.last().is_some_and(|last| last.same_fields(entry)),
        "this would not be read back as it is written"
    );
    Ok(new)
}

/// The text without some of its entries: without their lines, or their tables. Comments stay.
fn without(path: &Path, text: &[u8], entries: &[&Entry]) -> Result<Vec<u8>> {
    let lines: Vec<&[u8]> = text.split_inclusive(|&byte| byte == b'\n').collect();
    let mut gone = vec![false; lines.len()];
    for first in entries.iter().filter_map(|entry| line_of(entry)).map(|line| line - 1) {
        let count = if is_toml(path) { table(&lines[first..]) } else { 1 };
        gone[first..first + count].fill(true);
    }
    let new: Vec<u8> = lines
        .iter()
        .zip(&gone)
        .filter(|(_, gone)| !**gone)
        .flat_map(|(line, _)| line.to_vec())
        .collect();
    // Strings over several lines, for one, are not seen here.
    let ((before, mistakes), (after, others)) = (parse(path, text), parse(path, &new));
    let kept =
        before.iter().filter(|entry| !entries.iter().any(|other| other.origin == entry.origin));
    let is_so = kept.clone().count() == after.len()
        && kept.zip(&after).all(|(kept, after)| kept.same_fields(after))
        && mistakes.len() == others.len();
    ensure!(
        is_so,
        "{} is written in a way that cannot be edited safely: take the entry out by hand",
        path.display()
    );
    Ok(new)
}

/// How many lines a table has that begins with the first: up to its last key.
fn table(lines: &[&[u8]]) -> usize {
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

// ---- file ---------------------------------------------------------------------------------------------------------

/// Replaces the file by what `change` makes of it.
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
        // Somebody else's file stays theirs, if this user may do that.
        let _ = fchown(file.as_file(), Some(metadata.uid()), Some(metadata.gid()));
        file.as_file().sync_all()?;
        file.persist(path).map_err(|error| error.error)?;
        File::open(directory)?.sync_all()
    };
    write().with_context(|| format!("writing {}", path.display()))
}

/// Opens the file, which is made if it is not there, and keeps others like this one out until it is dropped.
fn lock(path: &Path) -> Result<File> {
    loop {
        let open = || {
            // Of a pipe, without waiting for who has the other end.
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
                Err(_) => format!("making {}", path.display()),
                Ok(_) => format!("opening {} to change it", path.display()),
            };
            let advice = match error.kind() {
                ErrorKind::PermissionDenied => {
                    "; --file FILE names another, for DAT_OVERRIDE to name, too"
                }
                ErrorKind::NotFound => "; its directory has to be there",
                _ => "",
            };
            anyhow!("{what}: {error}{advice}")
        })?;
        ensure!(
            file.metadata().is_ok_and(|this| this.is_file()),
            "{} is no regular file: it is left alone",
            path.display()
        );
        flock(&file, FlockOperation::LockExclusive)
            .with_context(|| format!("locking {}", path.display()))?;
        // Whoever had the lock may have put another file there.
        let is_it = |other: fs::Metadata| {
            file.metadata().is_ok_and(|this| (this.dev(), this.ino()) == (other.dev(), other.ino()))
        };
        if fs::metadata(path).is_ok_and(is_it) {
            return Ok(file);
        }
    }
}
