//! The functions of the function table that handle adapters, and the functions that are the same
//! for handles of all types.

use std::ffi::CStr;

use dat_sys::*;
use telemetry::threads::BlockedSignals;

use super::convert::{Call, control_call, control_functions, defer_if_working, out, query};
use super::register::{self, Version};
use crate::error::Error;
use crate::handle;
use crate::ia::{self, AsyncEvd, Entry, Ia};
use crate::provider::Transport;

/// dat_ia_openv, which the registry calls. The arguments are those of dat_ia_open.
pub(super) unsafe extern "C" fn open<const THREAD_SAFE: bool>(
    name: DAT_NAME_PTR,
    async_evd_min_qlen: DAT_COUNT,
    async_evd: *mut DAT_EVD_HANDLE,
    ia_handle: *mut DAT_IA_HANDLE,
) -> DAT_RETURN {
    // SAFETY: C code satisfies the standard's prototype.
    unsafe {
        open_as(
            Version::V2_0,
            THREAD_SAFE,
            Handles::OfTransport,
            name,
            async_evd_min_qlen,
            async_evd,
            ia_handle,
        )
    }
}

/// Which function table the handles of an adapter lead to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Handles {
    /// The handles lead to the table of the adapter's own transport.
    OfTransport,
    /// The handles lead to the registered table, which may be the table of another transport. Such
    /// an adapter can only be queried and closed.
    OfEntry,
}

/// Opens an adapter as [`open`] does, for the entry with this version and thread safety.
///
/// # Safety
/// The pointers are NULL or lead to what the standard's prototype says.
pub(super) unsafe fn open_as(
    version: Version,
    thread_safe: bool,
    handles: Handles,
    name: DAT_NAME_PTR,
    async_evd_min_qlen: DAT_COUNT,
    async_evd: *mut DAT_EVD_HANDLE,
    ia_handle: *mut DAT_IA_HANDLE,
) -> DAT_RETURN {
    // SAFETY: each pointer is NULL or leads to what the standard's prototype says.
    control_call(&const { Call::new("ia_open") }, 0, || unsafe {
        if name.is_null() {
            return Err(Error::arg(1));
        }
        let c_name = CStr::from_ptr(name);
        let name = c_name.to_str().map_err(|_| Error::arg(1))?;
        let async_evd = async_evd.as_mut().ok_or(Error::arg(3))?;
        let ia_handle = out(ia_handle, 4)?;
        let requested = AsyncEvd::from_c(async_evd_min_qlen, *async_evd)?;
        let registered = register::find(c_name, version, thread_safe)
            .ok_or(Error::new(DAT_PROVIDER_NOT_FOUND, DAT_NAME_NOT_REGISTERED))?;
        requested.check_live()?;
        let provider = &registered.provider;
        // Block signals while the adapter is opened. Otherwise the signal of a timer could arrive
        // so often that no system call ever completes.
        let _blocked = BlockedSignals::during_a_call();
        let opened = (provider.open)(name, &registered.params);
        let entered = opened.and_then(|opened| {
            let of_transport = registered.table(opened.0.tables());
            let table = match handles {
                Handles::OfTransport => of_transport,
                Handles::OfEntry => registered.table(provider.tables),
            };
            let (provider, registry) = (provider.name, registered.registry);
            let entry = Entry { name, provider, table, registry, thread_safe };
            opened.0.create_ia(entry, requested)
        });
        let (ia, own_async_evd) = entered.map_err(|error| {
            if !error.reason.is_empty() {
                tell_why(name, provider.name, &error.reason);
            }
            error.code
        })?;
        if let AsyncEvd::Create(_) = requested {
            *async_evd = own_async_evd;
        }
        ia_handle.write(ia);
        Ok(())
    })
}

