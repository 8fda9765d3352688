//! Tests libdat.so.1 as consumers of uDAPL 1.2 see it: its symbols, and a C program
//! (`programs/udapl_1_2.c`) with each provider linked in and loaded.
#![forbid(unsafe_code)]

use std::process::Command;
use std::time::Duration;

use opendat_tests::{
    Dist, PROVIDERS, Provider, Registry, Skip, Version, c_program_1_2, c_vendor, ends_with_ok,
    find_program, skip,
};

/// The functions of uDAPL 1.2, and the one further function that providers on Linux need.
const FUNCTIONS: &str = "\
    dat_ia_openv dat_ia_query dat_ia_close dat_set_consumer_context dat_get_consumer_context \
    dat_get_handle_type dat_cno_create dat_cno_modify_agent dat_cno_query dat_cno_free \
    dat_cno_wait dat_cr_query dat_cr_accept dat_cr_reject dat_cr_handoff dat_evd_create \
    dat_evd_query dat_evd_modify_cno dat_evd_enable dat_evd_disable dat_evd_wait \
    dat_evd_resize dat_evd_post_se dat_evd_dequeue dat_evd_free dat_evd_set_unwaitable \
    dat_evd_clear_unwaitable dat_ep_create dat_ep_create_with_srq dat_ep_query dat_ep_modify \
    dat_ep_connect dat_ep_dup_connect dat_ep_disconnect dat_ep_post_send dat_ep_post_recv \
    dat_ep_post_rdma_read dat_ep_post_rdma_write dat_ep_get_status dat_ep_free dat_ep_reset \
    dat_ep_recv_query dat_ep_set_watermark dat_lmr_create dat_lmr_query dat_lmr_free \
    dat_lmr_sync_rdma_read dat_lmr_sync_rdma_write dat_rmr_create dat_rmr_query dat_rmr_bind \
    dat_rmr_free dat_psp_create dat_psp_create_any dat_psp_query dat_psp_free dat_rsp_create \
    dat_rsp_query dat_rsp_free dat_pz_create dat_pz_query dat_pz_free dat_srq_create \
    dat_srq_free dat_srq_post_recv dat_srq_query dat_srq_resize dat_srq_set_lw \
    dat_registry_add_provider dat_registry_remove_provider dat_registry_list_providers \
    dat_strerror dats_get_ia_handle";

fn or_skip(test: impl FnOnce() -> Result<(), Skip>) {
    if let Err(reason) = test() {
        skip(&reason);
    }
}

#[test]
fn every_function_has_its_version_and_nothing_else_is_exported() {
    or_skip(|| {
        let library = Dist::locate()?.lib().join("libdat.so.1");
        let nm = find_program("nm", "binutils")?;
        let output = Command::new(nm)
            .args(["-D", "--defined-only"])
            .arg(library)
            .output()
            .expect("nm starts");
        let text = String::from_utf8(output.stdout).expect("nm writes text");
        let mut exported: Vec<_> = text
            .lines()
            .filter(|line| !line.ends_with(" A DAT_1.2"))
            .map(|line| &line[19..])
            .collect();
        let mut expected: Vec<_> =
            FUNCTIONS.split_whitespace().map(|name| format!("{name}@@DAT_1.2")).collect();
        exported.sort_unstable();
        expected.sort();
        assert_eq!(expected.len(), 73);
        assert_eq!(exported, expected);
        Ok(())
    });
}

#[test]
fn a_consumer_of_1_2_gets_what_it_was_compiled_for() {
    or_skip(|| run_over_each("builtin", Registry::builtin_1_2));
}

#[test]
fn the_loadable_provider_serves_1_2_as_well() {
    or_skip(|| run_over_each("plugin", Registry::plugin_1_2));
}

#[test]
fn threads_of_1_2_may_be_cancelled() {
    or_skip(|| {
        let dist = Dist::locate()?;
        PROVIDERS.iter().try_for_each(|provider| {
            let registry = Registry::builtin_1_2(&dist, provider);
            ["waits", "calls", "cycles", "agent"]
                .iter()
                .try_for_each(|how| run(&dist, "cancelled", &[how], &registry))
        })
    });
}

#[test]
fn a_vendors_provider_of_1_2_is_called_as_such() {
    or_skip(|| {
        let (dist, dir) = (Dist::locate()?, tempfile::tempdir().expect("a temporary directory"));
        let vendor = c_vendor(&dist, "vendor_1_2", Version::V1_2, dir.path())?;
        run(&dist, "vendor_1_2", &[], &Registry::vendor_1_2(&dist, vendor))
    });
}

fn run_over_each(how: &str, registry: fn(&Dist, &Provider) -> Registry) -> Result<(), Skip> {
    let dist = Dist::locate()?;
    PROVIDERS
        .iter()
        .try_for_each(|provider| run(&dist, "udapl_1_2", &[how], &registry(&dist, provider)))
}

fn run(dist: &Dist, program: &str, args: &[&str], registry: &Registry) -> Result<(), Skip> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut command = Command::new(c_program_1_2(dist, program, dir.path())?);
    command.args(args);
    let label = format!("{program} over {}", registry.ia());
    ends_with_ok(&label, command, registry, Duration::from_secs(600))
        .unwrap_or_else(|why| panic!("{why}"));
    Ok(())
}
