//! The environment variables that select what is logged, and where lines go.

use std::sync::OnceLock;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;

use crate::clocks::Clocks;
use crate::destination::Destination;
use crate::environment;

/// What is logged, in which format lines are written, and where they go.
#[derive(Debug)]
pub(crate) struct Settings {
    /// What the clocks showed when the settings were read. Lines contain the seconds since then.
    pub(crate) start: Clocks,
    /// What is logged. `None` means that nothing is logged. An error says what is wrong with the
    /// first invalid variable.
    pub(crate) targets: Result<Option<Targets>, String>,
    /// Whether each line of the log and each message is a JSON object.
    pub(crate) json: bool,
    pub(crate) log_destination: Destination,
    pub(crate) message_destination: Destination,
    /// The value of DAT_DBG_TYPE. `None` if it is not set.
    pub(crate) message_types: Option<u32>,
}

/// The settings of the process, read when they are first needed.
pub(crate) fn settings() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(|| Settings::from_variables(environment::variable))
}

/// The bits of `DAPL_DBG_TYPE` that OFED's providers define, and the corresponding targets of this
/// log. Other bits have no counterpart.
const BITS: &[(u32, &str, LevelFilter)] = &[
    (0x1, "dat", LevelFilter::WARN),          // ERR
    (0x2, "dat", LevelFilter::WARN),          // WARN
    (0x4, "dat::evd", LevelFilter::TRACE),    // EVD
    (0x8, "dat::cm", LevelFilter::TRACE),     // CM
    (0x10, "dat::ep", LevelFilter::TRACE),    // EP
    (0x80, "dat::dto", LevelFilter::TRACE),   // DTO_COMP_ERR
    (0x100, "dat::api", LevelFilter::TRACE),  // API
    (0x200, "dat::api", LevelFilter::TRACE),  // RTN
    (0x400, "dat::api", LevelFilter::DEBUG),  // EXCEPTION
    (0x8000, "dat::cm", LevelFilter::INFO),   // CM_EST
    (0x1_0000, "dat::cm", LevelFilter::WARN), // CM_WARN
    (0x8_0000, "dat::cm", LevelFilter::WARN), // CM_ERRS
];

impl Settings {
    pub(crate) fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Self {
        let given = |name| variable(name).filter(|value| !value.trim().is_empty());
        let number = |name| match given(name) {
            None => Ok(None),
            Some(text) => environment::number(&text).map(Some).ok_or_else(|| {
                format!("{name}={text}: expected a decimal number, or 0x and a hexadecimal number")
            }),
        };
        let log = given("OPENDAT_LOG");
        let targets = match &log {
            Some(text) => parse(text).map(Some).map_err(|why| format!("OPENDAT_LOG={text}: {why}")),
            None => number("DAPL_DBG_TYPE")
                .map(|bits| bits.filter(|bits| *bits != 0).map(targets_of_bits)),
        };
        let bits = number("DAPL_DBG_DEST");
        let log_destination = Destination::of_bits(bits.clone().ok().flatten().unwrap_or(0));
        // An invalid DAPL_DBG_DEST is an error only if something is logged.
        let targets = match targets {
            Ok(Some(targets)) => bits.map(|_| Some(targets)),
            other => other,
        };
        let message_bits = number("DAT_DBG_DEST").ok().flatten();
        Settings {
            start: Clocks::read(),
            targets,
            json: log.is_some_and(|text| words(&text).any(|word| word == JSON)),
            log_destination,
            message_destination: message_bits.map_or(log_destination, Destination::of_bits),
            message_types: number("DAT_DBG_TYPE").ok().flatten(),
        }
    }
}

/// The word of `OPENDAT_LOG` that makes each line a JSON object.
const JSON: &str = "json";

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim)
}

/// The targets that events have.
const TARGETS: [&str; 8] =
    ["dat", "dat::ia", "dat::cm", "dat::ep", "dat::dto", "dat::evd", "dat::api", "dat::wake"];

/// The level that applies if `OPENDAT_LOG` names no level.
pub const DEFAULT_LEVEL: &str = "debug";

/// Parses a value of `OPENDAT_LOG`.
pub(crate) fn parse(text: &str) -> Result<Targets, String> {
    const EXAMPLE: &str = "for example debug, or json,dat::cm=debug,dat::ep=trace";
    let levels: Vec<_> = words(text).filter(|word| *word != JSON).collect();
    let levels = if levels.is_empty() { DEFAULT_LEVEL.to_owned() } else { levels.join(",") };
    let targets: Targets = levels.parse().map_err(|error| format!("{error}; {EXAMPLE}"))?;
    match targets.iter().find(|(target, _)| !TARGETS.contains(target)) {
        Some((target, _)) => Err(format!("{target} is neither a level nor a target; {EXAMPLE}")),
        None => Ok(targets),
    }
}

