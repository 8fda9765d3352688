//! Waiting for events, and reading them.

use dat_sys::*;

use super::{Arrival, Rig, soon};
use crate::case::Outcome;
use crate::check::{answers, failed, name, ok, same};

/// A completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dto {
    /// The endpoint.
    pub(crate) ep: DAT_EP_HANDLE,
    /// The cookie that it was posted with.
    pub(crate) cookie: u64,
    /// How it went.
    pub(crate) status: DAT_DTO_COMPLETION_STATUS,
    /// Bytes, where it went well.
    pub(crate) length: DAT_SEG_LENGTH,
    /// What it was (uDAPL 2.0).
    pub(crate) operation: DAT_DTOS,
    /// What the peer invalidated (uDAPL 2.0).
    pub(crate) invalidated: DAT_RMR_CONTEXT,
}

/// The end of an RMR bind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    /// The RMR.
    pub(crate) rmr: DAT_RMR_HANDLE,
    /// The cookie that the bind was posted with.
    pub(crate) cookie: u64,
    /// How it went.
    pub(crate) status: DAT_RMR_BIND_COMPLETION_STATUS,
}

impl Rig {
    /// dat_evd_wait for one event.
    pub(crate) fn wait(
        &self,
        evd: DAT_EVD_HANDLE,
        timeout: DAT_TIMEOUT,
        threshold: DAT_COUNT,
        event: &mut DAT_EVENT,
    ) -> (DAT_RETURN, DAT_COUNT) {
        let mut more = -1;
        let status = self.api.dat_evd_wait(evd, timeout, threshold, event, &mut more);
        (status, more)
    }

    /// The next event, which must come soon.
    #[track_caller]
    pub(crate) fn event(&self, evd: DAT_EVD_HANDLE) -> Outcome<DAT_EVENT> {
        let mut event = DAT_EVENT::zeroed();
        let (status, _) = self.wait(evd, soon(), 1, &mut event);
        if status != DAT_SUCCESS {
            return Err(failed(format_args!(
                "no event came: dat_evd_wait answered {}",
                name(status)
            )));
        }
        same("evd_handle of the event", event.evd_handle, evd)?;
        Ok(event)
    }

    /// The next event, which must be this one.
    #[track_caller]
    pub(crate) fn expect(
        &self,
        evd: DAT_EVD_HANDLE,
        number: DAT_EVENT_NUMBER,
    ) -> Outcome<DAT_EVENT> {
        let event = self.event(evd)?;
        if event.event_number != number {
            let (is, wanted) = (event_name(event.event_number), event_name(number));
            return Err(failed(format_args!("the event is {is}, not {wanted}")));
        }
        Ok(event)
    }

    /// The next event, a completion.
    #[track_caller]
    pub(crate) fn completion(&self, evd: DAT_EVD_HANDLE) -> Outcome<Dto> {
        Ok(dto(&self.expect(evd, DAT_DTO_COMPLETION_EVENT)?))
    }

    /// The next event, a completion of the DTO of this cookie with this status.
    #[track_caller]
    pub(crate) fn completes(
        &self,
        evd: DAT_EVD_HANDLE,
        cookie: u64,
        status: DAT_DTO_COMPLETION_STATUS,
    ) -> Outcome<Dto> {
        let dto = self.completion(evd)?;
        same(
            "the cookie and status of the completion",
            (dto.cookie, dto.status),
            (cookie, status),
        )?;
        Ok(dto)
    }

    /// The next event, the end of a bind.
    #[track_caller]
    pub(crate) fn bound(&self, evd: DAT_EVD_HANDLE) -> Outcome<Bound> {
        let event = self.expect(evd, DAT_RMR_BIND_COMPLETION_EVENT)?;
        // SAFETY: the number says which member is valid; a cookie is a word.
        unsafe {
            let data = event.event_data.rmr_completion_event_data;
            Ok(Bound { rmr: data.rmr_handle, cookie: data.user_cookie.as_64, status: data.status })
        }
    }

    /// The next event, about a connection.
    #[track_caller]
    pub(crate) fn connection(
        &self,
        evd: DAT_EVD_HANDLE,
        number: DAT_EVENT_NUMBER,
    ) -> Outcome<DAT_CONNECTION_EVENT_DATA> {
        let event = self.expect(evd, number)?;
        // SAFETY: the number says which member is valid.
        Ok(unsafe { event.event_data.connect_event_data })
    }

