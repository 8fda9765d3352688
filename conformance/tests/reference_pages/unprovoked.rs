//! The values that no case provokes, although a page lists them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use conformance::matches_pattern;

use super::{Value, text};

/// Values that no case provokes. If several entries are about a value, the first one counts.
struct Unprovoked {
    kind: &'static str,
    subtype: &'static str,
    /// The functions. In a name, `*` stands for any text.
    functions: &'static [&'static str],
    why: &'static str,
    /// The test that provokes the values, if there is one: a file of the tree, and a name in it.
    test: Option<(&'static str, &'static str)>,
}

/// The name of a test if the file must contain the name of each function.
const EACH_FUNCTION: &str = "*";

/// This file, for messages.
const FILE: &str = "conformance/tests/reference_pages/unprovoked.rs";
const INSUFFICIENT: &str = "DAT_INSUFFICIENT_RESOURCES";
const STATE: &str = "DAT_INVALID_STATE";
const UNSUPPORTED: &str = "DAT_MODEL_NOT_SUPPORTED";
const NOT_FOUND: &str = "DAT_PROVIDER_NOT_FOUND";

const ON_A_DEVICE: &str = "only an RDMA device causes it";
const MANY_OBJECTS: &str = "the adapter has its maximum number of objects";
const LIMITS: Option<(&str, &str)> =
    Some(("dat-core/tests/limits.rs", "one_object_more_than_promised_is_refused"));

const OWN: &str = "the function is OpenDAT's own, which the suite does not call";
const OWN_ARGUMENTS: Option<(&str, &str)> =
    Some(("dat-core/tests/table/causes.rs", "arguments_are_checked"));

