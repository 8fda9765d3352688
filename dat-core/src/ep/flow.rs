//! What is outstanding on an endpoint's queues, and how a completion becomes an event.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use dat_sys::ib::*;
use dat_sys::*;

use super::requests::Requests;
use super::watermark::Holding;
use crate::allocate::slice_of;
use crate::barrier;
use crate::counters::{self, Tally};
use crate::error::Result;
use crate::evd::Evd;
use crate::handle::Node;
use crate::log;
use crate::provider::{Queue, Transport, Wc, WcOp, WcStatus};
use crate::srq::SrqShare;

/// Both queues of one incarnation of an endpoint. Its address is the `token` of the queue pair, so it must stay
/// until the last completion has been taken: see [`Orphans`].
pub struct Flow {
    ep: usize,
    /// Of its adapter.
    ia: String,
    /// The connection, or 0: see [`log::connection`].
    pub(super) connection: AtomicU64,
    pub(super) requests: Requests,
    /// Their cookies need no cells: the cookie is the id.
    pub(super) receives: Depth,
    /// The RMRs of binds, by the cells of the requests; made by the first one.
    rmrs: OnceLock<Box<[AtomicUsize]>>,
    srq: Option<SrqShare>,
    /// The EVDs of its receives and of its requests had overflowed before there was a completion: none of them is ever queued.
    lost: [bool; 2],
    pub(super) holding: Arc<Holding>,
    /// Posts are counted by whoever posts to each queue, receives by whoever takes their completions.
    pub(super) tally: Arc<Tally<{ counters::EP_ALL }>>,
}

/// How many receives are outstanding: two counters, each with one writer.
pub(super) struct Depth {
    posted: AtomicU64,
    retired: AtomicU64,
    max: u64,
    /// Once the queue pair is gone: so many of them complete.
    due: AtomicU64,
}

/// One of the two queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Receives = 0,
    Requests = 1,
}

impl Flow {
    pub(super) fn new(
        ep: *mut c_void,
        ia: &str,
        max_requests: usize,
        max_recvs: usize,
        srq: Option<SrqShare>,
        holding: Arc<Holding>,
        tally: Arc<Tally<{ counters::EP_ALL }>>,
    ) -> Result<Self> {
        Ok(Flow {
            ep: ep as usize,
            ia: ia.to_owned(),
            connection: AtomicU64::new(0),
            requests: Requests::new(max_requests)?,
            receives: Depth::new(max_recvs),
            rmrs: OnceLock::new(),
            srq,
            lost: [false; 2],
            holding,
            tally,
        })
    }

    /// Completions of a side are lost where its EVD has lost others.
    pub(super) fn expect_nothing_of_dead<T: Transport>(
        &mut self,
        evds: [Option<&Node<Evd<T>>>; 2],
    ) {
        self.lost = evds.map(|evd| evd.is_some_and(|evd| evd.takes_no_more_completions()));
    }

    /// Without an EVD nobody learns of completions, so that nothing is counted back here: then the transport's own queue is
    /// the limit (uDAPL 1.2, dat_ep_create: a NULL EVD, the consumer is not interested in completions).
    pub(super) fn count_only_reported(&mut self, requests: bool, receives: bool) {
        if !requests {
            self.requests.report_nothing();
        }
        if !receives {
            self.receives.max = u64::MAX;
        }
    }

    /// No receive is outstanding: of an endpoint on a shared queue, those that it has taken count. Where nobody is told of
    /// completions, those that the transport has.
    pub(super) fn receives_idle<T: Transport>(&self, qp: &T::Qp) -> bool {
        match &self.srq {
            Some(_) => self.holding.held() == 0,
            None if self.receives.max == u64::MAX => qp.allocated().buffers == 0,
            None => self.receives.is_idle(),
        }
    }

    /// The queue pair is about to be dropped, and nothing happens to it until then: what completes is settled now.
    ///
    /// # Safety
    /// Nobody posts to the queue pair any more.
    pub(super) unsafe fn settle<T: Transport>(&self, qp: &T::Qp) {
        // SAFETY: as the caller promised.
        self.requests.settle(unsafe { qp.carried_out() });
        let posted = self.receives.posted.load(Ordering::Acquire);
        self.receives.due.store(posted.saturating_sub(qp.withdrawn() as u64), Ordering::Release);
    }

    /// After [`Flow::settle`] and the drop of the queue pair: the consumer has taken all completions of one side, and whoever
    /// took the last one has left the flow.
    fn is_over(&self, side: Side) -> bool {
        if self.lost[side as usize] {
            return true;
        }
        match (side, &self.srq) {
            (Side::Requests, _) => self.requests.is_over(),
            (Side::Receives, Some(_)) => self.holding.held() == 0,
            (Side::Receives, None) => {
                self.receives.retired() >= self.receives.due.load(Ordering::Acquire)
            }
        }
    }