    /// The next event, a connection request.
    #[track_caller]
    pub(crate) fn arrival(&self, evd: DAT_EVD_HANDLE) -> Outcome<Arrival> {
        let event = self.expect(evd, DAT_CONNECTION_REQUEST_EVENT)?;
        // SAFETY: the number says which member is valid; the service points are all handles.
        unsafe {
            let data = event.event_data.cr_arrival_event_data;
            Ok(Arrival {
                cr: data.cr_handle,
                sp: data.sp_handle.psp_handle,
                qualifier: data.conn_qual,
                address: data.local_ia_address_ptr,
            })
        }
    }

    /// The next event of the asynchronous EVD, whatever its number.
    #[track_caller]
    pub(crate) fn any_trouble(&self) -> Outcome<(DAT_HANDLE, DAT_COUNT)> {
        let event = self.event(self.async_evd)?;
        if event.event_number & 0x8000 == 0 {
            return Err(failed(format_args!("the event is {}", event_name(event.event_number))));
        }
        Ok(about(&event))
    }

    /// Nothing is queued now.
    #[track_caller]
    pub(crate) fn quiet(&self, evd: DAT_EVD_HANDLE) -> Outcome {
        let mut event = DAT_EVENT::zeroed();
        match self.api.dat_evd_dequeue(evd, &mut event) {
            DAT_SUCCESS => {
                let number = event_name(event.event_number);
                Err(failed(format_args!("an event that should not be: {number}")))
            }
            status => answers(status, DAT_QUEUE_EMPTY),
        }
    }

    /// Queues a software event.
    pub(crate) fn post_se(&self, evd: DAT_EVD_HANDLE, value: usize) -> DAT_RETURN {
        let data = DAT_SOFTWARE_EVENT_DATA { pointer: value as DAT_PVOID };
        let event = DAT_EVENT {
            event_number: DAT_SOFTWARE_EVENT,
            event_data: DAT_EVENT_DATA { software_event_data: data },
            ..DAT_EVENT::zeroed()
        };
        self.api.dat_evd_post_se(evd, &event)
    }

    /// Takes all events that are queued now.
    pub(crate) fn drain(&self, evd: DAT_EVD_HANDLE) -> Outcome<Vec<DAT_EVENT>> {
        let mut events = Vec::new();
        loop {
            let mut event = DAT_EVENT::zeroed();
            match self.api.dat_evd_dequeue(evd, &mut event) {
                status if DAT_GET_TYPE(status) == DAT_QUEUE_EMPTY => return Ok(events),
                status => ok(status)?,
            }
            events.push(event);
        }
    }
}

/// A completion event as a [`Dto`].
pub(crate) fn dto(event: &DAT_EVENT) -> Dto {
    // SAFETY: the members are integers and pointers: of another event they are read as nonsense, not as a fault.
    unsafe {
        let data = event.event_data.dto_completion_event_data;
        Dto {
            ep: data.ep_handle,
            cookie: data.user_cookie.as_64,
            status: data.status,
            length: data.transfered_length,
            operation: data.operation,
            invalidated: data.rmr_context,
        }
    }
}

/// What an asynchronous event is about, and the reason.
pub(crate) fn about(event: &DAT_EVENT) -> (DAT_HANDLE, DAT_COUNT) {
    // SAFETY: as in `dto`.
    unsafe {
        let data = event.event_data.asynch_error_event_data;
        (data.dat_handle, data.reason)
    }
}

/// What was given to [`Rig::post_se`].
pub(crate) fn software(event: &DAT_EVENT) -> usize {
    // SAFETY: as in `dto`.
    unsafe { event.event_data.software_event_data.pointer as usize }
}

/// A cookie.
pub(crate) fn cookie(value: u64) -> DAT_CONTEXT {
    DAT_CONTEXT { as_64: value }
}

/// The name of an event number.
pub(crate) fn event_name(number: DAT_EVENT_NUMBER) -> String {
    let mut named = describe::CONSTANTS.iter().flat_map(|file| file.iter());
    let is_event = |name: &str| {
        ["DAT_CONNECTION_", "DAT_ASYNC_ERROR_"].iter().any(|prefix| name.starts_with(prefix))
            || name.ends_with("_EVENT")
    };
    let found =
        named.find(|constant| constant.value == i64::from(number) && is_event(constant.name));
    found.map_or_else(|| format!("{number:#x}"), |constant| constant.name.to_owned())
}
