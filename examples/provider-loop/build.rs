//! Exports the registry's symbols from the test programs: the provider that the tests load looks
//! for them there (see `registry/src/abi.rs`).

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for symbol in
        ["dat_registry_add_provider", "dat_registry_remove_provider", "dats_get_ia_handle"]
    {
        println!("cargo::rustc-link-arg-tests=-Wl,--export-dynamic-symbol={symbol}");
    }
}
