//! What the tables say about a case, about what no case tests, and about return values.

use std::path::PathBuf;

use serde::Serialize;

use super::attributes::STRUCTURES;
use super::exceptions::{ROOM, Room, STRICT, Strictness};
use super::known::{self, Known};
use super::sentences::PAGES;
use super::states::STATES;
use super::subjects::SUBJECTS;
use super::values::VALUES;
use super::{Point, Value, patterns};
use crate::binding::{Binding, Version};
use crate::case::{Case, Level, Run, matches_pattern};

/// What the suite knows about a case.
#[derive(Debug, Serialize)]
pub struct Explanation<'a> {
    /// The name of the case.
    pub id: &'a str,
    /// The function that the case is about.
    pub function: &'a str,
    /// Whether the requirement is binding.
    pub level: Level,
    /// The source of the requirement.
    pub clause: &'a str,
    /// The requirement.
    pub requirement: &'a str,
    /// The ways of calling the functions through which the case runs: `linked` is the registry in
    /// this program, and `2.0` and `1.2` are C libraries of these versions.
    pub bindings: Vec<&'static str>,
    /// The place of the case in the source: file and line.
    pub source: String,
    /// The parts of the standard that the case tests.
    pub tests: Vec<Tested>,
    /// The statuses that calls of the case return, except DAT_SUCCESS.
    pub statuses: Vec<Caused>,
    /// What the case requires of adapters with `strict=on` and `strict=off`, if it differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strict: Option<&'static Strictness>,
    /// What the case accepts of every adapter where the standard leaves room.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub room: Option<&'static Room>,
    /// The providers of this project over which the case is known not to pass.
    pub known: Vec<&'static Known>,
}

/// A part of the standard that a case tests.
#[derive(Debug, Serialize)]
pub struct Tested {
    /// `sentence`, `state`, `subject` or `attribute`.
    pub kind: &'static str,
    /// The page or the structure, and the place in it; or the endpoint's state before the
    /// transition. A subject has no place.
    pub place: String,
    /// What the standard says there, in other words.
    pub about: &'static str,
}

/// A status that a call of a case returns.
#[derive(Debug, Serialize)]
pub struct Caused {
    /// The function that returns the status.
    pub function: &'static str,
    /// The name of the status's type.
    pub status: &'static str,
    /// Whether a completion reports the failure, and not the call itself.
    pub in_completion: bool,
}

/// A part of the standard that no case tests, or not completely.
#[derive(Debug, Serialize)]
pub struct Gap {
    /// The function.
    pub function: &'static str,
    /// The page or the structure, and the place in it.
    pub place: String,
    /// What the standard says there, in other words.
    pub about: &'static str,
    /// What no case tests, and why.
    pub reason: &'static str,
}

/// A status that a function returns.
#[derive(Debug, Serialize)]
pub struct ReturnValue {
    /// The function.
    pub function: &'static str,
    /// The name of the status's type.
    pub status: &'static str,
    /// The cases that cause the status. In a name, `*` stands for any text.
    pub cases: Vec<String>,
    /// The cases that cause the status in a completion, about remote memory.
    pub in_completion: Vec<String>,
    /// A remark about the status.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub note: &'static str,
    /// The reason why no case causes the status.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub unprovoked: &'static str,
}

/// Returns what the tables say about a case.
pub fn explain(case: &Case) -> Explanation<'_> {
    let library = |version| Binding::Library(PathBuf::new(), version);
    let bindings = [
        ("linked", Binding::Linked),
        ("2.0", library(Version::V2_0)),
        ("1.2", library(Version::V1_2)),
    ];
    Explanation {
        id: &case.id,
        function: case.function(),
        level: case.level,
        clause: case.clause,
        requirement: &case.requirement,
        bindings: bindings
            .into_iter()
            .filter(|(_, binding)| case.is_for(binding))
            .map(|(name, _)| name)
            .collect(),
        source: case.source(),
        tests: located()
            .filter(|located| names(located.function, located.point.cases, case))
            .map(Located::tested)
            .collect(),
        statuses: caused(case),
        strict: STRICT.iter().find(|entry| names("", entry.cases, case)),
        room: ROOM.iter().find(|entry| names("", entry.cases, case)),
        known: known::about(&case.id).collect(),
    }
}

/// Returns what no case tests, of the functions that `wanted` selects.
pub fn gaps(wanted: impl Fn(&str) -> bool) -> Vec<Gap> {
    let wanted = |located: &Located| !located.point.untested.is_empty() && wanted(located.function);
    located().filter(wanted).map(Located::gap).collect()
}

/// Returns the return values of the functions that `wanted` selects.
pub fn return_values(wanted: impl Fn(&str) -> bool) -> Vec<ReturnValue> {
    let value = |value: &Value| {
        let Value { function, status, cases, in_completion, note, unprovoked } = *value;
        let full = |list| patterns(function, list).collect();
        let (cases, in_completion) = (full(cases), full(in_completion));
        ReturnValue { function, status, cases, in_completion, note, unprovoked }
    };
    VALUES.iter().filter(|value| wanted(value.function)).map(value).collect()
}

/// Returns whether a list of cases names this case.
fn names(function: &str, list: &str, case: &Case) -> bool {
    patterns(function, list).any(|pattern| matches_pattern(&pattern, &case.id))
}

/// Returns the statuses that a case causes. The cases of the table of endpoint states have the
/// status in their requirement, because the return values name them only by patterns.
fn caused(case: &Case) -> Vec<Caused> {
    if matches!(case.run, Run::Numbered(..)) {
        return Vec::new();
    }
    let of = |value: &Value, list, in_completion| {
        let Value { function, status, .. } = *value;
        names(function, list, case).then_some(Caused { function, status, in_completion })
    };
    let both = |value: &'static Value| {
        [of(value, value.cases, false), of(value, value.in_completion, true)]
    };
    VALUES.iter().flat_map(both).flatten().collect()
}

/// A point with the table in which it stands.
pub(super) struct Located {
    kind: &'static str,
    /// The page or the structure. It is empty if the point has none.
    pub(super) of: &'static str,
    /// The function of cases whose names have none.
    pub(super) function: &'static str,
    pub(super) point: &'static Point,
}

/// Returns the points of all tables.
pub(super) fn located() -> impl Iterator<Item = Located> {
    let sentences = PAGES.iter().flat_map(|&(function, points)| {
        points.iter().map(move |point| Located { kind: "sentence", of: function, function, point })
    });
    let attributes = STRUCTURES.iter().flat_map(|&(of, function, points)| {
        points.iter().map(move |point| Located { kind: "attribute", of, function, point })
    });
    let states = STATES.iter().map(|point| Located { kind: "state", of: "", function: "", point });
    let subjects = SUBJECTS.iter().map(|point| {
        // A subject that no case tests has the function as its place.
        Located { kind: "subject", of: "", function: point.place, point }
    });
    sentences.chain(attributes).chain(states).chain(subjects)
}

impl Located {
    fn place(&self) -> String {
        match self.of {
            "" => self.point.place.to_owned(),
            of => format!("{of}, {}", self.point.place),
        }
    }

    fn tested(self) -> Tested {
        Tested { kind: self.kind, place: self.place(), about: self.point.about }
    }

    fn gap(self) -> Gap {
        let (function, place) = (self.function, self.place());
        Gap { function, place, about: self.point.about, reason: self.point.untested }
    }
}
