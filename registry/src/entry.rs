//! One line of the registry as data: an interface adapter's name and the provider behind it.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

/// Bytes of an IA name, its NUL included (DAT_NAME_MAX_LENGTH).
pub const NAME_MAX: usize = 256;

/// One entry of the static registry (uDAPL 2.0, "Static Registry"; eight fields of a dat.conf line).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name a consumer gives to `dat_ia_open`; 1 to 255 bytes.
    pub ia_name: String,
    /// The API that the provider implements.
    pub api: Api,
    /// Whether the provider may be called from several threads at once.
    pub threadsafe: bool,
    /// Entries marked `nondefault` are not used; they stay in the file for its editor.
    pub default: bool,
    /// The shared library, as `dlopen` takes it: a path, or a name to search for.
    pub library: String,
    /// Who made the provider, and which release; for people, never compared.
    pub provider_version: ProviderVersion,
    /// Handed to the provider's `dat_provider_init` as it is.
    pub ia_params: String,
    /// Kept for its editor; no provider reads it on Linux.
    pub platform_params: String,
    /// Where the entry came from.
    pub origin: Origin,
}

impl Entry {
    /// Whether `other` is the same interface to a consumer: name, version and thread safety are equal.
    pub fn same_interface(&self, other: &Entry) -> bool {
        self.ia_name == other.ia_name
            && self.api == other.api
            && self.threadsafe == other.threadsafe
    }

    /// Whether a user-space consumer can open it: a `u` API version marked `default`.
    pub fn usable(&self) -> bool {
        self.default && self.api.space == Space::User
    }

    /// The same entry, apart from where it was written.
    pub fn same_fields(&self, other: &Entry) -> bool {
        let other = Entry { origin: self.origin.clone(), ..other.clone() };
        *self == other
    }
}

/// Which DAT API a provider implements: `u2.0`, `u1.2`, `k1.2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Api {
    /// User space or kernel.
    pub space: Space,
    /// Major version: 1 or 2.
    pub major: u32,
    /// Minor version.
    pub minor: u32,
}

/// The two halves of DAT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    /// uDAPL, `u` in the file.
    User,
    /// kDAPL, `k` in the file; never opened from here.
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

    /// Takes `u2.0`, and `u2` for `u2.0` as other DAT registries do.
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

/// A provider's maker and release: `dapl.2.0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderVersion {
    /// The maker's name; not empty, without a dot.
    pub id: String,
    /// Major version.
    pub major: u32,
    /// Minor version.
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

/// Decimal digits only: `u32::from_str` would also take a sign.
fn number(text: &str) -> Result<u32, ()> {
    if text.bytes().all(|b| b.is_ascii_digit()) { text.parse().map_err(|_| ()) } else { Err(()) }
}

/// Where an entry, or an error in one, was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A place in a registry file; line and column count from 1, columns in characters.
    File {
        /// The file, as it was named.
        path: Arc<Path>,
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
    },
    /// Linked into this program or library.
    Builtin,
    /// No entry: a provider that the program registered itself.
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

/// What is wrong with one entry of a registry file, where, and what is expected instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{origin}: {kind}")]
pub struct ParseError {
    /// The place of the mistake.
    pub origin: Origin,
    /// The IA name of the entry that has it, as far as that can be told.
    pub name: Option<String>,
    /// The mistake.
    pub kind: Mistake,
}

/// A mistake in a registry file; the text says what is expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // each variant's message is its documentation
pub enum Mistake {
    #[error("the line ends after {0} of 8 fields; expected {1}")]
    FieldMissing(usize, &'static str),
    #[error("unexpected {:?} after the eighth field; quote a value that contains blanks", Shown(.0))]
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
    #[error("unknown API version {:?}; expected u or k and two numbers, as in u2.0", Shown(.0))]
    ApiVersion(String),
    #[error("unknown thread safety {:?}; expected threadsafe or nonthreadsafe", Shown(.0))]
    ThreadSafety(String),
    #[error("unknown word {:?}; expected default or nondefault", Shown(.0))]
    Default(String),
    #[error("the library is empty; expected a path, or the name of a shared library")]
    LibraryEmpty,
    #[error("unknown provider version {:?}; expected a name and two numbers, as in dapl.2.0", Shown(.0))]
    ProviderVersion(String),
    #[error("{0} contains a NUL or line end, which a registry entry cannot carry")]
    ControlCharacter(&'static str),
    #[error("{}", Shown(.0))]
    Toml(String),
}

/// A value of a file, or what somebody says of one, as messages show it: of one that is long the beginning, and of what
/// is said the end, too.
pub struct Shown<'a>(pub &'a str);

/// Characters of a value that are shown.
const SHOWN: usize = 120;

impl fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth(SHOWN) {
            None => write!(f, "{:?}", self.0),
            Some((end, _)) => write!(f, "{:?}… ({} octets)", &self.0[..end], self.0.len()),
        }
    }
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0;
        let begin = text.char_indices().nth(SHOWN).map(|(at, _)| at);
        let end = text.char_indices().nth_back(SHOWN - 1).map(|(at, _)| at);
        match (begin, end) {
            (Some(begin), Some(end)) if begin < end => {
                write!(f, "{}… ({} octets) …{}", &text[..begin], text.len(), &text[end..])
            }
            _ => f.write_str(text),
        }
    }
}

/// The checks that both file forms share.
pub(crate) fn check_name(name: &str) -> Result<(), Mistake> {
    match name.len() {
        0 => Err(Mistake::NameEmpty),
        n if n >= NAME_MAX => Err(Mistake::NameLong(n)),
        _ => Ok(()),
    }
}
