//! The tests load the provider, and it looks for the registry's symbols in the program: see `registry/src/abi.rs`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for symbol in
        ["dat_registry_add_provider", "dat_registry_remove_provider", "dats_get_ia_handle"]
    {
        println!("cargo::rustc-link-arg-tests=-Wl,--export-dynamic-symbol={symbol}");
    }
}
