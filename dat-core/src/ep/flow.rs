//! What is outstanding on an endpoint's queues, and how a completion becomes an event.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use dat_sys::ib::*;
use dat_sys::*;

use super::requests::Requests;
use super::watermark::HeldBuffers;
use crate::allocate::slice_of;
use crate::barrier;
use crate::counters::{self, CounterArray};
use crate::error::Result;
use crate::evd::Evd;
use crate::handle::Node;
use crate::log;
use crate::provider::{Queue, Transport, Wc, WcOp, WcStatus};
use crate::srq::SrqShare;

/// Both queues of one incarnation of an endpoint. Its address is the `token` of the queue pair, so
/// it must stay allocated until the last completion has been taken: see [`FreedFlows`].
pub struct Flow {
    ep: usize,
    /// The name of the adapter.
    ia: String,
    /// The number of the connection, or 0: see [`log::next_connection_number`].
    pub(super) connection: AtomicU64,
    pub(super) requests: Requests,
    /// The counters of receives. Their cookies need no cells, because the cookie is the id of the
    /// work request.
    pub(super) receives: ReceiveCounters,
    /// The RMRs of binds, by the cells of the requests. Allocated by the first bind.
    rmrs: OnceLock<Box<[AtomicUsize]>>,
    srq: Option<SrqShare>,
    /// Whether the EVD of receives or of requests had overflowed before this flow existed. Its
    /// completions are then never queued.
    lost: [bool; 2],
    pub(super) holding: Arc<HeldBuffers>,
    /// Counters of posts are incremented by the thread that posts to each queue, those of receives
    /// by the thread that takes their completions.
    pub(super) tally: Arc<CounterArray<{ counters::EP_ALL }>>,
}

/// The number of outstanding receives: two counters with one writer each.
pub(super) struct ReceiveCounters {
    posted: AtomicU64,
    retired: AtomicU64,
    max: u64,
    /// The number of receives that complete in total. Set when the queue pair is about to be
    /// dropped.
    expected: AtomicU64,
}

/// One of the two queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueueKind {
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
        holding: Arc<HeldBuffers>,
        tally: Arc<CounterArray<{ counters::EP_ALL }>>,
    ) -> Result<Self> {
        Ok(Flow {
            ep: ep as usize,
            ia: ia.to_owned(),
            connection: AtomicU64::new(0),
            requests: Requests::new(max_requests)?,
            receives: ReceiveCounters::new(max_recvs),
            rmrs: OnceLock::new(),
            srq,
            lost: [false; 2],
            holding,
            tally,
        })
    }

    /// Marks the completions of a queue as lost if its EVD has lost other completions.
    pub(super) fn mark_lost<T: Transport>(&mut self, evds: [Option<&Node<Evd<T>>>; 2]) {
        self.lost = evds.map(|evd| evd.is_some_and(|evd| evd.has_lost_completions()));
    }

    /// Removes the limit of a queue without an EVD. Nobody takes completions of that queue, so
    /// nothing decrements its count here. The transport's own queue is then the limit (uDAPL 1.2,
    /// dat_ep_create: with a NULL EVD the consumer is not interested in completions).
    pub(super) fn lift_unreported_limits(&mut self, requests: bool, receives: bool) {
        if !requests {
            self.requests.set_unreported();
        }
        if !receives {
            self.receives.max = u64::MAX;
        }
    }

    /// Whether no receive is outstanding. On a shared receive queue, the receives that the endpoint
    /// has taken count. Without an EVD, the number of receives is what the transport reports.
    pub(super) fn receives_idle<T: Transport>(&self, qp: &T::Qp) -> bool {
        match &self.srq {
            Some(_) => self.holding.held() == 0,
            None if self.receives.max == u64::MAX => qp.allocated().buffers == 0,
            None => self.receives.is_idle(),
        }
    }

    /// Computes how many completions there will be in total. The caller is about to drop the queue
    /// pair and does nothing else with it.
    ///
    /// # Safety
    /// Nobody posts to the queue pair any more.
    pub(super) unsafe fn set_expected<T: Transport>(&self, qp: &T::Qp) {
        // SAFETY: the caller guarantees that nobody posts to the queue pair any more.
        self.requests.set_expected(unsafe { qp.carried_out() });
        let posted = self.receives.posted.load(Ordering::Acquire);
        self.receives
            .expected
            .store(posted.saturating_sub(qp.withdrawn() as u64), Ordering::Release);
    }

    /// Whether the consumer has taken all completions of one queue, and the thread that took the
    /// last one has finished with the flow. Valid after [`Flow::set_expected`] and the drop of the
    /// queue pair.
    fn is_drained(&self, kind: QueueKind) -> bool {
        if self.lost[kind as usize] {
            return true;
        }
        match (kind, &self.srq) {
            (QueueKind::Requests, _) => self.requests.is_drained(),
            (QueueKind::Receives, Some(_)) => self.holding.held() == 0,
            (QueueKind::Receives, None) => {
                self.receives.retired() >= self.receives.expected.load(Ordering::Acquire)
            }
        }
    }

    /// Allocates the table of RMRs for the first bind. `DAT_INSUFFICIENT_RESOURCES`: there is no
    /// memory for it.
    #[inline]
    pub(super) fn prepare_binds(&self) -> Result<()> {
        if self.rmrs.get().is_none() {
            let rmrs = slice_of(self.requests.cells(), || AtomicUsize::new(0))?;
            self.rmrs.get_or_init(|| rmrs);
        }
        Ok(())
    }

    /// Records the RMR that the request in this cell binds, after [`Flow::prepare_binds`].
    pub(super) fn set_rmr(&self, cell: usize, rmr: *mut c_void) {
        if let Some(place) = self.rmrs.get().and_then(|rmrs| rmrs.get(cell)) {
            place.store(rmr as usize, Ordering::Relaxed);
        }
    }

    /// Converts the completion of a bind, as [`Flow::retire`] does for other operations.
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

    /// Converts a completion to the event's data and releases its place in the queue. The release
    /// comes last: after it, a flow whose queue pair is gone may be freed.
    #[inline]
    pub fn retire(&self, wc: &Wc) -> DAT_DTO_COMPLETION_EVENT_DATA {
        let is_recv = wc.op == WcOp::Recv;
        let (cookie, number) =
            if is_recv { (wc.id, 0) } else { self.requests.cookie_and_number(wc.id as usize) };
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
                self.holding.buffer_returned();
            }
            None => {
                // A receive that was flushed from the queue held no message.
                if wc.status != WcStatus::Flushed {
                    self.holding.buffer_returned();
                }
                self.receives.retire(self.receives.retired() + 1);
            }
        }
    }

    /// Counts and logs an operation that has completed without success.
    #[cold]
    fn failed(&self, event: &DAT_DTO_COMPLETION_EVENT_DATA) {
        // Two threads may count here, because the queues may have different EVDs.
        self.tally.count(match event.status {
            DAT_DTO_ERR_FLUSHED => counters::EP_FLUSHED,
            _ => counters::EP_FAILED,
        });
        log::log_failed_dto(&self.ia, self.ep, self.connection.load(Ordering::Relaxed), event);
    }
}

