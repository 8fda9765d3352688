//! Exports the registry's symbols from the test programs: the providers that the tests load look
//! for them there (see `abi.rs`).

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for symbol in
        ["dat_registry_add_provider", "dat_registry_remove_provider", "dats_get_ia_handle"]
    {
        println!("cargo::rustc-link-arg-tests=-Wl,--export-dynamic-symbol={symbol}");
    }
}
