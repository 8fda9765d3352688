//! The choice of the engine that serves softroce: the engine in user space (provider-softroce), or
//! the kernel's rxe through provider-verbs. The key `engine` of ia_params selects the engine:
//!
//! | value | engine |
//! |---|---|
//! | `user` | the engine in user space |
//! | `kernel` | the kernel's rxe; an rxe device is created if necessary |
//! | `auto`, the default | the kernel's rxe if a device exists, else the engine in user space |
//!
//! provider-softroce describes the other keys. An open adapter never changes its engine. It reports
//! the engine and the reason for the choice in the attribute `engine`.

mod kernel;
mod netlink;

use adapter::params::defaults;
use dat_adapter::params::invalid;
use dat_core::OpenError;
use dat_core::export::Opened;
use provider_softroce::Params;

/// The value of the key `engine`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Engine {
    #[default]
    Auto,
    User,
    Kernel,
}

/// Opens an adapter with the engine that the parameters select.
pub(crate) fn open(ia: &str, text: &str) -> Result<Opened, OpenError> {
    let (engine, params) = parse(text, &defaults())?;
    match engine {
        Engine::Auto => auto(ia, params),
        Engine::User => user(ia, params, "engine=user"),
        Engine::Kernel => {
            // OPENDAT_PARAMS is also meant for other engines, so a key that only the engine in user
            // space supports is an error only in ia_params.
            if let Some(key) = parse(text, "")?.1.user_only_key {
                return Err(invalid(format!(
                    "{key}: only the engine in user space supports this, not engine=kernel"
                )));
            }
            kernel::open_or_create(ia, &params)
        }
    }
}

/// Checks ia_params and the value of `OPENDAT_PARAMS` without opening an adapter.
pub(crate) fn check(text: &str, defaults: &str) -> Result<(), OpenError> {
    Params::check(text, defaults, &keys(), |_, value| engine_of(value).map(drop))
}

/// Returns the names of all keys of softroce.
pub(crate) fn keys() -> Vec<&'static str> {
    [&["engine"], Params::KEYS].concat()
}

fn parse(text: &str, defaults: &str) -> Result<(Engine, Params), OpenError> {
    let mut engine = Engine::default();
    let params = Params::parse(text, defaults, &keys(), |_, value| {
        engine = engine_of(value)?;
        Ok(())
    });
    Ok((engine, params?))
}

/// Parses the value of the key `engine`.
fn engine_of(value: &str) -> Result<Engine, String> {
    match value {
        "auto" => Ok(Engine::Auto),
        "user" => Ok(Engine::User),
        "kernel" => Ok(Engine::Kernel),
        _ => Err("expected auto, user or kernel".to_owned()),
    }
}

/// Uses the kernel's engine if there is an rxe device that supports the parameters and can be
/// opened. Otherwise uses the engine in user space.
fn auto(ia: &str, params: Params) -> Result<Opened, OpenError> {
    let Some(rxe) = kernel::find(params.common.adapter.bind) else {
        return user(ia, params, "the kernel has no rxe device here");
    };
    let name = &rxe.name;
    let why_not = match params.user_only_key {
        Some(key) => format!("the kernel's {name} does not support {key}"),
        None => match kernel::open(ia, &rxe, &params, "the device exists") {
            Ok(opened) => return Ok(opened),
            Err(error) => format!("the kernel's {name} cannot be used: {}", error.reason),
        },
    };
    user(ia, params, &why_not)
        .map_err(|error| OpenError::new(error.code, format!("{}; {why_not}", error.reason)))
}

/// Uses the engine in user space. `why` is the reason for this choice.
fn user(ia: &str, params: Params, why: &str) -> Result<Opened, OpenError> {
    provider_softroce::open(ia, params, &format!("user space: {why}"))
}

#[cfg(test)]
mod tests;
