//! `dat query`: prints all attributes of an adapter and its provider.

use anyhow::{Context, Result};
use clap::Args;
use dat::{Adapter, StandardAttributes, Value};
use measurement::arguments::report_registry_errors;
use measurement::text_table::{Colour, colour, wrapped};
use serde_json::{Map, json};
use telemetry::printable;

use crate::output::{print, print_json};

#[derive(Args)]
pub(crate) struct Options {
    /// The adapter, by its name in the registry
    #[arg(value_name = "IA")]
    adapter: String,
    /// Print one JSON document instead of text
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: &Options) -> Result<bool> {
    let name = &options.adapter;
    report_registry_errors();
    let attributes =
        Adapter::open(name)?.standard_attributes().with_context(|| format!("querying {name}"))?;
    match options.json {
        true => print_json(&document(name, &attributes))?,
        false => print(&text(&attributes))?,
    }
    Ok(true)
}

/// A list of attributes: the title in the text, the key in the JSON, and the names and values.
type List<'a> = (&'static str, &'static str, Vec<(&'a str, Value)>);

fn lists(attributes: &StandardAttributes) -> [List<'_>; 5] {
    [
        ("adapter (DAT_IA_ATTR)", "adapter", attributes.adapter.clone()),
        ("provider (DAT_PROVIDER_ATTR)", "provider", attributes.provider.clone()),
        ("of the transport", "transport", texts(&attributes.transport)),
        ("of the vendor", "vendor", texts(&attributes.vendor)),
        ("of this provider", "provider_specific", texts(&attributes.specific)),
    ]
}

fn texts(list: &[(String, String)]) -> Vec<(&str, Value)> {
    list.iter().map(|(name, value)| (name.as_str(), Value::Text(value.clone()))).collect()
}

fn document(name: &str, attributes: &StandardAttributes) -> serde_json::Value {
    let mut document = Map::from_iter([("ia".to_owned(), json!(name))]);
    for (_, key, list) in lists(attributes) {
        let list = list.into_iter().map(|(name, value)| (name.to_owned(), to_json(value)));
        document.insert(key.to_owned(), serde_json::Value::Object(list.collect()));
    }
    serde_json::Value::Object(document)
}

fn to_json(value: Value) -> serde_json::Value {
    match value {
        Value::Number(number) => json!(number),
        Value::Text(text) => json!(text),
        Value::Flag(flag) => json!(flag),
        Value::Words(words) => json!(words),
    }
}

fn text(attributes: &StandardAttributes) -> String {
    let lists = lists(attributes);
    let names = lists.iter().flat_map(|(_, _, list)| list).map(|(name, _)| name.chars().count());
    let width = names.max().unwrap_or(0);
    let mut text = String::new();
    for (title, _, list) in lists.iter().filter(|(_, _, list)| !list.is_empty()) {
        text += &format!("{}\n", colour(title, Colour::Strong));
        for (name, value) in list {
            let line = format!("    {:<width$}  {}", printable(name), printable(&to_text(value)));
            text += &format!("{}\n", wrapped(&line, &" ".repeat(4 + width + 2)));
        }
    }
    text
}

fn to_text(value: &Value) -> String {
    match value {
        // A value in which all bits are set means that there is no limit. The limit of an address
        // is often such a value.
        Value::Number(u64::MAX) => "no limit".to_owned(),
        Value::Number(number) => number.to_string(),
        Value::Text(text) => text.clone(),
        Value::Flag(true) => "yes".to_owned(),
        Value::Flag(false) => "no".to_owned(),
        Value::Words(words) if words.is_empty() => "none".to_owned(),
        Value::Words(words) => words.join(", "),
    }
}
