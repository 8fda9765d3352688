//! Validates JSON documents against the schemas in `schema/`, with Python's jsonschema.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

const PYTHON: &str = "/usr/bin/python3";

/// Prints each error in one of the documents on a line of its own.
const SCRIPT: &str = "
import json, sys
from jsonschema import Draft202012Validator
given = json.load(sys.stdin)
Draft202012Validator.check_schema(given['schema'])
validator = Draft202012Validator(given['schema'])
for document in given['documents']:
    for error in validator.iter_errors(document):
        print(error.json_path, error.message.replace('\\n', ' '))
";

/// Returns whether Python's jsonschema is installed. If it is not, says that the test is skipped.
pub(crate) fn is_installed() -> bool {
    let import = ["-c", "from jsonschema import Draft202012Validator"];
    let output = Command::new(PYTHON).args(import).output();
    let found = output.is_ok_and(|output| output.status.success());
    if !found {
        println!("SKIP: Python's jsonschema is not installed (package python3-jsonschema)");
    }
    found
}

/// Returns what is wrong with the documents, each error with its place in the document.
pub(crate) fn errors(schema: &Value, documents: &[Value]) -> Vec<String> {
    let mut python = Command::new(PYTHON);
    python.args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut python = python.spawn().expect("python3 starts");
    let given = json!({ "schema": schema, "documents": documents }).to_string();
    let mut input = python.stdin.take().expect("the input is piped");
    input.write_all(given.as_bytes()).expect("python3 reads its input");
    drop(input);
    let output = python.wait_with_output().expect("python3 ends");
    assert!(output.status.success(), "the schema or a document cannot be read");
    String::from_utf8(output.stdout).expect("UTF-8").lines().map(str::to_owned).collect()
}
