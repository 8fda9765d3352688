//! The registry file in the format TOML. Each `[[interface]]` table corresponds to one line of a
//! dat.conf. Conversion is lossless.
//!
//! ```toml
//! [[interface]]
//! name = "tcp-emu"
//! api = "u2.0"                      # may be left out: u2.0
//! threadsafe = true                 # may be left out: false
//! default = true                    # may be left out: true
//! library = "libdat_tcp_emu.so"
//! version = "opendat.0.1"           # may be left out: unknown.0.0
//! params = "lo 0"                   # may be left out: none
//! platform_params = ""              # may be left out: none
//! ```

use std::fmt::Write as _;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, ValueDeserializer};

use crate::entry::{Api, Entry, Origin, ParseError, ParseErrorKind, ProviderVersion, check_name};

/// One `[[interface]]` table in the form of the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Interface {
    name: Spanned<String>,
    api: Option<Spanned<String>>,
    #[serde(default)]
    threadsafe: bool,
    #[serde(default = "default_true")]
    default: bool,
    library: Spanned<String>,
    version: Option<Spanned<String>>,
    params: Option<Spanned<String>>,
    platform_params: Option<Spanned<String>>,
}

fn default_true() -> bool {
    true
}

/// Parses the TOML format. `path` appears only in origins and errors.
///
/// A table with a mistake produces errors and no entry. The other tables are still read.
pub fn parse(path: &Path, text: &[u8]) -> (Vec<Entry>, Vec<ParseError>) {
    let text_of_file = String::from_utf8_lossy(text);
    let file = File::new(path, &text_of_file);
    if let Err(error) = std::str::from_utf8(text) {
        return (Vec::new(), vec![file.error(error.valid_up_to(), ParseErrorKind::Encoding)]);
    }
    let mut entries = Vec::new();
    let mut errors = Vec::new();

    let (table, syntax) = DeTable::parse_recoverable(file.text);
    let mut syntax: Vec<_> =
        syntax.iter().map(|error| (start(error.span()), message(error))).collect();
    syntax.sort_by_key(|(at, _)| *at);
    let broken: Vec<usize> = syntax.iter().map(|(at, _)| *at).collect();
    errors.extend(syntax.into_iter().map(|(at, message)| file.error(at, message)));

    let mut tables = Vec::new();
    for (key, value) in table.into_inner() {
        match (key.get_ref().as_ref(), value.get_ref().as_array()) {
            ("interface", Some(array)) => tables.extend(array.iter().cloned()),
            _ => {
                let message =
                    format!("unexpected `{}`; expected [[interface]] tables", key.get_ref());
                errors.push(file.error(key.span().start, ParseErrorKind::Toml(message)));
            }
        }
    }
    for (index, table) in tables.iter().enumerate() {
        let begin = table.span().start;
        let end = tables.get(index + 1).map_or(file.text.len() + 1, |next| next.span().start);
        let name =
            table.get_ref().get("name").and_then(|name| name.get_ref().as_str()).map(str::to_owned);
        let first = broken.partition_point(|&at| at < begin);
        if broken.get(first).is_some_and(|at| *at < end) {
            // The syntax error is already reported. The part of this table that the parser has
            // recovered, including its name, is unreliable.
            continue;
        }
        let read = Interface::deserialize(ValueDeserializer::from(table.clone()))
            .map_err(|error| (error.span().map_or(begin, |span| span.start), message(&error)))
            .and_then(Interface::entry);
        match read {
            Ok(entry) => entries.push(Entry { origin: file.origin(begin), ..entry }),
            Err((offset, mistake)) => {
                errors.push(ParseError { name, ..file.error(offset, mistake) })
            }
        }
    }
    (entries, errors)
}

impl Interface {
    fn entry(self) -> Result<Entry, (usize, ParseErrorKind)> {
        let at = |field: &Spanned<String>| field.span().start;
        check_name(self.name.get_ref()).map_err(|kind| (at(&self.name), kind))?;
        if self.library.get_ref().is_empty() {
            return Err((at(&self.library), ParseErrorKind::LibraryEmpty));
        }
        let strings = [
            ("name", Some(&self.name)),
            ("library", Some(&self.library)),
            ("version", self.version.as_ref()),
            ("params", self.params.as_ref()),
            ("platform_params", self.platform_params.as_ref()),
        ];
        for (name, value) in strings {
            if let Some(value) = value
                && value.get_ref().contains(['\0', '\n', '\r'])
            {
                return Err((at(value), ParseErrorKind::ControlCharacter(name)));
            }
        }
        let api = match self.api {
            None => Api::U2_0,
            Some(text) => text
                .get_ref()
                .parse()
                .map_err(|()| (at(&text), ParseErrorKind::ApiVersion(text.get_ref().clone())))?,
        };
        let provider_version = match self.version {
            None => ProviderVersion { id: "unknown".into(), major: 0, minor: 0 },
            Some(text) => text.get_ref().parse().map_err(|()| {
                (at(&text), ParseErrorKind::ProviderVersion(text.get_ref().clone()))
            })?,
        };
        Ok(Entry {
            ia_name: self.name.into_inner(),
            api,
            threadsafe: self.threadsafe,
            default: self.default,
            library: self.library.into_inner(),
            provider_version,
            ia_params: self.params.map(Spanned::into_inner).unwrap_or_default(),
            platform_params: self.platform_params.map(Spanned::into_inner).unwrap_or_default(),
            origin: Origin::Builtin,
        })
    }
}

struct File<'a> {
    path: Arc<Path>,
    text: &'a str,
    /// The offset at which each line begins.
    lines: Vec<usize>,
}

impl<'a> File<'a> {
    fn new(path: &Path, text: &'a str) -> Self {
        let lines =
            std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        File { path: path.into(), text, lines }
    }

    fn origin(&self, offset: usize) -> Origin {
        let line = self.lines.partition_point(|&begin| begin <= offset);
        let begin = self.lines[line - 1];
        let before = self.text.get(begin..offset).unwrap_or(&self.text[begin..]);
        Origin::File { path: self.path.clone(), line, column: before.chars().count() + 1 }
    }

    fn error(&self, offset: usize, kind: ParseErrorKind) -> ParseError {
        ParseError { origin: self.origin(offset), name: None, kind }
    }
}

fn start(span: Option<Range<usize>>) -> usize {
    span.map_or(0, |span| span.start)
}

fn message(error: &toml::de::Error) -> ParseErrorKind {
    ParseErrorKind::Toml(error.message().to_owned())
}

/// Formats entries as TOML that [`parse`] can read.
pub fn write(entries: &[Entry]) -> String {
    let mut text = String::new();
    for (index, e) in entries.iter().enumerate() {
        if index > 0 {
            text.push('\n');
        }
        let string = |value: &str| toml::Value::from(value).to_string();
        let _ = writeln!(text, "[[interface]]");
        let _ = writeln!(text, "name = {}", string(&e.ia_name));
        let _ = writeln!(text, "api = {}", string(&e.api.to_string()));
        let _ = writeln!(text, "threadsafe = {}", e.threadsafe);
        if !e.default {
            let _ = writeln!(text, "default = false");
        }
        let _ = writeln!(text, "library = {}", string(&e.library));
        let _ = writeln!(text, "version = {}", string(&e.provider_version.to_string()));
        for (key, value) in [("params", &e.ia_params), ("platform_params", &e.platform_params)] {
            if !value.is_empty() {
                let _ = writeln!(text, "{key} = {}", string(value));
            }
        }
    }
    text
}

#[cfg(test)]
#[path = "toml_tests.rs"]
mod tests;
