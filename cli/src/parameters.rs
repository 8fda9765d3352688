//! Checks whether the providers of OpenDAT accept the parameters of an entry or of the environment.

use std::path::Path;

use dat_core::OpenError;
use dat_sys::DAT_INVALID_PARAMETER;
use registry::Entry;

/// Returns the fault in the parameters of an entry, if its library is one of OpenDAT's. This does
/// not check for devices and addresses that this host lacks. [`crate::check`] does that.
pub(crate) fn fault(entry: &Entry) -> Option<String> {
    let library = Path::new(&entry.library).file_name()?.to_str()?;
    // The name is, for example, `libdat_softroce.so.1`.
    let name = library.strip_prefix("libdat_")?.split('.').next()?;
    // The check uses no environment, because that of the program that will use the entry is
    // unknown.
    let none = |_: &str| None;
    parameter_error(builtin::check(&name.replace('_', "-"), &entry.ia_params, none))
}

/// Environment variables that OpenDAT reads.
const KNOWN_VARIABLES: [&str; 16] = [
    "DAT_OVERRIDE",
    "DAT_DBG_TYPE",
    "DAT_DBG_DEST",
    "DAPL_DBG_TYPE",
    "DAPL_DBG_DEST",
    "OPENDAT_BUILTIN",
    "OPENDAT_CAPTURE",
    "OPENDAT_DIST",
    "OPENDAT_LOG",
    "OPENDAT_LOG_FORMAT",
    "OPENDAT_MTU",
    "OPENDAT_NET",
    "OPENDAT_SPIN_US",
    "OPENDAT_STATS",
    "OPENDAT_GUEST",
    "OPENDAT_MPI",
];

/// Returns the known variable that a name resembles so much that it is probably a misspelling.
pub(crate) fn misspelt(name: &str) -> Option<&'static str> {
    // A difference of one letter may be intended in a short name.
    let is_like = |known: &&&str| name.len() > 8 && strsim::osa_distance(name, known) <= 2;
    (!KNOWN_VARIABLES.contains(&name)).then(|| KNOWN_VARIABLES.iter().find(is_like).copied())?
}

/// Returns the fault in the value of a variable that providers read.
pub(crate) fn fault_of_variable(name: &str, value: &str) -> Option<String> {
    let set = |variable: &str| (variable == name).then(|| value.to_owned());
    match name {
        "OPENDAT_LOG" | "OPENDAT_LOG_FORMAT" | "DAPL_DBG_TYPE" | "DAPL_DBG_DEST" => {
            // Without OPENDAT_LOG, the other variables of the log have no effect and are not
            // checked.
            let all = |variable: &str| {
                set(variable).or_else(|| (variable == "OPENDAT_LOG").then(|| "warn".to_owned()))
            };
            let outcome = match name {
                "DAPL_DBG_TYPE" => dat_core::log::check_environment(set),
                _ => dat_core::log::check_environment(all),
            };
            outcome.err()
        }
        "DAT_DBG_TYPE" | "DAT_DBG_DEST" => (!value.trim().is_empty()
            && dat_core::environment::number(value).is_none())
        .then(|| format!("{name}={value}: expected a number, decimal or hexadecimal with 0x")),
        // softroce reads all of the remaining variables.
        _ => parameter_error(builtin::check("softroce", "", set)),
    }
}

/// Returns the text of an error in the parameters. Errors that depend on the host are ignored.
fn parameter_error(outcome: Result<(), OpenError>) -> Option<String> {
    let error = outcome.err().filter(|error| error.code.kind() == DAT_INVALID_PARAMETER)?;
    Some(error.reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_judged_by_the_provider_that_is_to_read_them() {
        let fault = |library: &str, params: &str| {
            let line = format!("a u2.0 nonthreadsafe default {library} v.1.0 \"{params}\" \"\"");
            let (entries, _) = registry::conf::parse(Path::new("dat.conf"), line.as_bytes());
            super::fault(&entries[0])
        };
        for (library, params, why) in [
            ("libdat_tcp_emu.so", "lo crc=maybe", "ia_params: crc=maybe: expected on or off"),
            (
                "/opt/libdat_softroce.so.1",
                "mtu=9000",
                "ia_params: mtu=9000: expected 256, 512, 1024, 2048 or 4096 octets",
            ),
            (
                "libdat_verbs.so",
                "lo mtu=1024",
                "ia_params: mtu=1024: unknown key; known are spin and strict",
            ),
        ] {
            assert_eq!(fault(library, params).as_deref(), Some(why));
        }
        for (library, params) in [
            ("libdat_tcp_emu.so", "lo crc=on"),
            ("libdat_tcp_emu.so", "eth77"),
            ("libvendor.so", "crc=maybe"),
            ("libdat_vendor.so", "crc=maybe"),
        ] {
            assert_eq!(fault(library, params), None);
        }
    }

    #[test]
    fn variables_are_judged_by_whom_they_are_for() {
        for (name, value, good) in [
            ("OPENDAT_SPIN_US", "soon", "0"),
            ("OPENDAT_MTU", "1500", "1024"),
            ("OPENDAT_NET", "loss=much", "loss=1%"),
            ("OPENDAT_LOG", "dat::nothing=debug", "dat::cm=debug"),
            ("OPENDAT_LOG_FORMAT", "xml", "json"),
            ("DAPL_DBG_TYPE", "all", "0xffff"),
            ("DAPL_DBG_DEST", "here", "1"),
            ("DAT_DBG_TYPE", "all", "0xf"),
        ] {
            let why = fault_of_variable(name, value).expect(name);
            assert!(why.starts_with(&format!("{name}={value}: ")), "{why}");
            assert_eq!(fault_of_variable(name, good), None);
            assert_eq!(fault_of_variable(name, ""), None, "{name}");
        }
        assert_eq!(fault_of_variable("DAT_OVERRIDE", "x"), None);
    }

    #[test]
    fn a_slip_of_the_pen_is_told_from_other_variables() {
        assert_eq!(misspelt("DAT_OVERIDE"), Some("DAT_OVERRIDE"));
        assert_eq!(misspelt("OPENDAT_NETT"), Some("OPENDAT_NET"));
        assert_eq!(misspelt("OPENDAT_NET"), None);
        assert_eq!(
            misspelt("DAPL_MAX_INLINE"),
            None,
            "a variable of OFED's providers is not misspelt"
        );
        assert_eq!(misspelt("HOME"), None);
    }
}
