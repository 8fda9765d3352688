//! Validates JSON documents against the schemas in `schema/`: the keywords of JSON Schema 2020-12
//! that these schemas use. A crate for the whole standard would need 45 others.

use serde_json::{Map, Value};

/// Returns what is wrong with a document, each error with its place in the document.
///
/// # Panics
/// If the schema has a keyword or a value that this module does not know.
pub(crate) fn errors(schema: &Value, document: &Value) -> Vec<String> {
    let mut errors = Vec::new();
    check(schema, document, "", &mut errors);
    errors
}

fn is_valid(schema: &Value, value: &Value) -> bool {
    errors(schema, value).is_empty()
}

fn check(schema: &Value, value: &Value, at: &str, errors: &mut Vec<String>) {
    let keywords = match schema {
        Value::Bool(allowed) if *allowed => return,
        Value::Bool(_) => return errors.push(format!("{at}: {value} is not allowed")),
        schema => schema.as_object().expect("a schema is an object or a Boolean value"),
    };
    for (keyword, rule) in keywords {
        if !holds(keyword, rule, keywords, value, at, errors) {
            errors.push(format!("{at}: {value} does not have the {keyword} {rule}"));
        }
    }
}

/// Checks one keyword. Adds the errors in the parts of the value to `errors`, and returns whether
/// the rest of the rule holds.
fn holds(
    keyword: &str,
    rule: &Value,
    keywords: &Map<String, Value>,
    value: &Value,
    at: &str,
    errors: &mut Vec<String>,
) -> bool {
    let schemas = || rule.as_array().expect("schemas");
    let valid = || schemas().iter().filter(|schema| is_valid(schema, value)).count();
    let number = |holds: fn(f64, f64) -> bool| {
        value.as_f64().is_none_or(|value| holds(value, rule.as_f64().expect("a number")))
    };
    let length = |holds: fn(&usize, &usize) -> bool| {
        let limit = rule.as_u64().expect("a length") as usize;
        value.as_array().is_none_or(|items| holds(&items.len(), &limit))
    };
    match keyword {
        "$schema" | "title" | "description" => true,
        "type" => match rule {
            Value::Array(types) => types.iter().any(|rule| is_of_type(rule, value)),
            rule => is_of_type(rule, value),
        },
        "enum" => schemas().contains(value),
        "const" => rule == value,
        "minimum" => number(|value, limit| value >= limit),
        "exclusiveMinimum" => number(|value, limit| value > limit),
        "maximum" => number(|value, limit| value <= limit),
        "minItems" => length(usize::ge),
        "maxItems" => length(usize::le),
        "pattern" => value.as_str().is_none_or(|text| matches(rule.as_str().expect("text"), text)),
        "required" => value.as_object().is_none_or(|members| {
            schemas().iter().all(|name| members.contains_key(name.as_str().expect("a name")))
        }),
        "properties" | "additionalProperties" => {
            let known = keywords.get("properties").and_then(Value::as_object);
            for (name, member) in value.as_object().into_iter().flatten() {
                let schema = match (known.and_then(|known| known.get(name)), keyword) {
                    (Some(schema), "properties") => schema,
                    (None, "additionalProperties") => rule,
                    _ => continue,
                };
                check(schema, member, &format!("{at}/{name}"), errors);
            }
            true
        }
        "prefixItems" | "items" => {
            let first = keywords.get("prefixItems").and_then(Value::as_array);
            for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                let schema = match (first.and_then(|first| first.get(index)), keyword) {
                    (Some(schema), "prefixItems") => schema,
                    (None, "items") => rule,
                    _ => continue,
                };
                check(schema, item, &format!("{at}/{index}"), errors);
            }
            true
        }
        "anyOf" => valid() > 0,
        "oneOf" => valid() == 1,
        "allOf" => valid() == schemas().len(),
        "not" => !is_valid(rule, value),
        "if" => {
            let branch = if is_valid(rule, value) { "then" } else { "else" };
            keywords.get(branch).is_none_or(|schema| is_valid(schema, value))
        }
        "then" | "else" => keywords.contains_key("if"),
        other => panic!("the test does not know the keyword {other}"),
    }
}

fn is_of_type(rule: &Value, value: &Value) -> bool {
    match rule.as_str().expect("the name of a type") {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        other => panic!("there is no type {other}"),
    }
}

/// Returns whether a text matches a pattern of this form: `^`, characters or sets of characters
/// such as `[0-9]`, each perhaps with `+` or a count such as `{4}`, and `$`.
fn matches(pattern: &str, text: &str) -> bool {
    let inner = pattern.strip_prefix('^').and_then(|pattern| pattern.strip_suffix('$'));
    let mut pattern = inner.expect("a pattern is for the whole text");
    let mut text = text;
    while let Some(first) = pattern.chars().next() {
        let (set, rest) = match first {
            '[' => pattern[1..].split_once(']').expect("a set of characters has an end"),
            '\\' => pattern[1..].split_at(1),
            _ => pattern.split_at(first.len_utf8()),
        };
        let found = text.chars().take_while(|&found| is_in(set, first == '[', found)).count();
        let (count, rest) = match rest.strip_prefix('{') {
            Some(rest) => {
                let (count, rest) = rest.split_once('}').expect("a count has an end");
                (count.parse().expect("a count"), rest)
            }
            None => match rest.strip_prefix('+') {
                Some(rest) => (found.max(1), rest),
                None => (1, rest),
            },
        };
        if found < count {
            return false;
        }
        text = &text[text.char_indices().nth(count).map_or(text.len(), |(at, _)| at)..];
        pattern = rest;
    }
    text.is_empty()
}

/// Returns whether a set contains a character: `0-9` is a range if `ranges` is true.
fn is_in(set: &str, ranges: bool, found: char) -> bool {
    match set.split_once('-').filter(|_| ranges) {
        Some((from, to)) => {
            let ends = (from.chars().next(), to.chars().next());
            (Some(found) >= ends.0) && (Some(found) <= ends.1)
        }
        None => set.contains(found),
    }
}
