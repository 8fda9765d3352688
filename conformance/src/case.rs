//! A case: one requirement of the standard and the code that checks it.

use std::fmt;
use std::panic::Location;

use crate::api::Api;
use crate::binding::{Binding, Version};
use crate::check::{NotPassed, Outcome};
use crate::rig::Rig;

/// One requirement of the standard and the code that checks it.
#[derive(Clone, Debug)]
pub struct Case {
    /// The name of the case, which never changes: the function, a slash, and the subject.
    pub id: String,
    /// Whether the requirement is binding (MUST) or a recommendation (SHOULD).
    pub level: Level,
    /// The source of the requirement: a section of the function's manual page, or another page and
    /// its section.
    pub clause: &'static str,
    /// The requirement, in the words of this project.
    pub requirement: String,
    /// The place in the source at which the case is defined.
    pub(crate) place: &'static Location<'static>,
    pub(crate) run: Run,
}

/// How to run a case.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Run {
    /// A function of its own runs the case.
    Alone(fn(&mut Rig) -> Outcome),
    /// The case is one of several that the same function runs. The function is called with the
    /// number of the case.
    Numbered(fn(&mut Rig, usize) -> Outcome, usize),
}

/// Whether a requirement of the standard is binding.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "UPPERCASE")]
pub enum Level {
    /// The requirement is binding: a provider that violates it does not conform.
    Must,
    /// The requirement is a recommendation of the standard, or the standard leaves room for
    /// interpretation.
    Should,
}

/// A row in a table of cases, which becomes a [`Case`].
#[derive(Debug)]
pub(crate) struct Row {
    id: &'static str,
    level: Level,
    clause: &'static str,
    requirement: &'static str,
    place: &'static Location<'static>,
    run: fn(&mut Rig) -> Outcome,
}

/// Returns a row for a binding requirement.
#[track_caller]
pub(crate) const fn must(
    id: &'static str,
    clause: &'static str,
    requirement: &'static str,
    run: fn(&mut Rig) -> Outcome,
) -> Row {
    Row { id, level: Level::Must, clause, requirement, place: Location::caller(), run }
}

/// Returns a row for a recommendation.
#[track_caller]
pub(crate) const fn should(
    id: &'static str,
    clause: &'static str,
    requirement: &'static str,
    run: fn(&mut Rig) -> Outcome,
) -> Row {
    Row { id, level: Level::Should, clause, requirement, place: Location::caller(), run }
}

impl From<&Row> for Case {
    fn from(row: &Row) -> Case {
        let Row { id, level, clause, requirement, place, run } = *row;
        let (id, requirement) = (id.into(), requirement.into());
        Case { id, level, clause, requirement, place, run: Run::Alone(run) }
    }
}

/// Returns whether a text matches a pattern, in which `*` stands for any text.
pub fn matches_pattern(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return text == pattern };
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    let Some(mut left) = text.strip_prefix(start).and_then(|text| text.strip_suffix(end)) else {
        return false;
    };
    // Taking the first match of each part leaves as much text as possible for the later parts.
    middle.split('*').all(|part| match left.split_once(part) {
        Some((_, after)) => {
            left = after;
            true
        }
        None => false,
    })
}

/// Returns whether a user's pattern selects a text: the text, a prefix of it, or a pattern with
/// `*`.
pub fn is_selected_by(text: &str, pattern: &str) -> bool {
    match pattern.contains('*') {
        true => matches_pattern(pattern, text),
        false => text.starts_with(pattern),
    }
}

/// The functions that uDAPL 2.0 has and uDAPL 1.2 does not have.
const NEW_IN_2_0: &[&str] = &[
    "dat_cno_fd_create",
    "dat_cno_trigger",
    "dat_csp_create",
    "dat_csp_free",
    "dat_csp_query",
    "dat_ep_common_connect",
    "dat_ep_post_rdma_read_to_rmr",
    "dat_ep_post_send_with_invalidate",
    "dat_extension_op",
    "dat_registry_providers_related",
    "dat_rmr_create_for_ep",
];

/// The functions that the C library implements by itself, without a provider.
const C_LIBRARY_FUNCTIONS: &[&str] = &[
    "dat_ib_close_query",
    "dat_ib_open_query",
    "dat_registry_list_providers",
    "dat_registry_providers_related",
    "dat_strerror",
];

impl Case {
    /// Returns the function that the case is about.
    pub fn function(&self) -> &str {
        self.id.split_once('/').map_or(&self.id, |(function, _)| function)
    }

    /// Returns the place of the case in the source of this project: file and line.
    pub fn source(&self) -> String {
        let file = self.place.file();
        let file = file.rsplit_once("src/").map_or(file, |(_, file)| file);
        format!("conformance/src/{file}:{}", self.place.line())
    }

    /// Returns whether a user's pattern selects the case: its name, a prefix of it, or a pattern
    /// with `*`.
    pub fn is_selected_by(&self, pattern: &str) -> bool {
        is_selected_by(&self.id, pattern)
    }

    /// Returns whether uDAPL 1.2 has the same requirement. If only 2.0 has the requirement, its
    /// clause begins with "2.0".
    pub fn is_in_1_2(&self) -> bool {
        let new = self.clause.starts_with("2.0") || NEW_IN_2_0.contains(&self.function());
        !new && self.function() != "rust"
    }

    /// Returns whether a binding has what the case needs. Some cases need functions that only the C
    /// library has, and some need the Rust API.
    pub fn is_for(&self, binding: &Binding) -> bool {
        match binding {
            Binding::Linked => !C_LIBRARY_FUNCTIONS.contains(&self.function()),
            Binding::Library(_, Version::V1_2) => self.is_in_1_2(),
            Binding::Library(_, Version::V2_0) => self.function() != "rust",
        }
    }

    /// Runs the case in this process, on a newly opened adapter of this name.
    pub(crate) fn run(&self, api: &'static Api, provider: &str) -> Outcome {
        if !api.has(self.function()) {
            return Err(NotPassed::Unsupported(format!(
                "the library does not export {}",
                self.function()
            )));
        }
        let mut rig = Rig::open(api, provider)?;
        let outcome = match self.run {
            Run::Alone(run) => run(&mut rig),
            Run::Numbered(run, number) => run(&mut rig, number),
        };
        // A failed close also fails the case. If the case has failed before, that failure is
        // reported, because it is more informative.
        let closed = rig.close();
        outcome.and(closed)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Level::Must => "MUST",
            Level::Should => "SHOULD",
        })
    }
}
