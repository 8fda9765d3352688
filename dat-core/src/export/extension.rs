//! dat_extension_op: OpenDAT's own operations, and the IB extension, version 2.0.9. Immediate data,
//! atomic operations, unreliable datagrams, counters, and queries of an adapter that is not open
//! are supported. Collective operations are not supported.

use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dat_sys::ib::*;
use dat_sys::opendat::{DAT_OPENDAT_EP_LAST_CAUSE_OP, DAT_OPENDAT_POST_SEND_UD_IMMED_OP};
use dat_sys::*;

use super::convert::{AlignedSegments, Call, control_call, data_path_code, with_lock};
use super::counters;
use super::ia::{self, Handles};
use super::last_cause;
use super::post::target;
use super::register::{self, Version};
use super::va_list::VaList;
use crate::ep::datagram::{AddressHandle, PeerAddress};
use crate::ep::{Atomic, Ep};
use crate::error::{Error, Result, no_memory};
use crate::handle::{self, Node};
use crate::provider::{Segment, Transport};

/// Implements dat_extension_op, which libdat passes on. `handle` may be a handle of any type. For
/// an operation that opens an adapter, `handle` is instead a pointer to the adapter's name.
pub(super) unsafe extern "C" fn handle_extendedop<T: Transport, const THREAD_SAFE: bool>(
    handle: DAT_HANDLE,
    op: DAT_EXTENDED_OP,
    args: DAT_VA_LIST,
) -> DAT_RETURN {
    if op as DAT_IB_OP != DAT_IB_OPEN_QUERY_OP
        && let Err(error) = handle::live_slot(handle)
    {
        return error.code();
    }
    if args.is_null() {
        return Error::arg(3).code();
    }
    // SAFETY: the arguments are those of the operation, as its macro in dat_ib_extensions.h passes
    // them.
    unsafe {
        let mut args = VaList::new(args);
        if op == DAT_OPENDAT_EP_LAST_CAUSE_OP {
            let call = const { Call::new("opendat_ep_last_cause") };
            return control_call(&call, handle as usize, || {
                with_lock::<THREAD_SAFE, _>(handle, || last_cause::copy::<T>(handle, &mut args))
            });
        }
        if op == DAT_OPENDAT_POST_SEND_UD_IMMED_OP {
            return send_datagram::<T, THREAD_SAFE>(handle, true, &mut args);
        }
        match op as DAT_IB_OP {
            DAT_IB_FETCH_AND_ADD_OP => {
                let add = args.next();
                atomic::<T, THREAD_SAFE>(handle, Atomic::FetchAdd(add), &mut args)
            }
            DAT_IB_CMP_AND_SWAP_OP => {
                let (compare, swap) = (args.next(), args.next());
                atomic::<T, THREAD_SAFE>(handle, Atomic::CompareSwap { compare, swap }, &mut args)
            }
            DAT_IB_RDMA_WRITE_IMMED_OP => write_immed::<T, THREAD_SAFE>(handle, &mut args),
            DAT_IB_QUERY_COUNTERS_OP => {
                let call = const { Call::new("ib_query_counters") };
                control_call(&call, handle as usize, || {
                    with_lock::<THREAD_SAFE, _>(handle, || counters::query::<T>(handle, &mut args))
                })
            }
            DAT_IB_PRINT_COUNTERS_OP => {
                let call = const { Call::new("ib_print_counters") };
                control_call(&call, handle as usize, || {
                    with_lock::<THREAD_SAFE, _>(handle, || counters::print::<T>(handle, &mut args))
                })
            }
            DAT_IB_START_COUNTERS_OP => {
                let call = const { Call::new("ib_start_counters") };
                control_call(&call, handle as usize, || {
                    with_lock::<THREAD_SAFE, _>(handle, || counters::start::<T>(handle, &mut args))
                })
            }
            DAT_IB_STOP_COUNTERS_OP => {
                let call = const { Call::new("ib_stop_counters") };
                control_call(&call, handle as usize, || {
                    with_lock::<THREAD_SAFE, _>(handle, || counters::stop::<T>(handle, &mut args))
                })
            }
            DAT_IB_OPEN_QUERY_OP => open_query::<THREAD_SAFE>(handle.cast(), &mut args),
            DAT_IB_CLOSE_QUERY_OP => close_query(handle),
            DAT_IB_UD_SEND_OP => send_datagram::<T, THREAD_SAFE>(handle, false, &mut args),
            DAT_IB_UD_CM_FREE_OP => {
                let call = const { Call::new("ib_ud_cm_free") };
                control_call(&call, handle as usize, || {
                    let context = args.next();
                    handle::with_object::<Ep<T>, _>(handle, |ep| ep.free_private(context))
                })
            }
            DAT_IB_UD_AH_FREE_OP => {
                let call = const { Call::new("ib_ud_ah_free") };
                control_call(&call, handle as usize, || free_address_handle::<T>(handle, &mut args))
            }
            DAT_IB_COLLECTIVE_CREATE_MEMBER_OP..=DAT_IB_COLLECTIVE_BARRIER_OP => {
                Error::of(DAT_MODEL_NOT_SUPPORTED).code()
            }
            _ => Error::of(DAT_NOT_IMPLEMENTED).code(),
        }
    }
}

