//! The dat.conf format: one entry per line, eight fields separated by blanks, comments from `#`.
//!
//! OFED's libdat2 reads the same grammar, as tests have shown, with three differences. OFED's
//! parser corrupts its heap on an unterminated quote, rejects CRLF line ends, and silently drops a
//! line with a long name. This parser accepts such a line or returns an error with its location.
//! Parsing never prints, and always continues with the next line.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use crate::entry::{Api, Entry, Origin, ParseError, ParseErrorKind, ProviderVersion, check_name};

/// The fields in the order of the file, with the names that error messages use.
const FIELDS: [&str; 8] = [
    "an IA name",
    "the API version (as in u2.0)",
    "threadsafe or nonthreadsafe",
    "default or nondefault",
    "the provider's library",
    "the provider version (as in dapl.2.0)",
    "the IA parameters (\"\" for none)",
    "the platform parameters (\"\" for none)",
];

/// Parses the text of a dat.conf. `path` appears only in origins and errors.
///
/// A line with a mistake produces one error and no entry.
pub fn parse(path: &Path, text: &[u8]) -> (Vec<Entry>, Vec<ParseError>) {
    let path: Arc<Path> = path.into();
    let mut entries = Vec::new();
    let mut errors = Vec::new();
    let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
    for (index, line) in text.split(|&byte| byte == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        // A byte that is not UTF-8 becomes U+FFFD, which is harmless in a comment and an error in a
        // field.
        let line = String::from_utf8_lossy(line);
        let origin = |offset: usize| Origin::File {
            path: path.clone(),
            line: index + 1,
            column: line[..offset].chars().count() + 1,
        };
        match parse_line(&line) {
            Ok(None) => {}
            Ok(Some((offset, mut entry))) => {
                entry.origin = origin(offset);
                entries.push(entry);
            }
            Err((offset, kind)) => {
                let name = Fields { line: &line, offset: 0 }.next().ok().flatten();
                // If a quote is unclosed or the text is not UTF-8, the first word counts as the
                // name.
                let first_word =
                    || line.split(|c| is_blank(c) || c == '"').find(|word| !word.is_empty());
                let name = name.map(|name| name.value).or_else(|| first_word().map(str::to_owned));
                errors.push(ParseError { origin: origin(offset), name, kind });
            }
        }
    }
    (entries, errors)
}

/// Parses one line. Returns the entry and the offset of its first field, or `None` for a line
/// without an entry. An error is returned with its offset in the line.
fn parse_line(line: &str) -> Result<Option<(usize, Entry)>, (usize, ParseErrorKind)> {
    let mut fields = Fields { line, offset: 0 };
    let Some(name) = fields.next()? else { return Ok(None) };
    let start = name.offset;
    check_name(&name.value).map_err(|kind| (name.offset, kind))?;

    let api = fields.expect(1)?;
    let threadsafe = fields.expect(2)?;
    let default = fields.expect(3)?;
    let library = fields.expect(4)?;
    let provider_version = fields.expect(5)?;
    let ia_params = fields.expect(6)?;
    let platform_params = fields.expect(7)?;
    if let Some(extra) = fields.next()? {
        return Err((extra.offset, ParseErrorKind::FieldExtra(extra.value)));
    }

    let entry = Entry {
        ia_name: name.value,
        api: api.parse_as::<Api>(ParseErrorKind::ApiVersion)?,
        threadsafe: threadsafe.choose(
            "threadsafe",
            "nonthreadsafe",
            ParseErrorKind::ThreadSafety,
        )?,
        default: default.choose("default", "nondefault", ParseErrorKind::Default)?,
        provider_version: provider_version
            .parse_as::<ProviderVersion>(ParseErrorKind::ProviderVersion)?,
        library: match library.value.as_str() {
            "" => return Err((library.offset, ParseErrorKind::LibraryEmpty)),
            _ => library.value,
        },
        ia_params: ia_params.value,
        platform_params: platform_params.value,
        origin: Origin::Builtin,
    };
    Ok(Some((start, entry)))
}

struct Field {
    offset: usize,
    value: String,
}

impl Field {
    fn parse_as<T: std::str::FromStr>(
        self,
        error_kind: fn(String) -> ParseErrorKind,
    ) -> Result<T, (usize, ParseErrorKind)> {
        self.value.parse().map_err(|_| (self.offset, error_kind(self.value)))
    }