const UNPROVOKED: &[Unprovoked] = &[
    // ---- Every function ----
    Unprovoked {
        kind: "DAT_INTERNAL_ERROR",
        subtype: "",
        functions: &["*"],
        why: "only a defect of OpenDAT causes it",
        test: Some((
            "dat-core/tests/table/opening.rs",
            "errors_and_panics_of_a_provider_become_statuses",
        )),
    },
    Unprovoked {
        kind: "DAT_ABORT",
        subtype: "",
        functions: &[
            "dat_ep_post_*",
            "dat_evd_clear_unwaitable",
            "dat_evd_dequeue",
            "dat_evd_free",
            "dat_evd_post_se",
            "dat_evd_set_unwaitable",
            "dat_ia_open",
            "dat_ia_query",
            "dat_ib_*",
            "dat_srq_post_recv",
        ],
        why: "a signal handler makes the call while its thread has a lock that the call needs",
        test: None,
    },
    Unprovoked {
        kind: "DAT_ABORT",
        subtype: "",
        functions: &["*"],
        why: "a signal handler makes the call while its thread is in another call",
        test: Some((
            "dat-core/tests/handlers.rs",
            "calls_inside_a_call_are_refused_as_the_reference_says",
        )),
    },
    Unprovoked {
        kind: INSUFFICIENT,
        subtype: "DAT_RESOURCE_MEMORY",
        functions: &["dat_registry_add_provider"],
        why: "256 function tables are registered",
        test: None,
    },
    Unprovoked {
        kind: INSUFFICIENT,
        subtype: "DAT_RESOURCE_MEMORY",
        functions: &[
            "dat_cno_modify_agent",
            "dat_cno_trigger",
            "dat_ib_close_query",
            "dat_ib_open_query",
        ],
        why: "the process has no memory or thread left, which no test arranges for this function",
        test: None,
    },
    Unprovoked {
        kind: INSUFFICIENT,
        subtype: "DAT_RESOURCE_MEMORY",
        functions: &["*"],
        why: "the process has no memory, thread or descriptor left",
        test: Some(("tests/programs/no_memory.c", EACH_FUNCTION)),
    },
    // ---- Limits ----
    Unprovoked {
        kind: INSUFFICIENT,
        subtype: "DAT_RESOURCE_TEP",
        functions: &["dat_ep_create", "dat_ep_create_with_srq"],
        why: MANY_OBJECTS,
        test: LIMITS,
    },
    Unprovoked {
        kind: INSUFFICIENT,
        subtype: "DAT_RESOURCE_PROTECTION_DOMAIN",
        functions: &["dat_pz_create"],
        why: MANY_OBJECTS,
        test: LIMITS,
    },
    Unprovoked {
        kind: INSUFFICIENT,
        subtype: "DAT_RESOURCE_MEMORY_REGION",
        functions: &["dat_lmr_create", "dat_rmr_create", "dat_rmr_create_for_ep"],
        why: MANY_OBJECTS,
        test: LIMITS,
    },
    Unprovoked {
        kind: "DAT_CONN_QUAL_UNAVAILABLE",
        subtype: "",
        functions: &["dat_psp_create", "dat_psp_create_any", "dat_rsp_create", "dat_csp_create"],
        why: "the program lacks the privilege for a port, or the host has no free port",
        test: Some(("iwarp/src/socket.rs", "qualifier_zero_and_foreign_addresses_are_unavailable")),
    },
    // ---- Opening an adapter ----
    Unprovoked {
        kind: NOT_FOUND,
        subtype: "DAT_THREAD_SAFETY_NOT_FOUND",
        functions: &["dat_ia_open"],
        why: "the registry has no thread-safe entry with the name",
        test: Some(("registry/tests/vendor.rs", "what_no_entry_offers_has_its_subtype")),
    },
    Unprovoked {
        kind: NOT_FOUND,
        subtype: "",
        functions: &["dat_ia_open"],
        why: "the host has no RDMA device",
        test: Some((
            "provider-verbs/tests/device.rs",
            "without_a_device_the_error_says_what_is_missing",
        )),
    },
    Unprovoked {
        kind: "DAT_INVALID_PARAMETER",
        subtype: "",
        functions: &["dat_ia_open"],
        why: "the entry has wrong parameters",
        test: Some(("builtin/src/softroce/tests.rs", "the_key_engine_is_one_of_several")),
    },
    Unprovoked {
        kind: "DAT_INVALID_ADDRESS",
        subtype: "",
        functions: &["dat_ia_open"],
        why: "the entry names an address without a device",
        test: Some(("builtin/src/softroce/tests.rs", "the_kernel_has_none_on_the_loopback")),
    },
    Unprovoked {
        kind: INSUFFICIENT,
        subtype: "DAT_RESOURCE_DEVICE",
        functions: &["dat_ia_open"],
        why: "1,087 adapters use the address",
        test: Some(("roce/src/shared_port/tests.rs", "there_are_1087_slots")),
    },
    Unprovoked {
        kind: INSUFFICIENT,
        subtype: "DAT_RESOURCE_DEVICE",
        functions: &["dat_ep_connect", "dat_ep_common_connect", "dat_ep_dup_connect"],
        why: "all ports of the local address are in use",
        test: Some(("tests/programs/no_way.c", "no_way ports")),
    },
    Unprovoked {
        kind: INSUFFICIENT,
        subtype: "DAT_RESOURCE_DEVICE",
        functions: &["dat_psp_create*", "dat_rsp_create", "dat_csp_create"],
        why: "the service point opens another address of the host, and that address has 1,087 \
              adapters or is in use by another program",
        test: Some((
            "provider-softroce/tests/addresses.rs",
            "a_service_point_needs_the_port_of_every_address",
        )),
    },
    Unprovoked {
        kind: INSUFFICIENT,
        subtype: "",
        functions: &["dat_ia_open"],
        why: "the process has 32,767 open IAs",
        test: None,
    },
    Unprovoked {
        kind: "DAT_NOT_IMPLEMENTED",
        subtype: "",
        functions: &["dat_ia_open", "dat_ib_*", "dat_opendat_*"],
        why: "the provider's table lacks the function, which no provider of the suite does",
        test: None,
    },
    Unprovoked {
        kind: "DAT_PROVIDER_IN_USE",
        subtype: "",
        functions: &["dat_registry_remove_provider"],
        why: "the program opens an adapter of a provider that it has registered itself",
        test: Some((
            "registry/tests/vendor.rs",
            "a_provider_may_register_itself_and_only_goes_when_unused",
        )),
    },
    // ---- Devices and other providers ----
    Unprovoked {
        kind: UNSUPPORTED,
        subtype: "",
        functions: &[
            "dat_ep_post_*",
            "dat_ep_reset",
            "dat_evd_resize",
            "dat_lmr_create",
            "dat_rmr_bind",
            "dat_rmr_create",
            "dat_rmr_create_for_ep",
            "dat_srq_create",
            "dat_srq_resize",
        ],
        why: ON_A_DEVICE,
        test: None,
    },
    Unprovoked {
        kind: STATE,
        subtype: "",
        functions: &["dat_ep_create", "dat_ep_create_with_srq", "dat_ep_modify", "dat_ep_reset"],
        why: ON_A_DEVICE,
        test: None,
    },
    Unprovoked {
        kind: INSUFFICIENT,
        subtype: "DAT_RESOURCE_TEP",
        functions: &["dat_ep_modify", "dat_ep_reset"],
        why: ON_A_DEVICE,
        test: None,
    },
    Unprovoked {
        kind: "DAT_INVALID_PARAMETER",
        subtype: "DAT_INVALID_ARG6",
        functions: &["dat_ep_create_with_srq"],
        why: "the transport requires that an EP and its SRQ have the same zone",
        test: Some((
            "dat-core/tests/limits.rs",
            "an_srq_of_another_zone_needs_support_of_the_transport",
        )),
    },
    Unprovoked {
        kind: UNSUPPORTED,
        subtype: "",
        functions: &["dat_ib_post_*"],
        why: "the peer's adapter lacks the operation",
        test: Some(("provider-tcp-emu/tests/extended.rs", "extended=off")),
    },
    // ---- OpenDAT's own operation ----
    Unprovoked {
        kind: "DAT_SUCCESS",
        subtype: "",
        functions: &["dat_opendat_ep_last_cause"],
        why: OWN,
        test: OWN_ARGUMENTS,
    },
    Unprovoked {
        kind: "DAT_INVALID_HANDLE",
        subtype: "DAT_INVALID_HANDLE1",
        functions: &["dat_opendat_ep_last_cause"],
        why: OWN,
        test: OWN_ARGUMENTS,
    },
    Unprovoked {
        kind: "DAT_INVALID_HANDLE",
        subtype: "DAT_INVALID_HANDLE_EP",
        functions: &["dat_opendat_ep_last_cause"],
        why: OWN,
        test: OWN_ARGUMENTS,
    },
    Unprovoked {
        kind: "DAT_INVALID_PARAMETER",
        subtype: "DAT_INVALID_ARG3",
        functions: &["dat_opendat_ep_last_cause"],
        why: OWN,
        test: OWN_ARGUMENTS,
    },
    Unprovoked {
        kind: "DAT_INVALID_PARAMETER",
        subtype: "DAT_INVALID_ARG4",
        functions: &["dat_opendat_ep_last_cause"],
        why: OWN,
        test: OWN_ARGUMENTS,
    },
    // ---- Other ----
    Unprovoked {
        kind: "DAT_INVALID_HANDLE",
        subtype: "DAT_INVALID_HANDLE_IA",
        functions: &["dat_rmr_create", "dat_rmr_create_for_ep"],
        why: "another thread closes the IA during the call",
        test: None,
    },
    Unprovoked {
        kind: "DAT_INVALID_PARAMETER",
        subtype: "",
        functions: &["dat_strerror"],
        why: "the function is dat_strerror_ext_status, which no case calls",
        test: None,
    },
];