/// Calls `f` with an endpoint. If the table is thread-safe, the endpoint's lock is held during the
/// call.
///
/// # Safety
/// The requirements of [`handle::get`] apply.
unsafe fn on_ep<T: Transport, const THREAD_SAFE: bool>(
    handle: *mut c_void,
    name: &str,
    f: impl FnOnce(&Node<Ep<T>>) -> Result<()>,
) -> DAT_RETURN {
    // SAFETY: the caller fulfils the contract of this function.
    let result = || unsafe { handle::get::<Ep<T>>(handle) }.and_then(f);
    data_path_code((handle as usize, name), with_lock::<THREAD_SAFE, _>(handle, result))
}

/// Posts an RDMA write with immediate data. The arguments are `count, lmr_triplets, cookie,
/// rmr_triplet, immediate, flags`.
///
/// # Safety
/// The requirements of [`handle_extendedop`] apply.
unsafe fn write_immed<T: Transport, const THREAD_SAFE: bool>(
    handle: *mut c_void,
    args: &mut VaList,
) -> DAT_RETURN {
    // SAFETY: the caller guarantees that the arguments are those of this operation. The consumer
    // keeps the memory of the segments mapped.
    unsafe {
        let (count, iov) = (args.next() as DAT_COUNT, args.pointer::<DAT_LMR_TRIPLET>());
        let (cookie, remote) = (args.next(), args.pointer::<DAT_RMR_TRIPLET>());
        let (immediate, flags) = (args.next() as u32, args.next() as DAT_COMPLETION_FLAGS);
        on_ep::<T, THREAD_SAFE>(handle, "ib_post_rdma_write_immed", |ep| {
            let mut aligned = AlignedSegments::new();
            let segments =
                super::convert::segments(count, iov, &mut aligned).map_err(
                    |error| match error {
                        _ if error == Error::arg(2) => Error::arg(3),
                        _ => Error::arg(4),
                    },
                )?;
            ep.post_rdma_write_immed(segments, cookie, target(remote, 6)?, immediate, flags)
        })
    }
}

/// Sends a datagram. The arguments are `count, lmr_triplets, remote_ah, cookie, flags`. If
/// `has_immediate` is true, the immediate data precede the flags.
///
/// # Safety
/// The requirements of [`handle_extendedop`] apply.
unsafe fn send_datagram<T: Transport, const THREAD_SAFE: bool>(
    handle: *mut c_void,
    has_immediate: bool,
    args: &mut VaList,
) -> DAT_RETURN {
    // SAFETY: the caller guarantees that the arguments are those of this operation. The consumer
    // keeps the memory of the segments mapped.
    unsafe {
        let (count, iov) = (args.next() as DAT_COUNT, args.pointer::<DAT_LMR_TRIPLET>());
        let (to, cookie) = (args.pointer::<DAT_IB_ADDR_HANDLE>(), args.next());
        let immediate = has_immediate.then(|| args.next() as u32);
        let flags = (args.next() as DAT_COMPLETION_FLAGS, if has_immediate { 8 } else { 7 });
        let name = if has_immediate { "opendat_post_send_ud_immed" } else { "ib_post_send_ud" };
        let to = if to.is_null() { DAT_IB_ADDR_HANDLE::zeroed() } else { to.read_unaligned() };
        let unknown = |_| Error::arg(5);
        let post = |ep: &Node<Ep<T>>, peer: &PeerAddress<T>| {
            let mut aligned = AlignedSegments::new();
            let segments = super::convert::segments(count, iov, &mut aligned).map_err(|error| {
                if error == Error::arg(2) { Error::arg(3) } else { Error::arg(4) }
            })?;
            ep.post_datagram(segments, cookie, (peer, to.qpn), immediate, flags)
        };
        if THREAD_SAFE {
            // Another thread may free the address handle, so copy the address. A call that holds
            // the lock of the handle waits for no other lock.
            let copied = handle::with_object::<AddressHandle<T>, _>(to.ah.cast(), |node| {
                Ok(node.peer().clone())
            });
            let copied = copied.map_err(unknown);
            on_ep::<T, THREAD_SAFE>(handle, name, |ep| {
                ep.require_datagrams()?;
                post(ep, &copied?)
            })
        } else {
            on_ep::<T, THREAD_SAFE>(handle, name, |ep| {
                ep.require_datagrams()?;
                let node = handle::get::<AddressHandle<T>>(to.ah.cast()).map_err(unknown)?;
                post(ep, node.peer())
            })
        }
    }
}

/// Frees an address handle. The argument is `remote_ah`.
///
/// # Safety
/// The requirements of [`handle_extendedop`] apply.
unsafe fn free_address_handle<T: Transport>(handle: *mut c_void, args: &mut VaList) -> Result<()> {
    // SAFETY: the caller guarantees that the argument belongs to this operation.
    unsafe {
        let address = args.pointer::<DAT_IB_ADDR_HANDLE>();
        let ah = match address.is_null() {
            true => std::ptr::null_mut(),
            false => address.read_unaligned().ah.cast(),
        };
        handle::with_object::<Ep<T>, _>(handle, |ep| ep.free_address(ah)).map_err(|error| {
            match error {
                _ if error == Error::handle(DAT_INVALID_HANDLE1) => Error::arg(3),
                error => error,
            }
        })
    }
}

