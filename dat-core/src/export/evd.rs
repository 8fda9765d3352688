//! The functions of the function table that handle EVDs and CNOs, except for dat_evd_dequeue, which
//! is in `post`.

use dat_sys::*;
use waiting::{Wake, cancel};

use super::convert::{
    control_functions, defer_if_working, out, query, waiting_functions, with_lock,
};
use crate::cno::{self, Cno};
use crate::error::{Error, Result};
use crate::evd::{self, Evd};
use crate::handle::{self, Node};
use crate::ia::Ia;
use crate::provider::Transport;

control_functions! {
    /// dat_evd_create.
    fn evd_create<T>(
        ia: DAT_IA_HANDLE,
        min_qlen: DAT_COUNT,
        cno: DAT_CNO_HANDLE,
        flags: DAT_EVD_FLAGS,
        evd: *mut DAT_EVD_HANDLE,
    ) {
        handle::check::<Ia<T>>(ia)?;
        let cno = handle::pin_or_null::<Cno<T>>(cno)?;
        let evd = out(evd, 5)?;
        let ia = handle::pin(ia)?;
        let made = evd::create(&ia, min_qlen, of_adapter(&ia, cno.as_deref())?, flags)?;
        let made = handle::pin_created(made);
        evd.write(made.handle());
        Ok(())
    }

    /// dat_evd_query.
    fn evd_query<T, THREAD_SAFE>(
        evd: DAT_EVD_HANDLE,
        mask: DAT_EVD_PARAM_MASK,
        param: *mut DAT_EVD_PARAM,
    ) {
        with_lock::<THREAD_SAFE, _>(evd, || {
            let evd = handle::get::<Evd<T>>(evd)?;
            let fields = (mask.into(), DAT_EVD_FIELD_ALL.into(), 2);
            query(fields, param, DAT_EVD_PARAM::zeroed(), |param| {
                *param = DAT_EVD_PARAM {
                    ia_handle: evd.ia.consumer_handle(),
                    evd_qlen: DAT_COUNT::try_from(evd.depth()).unwrap_or(DAT_COUNT::MAX),
                    evd_state: evd.state(),
                    cno_handle: evd.cno_handle(),
                    evd_flags: evd.flags,
                };
            })
        })
    }

    /// dat_evd_modify_cno.
    fn evd_modify_cno<T, THREAD_SAFE>(evd: DAT_EVD_HANDLE, cno: DAT_CNO_HANDLE) {
        handle::check::<Evd<T>>(evd)?;
        let cno = handle::pin_or_null::<Cno<T>>(cno)?;
        with_lock::<THREAD_SAFE, _>(evd, || {
            let evd = handle::get::<Evd<T>>(evd)?;
            evd.set_cno(of_adapter(&evd.ia, cno.as_deref())?)
        })
    }

    /// dat_evd_enable.
    fn evd_enable<T, THREAD_SAFE>(evd: DAT_EVD_HANDLE) {
        with_lock::<THREAD_SAFE, _>(evd, || {
            handle::get::<Evd<T>>(evd)?.set_enabled(true);
            Ok(())
        })
    }

    /// dat_evd_disable.
    fn evd_disable<T, THREAD_SAFE>(evd: DAT_EVD_HANDLE) {
        with_lock::<THREAD_SAFE, _>(evd, || {
            handle::get::<Evd<T>>(evd)?.set_enabled(false);
            Ok(())
        })
    }

    /// dat_evd_set_unwaitable.
    fn evd_set_unwaitable<T, THREAD_SAFE>(evd: DAT_EVD_HANDLE) {
        with_lock::<THREAD_SAFE, _>(evd, || {
            handle::get::<Evd<T>>(evd)?.set_waitable(false);
            Ok(())
        })
    }

    /// dat_evd_clear_unwaitable.
    fn evd_clear_unwaitable<T, THREAD_SAFE>(evd: DAT_EVD_HANDLE) {
        with_lock::<THREAD_SAFE, _>(evd, || {
            handle::get::<Evd<T>>(evd)?.set_waitable(true);
            Ok(())
        })
    }

    /// dat_evd_resize.
    fn evd_resize<T, THREAD_SAFE>(evd: DAT_EVD_HANDLE, min_qlen: DAT_COUNT) {
        with_lock::<THREAD_SAFE, _>(evd, || handle::get::<Evd<T>>(evd)?.resize(min_qlen))
    }

    /// dat_evd_post_se.
    fn evd_post_se<T, THREAD_SAFE>(evd: DAT_EVD_HANDLE, event: *const DAT_EVENT) {
        with_lock::<THREAD_SAFE, _>(evd, || {
            handle::get::<Evd<T>>(evd)?.post_software(event.as_ref().ok_or(Error::arg(2))?)
        })
    }

    /// dat_evd_free.
    fn evd_free<T, THREAD_SAFE>(evd: DAT_EVD_HANDLE) {
        defer_if_working(evd, |evd| {
            let begun = handle::with_exclusive(evd, |evd: &Node<Evd<T>>| evd::begin_free(evd))?;
            evd::end_free(begun);
            Ok(())
        })
    }

    /// dat_cno_create.
    fn cno_create<T>(ia: DAT_IA_HANDLE, agent: DAT_OS_WAIT_PROXY_AGENT, cno: *mut DAT_CNO_HANDLE) {
        let ia = handle::pin::<Ia<T>>(ia)?;
        let cno = out(cno, 3)?;
        cno.write(handle::pin_created(cno::create(&ia, agent)?).handle());
        Ok(())
    }

    /// dat_cno_fd_create.
    fn cno_fd_create<T>(ia: DAT_IA_HANDLE, fd: *mut DAT_FD, cno: *mut DAT_CNO_HANDLE) {
        let ia = handle::pin::<Ia<T>>(ia)?;
        let (fd, cno) = (out(fd, 2)?, out(cno, 3)?);
        let (made, its_fd) = cno::create_with_fd(&ia)?;
        fd.write(its_fd);
        cno.write(handle::pin_created(made).handle());
        Ok(())
    }

    /// dat_cno_trigger. Returns the EVD that triggered, and consumes the trigger. If there is no
    /// trigger, returns `DAT_QUEUE_EMPTY` and a NULL EVD.
    fn cno_trigger<T>(cno: DAT_CNO_HANDLE, evd: *mut DAT_EVD_HANDLE) {
        wait::<T>(cno, 0, evd, 2)
    }

    /// dat_cno_modify_agent.
    fn cno_modify_agent<T>(cno: DAT_CNO_HANDLE, agent: DAT_OS_WAIT_PROXY_AGENT) {
        handle::with_object::<Cno<T>, _>(cno, |cno| cno.set_agent(agent))
    }

    /// dat_cno_query.
    fn cno_query<T>(cno: DAT_CNO_HANDLE, mask: DAT_CNO_PARAM_MASK, param: *mut DAT_CNO_PARAM) {
        // The standard's masks for a CNO overlap: the mask of the proxy is 3, and the mask of all
        // fields is 4.
        let fields = (mask.into(), u64::from(DAT_CNO_FIELD_ALL | DAT_CNO_FIELD_PROXY), 2);
        handle::with_object::<Cno<T>, _>(cno, |cno| {
            query(fields, param, DAT_CNO_PARAM::zeroed(), |param| {
                let agent = cno.agent();
                param.ia_handle = cno.ia.consumer_handle();
                if let Some(fd) = cno.fd() {
                    param.proxy_type = DAT_PROXY_TYPE_FD;
                    param.proxy = DAT_CNO_PROXY { fd };
                } else if agent.proxy_agent_func.is_some() {
                    param.proxy_type = DAT_PROXY_TYPE_AGENT;
                    param.proxy = DAT_CNO_PROXY { agent };
                }
            })
        })
    }

    /// dat_cno_free.
    fn cno_free<T>(cno: DAT_CNO_HANDLE) {
        defer_if_working(cno, |cno| {
            // The agent may be in a call that waits for the lock of the handle. So wait for the
            // agent after the lock is released: the drop of the returned object does that.
            handle::with_exclusive(cno, |cno: &Node<Cno<T>>| cno::free(cno)).map(drop)
        })
    }
}

