//! Converts segments and events between uDAPL 2.0 and 1.2.

use std::ptr::null;

use dat_sys::*;

use super::functions::{changed, filled, status};

/// Segments that were converted to 1.2. If the pointer was null, `as_mut_ptr` returns null. If the
/// number was negative, no segment is converted, because the library refuses such a number.
struct Segments {
    null: bool,
    converted: Vec<v1::DAT_LMR_TRIPLET>,
}

impl Segments {
    /// Converts segments to uDAPL 1.2.
    ///
    /// # Safety
    ///
    /// `iov` must be null or point to `count` segments, if `count` is not negative.
    unsafe fn of(iov: *const DAT_LMR_TRIPLET, count: usize) -> Segments {
        let null = iov.is_null();
        let count = if null { 0 } else { count };
        // SAFETY: the caller guarantees that `iov` points to `count` segments.
        let converted = (0..count).map(|at| triplet(unsafe { &*iov.add(at) })).collect();
        Segments { null, converted }
    }

    fn as_mut_ptr(&mut self) -> *mut v1::DAT_LMR_TRIPLET {
        if self.null { std::ptr::null_mut() } else { self.converted.as_mut_ptr() }
    }
}

fn triplet(new: &DAT_LMR_TRIPLET) -> v1::DAT_LMR_TRIPLET {
    v1::DAT_LMR_TRIPLET {
        lmr_context: new.lmr_context,
        pad: 0,
        virtual_address: new.virtual_address,
        segment_length: new.segment_length.into(),
    }
}

/// Runs `call` with a remote segment converted to 1.2.
///
/// # Safety
///
/// `remote` must be null or point to a remote segment.
unsafe fn with_target<R>(
    remote: *const DAT_RMR_TRIPLET,
    call: impl FnOnce(*const v1::DAT_RMR_TRIPLET) -> R,
) -> R {
    // SAFETY: the caller guarantees that `remote` is null or points to a remote segment.
    let Some(new) = (unsafe { remote.as_ref() }) else { return call(null()) };
    call(&v1::DAT_RMR_TRIPLET {
        rmr_context: new.rmr_context,
        pad: 0,
        target_address: new.virtual_address,
        segment_length: new.segment_length.into(),
    })
}

/// Defines functions that post a DTO. Each calls the function of 1.2, with the segments `iov`
/// converted to 1.2.
macro_rules! posts {
    ($($name:ident($count:ident: $number:ty, $iov:ident: $segments:ty
        $(, $arg:ident: $type:ty)*) => $call:expr;)*) => {$(
        pub(super) unsafe extern "C" fn $name(
            handle: DAT_HANDLE, $count: $number, $iov: $segments $(, $arg: $type)*
        ) -> DAT_RETURN {
            // SAFETY: the case guarantees valid arguments: see `api.rs`. The function comes from
            // the loaded library.
            unsafe {
                let mut segments = Segments::of($iov, usize::try_from($count).unwrap_or(0));
                let $iov = segments.as_mut_ptr();
                status($call(handle, $count, $iov $(, $arg)*))
            }
        }
    )*};
}

posts! {
    ep_post_send(count: DAT_COUNT, iov: *mut DAT_LMR_TRIPLET, cookie: DAT_DTO_COOKIE,
        flags: DAT_COMPLETION_FLAGS) => changed().dat_ep_post_send;
    ep_post_recv(count: DAT_COUNT, iov: *mut DAT_LMR_TRIPLET, cookie: DAT_DTO_COOKIE,
        flags: DAT_COMPLETION_FLAGS) => changed().dat_ep_post_recv;
    ep_post_rdma_read(count: DAT_COUNT, iov: *mut DAT_LMR_TRIPLET, cookie: DAT_DTO_COOKIE,
        remote: *const DAT_RMR_TRIPLET, flags: DAT_COMPLETION_FLAGS) => |ep, count, iov, cookie, remote, flags| {
            with_target(remote, |remote| (changed().dat_ep_post_rdma_read)(ep, count, iov, cookie, remote, flags))
        };
    ep_post_rdma_write(count: DAT_COUNT, iov: *mut DAT_LMR_TRIPLET, cookie: DAT_DTO_COOKIE,
        remote: *const DAT_RMR_TRIPLET, flags: DAT_COMPLETION_FLAGS) => |ep, count, iov, cookie, remote, flags| {
            with_target(remote, |remote| (changed().dat_ep_post_rdma_write)(ep, count, iov, cookie, remote, flags))
        };
    srq_post_recv(count: DAT_COUNT, iov: *mut DAT_LMR_TRIPLET, cookie: DAT_DTO_COOKIE)
        => changed().dat_srq_post_recv;
}

pub(super) unsafe extern "C" fn lmr_sync_rdma_read(
    ia: DAT_HANDLE,
    iov: *const DAT_LMR_TRIPLET,
    count: DAT_VLEN,
) -> DAT_RETURN {
    // SAFETY: the case guarantees valid arguments: see `api.rs`. The function comes from the loaded
    // library.
    unsafe {
        let mut segments = Segments::of(iov, count as usize);
        status((changed().dat_lmr_sync_rdma_read)(ia, segments.as_mut_ptr(), count))
    }
}

pub(super) unsafe extern "C" fn lmr_sync_rdma_write(
    ia: DAT_HANDLE,
    iov: *const DAT_LMR_TRIPLET,
    count: DAT_VLEN,
) -> DAT_RETURN {
    // SAFETY: the case guarantees valid arguments: see `api.rs`. The function comes from the loaded
    // library.
    unsafe {
        let mut segments = Segments::of(iov, count as usize);
        status((changed().dat_lmr_sync_rdma_write)(ia, segments.as_mut_ptr(), count))
    }
}

