//! A second thread, for calls that block.

use std::thread;
use std::time::{Duration, Instant};

use dat_sys::*;

use super::{Rig, SOON};
use crate::api::Api;
use crate::case::Outcome;
use crate::check::failed;

impl Rig {
    /// Waits on an EVD in a second thread; once it waits, does something in this one. Answers what the wait answered.
    #[track_caller]
    pub(crate) fn while_waiting(
        &self,
        evd: DAT_EVD_HANDLE,
        meanwhile: impl FnOnce() -> Outcome,
    ) -> Outcome<DAT_RETURN> {
        let (api, number) = (self.api, evd as usize);
        thread::scope(|scope| {
            let waiter = scope.spawn(move || wait(api, number));
            let done = self.until_waited_for(evd).and_then(|()| meanwhile());
            // Ends by itself: the wait has a limit.
            let answer = waiter.join().map_err(|_| failed("the waiting thread panicked"))?;
            done.map(|()| answer)
        })
    }

    /// Until another thread waits on the EVD: then a wait or dequeue of ours is refused.
    #[track_caller]
    fn until_waited_for(&self, evd: DAT_EVD_HANDLE) -> Outcome {
        let limit = Instant::now() + Duration::from_micros(SOON.into());
        let mut event = DAT_EVENT::zeroed();
        while DAT_GET_TYPE(self.api.dat_evd_dequeue(evd, &mut event)) != DAT_INVALID_STATE {
            if Instant::now() > limit {
                return Err(failed("dat_evd_dequeue is not refused while another thread waits on the EVD"));
            }
            thread::yield_now();
        }
        Ok(())
    }
}

fn wait(api: &Api, evd: usize) -> DAT_RETURN {
    let (mut event, mut more) = (DAT_EVENT::zeroed(), 0);
    api.dat_evd_wait(evd as DAT_EVD_HANDLE, SOON, 1, &mut event, &mut more)
}