/// Posts an atomic operation. The arguments after its operands are `lmr_triplet, cookie,
/// rmr_triplet, flags`.
///
/// # Safety
/// The requirements of [`handle_extendedop`] apply.
unsafe fn atomic<T: Transport, const THREAD_SAFE: bool>(
    handle: *mut c_void,
    atomic: Atomic,
    args: &mut VaList,
) -> DAT_RETURN {
    let (name, sink_arg) = match atomic {
        Atomic::FetchAdd(_) => ("ib_post_fetch_and_add", 4),
        Atomic::CompareSwap { .. } => ("ib_post_cmp_and_swap", 5),
    };
    // SAFETY: the caller fulfils the contract of this function.
    unsafe {
        let (sink, cookie) = (args.pointer::<DAT_LMR_TRIPLET>(), args.next());
        let (remote, flags) =
            (args.pointer::<DAT_RMR_TRIPLET>(), args.next() as DAT_COMPLETION_FLAGS);
        on_ep::<T, THREAD_SAFE>(handle, name, |ep| {
            if sink.is_null() {
                return Err(Error::arg(sink_arg));
            }
            let sink = sink.read_unaligned();
            let sink = Segment {
                addr: sink.virtual_address,
                len: sink.segment_length,
                key: sink.lmr_context,
            };
            ep.post_atomic(atomic, sink, cookie, target(remote, sink_arg + 2)?, flags)
        })
    }
}

/// Opens an adapter for queries. The arguments are `ia_handle, ia_mask, ia_attr, provider_mask,
/// provider_attr`. The operation `DAT_IB_CLOSE_QUERY_OP` closes the adapter.
///
/// # Safety
/// The requirements of [`handle_extendedop`] apply.
unsafe fn open_query<const THREAD_SAFE: bool>(name: DAT_NAME_PTR, args: &mut VaList) -> DAT_RETURN {
    // SAFETY: the caller fulfils the contract of this function.
    unsafe {
        let handle = args.pointer::<DAT_IA_HANDLE>();
        let (ia_mask, ia_attr) = (args.next(), args.pointer::<DAT_IA_ATTR>());
        let (provider_mask, provider_attr) = (args.next(), args.pointer::<DAT_PROVIDER_ATTR>());
        if handle.is_null() {
            return Error::arg(4).code();
        }
        if queried().try_reserve(1).is_err() {
            return no_memory(()).code();
        }
        let (mut ia, mut nobody) = (std::ptr::null_mut(), DAT_EVD_ASYNC_EXISTS);
        let opened = ia::open_as(
            Version::V2_0,
            THREAD_SAFE,
            Handles::OfEntry,
            name,
            0,
            &raw mut nobody,
            &raw mut ia,
        );
        if opened != DAT_SUCCESS {
            return renumber_arguments(opened);
        }
        queried().push(ia as usize);
        let requested = register::table_of_transport(ia).and_then(|table| {
            let query = table.ia_query_func?;
            Some(query(ia, std::ptr::null_mut(), ia_mask, ia_attr, provider_mask, provider_attr))
        });
        let requested = requested.unwrap_or(NO_ADAPTER);
        if requested != DAT_SUCCESS {
            close_query(ia);
            return renumber_arguments(requested);
        }
        handle.write(ia);
        DAT_SUCCESS
    }
}

/// Corrects the argument position in a status of dat_ia_open or dat_ia_query. In dat_extension_op,
/// the operation and the address of the adapter's handle precede the arguments of dat_ia_query.
fn renumber_arguments(status: DAT_RETURN) -> DAT_RETURN {
    let argument = (1..=6).find(|&argument| status == Error::arg(argument).code());
    argument.map_or(status, |argument| Error::arg(argument + 2).code())
}

/// Closes an adapter that [`open_query`] has opened. The registry does not know such an adapter. It
/// knows all other adapters, which only dat_ia_close closes.
///
/// # Safety
/// The requirements of dat_ia_close apply.
unsafe fn close_query(ia: DAT_IA_HANDLE) -> DAT_RETURN {
    if !queried().contains(&(ia as usize)) {
        return NO_ADAPTER;
    }
    let close = register::table_of_transport(ia).and_then(|table| table.ia_close_func);
    // SAFETY: the caller fulfils the contract of this function.
    let status = close.map_or(NO_ADAPTER, |close| unsafe { close(ia, DAT_CLOSE_ABRUPT_FLAG) });
    if status == DAT_SUCCESS {
        queried().retain(|queried| *queried != ia as usize);
    }
    status
}

/// The handles of the adapters that are open for queries.
fn queried() -> MutexGuard<'static, Vec<usize>> {
    static QUERIED: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    QUERIED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The status for a handle that does not refer to an adapter.
const NO_ADAPTER: DAT_RETURN = DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
