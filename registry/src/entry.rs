//! An entry of the registry: the name of an interface adapter and the provider that serves it.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

/// The size of an IA name in bytes, including its NUL (DAT_NAME_MAX_LENGTH).
pub const NAME_MAX: usize = 256;

/// One entry of the static registry (uDAPL 2.0, "Static Registry"; eight fields of a dat.conf
/// line).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name that a consumer passes to `dat_ia_open`, of 1 to 255 bytes.
    pub ia_name: String,
    /// The version of the API that the provider implements.
    pub api: Api,
    /// Whether several threads may call the provider at once.
    pub threadsafe: bool,
    /// Whether the entry is used. False for an entry marked `nondefault`, which stays in the file
    /// but is not used.
    pub default: bool,
    /// The shared library, in the form that `dlopen` takes: a path, or a name to search for.
    pub library: String,
    /// The provider's vendor and release. They are only displayed, never compared.
    pub provider_version: ProviderVersion,
    /// The IA parameters, which are passed unchanged to the provider's `dat_provider_init`.
    pub ia_params: String,
    /// The platform parameters, which are preserved when the file is rewritten. No provider reads
    /// them on Linux.
    pub platform_params: String,
    /// The place where the entry was found.
    pub origin: Origin,
}

impl Entry {
    /// Whether a consumer cannot distinguish this entry from `other`: name, version and thread
    /// safety are equal.
    pub fn same_interface(&self, other: &Entry) -> bool {
        self.ia_name == other.ia_name
            && self.api == other.api
            && self.threadsafe == other.threadsafe
    }

    /// Whether a user-space consumer can open the entry: it has a `u` API version and is marked
    /// `default`.
    pub fn usable(&self) -> bool {
        self.default && self.api.space == Space::User
    }

    /// Whether all fields except the origin are equal.
    pub fn same_fields(&self, other: &Entry) -> bool {
        let other = Entry { origin: self.origin.clone(), ..other.clone() };
        *self == other
    }
}

/// The DAT API that a provider implements, such as `u2.0`, `u1.2` or `k1.2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Api {
    /// Whether the API runs in user space or in the kernel.
    pub space: Space,
    /// The major version: 1 or 2.
    pub major: u32,
    /// The minor version.
    pub minor: u32,
}

impl Api {
    /// uDAPL 1.2.
    pub const U1_2: Api = Api { space: Space::User, major: 1, minor: 2 };
    /// uDAPL 2.0.
    pub const U2_0: Api = Api { space: Space::User, major: 2, minor: 0 };
}

/// Where a DAT API runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    /// uDAPL, `u` in the file.
    User,
    /// kDAPL, `k` in the file. This registry never opens such an entry.
    Kernel,
}

impl fmt::Display for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let space = if self.space == Space::User { 'u' } else { 'k' };
        write!(f, "{space}{}.{}", self.major, self.minor)
    }
}

impl FromStr for Api {
    type Err = ();

    /// Parses `u2.0`. `u2` means `u2.0`, as in other DAT registries.
    fn from_str(text: &str) -> Result<Api, ()> {
        let (space, version) = match text.as_bytes().first() {
            Some(b'u') => (Space::User, &text[1..]),
            Some(b'k') => (Space::Kernel, &text[1..]),
            _ => return Err(()),
        };
        let (major, minor) = version.split_once('.').unwrap_or((version, "0"));
        Ok(Api { space, major: number(major)?, minor: number(minor)? })
    }
}

/// A provider's vendor and release, such as `dapl.2.0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderVersion {
    /// The vendor's name. It is not empty and contains no dot.
    pub id: String,
    /// The major version.
    pub major: u32,
    /// The minor version.
    pub minor: u32,
}

impl fmt::Display for ProviderVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.id, self.major, self.minor)
    }
}

impl FromStr for ProviderVersion {
    type Err = ();

    fn from_str(text: &str) -> Result<ProviderVersion, ()> {
        let mut parts = text.split('.');
        let (Some(id), Some(major), Some(minor), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(());
        };
        if id.is_empty() {
            return Err(());
        }
        Ok(ProviderVersion { id: id.to_owned(), major: number(major)?, minor: number(minor)? })
    }
}

