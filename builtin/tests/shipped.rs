//! Tests that each built-in adapter is also shipped as a loadable library.

use std::path::Path;

use builtin::ADAPTERS;
use registry::{Api, conf};

fn library(adapter: &str) -> String {
    format!("libdat_{}.so", adapter.replace('-', "_"))
}

#[test]
fn each_adapter_has_a_plug_in() {
    let plugins = Path::new(env!("CARGO_MANIFEST_DIR")).join("plugins");
    for adapter in ADAPTERS {
        assert!(plugins.join(adapter.name).join("Cargo.toml").exists(), "{}", adapter.name);
    }
    assert_eq!(plugins.read_dir().expect("a directory").count(), ADAPTERS.len());
}

#[test]
fn dat_conf_has_each_adapter_for_every_version_with_and_without_thread_safety() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dat.conf");
    let text = std::fs::read(&path).expect("the shipped dat.conf");
    let (entries, errors) = conf::parse(&path, &text);
    assert_eq!(errors, []);
    let kinds = [(Api::U2_0, false), (Api::U2_0, true), (Api::U1_2, false), (Api::U1_2, true)];
    let expected = ADAPTERS.iter().flat_map(|adapter| {
        kinds.map(|(api, threadsafe)| {
            (adapter.name.to_owned(), api, threadsafe, library(adapter.name))
        })
    });
    let shipped = entries.into_iter().map(|entry| {
        assert!(entry.default && entry.ia_params.is_empty(), "{entry:?}");
        (entry.ia_name, entry.api, entry.threadsafe, entry.library)
    });
    assert_eq!(shipped.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
}