waiting_functions! {
    /// dat_evd_wait.
    fn evd_wait<T, THREAD_SAFE>(
        evd: DAT_EVD_HANDLE,
        timeout: DAT_TIMEOUT,
        threshold: DAT_COUNT,
        event: *mut DAT_EVENT,
        more: *mut DAT_COUNT,
    ) {
        let write_more = |count| more.write(DAT_COUNT::try_from(count).unwrap_or(DAT_COUNT::MAX));
        // Release the lock as soon as this thread is the waiter. The wait needs no lock, because
        // dat_evd_free waits until the EVD has no waiter.
        let waiter = with_lock::<THREAD_SAFE, _>(evd, || {
            let evd = handle::get::<Evd<T>>(evd)?;
            out(event, 4)?;
            out(more, 5)?;
            match evd.take_ready(threshold, event)? {
                Some(count) => {
                    write_more(count);
                    Ok(None)
                }
                None => evd.begin_wait(threshold).map(Some),
            }
        })?;
        let Some(waiter) = waiter else { return Ok(()) };
        let _wait = cancel::begin_wait();
        let waited = waiter.wait(timeout)?;
        write_more(waited.more);
        event.write(waited.event?);
        Ok(())
    }

    /// dat_cno_wait. If the wait ends without a trigger, the EVD is NULL.
    fn cno_wait<T>(cno: DAT_CNO_HANDLE, timeout: DAT_TIMEOUT, evd: *mut DAT_EVD_HANDLE) {
        let _wait = cancel::begin_wait();
        wait::<T>(cno, timeout, evd, 3)
    }
}

/// Waits for a trigger. `evd` is the argument at position `arg`. The lock of the handle is held
/// until this thread is in the CNO's list of waiters, and not longer: a call that frees the CNO
/// takes the lock and looks at that list.
///
/// # Safety
/// The requirements of [`handle::with_object`] apply. `evd` is NULL or may be written to.
unsafe fn wait<T: Transport>(
    cno: DAT_CNO_HANDLE,
    timeout: DAT_TIMEOUT,
    evd: *mut DAT_EVD_HANDLE,
    arg: u32,
) -> Result<()> {
    let wake = Wake::new();
    // SAFETY: the caller fulfils the contract of this function.
    unsafe {
        let (waiter, evd) = handle::with_object::<Cno<T>, _>(cno, |cno| {
            let evd = out(evd, arg)?;
            Ok((cno.begin_wait(&wake)?, evd))
        })?;
        let answer = waiter.wait(timeout);
        evd.write(answer.unwrap_or(DAT_HANDLE_NULL));
        answer.map(drop)
    }
}

/// Returns the given CNO if it belongs to this adapter.
fn of_adapter<'a, T: Transport>(
    ia: &Node<Ia<T>>,
    cno: Option<&'a Node<Cno<T>>>,
) -> Result<Option<&'a Node<Cno<T>>>> {
    match cno {
        Some(cno) if cno.ia.handle() != ia.handle() => Err(Error::handle(DAT_INVALID_HANDLE_CNO)),
        cno => Ok(cno),
    }
}
