//! What every object of a provider has in common: a handle, a table to call through, and an end.

use std::sync::Arc;

use dat_sys::*;
use registry::Opened;

use crate::adapter::Attributes;
use crate::error::Error;

/// Calls a function of a provider's table; an absent one answers `DAT_NOT_IMPLEMENTED`.
///
/// Expands to an unsafe call: the arguments are what the function of that name takes.
macro_rules! call {
    ($interface:expr, $name:literal, $function:ident($($argument:expr),* $(,)?)) => {
        match $interface.table().$function {
            Some(function) => $crate::error::check($name, function($($argument),*)),
            None => Err($crate::error::not_implemented($name)),
        }
    };
}
pub(crate) use call;

/// An open IA; closed by `drop`, when no object of it is left.
pub(crate) struct Interface {
    opened: Opened,
    pub(crate) attributes: Attributes,
}

// SAFETY: a provider's functions may be called from any thread. Those for creating objects may be called from several
// threads at once whatever the provider (uDAPL 1.2, MT level of the creates); for all others `&mut` sees to it that
// an object is used by one thread at a time.
unsafe impl Send for Interface {}
// SAFETY: as above.
unsafe impl Sync for Interface {}

impl Interface {
    /// Takes over an IA that was just opened, and asks what it can do.
    pub(crate) fn new(opened: Opened) -> Result<Self, Error> {
        let mut interface = Interface { opened, attributes: Attributes::default() };
        interface.attributes = Attributes::query(&interface)?;
        Ok(interface)
    }

    #[inline]
    pub(crate) fn table(&self) -> &DAT_PROVIDER {
        // SAFETY: the table of an open IA stays in memory until the IA is closed, which is our drop. It may end
        // before its last member (a provider without extensions), which is looked at where the provider says that it has it.
        unsafe { &*self.opened.table }
    }

    /// The provider's own handle, which its functions take.
    pub(crate) fn handle(&self) -> DAT_IA_HANDLE {
        self.opened.provider_ia
    }

    pub(crate) fn async_evd(&self) -> DAT_EVD_HANDLE {
        self.opened.async_evd
    }
}

impl Drop for Interface {
    fn drop(&mut self) {
        // Abrupt, so that nothing a provider may have kept prevents it.
        registry::close(self.opened.ia, DAT_CLOSE_ABRUPT_FLAG);
    }
}

/// The free function of a kind of object. All have this form.
type Free = unsafe extern "C" fn(DAT_HANDLE) -> DAT_RETURN;

/// An object of a provider; freed by `drop`, before what it depends on.
pub(crate) struct Object {
    pub(crate) handle: DAT_HANDLE,
    free: Option<Free>,
    pub(crate) interface: Arc<Interface>,
    /// Objects that the provider refuses to free while this one exists.
    _needs: Vec<Arc<Object>>,
}

// SAFETY: the handle is only passed to functions of the provider; see `Interface`.
unsafe impl Send for Object {}
// SAFETY: as above.
unsafe impl Sync for Object {}

impl Object {
    /// # Safety
    ///
    /// `handle` is an object of the interface, `free` frees objects of its kind and nobody else does; none for an
    /// object that goes with the interface.
    pub(crate) unsafe fn new(
        interface: &Arc<Interface>,
        handle: DAT_HANDLE,
        free: Option<Free>,
        needs: Vec<Arc<Object>>,
    ) -> Self {
        Object { handle, free, interface: interface.clone(), _needs: needs }
    }

    /// Frees it now; `drop` does so again only where that failed.
    pub(crate) fn free(&mut self, name: &'static str) -> Result<(), Error> {
        if let Some(free) = self.free {
            // SAFETY: the handle is ours and was not freed yet.
            crate::error::check(name, unsafe { free(self.handle) })?;
            self.free = None;
        }
        Ok(())
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        // One that cannot be freed goes with its adapter.
        let _ = self.free("free");
    }
}
