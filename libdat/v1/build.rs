//! Sets the soname and the symbol version of the C library.

fn main() {
    println!("cargo::rerun-if-changed=libdat1.map");
    let directory = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    for argument in [
        "-soname,libdat.so.1".to_owned(),
        format!("--version-script={directory}/libdat1.map"),
        // The library is never unloaded, because providers and their threads may outlive a dlclose.
        "-z,nodelete".to_owned(),
    ] {
        println!("cargo::rustc-cdylib-link-arg=-Wl,{argument}");
    }
}
