//! `dat conformance --list`, `--explain` and `--returns`: what the suite knows without a run.

use anyhow::Result;
use conformance::{Case, Explanation, Gap, Known, KnownOutcome, Level, ReturnValue};
use serde::Serialize;

use crate::output::{print, print_json};
use crate::text_table::wrapped;

/// A case in the JSON output of `--list`.
#[derive(Serialize)]
struct Item<'a> {
    id: &'a str,
    function: &'a str,
    level: Level,
    clause: &'a str,
    requirement: &'a str,
}

impl<'a> From<&'a Case> for Item<'a> {
    fn from(case: &'a Case) -> Self {
        let Case { id, level, clause, requirement, .. } = case;
        Item { id, function: case.function(), level: *level, clause, requirement }
    }
}

/// Prints the cases and what they require.
pub(super) fn list(cases: &[Case], json: bool) -> Result<()> {
    if json {
        let cases: Vec<Item<'_>> = cases.iter().map(Item::from).collect();
        return print_json(&serde_json::json!({ "cases": cases }));
    }
    let width = cases.iter().map(|case| case.id.len()).max().unwrap_or(0);
    let line = |Case { id, clause, requirement, level, .. }: &Case| {
        format!("{id:width$}  {:6}  {requirement} [{clause}]\n", level.to_string())
    };
    print(&cases.iter().map(line).collect::<String>())
}

/// Explains cases. An ID that is the name of a case stands only for this case, although other names
/// may begin with it. An ID that stands for whole functions also prints what no case tests of them.
pub(super) fn explain(ids: &[String], mut cases: Vec<Case>, json: bool) -> Result<()> {
    let is_name: Vec<bool> = ids.iter().map(|id| cases.iter().any(|case| case.id == *id)).collect();
    let is_meant = |case: &Case| {
        let mut ids = ids.iter().zip(&is_name);
        ids.any(|(id, is_name)| if *is_name { case.id == *id } else { case.is_selected_by(id) })
    };
    cases.retain(|case| ids.is_empty() || is_meant(case));
    let explanations: Vec<_> = cases.iter().map(conformance::explain).collect();
    let gaps = conformance::gaps(|function| {
        let start = format!("{function}/");
        ids.is_empty() || ids.iter().any(|id| conformance::is_selected_by(&start, id))
    });
    if json {
        let document = serde_json::json!({ "explanations": explanations, "not_tested": gaps });
        return print_json(&document);
    }
    let mut parts: Vec<String> = explanations.iter().map(explanation).collect();
    if !gaps.is_empty() {
        parts.push(format!("Not tested:\n{}", gaps.iter().map(gap).collect::<String>()));
    }
    print(&parts.join("\n"))
}

/// Prints the return values of the functions that the cases are about.
pub(super) fn returns(cases: &[Case], json: bool) -> Result<()> {
    let values =
        conformance::return_values(|function| cases.iter().any(|case| case.function() == function));
    if json {
        return print_json(&serde_json::json!({ "return_values": values }));
    }
    let of_functions = values.chunk_by(|value, next| value.function == next.function);
    let part = |values: &[ReturnValue]| {
        let lines: String = values.iter().map(return_value).collect();
        format!("{}\n{lines}", values[0].function)
    };
    print(&of_functions.map(part).collect::<Vec<_>>().join("\n"))
}

/// Returns the text about a case: its name, and a line for each fact.
fn explanation(of: &Explanation<'_>) -> String {
    let through = of.bindings.iter().map(|binding| match *binding {
        "2.0" => "libdat2.so.2",
        "1.2" => "libdat.so.1",
        _ => "the linked-in registry",
    });
    let mut facts = vec![
        ("function", of.function.to_owned()),
        ("clause", format!("{} ({})", of.clause, of.level)),
        ("requires", of.requirement.to_owned()),
        ("through", through.collect::<Vec<_>>().join(", ")),
        ("source", of.source.clone()),
    ];
    facts.extend(of.tests.iter().map(|tested| match &*tested.place {
        "" => (tested.kind, tested.about.to_owned()),
        place => (tested.kind, format!("{place}: {}", tested.about)),
    }));
    facts.extend(of.statuses.iter().map(|caused| {
        let place = if caused.in_completion { " in a completion" } else { "" };
        ("status", format!("{} of {}{place}", caused.status, caused.function))
    }));
    if let Some(strict) = of.strict {
        facts.extend([("strict=on", strict.on.to_owned()), ("strict=off", strict.off.to_owned())]);
    }
    if let Some(room) = of.room {
        facts.push(("standard", room.standard.to_owned()));
        facts.push(("accepted", room.accepted.to_owned()));
    }
    facts.extend(of.known.iter().map(|known| ("known", known_outcome(known))));
    let line = |(what, text): &(&str, String)| {
        wrapped(&format!("  {what:10}  {text}"), "              ") + "\n"
    };
    format!("{}\n{}", of.id, facts.iter().map(line).collect::<String>())
}

/// Returns where a case is known not to pass, and why.
fn known_outcome(known: &Known) -> String {
    let provider = if known.provider == "*" { "every provider" } else { known.provider };
    let library = if known.binding == "*" { "" } else { " through OFED's libdat2" };
    let outcome = match known.outcome {
        KnownOutcome::Fails => "fails",
        KnownOutcome::Unsupported => "unsupported",
    };
    format!("{outcome} over {provider}{library}: {}", known.reason)
}

fn gap(gap: &Gap) -> String {
    let Gap { place, about, reason, .. } = gap;
    wrapped(&format!("  {place}: {about}; not tested: {reason}"), "    ") + "\n"
}

fn return_value(value: &ReturnValue) -> String {
    let mut text = match value.unprovoked {
        "" => value.cases.join(", "),
        reason => format!("not tested: {reason}"),
    };
    if !value.in_completion.is_empty() {
        text += &format!("; in a completion: {}", value.in_completion.join(", "));
    }
    if !value.note.is_empty() {
        text += &format!(" ({})", value.note);
    }
    wrapped(&format!("  {}: {text}", value.status), "    ") + "\n"
}