    /// Makes the table of RMRs, if this is the first bind. `DAT_INSUFFICIENT_RESOURCES`: there is no memory for it.
    #[inline]
    pub(super) fn prepare_binds(&self) -> Result<()> {
        if self.rmrs.get().is_none() {
            let rmrs = slice_of(self.requests.cells(), || AtomicUsize::new(0))?;
            self.rmrs.get_or_init(|| rmrs);
        }
        Ok(())
    }

    /// Remembers the RMR that the request in this cell binds, once [they are prepared](Self::prepare_binds).
    pub(super) fn set_rmr(&self, cell: usize, rmr: *mut c_void) {
        if let Some(place) = self.rmrs.get().and_then(|rmrs| rmrs.get(cell)) {
            place.store(rmr as usize, Ordering::Relaxed);
        }
    }

    /// As [`Flow::retire`], for a bind.
    #[cold]
    pub fn retire_bind(&self, wc: &Wc) -> DAT_RMR_BIND_COMPLETION_EVENT_DATA {
        let rmrs = self.rmrs.get().and_then(|rmrs| rmrs.get(wc.id as usize));
        let rmr = rmrs.map_or(0, |rmr| rmr.load(Ordering::Relaxed));
        let DAT_DTO_COMPLETION_EVENT_DATA { user_cookie, status, .. } = self.retire(wc);
        DAT_RMR_BIND_COMPLETION_EVENT_DATA {
            rmr_handle: rmr as DAT_RMR_HANDLE,
            user_cookie,
            status,
        }
    }

    /// Turns a completion into the event's data and gives its place in the queue back. That comes last: after it, a flow
    /// whose queue pair is gone may be gone, too.
    #[inline]
    pub fn retire(&self, wc: &Wc) -> DAT_DTO_COMPLETION_EVENT_DATA {
        let is_recv = wc.op == WcOp::Recv;
        let (cookie, number) =
            if is_recv { (wc.id, 0) } else { self.requests.look(wc.id as usize) };
        let event = DAT_DTO_COMPLETION_EVENT_DATA {
            ep_handle: self.ep as *mut c_void,
            user_cookie: DAT_DTO_COOKIE { as_64: cookie },
            status: status(wc.status),
            transfered_length: wc.bytes,
            operation: match wc.op {
                WcOp::Send => DAT_DTO_SEND,
                WcOp::Write => DAT_DTO_RDMA_WRITE,
                WcOp::Read => DAT_DTO_RDMA_READ,
                WcOp::WriteImm => DAT_IB_DTO_RDMA_WRITE_IMMED,
                WcOp::FetchAdd => DAT_IB_DTO_FETCH_ADD,
                WcOp::CompareSwap => DAT_IB_DTO_CMP_SWAP,
                WcOp::Recv if wc.immediate.is_some() => DAT_IB_DTO_RECV_IMMED,
                WcOp::Recv if wc.invalidated.is_some() => DAT_DTO_RECEIVE_WITH_INVALIDATE,
                WcOp::Recv => DAT_DTO_RECEIVE,
                WcOp::Bind => DAT_DTO_BIND_MW,
            },
            rmr_context: wc.invalidated.unwrap_or(0),
        };
        if wc.status != WcStatus::Success {
            self.failed(&event);
        }
        if is_recv {
            self.retire_recv(wc);
        } else {
            self.requests.take(number);
        }
        event
    }

    #[inline]
    fn retire_recv(&self, wc: &Wc) {
        if wc.status == WcStatus::Success {
            let (messages, bytes) = match wc.immediate {
                None => (DCNT_EP_RECV, DCNT_EP_RECV_DATA),
                Some(_) => (DCNT_EP_RECV_RDMA_IMM, DCNT_EP_RECV_RDMA_IMM_DATA),
            };
            self.tally.add(messages, 1);
            self.tally.add(bytes, wc.bytes.into());
        }
        match &self.srq {
            Some(srq) => {
                srq.retire();
                self.holding.gave_back();
            }
            None => {
                // One that was flushed from the queue was no message's, and after it there will be none.
                if wc.status != WcStatus::Flushed {
                    self.holding.gave_back();
                }
                self.receives.retire(self.receives.retired() + 1);
            }
        }
    }