/// Returns the targets that these bits enable. If several bits have the same target, the most
/// verbose of their levels applies.
fn targets_of_bits(bits: u32) -> Targets {
    let mut targets = Targets::new();
    let mut asked: Vec<_> = BITS.iter().filter(|(bit, ..)| bits & bit != 0).collect();
    asked.sort_by_key(|(.., level)| *level);
    for (_, target, level) in asked {
        targets = targets.with_target(*target, *level);
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(given: &[(&str, &str)]) -> Settings {
        let found = |name: &str| {
            given.iter().find(|(given, _)| *given == name).map(|(_, value)| value.to_string())
        };
        Settings::from_variables(found)
    }

    fn parsed_targets(given: &[(&str, &str)]) -> Vec<String> {
        let targets = settings(given).targets.expect("the setting is valid");
        let targets = targets.expect("the setting asks for a log");
        let mut parsed_targets: Vec<_> =
            targets.iter().map(|(target, level)| format!("{target}={level}")).collect();
        parsed_targets.sort();
        parsed_targets
    }

    #[test]
    fn nothing_is_logged_by_default() {
        for given in
            [&[][..], &[("OPENDAT_LOG", "")], &[("DAPL_DBG_TYPE", "0")], &[("DAPL_DBG_DEST", "1")]]
        {
            assert_eq!(settings(given).targets, Ok(None), "{given:?}");
        }
    }

    #[test]
    fn bits_of_ofed_stand_for_targets() {
        assert_eq!(parsed_targets(&[("DAPL_DBG_TYPE", "0x3")]), ["dat=warn"]);
        assert_eq!(
            parsed_targets(&[("DAPL_DBG_TYPE", "0x8109")]),
            ["dat::api=trace", "dat::cm=trace", "dat=warn"]
        );
        // A bit of DAPL_DBG_TYPE without a counterpart in this log has no effect.
        assert!(parsed_targets(&[("DAPL_DBG_TYPE", "0x4000")]).is_empty());
    }

    #[test]
    fn opendat_log_takes_precedence() {
        let given = [("OPENDAT_LOG", "dat::ep=debug,warn"), ("DAPL_DBG_TYPE", "all")];
        let targets = settings(&given)
            .targets
            .expect("the setting is valid")
            .expect("the setting asks for a log");
        assert!(targets.would_enable("dat::ep", &tracing::Level::DEBUG));
        assert!(!targets.would_enable("dat::cm", &tracing::Level::INFO));
        assert!(targets.would_enable("dat::cm", &tracing::Level::WARN));
    }

    #[test]
    fn mistakes_are_named() {
        let why = |given| settings(given).targets.expect_err("the setting must be refused");
        assert_eq!(
            why(&[("DAPL_DBG_TYPE", "all")]),
            "DAPL_DBG_TYPE=all: expected a decimal number, or 0x and a hexadecimal number"
        );
        assert!(why(&[("OPENDAT_LOG", "dat::ep=loud")]).starts_with("OPENDAT_LOG=dat::ep=loud: "));
        assert_eq!(
            why(&[("OPENDAT_LOG", "degub")]),
            "OPENDAT_LOG=degub: degub is neither a level nor a target; \
             for example debug, or json,dat::cm=debug,dat::ep=trace"
        );
        assert!(why(&[("OPENDAT_LOG", "xml,debug")]).contains("xml is neither a level nor"));
    }

    #[test]
    fn json_is_a_word_of_opendat_log() {
        for (text, json, targets) in [
            ("debug", false, "debug"),
            ("json", true, DEFAULT_LEVEL),
            ("json,dat::cm=trace", true, "dat::cm=trace"),
            (" warn, json ", true, "warn"),
        ] {
            let settings = settings(&[("OPENDAT_LOG", text), ("DAPL_DBG_TYPE", "0x1")]);
            let targets: Targets = targets.parse().expect("targets");
            assert_eq!((settings.json, settings.targets), (json, Ok(Some(targets))), "{text}");
        }
    }

    #[test]
    fn destinations_are_those_of_ofed() {
        let [stderr, stdout, syslog, both] = [0, 1, 2, 3].map(Destination::of_bits);
        let to = |given| {
            let settings = settings(given);
            [settings.log_destination, settings.message_destination]
        };
        assert_eq!(to(&[]), [stderr; 2]);
        assert_eq!(to(&[("DAPL_DBG_DEST", "0")]), [stderr; 2]);
        assert_eq!(to(&[("DAPL_DBG_DEST", "1")]), [stdout; 2]);
        assert_eq!(to(&[("DAPL_DBG_DEST", "2")]), [syslog; 2]);
        assert_eq!(to(&[("DAPL_DBG_DEST", "0x3")]), [both; 2]);
        // DAT_DBG_DEST, a variable of the registry, changes only the destination of messages.
        assert_eq!(to(&[("DAT_DBG_DEST", "1")]), [stderr, stdout]);
        assert_eq!(to(&[("DAPL_DBG_DEST", "1"), ("DAT_DBG_DEST", "0")]), [stdout, stderr]);
    }

    #[test]
    fn an_invalid_variable_changes_no_message() {
        let settings = settings(&[
            ("OPENDAT_LOG", "json,degub"),
            ("DAPL_DBG_DEST", "here"),
            ("DAT_DBG_DEST", "there"),
            ("DAT_DBG_TYPE", "all"),
        ]);
        assert!(settings.targets.is_err() && settings.json);
        assert_eq!(settings.message_destination, Destination::of_bits(0));
        assert_eq!(settings.message_types, None);
    }

    #[test]
    fn an_invalid_destination_turns_off_the_log() {
        let targets = |given| settings(given).targets;
        assert_eq!(targets(&[("DAPL_DBG_DEST", "here")]), Ok(None));
        assert_eq!(
            targets(&[("DAPL_DBG_DEST", "here"), ("OPENDAT_LOG", "warn")]),
            Err("DAPL_DBG_DEST=here: expected a decimal number, or 0x and a hexadecimal number"
                .to_owned())
        );
    }
}
