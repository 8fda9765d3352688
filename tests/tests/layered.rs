//! Tests a layered provider (`programs/layered.c`), which lists the adapters and opens another
//! adapter while it is started, and closes that adapter while it is finished.
#![forbid(unsafe_code)]

use std::time::Duration;

use opendat_tests::{
    Dist, PROVIDERS, Registry, Skip, Version, c_program, c_program_1_2, c_vendor, compiled,
    ends_with_ok, skip,
};

fn runs_over_each(version: Version, is_built_in: bool) -> Result<(), Skip> {
    let (dist, dir) = (Dist::locate()?, tempfile::tempdir().expect("a temporary directory"));
    let layered = c_vendor(&dist, "layered", version, dir.path())?;
    let program = match version {
        Version::V1_2 => c_program_1_2(&dist, "layered", dir.path())?,
        Version::V2_0 => c_program(&dist, "layered", dir.path())?,
    };
    for lower in PROVIDERS {
        let registry = Registry::layered(&dist, version, &layered, lower, is_built_in);
        // The provider also tries to open itself, which the registry would report each time.
        let registry = registry.with("DAT_DBG_TYPE", "0");
        let mut command = compiled(&program);
        command.arg(&layered);
        if !is_built_in {
            command.arg(dist.plugin(lower).file_name().expect("the name of a library"));
        }
        let label = format!("layered over {} for {version}", lower.ia);
        ends_with_ok(&label, command, &registry, Duration::from_secs(600))
            .unwrap_or_else(|why| panic!("{why}"));
    }
    Ok(())
}

fn runs_with_both_libraries(is_built_in: bool) {
    let [old, new] = [Version::V1_2, Version::V2_0].map(|v| runs_over_each(v, is_built_in));
    if let Err(reason) = old.and(new) {
        skip(&reason);
    }
}

#[test]
fn a_layered_provider_opens_a_built_in_adapter_when_it_is_started() {
    runs_with_both_libraries(true);
}

/// The layered provider is unloaded afterwards, and the lower one stays in memory.
#[test]
fn a_layered_provider_opens_a_loaded_adapter_when_it_is_started() {
    runs_with_both_libraries(false);
}