    /// An operation has completed, and not with success.
    #[cold]
    fn failed(&self, event: &DAT_DTO_COMPLETION_EVENT_DATA) {
        // Two dispatchers, two threads.
        self.tally.count(match event.status {
            DAT_DTO_ERR_FLUSHED => counters::EP_FLUSHED,
            _ => counters::EP_FAILED,
        });
        log::failed(&self.ia, self.ep, self.connection.load(Ordering::Relaxed), event);
    }
}

impl Drop for Flow {
    /// Completions that were lost when their EVD overflowed are never taken; the shared queue's buffers are given back now.
    fn drop(&mut self) {
        if let Some(srq) = &self.srq {
            (0..self.holding.held()).for_each(|_| srq.retire());
        }
    }
}

impl Depth {
    fn new(max: usize) -> Self {
        let zero = || AtomicU64::new(0);
        Depth { posted: zero(), retired: zero(), max: max as u64, due: zero() }
    }

    /// The number of the next receive, or none if all are outstanding.
    #[inline]
    pub(super) fn next(&self) -> Option<u64> {
        let posted = self.posted.load(Ordering::Relaxed);
        (posted - self.retired() < self.max).then_some(posted)
    }

    #[inline]
    pub(super) fn posted(&self, count: u64) {
        self.posted.store(count, Ordering::Release);
    }

    /// One more, beside nobody.
    pub(super) fn posted_one(&self) {
        self.posted(self.posted.load(Ordering::Relaxed) + 1);
    }

    #[inline]
    fn retired(&self) -> u64 {
        self.retired.load(Ordering::Acquire)
    }

    #[inline]
    fn retire(&self, count: u64) {
        self.retired.store(count, Ordering::Release);
    }

    /// Nothing is outstanding.
    pub(super) fn is_idle(&self) -> bool {
        self.posted.load(Ordering::Acquire) == self.retired()
    }
}

const fn status(status: WcStatus) -> DAT_DTO_COMPLETION_STATUS {
    match status {
        WcStatus::Success => DAT_DTO_SUCCESS,
        WcStatus::Flushed => DAT_DTO_ERR_FLUSHED,
        WcStatus::LocalLength => DAT_DTO_ERR_LOCAL_LENGTH,
        WcStatus::LocalEp => DAT_DTO_ERR_LOCAL_EP,
        WcStatus::LocalProtection => DAT_DTO_ERR_LOCAL_PROTECTION,
        WcStatus::BadResponse => DAT_DTO_ERR_BAD_RESPONSE,
        WcStatus::RemoteAccess => DAT_DTO_ERR_REMOTE_ACCESS,
        WcStatus::RemoteResponder => DAT_DTO_ERR_REMOTE_RESPONDER,
        WcStatus::Transport => DAT_DTO_ERR_TRANSPORT,
        WcStatus::ReceiverNotReady => DAT_DTO_ERR_RECEIVER_NOT_READY,
        WcStatus::BindFailed => DAT_RMR_OPERATION_FAILED,
    }
}

/// Flows whose queue pair is gone (dat_ep_free, dat_ep_reset) while completions of it are still queued. The consumer gets
/// those (dat_ep_free: they may still be on the EVD), so each flow is kept for each EVD until its completions there have been
/// taken, or the EVD has been seen empty, or is gone. One that has nothing left on an EVD is not kept for it.
#[derive(Default)]
pub struct Orphans {
    evds: BTreeMap<usize, Leftovers>,
    /// Flows that were looked at, ever.
    #[cfg(test)]
    looks: u64,
}

/// What freed endpoints have left on one EVD.
struct Leftovers {
    /// How often the EVD was seen empty.
    empties: Arc<AtomicU64>,
    flows: Vec<Leftover>,
    /// They are looked through when there are so many: so seldom that each costs as much as a few looks.
    full: usize,
}

struct Leftover {
    flow: Arc<Flow>,
    side: Side,
    /// The flow's completions have been taken when the EVD has been seen empty so often.
    until: u64,
}

/// Fewer leftovers of one EVD are not looked through.
const FEW: usize = 16;

impl Orphans {
    /// Takes over a flow that was settled and whose queue pair has just been dropped, with the EVDs of its receives and
    /// requests.
    pub(super) fn adopt<T: Transport>(
        &mut self,
        flow: &Arc<Flow>,
        evds: [Option<&Node<Evd<T>>>; 2],
    ) {
        for (evd, side) in evds.into_iter().zip([Side::Receives, Side::Requests]) {
            if let Some(evd) = evd {
                self.add((evd.handle() as usize, evd.empties()), flow, side);
            }
        }
    }

