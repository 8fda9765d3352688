//! An open adapter, and the objects that exist while it is open.

use std::any::Any;
use std::cell::{OnceCell, RefCell};
use std::ffi::{CStr, CString, c_char};
use std::ptr::null_mut;

use dat_sys::*;

use crate::api::Api;
use crate::check::{Outcome, failed, ok};
use crate::time_limits::event_timeout;

/// Returns the time that a case waits for an event that must happen, in microseconds.
pub(crate) fn event_timeout_us() -> DAT_TIMEOUT {
    DAT_TIMEOUT::try_from(event_timeout().as_micros()).unwrap_or(DAT_TIMEOUT::MAX - 1)
}

/// An open adapter, and the objects that a case creates with it.
pub(crate) struct Rig {
    /// The functions under test.
    pub(crate) api: &'static Api,
    /// The adapter.
    pub(crate) ia: DAT_IA_HANDLE,
    /// The asynchronous EVD of the adapter.
    pub(crate) async_evd: DAT_EVD_HANDLE,
    /// The attributes of the adapter.
    pub(crate) attr: DAT_IA_ATTR,
    /// The attributes of the provider.
    pub(crate) provider: DAT_PROVIDER_ATTR,
    name: CString,
    pub(super) pz: OnceCell<DAT_PZ_HANDLE>,
    /// The other opens of the same adapter. They are closed before the first open.
    others: RefCell<Vec<DAT_IA_HANDLE>>,
    /// Memory to which the adapters may write. It is freed after the adapters have been closed.
    memory: RefCell<Vec<Box<dyn Any>>>,
    /// Processes that run until the case has ended. They are killed before the adapters are closed.
    peers: RefCell<Vec<Box<dyn Any>>>,
}

impl Rig {
    /// Opens the adapter of this name.
    pub(crate) fn open(api: &'static Api, name: &str) -> Outcome<Rig> {
        let name =
            CString::new(name).map_err(|_| failed("the name of the provider has a NUL in it"))?;
        let mut rig = Rig {
            api,
            ia: null_mut(),
            async_evd: DAT_HANDLE_NULL,
            attr: DAT_IA_ATTR::zeroed(),
            provider: DAT_PROVIDER_ATTR::zeroed(),
            name,
            pz: OnceCell::new(),
            others: RefCell::default(),
            memory: RefCell::default(),
            peers: RefCell::default(),
        };
        (rig.ia, rig.async_evd) = rig.open_once(8, DAT_HANDLE_NULL)?;
        let (all_ia, all_provider) = (DAT_IA_FIELD_ALL, DAT_PROVIDER_FIELD_ALL);
        ok(api.dat_ia_query(
            rig.ia,
            null_mut(),
            all_ia,
            &mut rig.attr,
            all_provider,
            &mut rig.provider,
        ))?;
        Ok(rig)
    }

    /// Calls dat_ia_openv as a single-threaded consumer of uDAPL 2.0.
    pub(crate) fn openv(
        &self,
        name: &CStr,
        qlen: DAT_COUNT,
        async_evd: &mut DAT_EVD_HANDLE,
        ia: &mut DAT_IA_HANDLE,
    ) -> DAT_RETURN {
        self.api.dat_ia_openv(name.as_ptr().cast_mut(), qlen, async_evd, ia, 2, 0, DAT_FALSE)
    }

    fn open_once(
        &self,
        qlen: DAT_COUNT,
        mut async_evd: DAT_EVD_HANDLE,
    ) -> Outcome<(DAT_IA_HANDLE, DAT_EVD_HANDLE)> {
        let mut ia = null_mut();
        ok(self.openv(&self.name, qlen, &mut async_evd, &mut ia))?;
        Ok((ia, async_evd))
    }

    /// Returns the name of the adapter.
    pub(crate) fn name(&self) -> &CStr {
        &self.name
    }

    /// Opens the same adapter again, with another asynchronous EVD.
    pub(crate) fn other_ia(&self) -> Outcome<DAT_IA_HANDLE> {
        self.open_again(DAT_HANDLE_NULL).map(|(ia, _)| ia)
    }

    /// Opens the same adapter again, with this asynchronous EVD.
    pub(crate) fn open_again(
        &self,
        async_evd: DAT_EVD_HANDLE,
    ) -> Outcome<(DAT_IA_HANDLE, DAT_EVD_HANDLE)> {
        let (ia, async_evd) = self.open_once(8, async_evd)?;
        self.others.borrow_mut().push(ia);
        Ok((ia, async_evd))
    }

    /// Keeps memory allocated until the adapters have been closed.
    pub(super) fn keep_memory(&self, block: impl Any) {
        self.memory.borrow_mut().push(Box::new(block));
    }

    /// Keeps a process running until the case has ended.
    pub(crate) fn keep(&self, peer: impl Any) {
        self.peers.borrow_mut().push(Box::new(peer));
    }

    /// Forgets an open of the adapter that the case has closed itself.
    pub(crate) fn forget_ia(&mut self, ia: DAT_IA_HANDLE) {
        self.others.borrow_mut().retain(|other| *other != ia);
        if self.ia == ia {
            self.ia = null_mut();
        }
    }

    /// Closes all opens of the adapter. Memory is freed only afterwards, because the adapter may
    /// write to it.
    pub(crate) fn close(mut self) -> Outcome {
        self.close_all()
    }

    fn close_all(&mut self) -> Outcome {
        let mut all = std::mem::take(&mut *self.others.borrow_mut());
        // The first open is closed last, because other opens may use its asynchronous EVD.
        all.push(std::mem::replace(&mut self.ia, null_mut()));
        // The peers are killed first, because a provider may wait until a stopped peer takes part
        // in the close.
        self.peers.borrow_mut().clear();
        let mut outcome = Ok(());
        for ia in all.into_iter().filter(|ia| !ia.is_null()) {
            let closed = ok(self.api.dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG));
            outcome = outcome.and(closed);
        }
        if outcome.is_err() {
            // If an adapter could not be closed, it may still write to the memory. So the memory is
            // leaked.
            std::mem::take(&mut *self.memory.borrow_mut()).into_iter().for_each(std::mem::forget);
        }
        outcome
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // If the adapters are still open here, the case has panicked, and its verdict does not
        // depend on the close.
        let _ = self.close_all();
    }
}

/// Returns the text in a C array. Returns `None` if the array has no NUL.
pub(crate) fn text(field: &[c_char; DAT_NAME_MAX_LENGTH]) -> Option<String> {
    let bytes = field.map(|c| c as u8);
    CStr::from_bytes_until_nul(&bytes).ok().map(|text| text.to_string_lossy().into_owned())
}
