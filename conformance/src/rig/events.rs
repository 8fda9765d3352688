//! Waits for events, and reads the data of events.

use dat_sys::*;

use super::adapter::{Rig, event_timeout_us};
use super::connect::RequestEvent;
use crate::check::{Outcome, answers, ensure_equal, failed, name, ok};

/// The completion of a DTO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DtoCompletion {
    /// The endpoint of the DTO.
    pub(crate) ep: DAT_EP_HANDLE,
    /// The cookie with which the DTO was posted.
    pub(crate) cookie: u64,
    /// The status of the completion.
    pub(crate) status: DAT_DTO_COMPLETION_STATUS,
    /// The number of transferred bytes, which is valid only if the DTO succeeded.
    pub(crate) length: DAT_SEG_LENGTH,
    /// The operation code of the DTO, which only uDAPL 2.0 reports.
    pub(crate) operation: DAT_DTOS,
    /// The RMR context that the peer's send has invalidated, which only uDAPL 2.0 reports.
    pub(crate) invalidated: DAT_RMR_CONTEXT,
}

/// The completion of an RMR bind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BindCompletion {
    /// The RMR of the bind.
    pub(crate) rmr: DAT_RMR_HANDLE,
    /// The cookie with which the bind was posted.
    pub(crate) cookie: u64,
    /// The status of the bind.
    pub(crate) status: DAT_RMR_BIND_COMPLETION_STATUS,
}

impl Rig {
    /// Calls dat_evd_wait for one event.
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

    /// Returns the next event, which must arrive within the time limit.
    #[track_caller]
    pub(crate) fn event(&self, evd: DAT_EVD_HANDLE) -> Outcome<DAT_EVENT> {
        let mut event = DAT_EVENT::zeroed();
        let (status, _) = self.wait(evd, event_timeout_us(), 1, &mut event);
        if status != DAT_SUCCESS {
            return Err(failed(format_args!(
                "no event arrived: dat_evd_wait returned {}",
                name(status)
            )));
        }
        ensure_equal("evd_handle of the event", event.evd_handle, evd)?;
        Ok(event)
    }

    /// Returns the next event, which must have this number.
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

    /// Returns the next event, which must be a DTO completion.
    #[track_caller]
    pub(crate) fn completion(&self, evd: DAT_EVD_HANDLE) -> Outcome<DtoCompletion> {
        Ok(dto_completion(&self.expect(evd, DAT_DTO_COMPLETION_EVENT)?))
    }

    /// Returns the next event, which must be the completion of the DTO with this cookie and status.
    #[track_caller]
    pub(crate) fn completes(
        &self,
        evd: DAT_EVD_HANDLE,
        cookie: u64,
        status: DAT_DTO_COMPLETION_STATUS,
    ) -> Outcome<DtoCompletion> {
        let dto = self.completion(evd)?;
        ensure_equal(
            "the cookie and status of the completion",
            (dto.cookie, dto.status),
            (cookie, status),
        )?;
        Ok(dto)
    }

    /// Returns the next event, which must be the completion of a bind.
    #[track_caller]
    pub(crate) fn bind_completion(&self, evd: DAT_EVD_HANDLE) -> Outcome<BindCompletion> {
        let event = self.expect(evd, DAT_RMR_BIND_COMPLETION_EVENT)?;
        // SAFETY: the event number selects the valid member. A cookie is a word.
        unsafe {
            let data = event.event_data.rmr_completion_event_data;
            Ok(BindCompletion {
                rmr: data.rmr_handle,
                cookie: data.user_cookie.as_64,
                status: data.status,
            })
        }
    }

    /// Returns the next event, which must be a connection event with this number.
    #[track_caller]
    pub(crate) fn connection(
        &self,
        evd: DAT_EVD_HANDLE,
        number: DAT_EVENT_NUMBER,
    ) -> Outcome<DAT_CONNECTION_EVENT_DATA> {
        let event = self.expect(evd, number)?;
        // SAFETY: the event number selects the valid member.
        Ok(unsafe { event.event_data.connect_event_data })
    }

    /// Returns the next event, which must be a connection request.
    #[track_caller]
    pub(crate) fn request_event(&self, evd: DAT_EVD_HANDLE) -> Outcome<RequestEvent> {
        let event = self.expect(evd, DAT_CONNECTION_REQUEST_EVENT)?;
        // SAFETY: the event number selects the valid member. All service points are handles.
        unsafe {
            let data = event.event_data.cr_arrival_event_data;
            Ok(RequestEvent {
                cr: data.cr_handle,
                sp: data.sp_handle.psp_handle,
                qualifier: data.conn_qual,
                address: data.local_ia_address_ptr,
            })
        }
    }

    /// Returns the next event of the asynchronous EVD, whatever its number.
    #[track_caller]
    pub(crate) fn async_event(&self) -> Outcome<(DAT_HANDLE, DAT_COUNT)> {
        let event = self.event(self.async_evd)?;
        if event.event_number & 0x8000 == 0 {
            return Err(failed(format_args!("the event is {}", event_name(event.event_number))));
        }
        Ok(async_error(&event))
    }

    /// Checks that no event is queued now.
    #[track_caller]
    pub(crate) fn expect_no_event(&self, evd: DAT_EVD_HANDLE) -> Outcome {
        let mut event = DAT_EVENT::zeroed();
        match self.api.dat_evd_dequeue(evd, &mut event) {
            DAT_SUCCESS => {
                let number = event_name(event.event_number);
                Err(failed(format_args!("an unexpected event: {number}")))
            }
            status => answers(status, DAT_QUEUE_EMPTY),
        }
    }

    /// Posts a software event.
    pub(crate) fn post_se(&self, evd: DAT_EVD_HANDLE, value: usize) -> DAT_RETURN {
        let data = DAT_SOFTWARE_EVENT_DATA { pointer: value as DAT_PVOID };
        let event = DAT_EVENT {
            event_number: DAT_SOFTWARE_EVENT,
            event_data: DAT_EVENT_DATA { software_event_data: data },
            ..DAT_EVENT::zeroed()
        };
        self.api.dat_evd_post_se(evd, &event)
    }

    /// Dequeues all events that are queued now.
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

/// Reads the members of a DTO completion from an event.
pub(crate) fn dto_completion(event: &DAT_EVENT) -> DtoCompletion {
    // SAFETY: the members are integers and pointers, which can be read in any event, even if the
    // values are meaningless.
    unsafe {
        let data = event.event_data.dto_completion_event_data;
        DtoCompletion {
            ep: data.ep_handle,
            cookie: data.user_cookie.as_64,
            status: data.status,
            length: data.transfered_length,
            operation: data.operation,
            invalidated: data.rmr_context,
        }
    }
}

/// Returns the object that an asynchronous event is about, and the reason of the event.
pub(crate) fn async_error(event: &DAT_EVENT) -> (DAT_HANDLE, DAT_COUNT) {
    // SAFETY: the members are integers and pointers, which can be read in any event, even if the
    // values are meaningless.
    unsafe {
        let data = event.event_data.asynch_error_event_data;
        (data.dat_handle, data.reason)
    }
}

/// Returns the value of a software event, which [`Rig::post_se`] has posted.
pub(crate) fn software_value(event: &DAT_EVENT) -> usize {
    // SAFETY: the member is a pointer, which can be read in any event, even if the value is
    // meaningless.
    unsafe { event.event_data.software_event_data.pointer as usize }
}

/// Converts a number to a cookie.
pub(crate) fn cookie(value: u64) -> DAT_CONTEXT {
    DAT_CONTEXT { as_64: value }
}

/// Returns the name of an event number.
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
