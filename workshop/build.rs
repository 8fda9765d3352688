//! Exports three functions that loadable providers look for in the program that loads them (see the
//! registry's `abi.rs`).

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for symbol in
        ["dat_registry_add_provider", "dat_registry_remove_provider", "dats_get_ia_handle"]
    {
        println!("cargo::rustc-link-arg-bins=-Wl,--export-dynamic-symbol={symbol}");
    }
}
