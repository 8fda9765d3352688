//! A record of what the calls of a case have returned.

use std::collections::BTreeSet;
use std::mem;
use std::sync::{Mutex, PoisonError};

use dat_sys::DAT_RETURN;

/// The statuses that functions have returned, each once.
pub type Calls = BTreeSet<Call>;

/// A function, and a status that it has returned to the case at least once.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct Call {
    /// The function. Operations of the IB extension have the names of their macros.
    pub function: String,
    /// The status, in the numbers of uDAPL 2.0.
    pub status: DAT_RETURN,
}

static RECORD: Mutex<BTreeSet<(&str, DAT_RETURN)>> = Mutex::new(BTreeSet::new());

/// Adds a call of this process to the record. Returns the status.
pub(crate) fn record(function: &'static str, status: DAT_RETURN) -> DAT_RETURN {
    RECORD.lock().unwrap_or_else(PoisonError::into_inner).insert((function, status));
    status
}

/// Empties the record, and returns what it contained.
pub(crate) fn take() -> Calls {
    let calls = mem::take(&mut *RECORD.lock().unwrap_or_else(PoisonError::into_inner));
    let owned = |(function, status): (&str, _)| Call { function: function.to_owned(), status };
    calls.into_iter().map(owned).collect()
}
