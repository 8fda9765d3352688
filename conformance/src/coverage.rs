//! What the suite covers: the sentences, states, subjects and attributes of the standard, and the
//! return values of its functions. Each has the cases that test it, or the reason why none does.
//! The tables also list what the cases accept besides the letter of the standard, and the cases
//! that are known not to pass.
//!
//! In the tables, `cases` is a list of names and patterns of cases, separated by commas. A name
//! without a function is about the function of its table or row.

// The tables:
mod attributes;
mod exceptions;
mod known;
mod sentences;
mod states;
mod subjects;
mod values;

// What the tables say about a case or a function:
mod explain;

pub use self::exceptions::{Room, Strictness};
pub use self::explain::{
    Caused, Explanation, Gap, ReturnValue, Tested, explain, gaps, return_values,
};
pub use self::known::{Known, KnownOutcome, known};

/// Something that the standard says, and the cases that test it.
#[derive(Debug)]
struct Point {
    /// The place in the page, the member of the structure, or the state. A subject has none.
    place: &'static str,
    /// What the standard says, in other words.
    about: &'static str,
    cases: &'static str,
    /// The reason why no case tests the point or a part of it. It is empty if cases test all of it.
    untested: &'static str,
}

/// Returns a point at a place.
const fn at(place: &'static str, about: &'static str, cases: &'static str) -> Point {
    Point { place, about, cases, untested: "" }
}

/// Returns a point about a subject.
const fn on(about: &'static str, cases: &'static str) -> Point {
    at("", about, cases)
}

/// Returns a point that no case tests.
const fn untested(place: &'static str, about: &'static str, why: &'static str) -> Point {
    at(place, about, "").except(why)
}

impl Point {
    /// Adds the reason why no case tests a part of the point.
    const fn except(self, why: &'static str) -> Point {
        Point { untested: why, ..self }
    }
}

/// A status that a function returns, and the cases that cause it.
#[derive(Debug)]
struct Value {
    function: &'static str,
    /// The name of the status's type.
    status: &'static str,
    cases: &'static str,
    /// The cases that cause the status in a completion, about remote memory.
    in_completion: &'static str,
    /// A remark about the status, or an empty text.
    note: &'static str,
    /// The reason why no case causes the status, and the place of another test that does, if there
    /// is one. It is empty if cases cause the status.
    unprovoked: &'static str,
}

/// Returns a value that cases cause.
const fn by(function: &'static str, status: &'static str, cases: &'static str) -> Value {
    Value { function, status, cases, in_completion: "", note: "", unprovoked: "" }
}

/// Returns a value that no case causes.
const fn never(function: &'static str, status: &'static str, why: &'static str) -> Value {
    Value { unprovoked: why, ..by(function, status, "") }
}

impl Value {
    /// Adds the cases that cause the status in a completion.
    const fn in_completion(self, cases: &'static str) -> Value {
        Value { in_completion: cases, ..self }
    }

    /// Adds a remark.
    const fn noted(self, note: &'static str) -> Value {
        Value { note, ..self }
    }
}

/// Returns the patterns of a list of cases. A name without a function belongs to `function`.
fn patterns<'a>(function: &'a str, cases: &'a str) -> impl Iterator<Item = String> + 'a {
    cases.split(", ").filter(|name| !name.is_empty()).map(move |name| match name.contains('/') {
        true => name.to_owned(),
        false => format!("{function}/{name}"),
    })
}

#[cfg(test)]
mod tests;
