//! The common part of all objects of a provider: a handle, a function table, and a destructor.

use std::sync::Arc;

use dat_sys::*;
use registry::Opened;

use crate::adapter::Attributes;
use crate::error::Error;
use crate::owners::Registration;

/// Calls a function of a provider's table. A missing function is `DAT_NOT_IMPLEMENTED`.
///
/// Expands to an unsafe call: the arguments must be those of the function.
macro_rules! call {
    ($interface:expr, $name:literal, $function:ident($($argument:expr),* $(,)?)) => {
        match $interface.table().$function {
            Some(function) => $crate::error::check($name, function($($argument),*)),
            None => Err($crate::error::not_implemented($name)),
        }
    };
}
pub(crate) use call;

/// An open IA. Dropping it closes the IA, after all its objects have been freed.
pub(crate) struct Interface {
    opened: Opened,
    pub(crate) attributes: Attributes,
}

// SAFETY: a provider's functions may be called from any thread. Several threads may create objects
// at the same time with any provider (uDAPL 1.2, MT level of the creates). For all other functions
// `&mut` ensures that only one thread at a time uses an object.
unsafe impl Send for Interface {}
// SAFETY: as for `Send`, any thread may call a provider's functions, and `&mut` ensures that only
// one thread at a time uses an object.
unsafe impl Sync for Interface {}

impl Interface {
    /// Takes ownership of an IA that was just opened, and queries its attributes.
    pub(crate) fn new(opened: Opened) -> Result<Self, Error> {
        let mut interface = Interface { opened, attributes: Attributes::default() };
        interface.attributes = Attributes::query(&interface)?;
        Ok(interface)
    }

    #[inline]
    pub(crate) fn table(&self) -> &DAT_PROVIDER {
        // SAFETY: the table of an open IA stays in memory until the IA is closed, which happens
        // when this value is dropped. The table of a provider without extensions ends before the
        // last member. That member is read only if the provider reports extensions.
        unsafe { &*self.opened.table }
    }

    /// The provider's handle, which the provider's functions take.
    pub(crate) fn handle(&self) -> DAT_IA_HANDLE {
        self.opened.provider_ia
    }

    pub(crate) fn async_evd(&self) -> DAT_EVD_HANDLE {
        self.opened.async_evd
    }
}

impl Drop for Interface {
    fn drop(&mut self) {
        // The close is abrupt, so that remaining objects do not prevent it.
        registry::close(self.opened.ia, DAT_CLOSE_ABRUPT_FLAG);
    }
}

/// The free function of a kind of object. All kinds have this signature.
type FreeFn = unsafe extern "C" fn(DAT_HANDLE) -> DAT_RETURN;

/// An object of a provider. Dropping it frees it before the objects that it depends on.
pub(crate) struct Object {
    pub(crate) handle: DAT_HANDLE,
    free: Option<FreeFn>,
    pub(crate) interface: Arc<Interface>,
    /// The place of an endpoint in the list of the dispatcher that reports its connection events.
    registration: Option<Registration>,
    /// Objects that the provider does not free while this object exists.
    _needs: Vec<Arc<Object>>,
}

// SAFETY: the handle is only passed to functions of the provider: see `Interface`.
unsafe impl Send for Object {}
// SAFETY: the handle is only passed to functions of the provider: see `Interface`.
unsafe impl Sync for Object {}

impl Object {
    /// Takes ownership of an object.
    ///
    /// # Safety
    ///
    /// `handle` must be an object of the interface, and `free` its free function, which no other
    /// code calls for it. `free` is `None` for an object that the interface frees.
    pub(crate) unsafe fn new(
        interface: &Arc<Interface>,
        handle: DAT_HANDLE,
        free: Option<FreeFn>,
        needs: Vec<Arc<Object>>,
    ) -> Self {
        Object { handle, free, interface: interface.clone(), registration: None, _needs: needs }
    }

    /// Makes this object an endpoint that is in the list of a dispatcher until it is dropped.
    pub(crate) fn registered(mut self, registration: Registration) -> Self {
        self.registration = Some(registration);
        self
    }

    /// Requests or accepts a connection of this endpoint with `begin`.
    pub(crate) fn begin(&self, begin: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
        match &self.registration {
            Some(registration) => registration.begin(begin),
            None => begin(),
        }
    }

    /// Resets this endpoint with `reset`.
    pub(crate) fn reset(&self, reset: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
        match &self.registration {
            Some(registration) => registration.reset(reset),
            None => reset(),
        }
    }

    /// Frees the object now. If this fails, `drop` tries again.
    pub(crate) fn free(&mut self, name: &'static str) -> Result<(), Error> {
        if let Some(free) = self.free {
            // SAFETY: this value owns the handle, which was not freed yet.
            crate::error::check(name, unsafe { free(self.handle) })?;
            self.free = None;
        }
        Ok(())
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        let registration = self.registration.take();
        // An object that cannot be freed now is freed when its adapter closes.
        let mut free = || self.free("free").is_ok();
        let _is_freed = match registration {
            Some(registration) => registration.end(free),
            None => free(),
        };
    }
}
