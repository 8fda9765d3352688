//! The result of `dat list`.

use serde::Serialize;
use telemetry::printable;

/// An entry in the JSON output.
#[derive(Serialize)]
pub(super) struct Item {
    pub(super) name: String,
    /// The API and its version, `u2.0`.
    pub(super) api: String,
    pub(super) thread_safe: bool,
    /// The library, or `None` for a provider that is linked into this program.
    pub(super) library: Option<String>,
    pub(super) version: String,
    pub(super) parameters: String,
    /// `file:line:column`, or `built in`.
    pub(super) origin: String,
    #[serde(skip)]
    pub(super) line: Option<usize>,
    /// The adapter's own attributes, if it opens: names and values.
    pub(super) attributes: Vec<(String, String)>,
    #[serde(flatten)]
    pub(super) state: State,
}

#[derive(Serialize)]
#[serde(tag = "state", content = "reason", rename_all = "snake_case")]
pub(super) enum State {
    Opens,
    Fails(String),
    /// The entry was not opened, because the limit on the number of opened entries was reached
    /// first.
    NotOpened(&'static str),
    /// This program cannot use the entry.
    Unused(&'static str),
}

/// The reason of [`State::NotOpened`].
pub(super) const NOT_OPENED: &str = "this command opens a limited number of entries; to open this \
                                     one, name it, as in `dat list NAME`, or raise --limit";

#[derive(Serialize)]
pub(super) struct Document {
    /// The registry file.
    pub(super) file: Option<String>,
    /// Whether OPENDAT_PARAMS turned the built-in entries off.
    pub(super) builtins_off: bool,
    pub(super) entries: Vec<Item>,
    /// How many entries were not opened because of the limit.
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) not_opened: usize,
    /// The errors in the file.
    pub(super) errors: Vec<String>,
    /// Additional advice.
    #[serde(skip)]
    pub(super) hint: Option<&'static str>,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// The advice if entries of the registry file do not open and the host has no RDMA device. Registry
/// files that distributions ship contain many such entries.
pub(super) const NO_DEVICE: &str = "this host has no RDMA device: tcp-emu and softroce need none, \
                                    and are built in; `dat register NAME libdat_tcp_emu.so` adds \
                                    one under the name that a program asks for";

impl Document {
    /// Replaces control characters, because a registry file may contain any character.
    pub(super) fn printable(self) -> Document {
        let text = |text: String| printable(&text);
        let item = |item: Item| Item {
            name: printable(&item.name),
            library: item.library.map(text),
            origin: printable(&item.origin),
            attributes: item
                .attributes
                .into_iter()
                .map(|(name, value)| (text(name), text(value)))
                .collect(),
            state: match item.state {
                State::Fails(reason) => State::Fails(printable(&reason)),
                state => state,
            },
            ..item
        };
        Document {
            file: self.file.map(text),
            entries: self.entries.into_iter().map(item).collect(),
            errors: self.errors.into_iter().map(text).collect(),
            ..self
        }
    }
}