/// Tells the user once why an adapter cannot be opened. The reason goes to the log or, if the log
/// does not contain this event, to a message. The program itself gets only a status number.
fn tell_why(ia: &str, provider: &str, reason: &str) {
    if tracing::enabled!(target: "dat::ia", tracing::Level::WARN) {
        tracing::warn!(
            target: "dat::ia", ia, provider, error = reason, "the adapter cannot be opened"
        );
    } else {
        register::report_error(provider, ia, reason);
    }
}

control_functions! {
    /// dat_ia_query. Each pointer may be NULL if the caller requests nothing through it.
    fn ia_query<T>(
        ia: DAT_IA_HANDLE,
        async_evd: *mut DAT_EVD_HANDLE,
        ia_mask: DAT_IA_ATTR_MASK,
        ia_attr: *mut DAT_IA_ATTR,
        provider_mask: DAT_PROVIDER_ATTR_MASK,
        provider_attr: *mut DAT_PROVIDER_ATTR,
    ) {
        let ia = handle::pin::<Ia<T>>(ia)?;
        query((ia_mask, DAT_IA_FIELD_ALL, 3), ia_attr, DAT_IA_ATTR::zeroed(), |attr| {
            ia.attributes(attr)
        })?;
        let fields = (provider_mask, DAT_PROVIDER_FIELD_ALL, 5);
        query(fields, provider_attr, DAT_PROVIDER_ATTR::zeroed(), |a| ia.provider_attributes(a))?;
        if let Some(async_evd) = async_evd.as_mut() {
            *async_evd = ia.async_evd_handle();
        }
        Ok(())
    }

    /// The provider's part of dat_registry_providers_related: whether two adapters share a point of
    /// failure. This library does not support high availability, so an adapter is related only to
    /// itself.
    fn ia_ha_related<T>(ia: DAT_IA_HANDLE, name: DAT_NAME_PTR, answer: *mut DAT_BOOLEAN) {
        let ia = handle::pin::<Ia<T>>(ia)?;
        if name.is_null() {
            return Err(Error::arg(2));
        }
        let same = CStr::from_ptr(name).to_bytes() == ia.name.as_bytes();
        out(answer, 3)?.write(if same { DAT_TRUE } else { DAT_FALSE });
        Ok(())
    }

    /// dat_ia_close.
    fn ia_close<T>(ia: DAT_IA_HANDLE, flags: DAT_CLOSE_FLAGS) {
        defer_if_working(ia, move |ia| ia::close_handle::<T>(ia, flags))
    }
}

/// dat_set_consumer_context.
pub(super) unsafe extern "C" fn set_consumer_context(
    handle: DAT_HANDLE,
    context: DAT_CONTEXT,
) -> DAT_RETURN {
    control_call(&const { Call::new("set_consumer_context") }, handle as usize, || {
        // SAFETY: the members of the union have the same size, and an integer may have any bits.
        handle::live_slot(handle)?.set_context(unsafe { context.as_64 });
        Ok(())
    })
}

/// dat_get_consumer_context.
pub(super) unsafe extern "C" fn get_consumer_context(
    handle: DAT_HANDLE,
    context: *mut DAT_CONTEXT,
) -> DAT_RETURN {
    control_call(&const { Call::new("get_consumer_context") }, handle as usize, || {
        let slot = handle::live_slot(handle)?;
        // SAFETY: the pointer is NULL or leads to what the standard's prototype says.
        unsafe { out(context, 2) }?.write(DAT_CONTEXT { as_64: slot.context() });
        Ok(())
    })
}

/// dat_get_handle_type.
pub(super) unsafe extern "C" fn get_handle_type(
    handle: DAT_HANDLE,
    kind: *mut DAT_HANDLE_TYPE,
) -> DAT_RETURN {
    control_call(&const { Call::new("get_handle_type") }, handle as usize, || {
        let slot = handle::live_slot(handle)?;
        // SAFETY: the pointer is NULL or leads to what the standard's prototype says.
        unsafe { out(kind, 2) }?.write(slot.kind());
        Ok(())
    })
}
