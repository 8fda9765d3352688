//! A test that may find that it cannot run here.

use libtest_mimic::{Completion, Failed, Trial};

use crate::Skip;

/// Why a run is not a pass.
#[derive(Clone, Debug)]
pub enum Stop {
    /// It cannot run here.
    Skip(Skip),
    /// It has failed.
    Fail(String),
}

impl From<Skip> for Stop {
    fn from(skip: Skip) -> Self {
        Self::Skip(skip)
    }
}

impl From<String> for Stop {
    fn from(why: String) -> Self {
        Self::Fail(why)
    }
}

/// The test of this name.
pub fn trial(name: String, run: impl FnOnce() -> Result<(), Stop> + Send + 'static) -> Trial {
    Trial::ignorable_test(name, move || match run() {
        Ok(()) => Ok(Completion::Completed),
        Err(Stop::Skip(Skip(reason))) => Ok(Completion::ignored_with(reason)),
        Err(Stop::Fail(why)) => Err(Failed::from(why)),
    })
}