    fn choose(
        self,
        yes: &str,
        no: &str,
        error_kind: fn(String) -> ParseErrorKind,
    ) -> Result<bool, (usize, ParseErrorKind)> {
        match self.value {
            word if word == yes => Ok(true),
            word if word == no => Ok(false),
            word => Err((self.offset, error_kind(word))),
        }
    }
}

struct Fields<'a> {
    line: &'a str,
    offset: usize,
}

impl Fields<'_> {
    fn expect(&mut self, index: usize) -> Result<Field, (usize, ParseErrorKind)> {
        match self.next()? {
            // The comments of OFED's dat.conf show this syntax, but OFED's parser never accepted
            // it.
            Some(field) if self.line[field.offset..].trim_end() == "\\" => {
                Err((field.offset, ParseErrorKind::Continuation))
            }
            Some(field) => Ok(field),
            None => Err((self.offset, ParseErrorKind::FieldMissing(index, FIELDS[index]))),
        }
    }

    /// Returns the next field. A bare word ends before a blank or a quote, so `#` and `\` inside it
    /// are plain characters. A quoted field ends with its closing quote, even if another character
    /// follows.
    fn next(&mut self) -> Result<Option<Field>, (usize, ParseErrorKind)> {
        let rest = &self.line[self.offset..];
        self.offset += rest.len() - rest.trim_start_matches(is_blank).len();
        let rest = &self.line[self.offset..];
        let offset = self.offset;
        let value = match rest.chars().next() {
            None | Some('#') => return Ok(None),
            Some('"') => {
                let (value, length) =
                    parse_quoted(&rest[1..]).ok_or((offset, ParseErrorKind::QuoteOpen))?;
                self.offset += 1 + length;
                value
            }
            Some(_) => {
                let length = rest.find(|c| is_blank(c) || c == '"').unwrap_or(rest.len());
                self.offset += length;
                rest[..length].to_owned()
            }
        };
        if value.contains(char::REPLACEMENT_CHARACTER) {
            return Err((offset, ParseErrorKind::Encoding));
        }
        if value.contains('\0') {
            return Err((offset, ParseErrorKind::ControlCharacter("this field")));
        }
        Ok(Some(Field { offset, value }))
    }
}

/// Returns the value of a quoted field and the length of its source, including the closing quote.
fn parse_quoted(source: &str) -> Option<(String, usize)> {
    let mut value = String::new();
    let mut chars = source.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, at + 1)),
            '\\' => match chars.next()?.1 {
                c @ ('"' | '\\') => value.push(c),
                c => value.extend(['\\', c]),
            },
            c => value.push(c),
        }
    }
    None
}

/// Whether C's `isspace`, which OFED's parser uses, accepts the character.
fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\x0b' | '\x0c')
}

/// Formats entries as dat.conf text that [`parse`] can read.
pub fn write(entries: &[Entry]) -> String {
    let mut text = String::new();
    for entry in entries {
        let _ = writeln!(text, "{}", Line(entry));
    }
    text
}

/// Displays an entry as a line of a dat.conf.
pub struct Line<'a>(pub &'a Entry);

impl std::fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let e = self.0;
        write!(
            f,
            "{} {} {} {} {} {} {} {}",
            Word(&e.ia_name),
            e.api,
            if e.threadsafe { "threadsafe" } else { "nonthreadsafe" },
            if e.default { "default" } else { "nondefault" },
            Word(&e.library),
            Word(&e.provider_version.to_string()),
            Quoted(&e.ia_params),
            Quoted(&e.platform_params),
        )
    }
}

/// Displays a field without quotes where the grammar allows that.
struct Word<'a>(&'a str);

impl std::fmt::Display for Word<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bare = !self.0.is_empty()
            && !self.0.starts_with('#')
            && !self.0.contains(|c: char| is_blank(c) || c == '"' || c == '\\');
        if bare { f.write_str(self.0) } else { Quoted(self.0).fmt(f) }
    }
}

struct Quoted<'a>(&'a str);

impl std::fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\"{}\"", self.0.replace('\\', "\\\\").replace('"', "\\\""))
    }
}

#[cfg(test)]
#[path = "conf_tests.rs"]
mod tests;