impl Drop for Flow {
    /// Completions that were lost when their EVD overflowed are never taken. Releases the buffers
    /// of the shared receive queue that belong to them.
    fn drop(&mut self) {
        if let Some(srq) = &self.srq {
            (0..self.holding.held()).for_each(|_| srq.retire());
        }
    }
}

impl ReceiveCounters {
    fn new(max: usize) -> Self {
        let zero = || AtomicU64::new(0);
        ReceiveCounters { posted: zero(), retired: zero(), max: max as u64, expected: zero() }
    }

    /// The number of the next receive. `None` if the maximum is outstanding.
    #[inline]
    pub(super) fn next(&self) -> Option<u64> {
        let posted = self.posted.load(Ordering::Relaxed);
        (posted - self.retired() < self.max).then_some(posted)
    }

    #[inline]
    pub(super) fn posted(&self, count: u64) {
        self.posted.store(count, Ordering::Release);
    }

    /// Counts one more receive, while no other thread posts.
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

    /// Whether no receive is outstanding.
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

/// Flows whose queue pair was freed or reset (dat_ep_free, dat_ep_reset) while some of its
/// completions are still queued.
///
/// The consumer can still dequeue these completions: the manual page of dat_ep_free says that they
/// may remain on the EVD. So each flow is kept for each EVD until one of these holds:
///
/// - Its completions on the EVD have been taken.
/// - The EVD has been seen empty.
/// - The EVD is gone.
///
/// A flow without completions on an EVD is not kept for it.
#[derive(Default)]
pub struct FreedFlows {
    evds: BTreeMap<usize, FreedFlowsOfEvd>,
    /// How many flows were inspected in total.
    #[cfg(test)]
    inspections: u64,
}

/// The flows that are kept for one EVD.
struct FreedFlowsOfEvd {
    /// How often the EVD was seen empty.
    empty_polls: Arc<AtomicU64>,
    flows: Vec<FreedFlow>,
    /// The number of flows at which they are inspected. This limit doubles with the number of flows
    /// that stay, so each flow costs a constant number of inspections on average.
    inspect_at: usize,
}

struct FreedFlow {
    flow: Arc<Flow>,
    kind: QueueKind,
    /// When the EVD has been seen empty this often, all completions of the flow have been taken.
    until: u64,
}

/// With fewer flows than this, those of an EVD are not inspected.
const MIN_INSPECTED_FLOWS: usize = 16;

impl FreedFlows {
    /// Takes over a flow whose expected completions are known and whose queue pair has just been
    /// dropped, with the EVDs of its receives and requests.
    pub(super) fn adopt<T: Transport>(
        &mut self,
        flow: &Arc<Flow>,
        evds: [Option<&Node<Evd<T>>>; 2],
    ) {
        for (evd, kind) in evds.into_iter().zip([QueueKind::Receives, QueueKind::Requests]) {
            if let Some(evd) = evd {
                self.add((evd.handle() as usize, evd.empty_polls()), flow, kind);
            }
        }
    }

