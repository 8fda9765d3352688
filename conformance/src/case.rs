//! A case: one requirement of the standard and how it is checked.

use std::fmt;

use crate::rig::Rig;

/// One requirement of the standard and how it is checked.
#[derive(Clone, Debug)]
pub struct Case {
    /// Stable name: the function, a slash, what it is about.
    pub id: String,
    /// How much weight the standard gives to it.
    pub level: Level,
    /// Where the standard says it: sections of the manual page of the function, or another page and its section.
    pub clause: &'static str,
    /// What it says, in our words.
    pub requirement: String,
    pub(crate) run: Run,
}

/// How a case is run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Run {
    /// A function of its own.
    Alone(fn(&mut Rig) -> Outcome),
    /// A cell of the matrix of operations and endpoint states.
    Cell(crate::cases::Cell),
}

/// How much weight the standard gives to a requirement.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "UPPERCASE")]
pub enum Level {
    /// A provider that does otherwise does not conform.
    Must,
    /// Recommended, or the standard's pages and headers leave room.
    Should,
}

/// How a case ended: passed, or stopped.
pub(crate) type Outcome<T = ()> = Result<T, Stop>;

/// Why a case did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The provider did something else.
    Failed(String),
    /// The standard lets providers do without, and this one does.
    Unsupported(String),
}

/// A row in a table of cases.
#[derive(Debug)]
pub(crate) struct Row {
    id: &'static str,
    level: Level,
    clause: &'static str,
    requirement: &'static str,
    run: fn(&mut Rig) -> Outcome,
}

/// A row for what a provider has to do.
pub(crate) const fn must(
    id: &'static str,
    clause: &'static str,
    requirement: &'static str,
    run: fn(&mut Rig) -> Outcome,
) -> Row {
    Row { id, level: Level::Must, clause, requirement, run }
}

/// A row for what a provider had better do.
pub(crate) const fn should(
    id: &'static str,
    clause: &'static str,
    requirement: &'static str,
    run: fn(&mut Rig) -> Outcome,
) -> Row {
    Row { id, level: Level::Should, clause, requirement, run }
}

impl From<&Row> for Case {
    fn from(row: &Row) -> Case {
        let Row { id, level, clause, requirement, run } = *row;
        Case { id: id.into(), level, clause, requirement: requirement.into(), run: Run::Alone(run) }
    }
}

/// Whether a text is what a pattern says, in which a star stands for any text.
pub fn fits(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return text == pattern };
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    let Some(mut left) = text.strip_prefix(start).and_then(|text| text.strip_suffix(end)) else {
        return false;
    };
    // The first place where a part fits leaves the most for the others.
    middle.split('*').all(|part| match left.split_once(part) {
        Some((_, after)) => {
            left = after;
            true
        }
        None => false,
    })
}

/// The functions that uDAPL 1.2 does not have.
const NEW_IN_2_0: &[&str] = &[
    "dat_cno_fd_create",
    "dat_cno_trigger",
    "dat_csp_create",
    "dat_csp_free",
    "dat_csp_query",
    "dat_ep_common_connect",
    "dat_ep_post_rdma_read_to_rmr",
    "dat_ep_post_send_with_invalidate",
    "dat_registry_providers_related",
    "dat_rmr_create_for_ep",
];

impl Case {
    /// The function that it is about.
    pub fn function(&self) -> &str {
        self.id.split_once('/').map_or(&self.id, |(function, _)| function)
    }

    /// Whether a word of the user means it: its name or the beginning of it, or, with stars for any text, all of it.
    pub fn is_meant_by(&self, pattern: &str) -> bool {
        if pattern.contains('*') { fits(pattern, &self.id) } else { self.id.starts_with(pattern) }
    }

    /// Whether uDAPL 1.2 says it too; what is new in 2.0 says so in its clause.
    pub fn is_in_1_2(&self) -> bool {
        let new = self.clause.starts_with("2.0") || NEW_IN_2_0.contains(&self.function());
        !new && self.function() != "rust"
    }

    /// Runs it here and now, on a fresh adapter of this name.
    pub(crate) fn run(&self, api: &'static crate::api::Api, provider: &str) -> Outcome {
        if !api.has(self.function()) {
            return Err(Stop::Unsupported(format!(
                "the library does not export {}",
                self.function()
            )));
        }
        let mut rig = Rig::open(api, provider)?;
        let outcome = match self.run {
            Run::Alone(run) => run(&mut rig),
            Run::Cell(cell) => cell.run(&mut rig),
        };
        // A close that fails is a failure of any case, but not the first thing to say of one that failed before.
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
