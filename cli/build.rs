//! Loadable providers look for three functions in the program that loads them: see registry's
//! `abi.rs`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for symbol in
        ["dat_registry_add_provider", "dat_registry_remove_provider", "dats_get_ia_handle"]
    {
        println!("cargo::rustc-link-arg-bins=-Wl,--export-dynamic-symbol={symbol}");
    }
}