    fn add(
        &mut self,
        (evd, empty_polls): (usize, Arc<AtomicU64>),
        flow: &Arc<Flow>,
        kind: QueueKind,
    ) {
        if flow.is_drained(kind) {
            return;
        }
        // A poll that begins after this fence sees what the queue pair has left in the queue, and
        // `empty_polls` counts all polls that ended before the fence. At most one poll is in
        // progress now. It may have begun too early, so only the second empty poll proves that the
        // queue is empty. Without a fence in all threads, the number of empty polls proves nothing.
        let fenced = barrier::fence_all_threads();
        let until = if fenced { empty_polls.load(Ordering::Acquire) + 2 } else { u64::MAX };
        let of_evd = self.evds.entry(evd).or_insert_with(|| FreedFlowsOfEvd {
            empty_polls,
            flows: Vec::new(),
            inspect_at: MIN_INSPECTED_FLOWS,
        });
        if of_evd.flows.len() >= of_evd.inspect_at {
            #[cfg(test)]
            {
                self.inspections += of_evd.flows.len() as u64;
            }
            of_evd.drop_drained();
        }
        of_evd.flows.push(FreedFlow { flow: Arc::clone(flow), kind, until });
    }

    /// Drops the flows of an EVD that is being freed, because nobody will take their completions.
    pub fn forget_evd(&mut self, evd: usize) {
        self.evds.remove(&evd);
    }

    /// The number of flows that are kept.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.evds.values().map(|of_evd| of_evd.flows.len()).sum()
    }
}

impl FreedFlowsOfEvd {
    fn drop_drained(&mut self) {
        let empty_polls = self.empty_polls.load(Ordering::Acquire);
        self.flows.retain(|freed| empty_polls < freed.until && !freed.flow.is_drained(freed.kind));
        self.flows.shrink_to(2 * self.flows.len());
        self.inspect_at = MIN_INSPECTED_FLOWS.max(2 * self.flows.len());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// The number of endpoints that are freed. Miri would take minutes for the larger number.
    const FREED_ENDPOINT_COUNT: u64 = if cfg!(miri) { 1_000 } else { 200_000 };

    /// A flow without a queue pair, with this many posted requests, all of which were carried out.
    fn flow(posted: u64, suppressed: bool) -> Arc<Flow> {
        let (holding, tally) = Default::default();
        let flow =
            Flow::new(std::ptr::null_mut(), "", 4, 4, None, holding, tally).expect("little memory");
        for cookie in 0..posted {
            flow.requests.claim(cookie, suppressed, |_| 0).expect("there is room");
        }
        flow.requests.set_expected(posted);
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

    /// A flow is not kept if its completions were suppressed, if it never posted, or if its EVD had
    /// overflowed.
    #[test]
    fn drained_flows_are_not_kept() {
        let (mut freed, empty_polls) = (FreedFlows::default(), Arc::<AtomicU64>::default());
        for n in 0..FREED_ENDPOINT_COUNT {
            freed.add((7, Arc::clone(&empty_polls)), &flow(n % 3, true), QueueKind::Requests);
            freed.add((7, Arc::clone(&empty_polls)), &flow(0, true), QueueKind::Receives);
            let mut of_a_dead_evd = flow(1, false);
            Arc::get_mut(&mut of_a_dead_evd).expect("it is new").lost = [false, true];
            freed.add((7, Arc::clone(&empty_polls)), &of_a_dead_evd, QueueKind::Requests);
        }
        assert_eq!((freed.len(), freed.inspections), (0, 0));
    }

    /// On an EVD that is never seen empty, each freed endpoint costs few inspections, however many
    /// were freed before.
    #[test]
    fn kept_flows_cost_a_few_inspections_each() {
        const ENDPOINTS: u64 = FREED_ENDPOINT_COUNT / 10;
        let (mut freed, empty_polls) = (FreedFlows::default(), Arc::<AtomicU64>::default());
        for _ in 0..ENDPOINTS {
            freed.add((7, Arc::clone(&empty_polls)), &flow(1, false), QueueKind::Requests);
        }
        assert_eq!(
            freed.len(),
            ENDPOINTS as usize,
            "all flows must be kept while their completions are queued"
        );
        assert!(freed.inspections <= 4 * ENDPOINTS, "{} inspections", freed.inspections);

        // The completions are taken one after the other, so few flows are kept.
        let mut freed = FreedFlows::default();
        for _ in 0..ENDPOINTS {
            let flow = flow(1, false);
            freed.add((7, Arc::clone(&empty_polls)), &flow, QueueKind::Requests);
            flow.requests.take(1);
        }
        assert!(freed.len() <= 2 * MIN_INSPECTED_FLOWS, "{} are kept", freed.len());
        assert!(freed.inspections <= 4 * ENDPOINTS, "{} inspections", freed.inspections);
        freed.forget_evd(7);
        assert_eq!(freed.len(), 0);
    }
}
