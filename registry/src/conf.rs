//! dat.conf: one entry a line, eight blank-separated fields, `#` begins a comment.
//!
//! The grammar is what the parser of OFED's libdat2 accepts, measured; where that parser corrupts its heap
//! (an unterminated quote), rejects harmless text (CRLF) or drops a line silently (a long name), this one
//! gives a located error or takes the line. Parsing never prints and always goes on with the next line.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use crate::entry::{Api, Entry, Mistake, Origin, ParseError, ProviderVersion, check_name};

/// The fields in the order of the file, as error messages name them.
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

/// Reads the text of a dat.conf; `path` only names it in origins and errors.
///
/// A line with a mistake gives one error and no entry.
pub fn parse(path: &Path, text: &[u8]) -> (Vec<Entry>, Vec<ParseError>) {
    let path: Arc<Path> = path.into();
    let mut entries = Vec::new();
    let mut errors = Vec::new();
    let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
    for (index, line) in text.split(|&byte| byte == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        // A byte that is not UTF-8 becomes U+FFFD: harmless in a comment, a mistake in a field.
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
                // A quote that is never closed, or text that is not UTF-8: the first word is the name.
                let first_word =
                    || line.split(|c| is_blank(c) || c == '"').find(|word| !word.is_empty());
                let name = name.map(|name| name.value).or_else(|| first_word().map(str::to_owned));
                errors.push(ParseError { origin: origin(offset), name, kind });
            }
        }
    }
    (entries, errors)
}

/// One line: nothing, or an entry and the offset of its first field. A mistake comes with its offset.
pub(crate) fn parse_line(line: &str) -> Result<Option<(usize, Entry)>, (usize, Mistake)> {
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
        return Err((extra.offset, Mistake::FieldExtra(extra.value)));
    }

    let entry = Entry {
        ia_name: name.value,
        api: api.parse_as::<Api>(Mistake::ApiVersion)?,
        threadsafe: threadsafe.choose("threadsafe", "nonthreadsafe", Mistake::ThreadSafety)?,
        default: default.choose("default", "nondefault", Mistake::Default)?,
        provider_version: provider_version.parse_as::<ProviderVersion>(Mistake::ProviderVersion)?,
        library: match library.value.as_str() {
            "" => return Err((library.offset, Mistake::LibraryEmpty)),
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
        mistake: fn(String) -> Mistake,
    ) -> Result<T, (usize, Mistake)> {
        self.value.parse().map_err(|_| (self.offset, mistake(self.value)))
    }

    fn choose(
        self,
        yes: &str,
        no: &str,
        mistake: fn(String) -> Mistake,
    ) -> Result<bool, (usize, Mistake)> {
        match self.value {
            word if word == yes => Ok(true),
            word if word == no => Ok(false),
            word => Err((self.offset, mistake(word))),
        }
    }
}

struct Fields<'a> {
    line: &'a str,
    offset: usize,
}

impl Fields<'_> {
    fn expect(&mut self, index: usize) -> Result<Field, (usize, Mistake)> {
        match self.next()? {
            // OFED's own dat.conf prints its syntax this way; its parser never took it.
            Some(field) if self.line[field.offset..].trim_end() == "\\" => {
                Err((field.offset, Mistake::Continuation))
            }
            Some(field) => Ok(field),
            None => Err((self.offset, Mistake::FieldMissing(index, FIELDS[index]))),
        }
    }

    /// The next field. A bare word ends before a blank or a quote, so `#` and `\` inside it are plain
    /// characters; a quoted field ends with its quote, whatever follows.
    fn next(&mut self) -> Result<Option<Field>, (usize, Mistake)> {
        let rest = &self.line[self.offset..];
        self.offset += rest.len() - rest.trim_start_matches(is_blank).len();
        let rest = &self.line[self.offset..];
        let offset = self.offset;
        let value = match rest.chars().next() {
            None | Some('#') => return Ok(None),
            Some('"') => {
                let (value, length) = quoted(&rest[1..]).ok_or((offset, Mistake::QuoteOpen))?;
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
            return Err((offset, Mistake::Encoding));
        }
        if value.contains('\0') {
            return Err((offset, Mistake::ControlCharacter("this field")));
        }
        Ok(Some(Field { offset, value }))
    }
}

/// The value of a quoted field and the length of its source, closing quote included.
fn quoted(source: &str) -> Option<(String, usize)> {
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

/// The blanks of C's `isspace`, which the original uses.
fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\x0b' | '\x0c')
}

/// Writes entries as dat.conf text that [`parse`] reads back.
pub fn write(entries: &[Entry]) -> String {
    let mut text = String::new();
    for entry in entries {
        let _ = writeln!(text, "{}", Line(entry));
    }
    text
}

/// Displays an entry as its dat.conf line.
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

/// Bare where it can be.
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