/// Calls dat_rmr_bind. uDAPL 1.2 has no argument for the LMR: the context in the segment names the
/// LMR.
#[allow(clippy::too_many_arguments)] // the standard's prototype
pub(super) unsafe extern "C" fn rmr_bind(
    rmr: DAT_HANDLE,
    _lmr: DAT_LMR_HANDLE,
    segment: *const DAT_LMR_TRIPLET,
    privileges: DAT_MEM_PRIV_FLAGS,
    _va_type: DAT_VA_TYPE,
    ep: DAT_EP_HANDLE,
    cookie: DAT_RMR_COOKIE,
    flags: DAT_COMPLETION_FLAGS,
    context: *mut DAT_RMR_CONTEXT,
) -> DAT_RETURN {
    // SAFETY: the case guarantees valid arguments: see `api.rs`. The function comes from the loaded
    // library.
    unsafe {
        let mut segments = Segments::of(segment, 1);
        let segment = segments.as_mut_ptr();
        status((changed().dat_rmr_bind)(rmr, segment, privileges, ep, cookie, flags, context))
    }
}

pub(super) unsafe extern "C" fn evd_wait(
    evd: DAT_HANDLE,
    timeout: DAT_TIMEOUT,
    threshold: DAT_COUNT,
    event: *mut DAT_EVENT,
    more: *mut DAT_COUNT,
) -> DAT_RETURN {
    let wait = |event: *mut v1::DAT_EVENT| {
        // SAFETY: the function comes from the loaded library. The conformance case passes pointers
        // that are null or valid.
        unsafe { (changed().dat_evd_wait)(evd, timeout, threshold, event, more) }
    };
    // SAFETY: the conformance case passes a pointer that is null or valid.
    unsafe { filled(event, v1::DAT_EVENT::zeroed(), wait, event_of_2_0) }
}

pub(super) unsafe extern "C" fn evd_dequeue(evd: DAT_HANDLE, event: *mut DAT_EVENT) -> DAT_RETURN {
    // SAFETY: the function comes from the loaded library. The conformance case passes pointers that
    // are null or valid.
    let dequeue = |event: *mut v1::DAT_EVENT| unsafe { (changed().dat_evd_dequeue)(evd, event) };
    // SAFETY: the conformance case passes a pointer that is null or valid.
    unsafe { filled(event, v1::DAT_EVENT::zeroed(), dequeue, event_of_2_0) }
}

/// Calls dat_evd_post_se. If the event is a software event, converts its pointer. The function
/// refuses any other event because of the event's number, so the data of such an event do not
/// matter.
pub(super) unsafe extern "C" fn evd_post_se(
    evd: DAT_HANDLE,
    event: *const DAT_EVENT,
) -> DAT_RETURN {
    // SAFETY: the pointer is null or points to an event. A member that is a pointer can be read in
    // any event.
    let read = unsafe { event.as_ref().map(|event| (event, event.event_data.software_event_data)) };
    let old = read.map(|(event, software_event_data)| v1::DAT_EVENT {
        event_number: event.event_number,
        evd_handle: event.evd_handle,
        event_data: v1::DAT_EVENT_DATA { software_event_data },
    });
    // SAFETY: the function comes from the loaded library, and the event is complete.
    status(unsafe {
        (changed().dat_evd_post_se)(evd, old.as_ref().map_or(null(), std::ptr::from_ref))
    })
}

fn event_of_2_0(old: &v1::DAT_EVENT) -> DAT_EVENT {
    let data = &old.event_data;
    // SAFETY: the number of the event says which member of the union is valid, and only this member
    // is read.
    let event_data = unsafe {
        match old.event_number {
            DAT_DTO_COMPLETION_EVENT => {
                let dto = data.dto_completion_event_data;
                DAT_EVENT_DATA {
                    dto_completion_event_data: DAT_DTO_COMPLETION_EVENT_DATA {
                        ep_handle: dto.ep_handle,
                        user_cookie: dto.user_cookie,
                        status: dto.status,
                        // If the operation failed, the library may return any length.
                        transfered_length: dto
                            .transfered_length
                            .try_into()
                            .unwrap_or(DAT_SEG_LENGTH::MAX),
                        ..DAT_DTO_COMPLETION_EVENT_DATA::zeroed()
                    },
                }
            }
            DAT_RMR_BIND_COMPLETION_EVENT => {
                DAT_EVENT_DATA { rmr_completion_event_data: data.rmr_completion_event_data }
            }
            DAT_CONNECTION_REQUEST_EVENT => {
                let cr = data.cr_arrival_event_data;
                DAT_EVENT_DATA {
                    cr_arrival_event_data: DAT_CR_ARRIVAL_EVENT_DATA {
                        sp_handle: DAT_SP_HANDLE { psp_handle: cr.sp_handle.psp_handle },
                        local_ia_address_ptr: cr.local_ia_address_ptr,
                        conn_qual: cr.conn_qual,
                        cr_handle: cr.cr_handle,
                        truncate_flag: DAT_FALSE,
                    },
                }
            }
            DAT_SOFTWARE_EVENT => DAT_EVENT_DATA { software_event_data: data.software_event_data },
            number if number & 0x8000 != 0 => {
                DAT_EVENT_DATA { asynch_error_event_data: data.asynch_error_event_data }
            }
            _ => DAT_EVENT_DATA { connect_event_data: data.connect_event_data },
        }
    };
    let (event_number, evd_handle) = (old.event_number, old.evd_handle);
    DAT_EVENT { event_number, evd_handle, event_data, ..DAT_EVENT::zeroed() }
}