    fn add(&mut self, (evd, empties): (usize, Arc<AtomicU64>), flow: &Arc<Flow>, side: Side) {
        if flow.is_over(side) {
            return;
        }
        // A look at the queue that begins after this fence sees what the queue pair has left there, and all looks
        // that ended before it are counted. One look may be under way and have begun too early; the second one is
        // the first that is sure. Without such a fence, how often the queue was empty tells nothing.
        let fenced = barrier::everywhere();
        let until = if fenced { empties.load(Ordering::Acquire) + 2 } else { u64::MAX };
        let left = self.evds.entry(evd).or_insert_with(|| Leftovers {
            empties,
            flows: Vec::new(),
            full: FEW,
        });
        if left.flows.len() >= left.full {
            #[cfg(test)]
            {
                self.looks += left.flows.len() as u64;
            }
            left.reap();
        }
        left.flows.push(Leftover { flow: Arc::clone(flow), side, until });
    }

    /// An EVD is being freed: what it still holds is never taken.
    pub fn forget_evd(&mut self, evd: usize) {
        self.evds.remove(&evd);
    }

    /// Flows that are kept.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.evds.values().map(|left| left.flows.len()).sum()
    }
}

impl Leftovers {
    fn reap(&mut self) {
        let empties = self.empties.load(Ordering::Acquire);
        self.flows.retain(|left| empties < left.until && !left.flow.is_over(left.side));
        self.flows.shrink_to(2 * self.flows.len());
        self.full = FEW.max(2 * self.flows.len());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Endpoints that are freed. Miri would take minutes for as many.
    const MANY: u64 = if cfg!(miri) { 1_000 } else { 200_000 };

    /// A flow without a queue pair, of whose requests so many were posted, and all were carried out.
    fn flow(posted: u64, suppressed: bool) -> Arc<Flow> {
        let (holding, tally) = Default::default();
        let flow =
            Flow::new(std::ptr::null_mut(), "", 4, 4, None, holding, tally).expect("little memory");
        for cookie in 0..posted {
            flow.requests.claim(cookie, suppressed, |_| 0).expect("there is room");
        }
        flow.requests.settle(posted);
        Arc::new(flow)
    }

    #[test]
    fn failures_are_counted_apart_from_what_is_flushed() {
        let flow = flow(0, false);
        for status in [DAT_DTO_ERR_FLUSHED, DAT_DTO_ERR_FLUSHED, DAT_DTO_ERR_REMOTE_ACCESS] {
            flow.failed(&DAT_DTO_COMPLETION_EVENT_DATA {
                status,
                ..DAT_DTO_COMPLETION_EVENT_DATA::zeroed()
            });
        }
        let counted = flow.tally.now();
        assert_eq!(
            [counters::EP_FLUSHED, counters::EP_FAILED].map(|counter| counted[counter as usize]),
            [2, 1]
        );
    }

    /// Nothing is left of an endpoint whose completions were suppressed, that never posted, or whose EVD was dead.
    #[test]
    fn what_is_over_is_not_kept() {
        let (mut orphans, empties) = (Orphans::default(), Arc::<AtomicU64>::default());
        for n in 0..MANY {
            orphans.add((7, Arc::clone(&empties)), &flow(n % 3, true), Side::Requests);
            orphans.add((7, Arc::clone(&empties)), &flow(0, true), Side::Receives);
            let mut of_a_dead_evd = flow(1, false);
            Arc::get_mut(&mut of_a_dead_evd).expect("it is new").lost = [false, true];
            orphans.add((7, Arc::clone(&empties)), &of_a_dead_evd, Side::Requests);
        }
        assert_eq!((orphans.len(), orphans.looks), (0, 0));
    }

    /// On an EVD that is never seen empty, each freed endpoint costs a few looks, however many there were before.
    #[test]
    fn what_is_left_costs_a_few_looks_each() {
        const ENDPOINTS: u64 = MANY / 10;
        let (mut orphans, empties) = (Orphans::default(), Arc::<AtomicU64>::default());
        for _ in 0..ENDPOINTS {
            orphans.add((7, Arc::clone(&empties)), &flow(1, false), Side::Requests);
        }
        assert_eq!(orphans.len(), ENDPOINTS as usize, "their completions are still there");
        assert!(orphans.looks <= 4 * ENDPOINTS, "{} looks", orphans.looks);

        // Taken one after the other: what is kept stays few.
        let mut orphans = Orphans::default();
        for _ in 0..ENDPOINTS {
            let flow = flow(1, false);
            orphans.add((7, Arc::clone(&empties)), &flow, Side::Requests);
            flow.requests.take(1);
        }
        assert!(orphans.len() <= 2 * FEW, "{} are kept", orphans.len());
        assert!(orphans.looks <= 4 * ENDPOINTS, "{} looks", orphans.looks);
        orphans.forget_evd(7);
        assert_eq!(orphans.len(), 0);
    }
}
