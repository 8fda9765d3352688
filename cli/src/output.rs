//! Destinations of results: standard output, and files that are written at the end of a command.

use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;
use tempfile::NamedTempFile;

/// Prints a result. A closed pipe (`dat check FILE | head -1`) does not change the verdict.
pub(crate) fn print(text: &str) -> Result<()> {
    match io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Prints a JSON document, with the version of this program.
pub(crate) fn print_json(document: &impl Serialize) -> Result<()> {
    print(&(serde_json::to_string_pretty(&Versioned::of(document))? + "\n"))
}

/// Prints a JSON document on one line, with the version of this program, for commands that print
/// while they run.
pub(crate) fn print_json_line(document: &impl Serialize) -> Result<()> {
    writeln!(io::stdout(), "{}", serde_json::to_string(&Versioned::of(document))?)?;
    Ok(())
}

#[derive(Serialize)]
pub(crate) struct Versioned<'a, T> {
    version: &'static str,
    #[serde(flatten)]
    document: &'a T,
}

impl<'a, T> Versioned<'a, T> {
    pub(crate) fn of(document: &'a T) -> Self {
        Versioned { version: env!("CARGO_PKG_VERSION"), document }
    }
}

/// A file for a result. Creating it shows whether it can be written, before the measurement starts.
pub(crate) struct Output {
    path: PathBuf,
    into: Destination,
}

enum Destination {
    /// A temporary file in this directory. It is created when the whole content is known, and then
    /// replaces the file of that name. So a signal that ends the process earlier leaves no file.
    Beside(PathBuf),
    /// A device or a pipe, which is written to directly.
    Itself(File),
}

impl Output {
    pub(crate) fn new(path: &Path) -> Result<Output> {
        // Symbolic links are followed, so that the link itself is not replaced.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let into = destination(&path).with_context(|| format!("writing {}", path.display()))?;
        Ok(Output { path, into })
    }

    pub(crate) fn fill(self, text: &str) -> Result<()> {
        let written = match self.into {
            Destination::Beside(directory) => temporary(&directory).and_then(|mut file| {
                file.write_all(text.as_bytes())?;
                Ok(file.persist(&self.path).map(drop)?)
            }),
            Destination::Itself(mut file) => file.write_all(text.as_bytes()),
        };
        written.with_context(|| format!("writing {}", self.path.display()))
    }
}

fn destination(path: &Path) -> io::Result<Destination> {
    match fs::metadata(path) {
        Ok(there) if there.is_dir() => return Err(ErrorKind::IsADirectory.into()),
        Ok(there) if !there.is_file() => {
            return Ok(Destination::Itself(File::options().write(true).open(path)?));
        }
        _ => {}
    }
    let directory =
        path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !directory.is_dir() {
        return Err(io::Error::new(ErrorKind::NotFound, "its directory does not exist"));
    }
    // Creating a file shows whether the directory can be written.
    drop(temporary(directory)?);
    Ok(Destination::Beside(directory.to_owned()))
}

/// Creates a temporary file.
fn temporary(directory: &Path) -> io::Result<NamedTempFile> {
    let everybodys = Permissions::from_mode(0o644);
    let file =
        tempfile::Builder::new().prefix(".dat.").permissions(everybodys).tempfile_in(directory);
    // The error names the temporary file, which the user does not know. So only the kind of error
    // is kept.
    file.map_err(|error| io::Error::from(error.kind()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_file_is_as_it_was_until_it_is_filled_and_a_link_stays() {
        let dir = tempfile::tempdir().expect("a directory");
        let (file, link) = (dir.path().join("page"), dir.path().join("link"));
        fs::write(&file, "before").expect("the file can be written");
        symlink(&file, &link).expect("a link");
        let output = Output::new(&link).expect("the output can be opened");
        assert_eq!(fs::read_to_string(&file).expect("the file exists"), "before");
        // A signal may end the process now.
        let count = || fs::read_dir(dir.path()).expect("the directory exists").count();
        assert_eq!(count(), 2, "no temporary file may exist before the result is written");
        output.fill("now").expect("the file can be written");
        assert_eq!(fs::read_to_string(&file).expect("the file exists"), "now");
        assert!(fs::symlink_metadata(&link).expect("the file exists").is_symlink());
        drop(Output::new(&link));
        assert_eq!(count(), 2, "no temporary file may be left");
    }

    #[test]
    fn what_is_no_file_is_not_made_one() {
        let dir = tempfile::tempdir().expect("a directory");
        let pipe = dir.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).expect("a pipe");
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::read_to_string(pipe).expect("text")
        });
        Output::new(&pipe).and_then(|output| output.fill("now")).expect("the file can be written");
        assert_eq!(reader.join().expect("no panic"), "now");
        assert!(!fs::metadata(&pipe).expect("the file exists").is_file());
        assert!(
            Output::new(dir.path()).is_err() && Output::new(&dir.path().join("no/page")).is_err()
        );
    }
}
