//! Checks whether the providers of OpenDAT accept the parameters of an entry or of the environment.

use std::path::Path;

use dat_core::OpenError;
use dat_sys::DAT_INVALID_PARAMETER;
use registry::Entry;

/// Returns the fault in the parameters of an entry, if its library is one of OpenDAT's. This
/// function does not check whether the host has the entry's device or address. [`crate::check`]
/// does.
pub(crate) fn fault(entry: &Entry) -> Option<String> {
    let library = Path::new(&entry.library).file_name()?.to_str()?;
    // The file name of the library is, for example, `libdat_softroce.so.1`.
    let name = library.strip_prefix("libdat_")?.split('.').next()?;
    // The parameters are checked without defaults, because the environment of the program that will
    // use the entry is unknown.
    parameter_error(builtin::check(&name.replace('_', "-"), &entry.ia_params, ""))
}

/// Environment variables that OpenDAT reads.
const KNOWN_VARIABLES: [&str; 7] = [
    "DAT_OVERRIDE",
    "DAT_DBG_TYPE",
    "DAT_DBG_DEST",
    "DAPL_DBG_TYPE",
    "DAPL_DBG_DEST",
    "OPENDAT_LOG",
    "OPENDAT_PARAMS",
];

/// Returns the known variable that a name resembles so much that it is probably a misspelling.
pub(crate) fn misspelt(name: &str) -> Option<&'static str> {
    // A short name is not compared: if it differs from a known name by a letter or two, it may be
    // correct.
    let is_like = |known: &&&str| name.len() > 8 && strsim::osa_distance(name, known) <= 2;
    (!KNOWN_VARIABLES.contains(&name)).then(|| KNOWN_VARIABLES.iter().find(is_like).copied())?
}

/// Returns the fault in the value of a variable that providers read.
pub(crate) fn fault_of_variable(name: &str, value: &str) -> Option<String> {
    let set = |variable: &str| (variable == name).then(|| value.to_owned());
    match name {
        "OPENDAT_LOG" | "DAPL_DBG_TYPE" => telemetry::log::check_environment(set).err(),
        "DAPL_DBG_DEST" => {
            // `check_environment` checks DAPL_DBG_DEST only if the log is on. So `with_log` turns
            // the log on by a value for OPENDAT_LOG.
            let with_log = |variable: &str| {
                set(variable).or_else(|| (variable == "OPENDAT_LOG").then(|| "warn".to_owned()))
            };
            telemetry::log::check_environment(with_log).err()
        }
        "DAT_DBG_TYPE" | "DAT_DBG_DEST" => (!value.trim().is_empty()
            && telemetry::environment::number(value).is_none())
        .then(|| format!("{name}={value}: expected a number, decimal or hexadecimal with 0x")),
        "OPENDAT_PARAMS" => builtin::ADAPTERS
            .iter()
            .find_map(|adapter| parameter_error(builtin::check(adapter.name, "", value))),
        _ => None,
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
                "ia_params: mtu=1024: unknown key; known are spin, strict and stats",
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
            ("OPENDAT_LOG", "dat::nothing=debug", "dat::cm=debug"),
            ("OPENDAT_LOG", "xml", "json"),
            ("DAPL_DBG_TYPE", "all", "0xffff"),
            ("DAPL_DBG_DEST", "here", "1"),
            ("DAT_DBG_TYPE", "all", "0xf"),
        ] {
            let why = fault_of_variable(name, value).expect(name);
            assert!(why.starts_with(&format!("{name}={value}: ")), "{why}");
            assert_eq!(fault_of_variable(name, good), None);
            assert_eq!(fault_of_variable(name, ""), None, "{name}");
        }
        for (value, good) in [
            ("spin=soon", "spin=0"),
            ("mtu=1500", "mtu=1024"),
            ("net=loss=much", "net=loss=1%"),
            ("crc=maybe", "crc=on"),
            ("engine=fast", "engine=user"),
            ("builtin=0", "builtin=off"),
            ("eth0", ""),
            ("mut=1024", " "),
        ] {
            let why = fault_of_variable("OPENDAT_PARAMS", value).expect(value);
            assert!(why.starts_with("OPENDAT_PARAMS: ") && why.contains(value), "{why}");
            assert_eq!(fault_of_variable("OPENDAT_PARAMS", good), None);
        }
        assert_eq!(fault_of_variable("DAT_OVERRIDE", "x"), None);
    }

    #[test]
    fn a_slip_of_the_pen_is_told_from_other_variables() {
        assert_eq!(misspelt("DAT_OVERIDE"), Some("DAT_OVERRIDE"));
        assert_eq!(misspelt("OPENDAT_PARAM"), Some("OPENDAT_PARAMS"));
        assert_eq!(misspelt("OPENDAT_PARAMS"), None);
        assert_eq!(
            misspelt("DAPL_MAX_INLINE"),
            None,
            "a variable of OFED's providers must not be reported"
        );
        assert_eq!(misspelt("HOME"), None);
    }
}