/// Returns the mistakes: values that no case provokes and that no entry names, entries for values
/// that cases provoke or that no page lists, and entries whose test does not exist.
pub(crate) fn problems(
    listed: &BTreeSet<Value>,
    provoked: &BTreeMap<Value, String>,
) -> Vec<String> {
    let missing: BTreeSet<_> =
        listed.iter().filter(|value| !provoked.contains_key(value)).collect();
    let mut explained: Vec<Vec<&Value>> = vec![Vec::new(); UNPROVOKED.len()];
    let mut problems = Vec::new();
    for value in missing {
        match UNPROVOKED.iter().position(|entry| entry.is_about(value)) {
            Some(entry) => explained[entry].push(value),
            None => problems.push(format!("{}: on the page, but no case gets it", text(value))),
        }
    }
    for (entry, values) in UNPROVOKED.iter().zip(explained) {
        problems.extend(entry.without_values(&values));
        problems.extend(entry.without_test(&values));
    }
    problems
}

impl Unprovoked {
    fn is_about(&self, (function, kind, subtype): &Value) -> bool {
        (self.kind, self.subtype) == (kind, subtype)
            && self.functions.iter().any(|pattern| matches_pattern(pattern, function))
    }

    /// Returns a message for each pattern that does not match the function of any of these values.
    fn without_values(&self, values: &[&Value]) -> Vec<String> {
        let is_idle = |pattern: &&&str| {
            !values.iter().any(|(function, ..)| matches_pattern(pattern, function))
        };
        let message = |pattern: &&str| {
            let value = (pattern.to_string(), self.kind.to_owned(), self.subtype.to_owned());
            format!("{}: a case gets it, or no page lists it: take it out of {FILE}", text(&value))
        };
        self.functions.iter().filter(is_idle).map(message).collect()
    }

    /// Returns a message for each name that the file of the test lacks.
    fn without_test(&self, values: &[&Value]) -> Vec<String> {
        let Some((file, name)) = self.test else { return Vec::new() };
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
        let source = fs::read_to_string(path).unwrap_or_default();
        let names = match name {
            EACH_FUNCTION => values.iter().map(|(function, ..)| function.as_str()).collect(),
            name => vec![name],
        };
        let absent = names.into_iter().filter(|name| !source.contains(name));
        absent.map(|name| format!("{FILE}, {:?}: no {name} in {file}", self.why)).collect()
    }
}
