//! What `--json` prints is as the schemas in `schema/` say: programs may rely on these.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

fn schema(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema").join(name).with_extension("json");
    serde_json::from_str(&std::fs::read_to_string(path).expect("it is there")).expect("JSON")
}

/// The first argument names the schema, too.
fn conforms(registry: &Path, arguments: &[&str]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dat"));
    let output =
        command.args(arguments).arg("--json").env("DAT_OVERRIDE", registry).output().expect("it starts");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{arguments:?}: {error}: {}", String::from_utf8_lossy(&output.stderr))
    });
    let validator = jsonschema::validator_for(&schema(arguments[0])).expect("a schema");
    let errors: Vec<String> =
        validator.iter_errors(&document).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(errors.is_empty(), "{arguments:?}: {errors:#?}\n{document:#}");
}

#[test]
fn every_document_is_as_its_schema_says() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("dat.conf");
    let text = "gone u2.0 nonthreadsafe default libopendat_gone.so v.1.0 \"\" \"\"\nbroken u2.0\n";
    std::fs::write(&file, text).expect("writes");
    conforms(&file, &["list"]);
    conforms(&file, &["query", "tcp-emu"]);
    conforms(&file, &["query", "softroce"]);
    conforms(&file, &["check", file.to_str().expect("UTF-8")]);
    conforms(&file, &["doctor"]);
    conforms(&file, &["ping", "--count", "10"]);
    conforms(&file, &["register", "new", "libnew.so"]);
    conforms(&file, &["unregister", "new"]);
}

#[test]
fn a_schema_refuses_what_it_does_not_know() {
    let validator = jsonschema::validator_for(&schema("register")).expect("a schema");
    assert!(validator.is_valid(&json!({ "file": "f", "registered": ["a line"] })));
    for wrong in [json!({ "file": "f" }), json!({ "file": "f", "registered": ["l"], "more": 1 }), json!([])] {
        assert!(!validator.is_valid(&wrong), "{wrong}");
    }
}