/// Parses decimal digits only, because `u32::from_str` would also accept a sign.
fn number(text: &str) -> Result<u32, ()> {
    if text.bytes().all(|b| b.is_ascii_digit()) { text.parse().map_err(|_| ()) } else { Err(()) }
}

/// The place where an entry, or an error in one, was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A position in a registry file. Lines and columns count from 1; columns count characters.
    File {
        /// The path of the file, in the form that the user gave.
        path: Arc<Path>,
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
    },
    /// The entry is linked into this program or library.
    Builtin,
    /// There is no entry: the program itself registered the provider.
    Program,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File { path, line, column } => write!(f, "{}:{line}:{column}", path.display()),
            Origin::Builtin => f.write_str("built in"),
            Origin::Program => f.write_str("registered by the program"),
        }
    }
}

/// An error in one entry of a registry file: its kind and its position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{origin}: {kind}")]
pub struct ParseError {
    /// The position of the error.
    pub origin: Origin,
    /// The IA name of the entry, if it could be determined.
    pub name: Option<String>,
    /// The kind of error.
    pub kind: ParseErrorKind,
}

/// The kind of error in a registry file. The message says what is expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // The message of each variant documents it.
pub enum ParseErrorKind {
    #[error("the line ends after {0} of 8 fields; expected {1}")]
    FieldMissing(usize, &'static str),
    #[error("unexpected {:?} after the eighth field; quote a value that contains \
             blanks", Excerpt(.0))]
    FieldExtra(String),
    #[error("this quote is never closed; expected a second \" on the same line")]
    QuoteOpen,
    #[error("an entry cannot continue on the next line; expected all 8 fields on one line")]
    Continuation,
    #[error("not UTF-8 text")]
    Encoding,
    #[error("the IA name is empty; expected 1 to 255 bytes")]
    NameEmpty,
    #[error("the IA name has {0} bytes; expected at most 255")]
    NameLong(usize),
    #[error("unknown API version {:?}; expected u or k and two numbers, as in u2.0", Excerpt(.0))]
    ApiVersion(String),
    #[error("unknown thread safety {:?}; expected threadsafe or nonthreadsafe", Excerpt(.0))]
    ThreadSafety(String),
    #[error("unknown word {:?}; expected default or nondefault", Excerpt(.0))]
    Default(String),
    #[error("the library is empty; expected a path, or the name of a shared library")]
    LibraryEmpty,
    #[error(
        "unknown provider version {:?}; expected a name and two numbers, as in dapl.2.0",
        Excerpt(.0)
    )]
    ProviderVersion(String),
    #[error("{0} contains a NUL or line end, which a registry entry cannot carry")]
    ControlCharacter(&'static str),
    #[error("{}", Excerpt(.0))]
    Toml(String),
}

/// A long text that is shortened in messages. `Debug` shows the beginning, and is for values from a
/// file. `Display` shows the beginning and the end, and is for messages of other software.
pub struct Excerpt<'a>(pub &'a str);

/// The number of characters that an excerpt shows from the beginning, and from the end.
const EXCERPT_CHARS: usize = 120;

impl fmt::Debug for Excerpt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth(EXCERPT_CHARS) {
            None => write!(f, "{:?}", self.0),
            Some((end, _)) => write!(f, "{:?}… ({} octets)", &self.0[..end], self.0.len()),
        }
    }
}

impl fmt::Display for Excerpt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0;
        let begin = text.char_indices().nth(EXCERPT_CHARS).map(|(at, _)| at);
        let end = text.char_indices().nth_back(EXCERPT_CHARS - 1).map(|(at, _)| at);
        match (begin, end) {
            (Some(begin), Some(end)) if begin < end => {
                write!(f, "{}… ({} octets) …{}", &text[..begin], text.len(), &text[end..])
            }
            _ => f.write_str(text),
        }
    }
}

/// Checks an IA name, for both file formats.
pub(crate) fn check_name(name: &str) -> Result<(), ParseErrorKind> {
    match name.len() {
        0 => Err(ParseErrorKind::NameEmpty),
        n if n >= NAME_MAX => Err(ParseErrorKind::NameLong(n)),
        _ => Ok(()),
    }
}
