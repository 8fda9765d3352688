//! The data about the outstanding work of an endpoint, and the conversion of its completions to
//! events.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use dat_sys::ib::*;
use dat_sys::*;
use waiting::barrier;

use super::request_cells::RequestCells;
use super::watermark::HeldBuffers;
use crate::allocate::slice_of;
use crate::cause::LastCause;
use crate::counters::{self, CounterArray};
use crate::error::Result;
use crate::evd::Evd;
use crate::handle::Node;
use crate::log;
use crate::operation::Constants;
use crate::provider::{Queue, Transport, Wc, WcOp, WcStatus};
use crate::srq::SrqShare;

/// The outstanding requests and receives of one queue pair of an endpoint. The address of a flow is
/// the `token` of its queue pair. So the flow must stay allocated until the last completion of the
/// queue pair has been taken: see [`FreedFlows`].
pub struct Flow {
    ep: usize,
    /// The name of the adapter.
    ia: String,
    /// The number of the connection, or 0: see [`log::next_connection_number`].
    pub(super) connection: AtomicU64,
    pub(super) requests: RequestCells,
    /// The counters of receives. Receives need no cells for their cookies, because the cookie of a
    /// receive is the id of its work request.
    pub(super) receives: ReceiveCounters,
    /// The RMRs of outstanding binds. The index is the cell of the request. The first bind
    /// allocates this table.
    rmrs: OnceLock<Box<[AtomicUsize]>>,
    srq: Option<SrqShare>,
    /// Whether the queue pair sends and receives datagrams.
    pub(super) is_datagram: bool,
    /// For receives and for requests: whether the EVD had lost completions before this flow
    /// existed. Such an EVD never queues completions of this flow.
    lost: [bool; 2],
    pub(super) holding: Arc<HeldBuffers>,
    /// The endpoint's counters for this queue pair. The thread that posts to a queue counts the
    /// posts. The thread that takes completions of receives counts the receives.
    pub(super) tally: Arc<CounterArray<{ counters::EP_ALL }>>,
    /// The endpoint's last cause.
    pub(super) last_cause: Arc<LastCause>,
    /// Whether an operation was flushed.
    any_flushed: AtomicBool,
}

/// The numbers of posted and of completed receives. Each of the two counters has one writer.
pub(super) struct ReceiveCounters {
    posted: AtomicU64,
    retired: AtomicU64,
    max: u64,
    /// How many receives complete in total. This number is set when the queue pair is about to be
    /// dropped.
    expected: AtomicU64,
}

/// One of the two queues of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueueKind {
    Receives = 0,
    Requests = 1,
}

impl Flow {
    pub(super) fn new(
        ep: *mut c_void,
        ia: &str,
        [max_requests, max_recvs]: [usize; 2],
        srq: Option<SrqShare>,
        holding: Arc<HeldBuffers>,
        tally: Arc<CounterArray<{ counters::EP_ALL }>>,
        last_cause: Arc<LastCause>,
    ) -> Result<Self> {
        Ok(Flow {
            ep: ep as usize,
            ia: ia.to_owned(),
            connection: AtomicU64::new(0),
            requests: RequestCells::new(max_requests)?,
            receives: ReceiveCounters::new(max_recvs),
            rmrs: OnceLock::new(),
            srq,
            is_datagram: false,
            lost: [false; 2],
            holding,
            tally,
            last_cause,
            any_flushed: AtomicBool::new(false),
        })
    }

    /// Whether the queue pair sends and receives datagrams.
    #[inline]
    pub fn is_datagram(&self) -> bool {
        self.is_datagram
    }

    /// Marks the completions of a queue as lost if the queue's EVD has already lost other
    /// completions.
    pub(super) fn mark_lost<T: Transport>(&mut self, evds: [Option<&Node<Evd<T>>>; 2]) {
        self.lost = evds.map(|evd| evd.is_some_and(|evd| evd.has_lost_completions()));
    }

    /// Removes the limit of each queue that has no EVD. Nobody takes completions of such a queue,
    /// so nothing here decrements its number of outstanding operations. Only the transport's own
    /// queue limits them (uDAPL 1.2, dat_ep_create: with a NULL EVD the consumer is not interested
    /// in completions).
    pub(super) fn lift_unreported_limits(&mut self, requests: bool, receives: bool) {
        if !requests {
            self.requests.set_unreported();
        }
        if !receives {
            self.receives.max = u64::MAX;
        }
    }

    /// Whether no receive is outstanding. For an endpoint on a shared receive queue, the receives
    /// that it has taken from that queue are outstanding. For an endpoint without an EVD of
    /// receives, the transport reports how many are outstanding.
    pub(super) fn receives_idle<T: Transport>(&self, qp: &T::Qp) -> bool {
        match &self.srq {
            Some(_) => self.holding.held() == 0,
            None if self.receives.max == u64::MAX => {
                qp.allocated().is_none_or(|allocated| allocated.buffers == 0)
            }
            None => self.receives.is_idle(),
        }
    }

    /// Computes how many completions there will be in total. The caller drops the queue pair next
    /// and makes no other calls on it.
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
    /// last completion no longer uses the flow. Call this only after [`Flow::set_expected`] and
    /// after the queue pair was dropped.
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

    /// Allocates the table of RMRs for the first bind. Fails with `DAT_INSUFFICIENT_RESOURCES` if
    /// there is no memory for the table.
    #[inline]
    pub(super) fn prepare_binds(&self) -> Result<()> {
        if self.rmrs.get().is_none() {
            let rmrs = slice_of(self.requests.cells(), || AtomicUsize::new(0))?;
            self.rmrs.get_or_init(|| rmrs);
        }
        Ok(())
    }

    /// Records the RMR that the request in this cell binds. The caller has called
    /// [`Flow::prepare_binds`] before.
    pub(super) fn set_rmr(&self, cell: usize, rmr: *mut c_void) {
        if let Some(place) = self.rmrs.get().and_then(|rmrs| rmrs.get(cell)) {
            place.store(rmr as usize, Ordering::Relaxed);
        }
    }

    /// Converts the completion of a bind to an event's data, as [`Flow::retire`] does for other
    /// operations.
    #[cold]
    pub fn retire_bind(&self, wc: Wc) -> DAT_RMR_BIND_COMPLETION_EVENT_DATA {
        let rmrs = self.rmrs.get().and_then(|rmrs| rmrs.get(wc.id as usize));
        let rmr = rmrs.map_or(0, |rmr| rmr.load(Ordering::Relaxed));
        let DAT_DTO_COMPLETION_EVENT_DATA { user_cookie, status, .. } = self.retire(&wc);
        DAT_RMR_BIND_COMPLETION_EVENT_DATA {
            rmr_handle: rmr as DAT_RMR_HANDLE,
            user_cookie,
            status,
        }
    }

    /// Converts a completion to an event's data and counts its operation as no longer outstanding.
    /// The counting comes last, because a flow whose queue pair is gone may be freed immediately
    /// afterwards. This function is always inlined, so that the data is written directly to the
    /// consumer's record.
    #[inline(always)]
    pub fn retire(&self, wc: &Wc) -> DAT_DTO_COMPLETION_EVENT_DATA {
        let is_recv = wc.op.is_recv();
        let (cookie, number) =
            if is_recv { (wc.id, 0) } else { self.requests.cookie_and_number(wc.id as usize) };
        let data = DAT_DTO_COMPLETION_EVENT_DATA {
            ep_handle: self.ep as *mut c_void,
            user_cookie: DAT_DTO_COOKIE { as_64: cookie },
            status: status(wc.status),
            transfered_length: wc.bytes,
            operation: match self.is_datagram {
                true => datagram_operation(wc),
                false if is_recv => recv_operation(wc),
                false => Constants::of(wc.op).dto,
            },
            rmr_context: wc.invalidated.unwrap_or(0),
        };
        if wc.status != WcStatus::Success {
            self.failed(wc.op, data);
        }
        if is_recv {
            self.retire_recv(wc);
        } else {
            self.requests.take(number);
        }
        data
    }

    #[inline(always)]
    fn retire_recv(&self, wc: &Wc) {
        if wc.status == WcStatus::Success {
            let (messages, bytes) = match wc.immediate {
                _ if self.is_datagram => (DCNT_EP_RECV_UD, DCNT_EP_RECV_UD_DATA),
                None => (DCNT_EP_RECV, DCNT_EP_RECV_DATA),
                Some(_) if wc.op == WcOp::RecvMessageImm => {
                    (DCNT_EP_RECV_IMM, DCNT_EP_RECV_IMM_DATA)
                }
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
                // A receive that was flushed from the queue held no message, so no buffer returns.
                if wc.status != WcStatus::Flushed {
                    self.holding.buffer_returned();
                }
                self.receives.retire(self.receives.retired() + 1);
            }
        }
    }

    /// Counts and logs an operation that has completed without success.
    #[cold]
    fn failed(&self, op: WcOp, data: DAT_DTO_COMPLETION_EVENT_DATA) {
        // Two threads may count here at the same time, because the two queues may have different
        // EVDs.
        self.tally.count(match data.status {
            DAT_DTO_ERR_FLUSHED => counters::EP_FLUSHED,
            _ => counters::EP_FAILED,
        });
        self.last_cause.keep_failed(op, data.status);
        let connection = self.connection.load(Ordering::Relaxed);
        let is_first_flushed = || !self.any_flushed.swap(true, Ordering::Relaxed);
        let last_cause = &self.last_cause;
        log::log_failed_dto(&self.ia, self.ep, connection, &data, last_cause, is_first_flushed);
    }
}

impl Drop for Flow {
    /// Releases the buffers of the shared receive queue whose completions were lost when their EVD
    /// overflowed. Nobody takes these completions.
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

    /// The number of the next receive. `None` if the maximum number of receives is outstanding.
    #[inline]
    pub(super) fn next(&self) -> Option<u64> {
        let posted = self.posted.load(Ordering::Relaxed);
        (posted - self.retired() < self.max).then_some(posted)
    }

    #[inline]
    pub(super) fn posted(&self, count: u64) {
        self.posted.store(count, Ordering::Release);
    }

    /// Counts one more posted receive. No other thread posts during this call.
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

#[inline]
fn recv_operation(wc: &Wc) -> DAT_DTOS {
    if wc.op == WcOp::RecvMessageImm {
        DAT_IB_DTO_RECV_MSG_IMMED
    } else if wc.immediate.is_some() {
        DAT_IB_DTO_RECV_IMMED
    } else if wc.invalidated.is_some() {
        DAT_DTO_RECEIVE_WITH_INVALIDATE
    } else {
        DAT_DTO_RECEIVE
    }
}

/// The operation of a queue pair that sends and receives datagrams.
#[cold]
fn datagram_operation(wc: &Wc) -> DAT_DTOS {
    match (wc.op, wc.immediate) {
        (WcOp::Recv, None) => DAT_IB_DTO_RECV_UD,
        (WcOp::Recv, Some(_)) => DAT_IB_DTO_RECV_UD_IMMED,
        _ => DAT_IB_DTO_SEND_UD,
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
/// A flow without completions on an EVD is not kept for that EVD.
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
    /// The number of flows at which the flows are next inspected. After an inspection, this limit
    /// is twice the number of flows that are still kept. So each flow costs a constant number of
    /// inspections on average.
    inspect_at: usize,
}

struct FreedFlow {
    flow: Arc<Flow>,
    kind: QueueKind,
    /// When the EVD has been seen empty this many times, all completions of the flow have been
    /// taken.
    until: u64,
}

/// The flows of an EVD are not inspected while there are fewer of them than this number.
const MIN_INSPECTED_FLOWS: usize = 16;

impl FreedFlows {
    /// Takes over a flow, with the EVDs of its receives and requests. The caller has called
    /// [`Flow::set_expected`] and has just dropped the flow's queue pair.
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
        // A poll that begins after this fence sees all completions that the queue pair has left in
        // the queue. `empty_polls` counts all polls that ended before the fence. At most one poll
        // is in progress now. It may have begun before the fence, so only the second empty poll
        // from now on proves that the queue is empty. If the fence was not executed in all threads,
        // the number of empty polls proves nothing.
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

    /// Creates a flow without a queue pair. It has `posted` requests, and all of them were carried
    /// out.
    fn flow(posted: u64, suppressed: bool) -> Arc<Flow> {
        let (holding, tally, cause) = Default::default();
        let flow = Flow::new(std::ptr::null_mut(), "", [4; 2], None, holding, tally, cause)
            .expect("the memory of the flow can be allocated");
        for cookie in 0..posted {
            flow.requests.claim(cookie, suppressed, |_| 0).expect("the flow has a free slot");
        }
        flow.requests.set_expected(posted);
        Arc::new(flow)
    }

    #[test]
    fn failures_are_counted_apart_from_what_is_flushed() {
        let flow = flow(0, false);
        for status in [DAT_DTO_ERR_FLUSHED, DAT_DTO_ERR_FLUSHED, DAT_DTO_ERR_REMOTE_ACCESS] {
            flow.failed(
                WcOp::Recv,
                DAT_DTO_COMPLETION_EVENT_DATA { status, ..DAT_DTO_COMPLETION_EVENT_DATA::zeroed() },
            );
        }
        let counted = flow.tally.now();
        assert_eq!(
            [counters::EP_FLUSHED, counters::EP_FAILED].map(|counter| counted[counter as usize]),
            [2, 1]
        );
    }

    /// A flow is dropped if its completions were suppressed, if nothing was posted to it, or if its
    /// EVD had overflowed.
    #[test]
    fn drained_flows_are_not_kept() {
        let (mut freed, empty_polls) = (FreedFlows::default(), Arc::<AtomicU64>::default());
        for n in 0..FREED_ENDPOINT_COUNT {
            freed.add((7, Arc::clone(&empty_polls)), &flow(n % 3, true), QueueKind::Requests);
            freed.add((7, Arc::clone(&empty_polls)), &flow(0, true), QueueKind::Receives);
            let mut of_a_dead_evd = flow(1, false);
            Arc::get_mut(&mut of_a_dead_evd).expect("the new flow has no other owner").lost =
                [false, true];
            freed.add((7, Arc::clone(&empty_polls)), &of_a_dead_evd, QueueKind::Requests);
        }
        assert_eq!((freed.len(), freed.inspections), (0, 0));
    }

    /// If an EVD is never seen empty, each freed endpoint costs few inspections, no matter how many
    /// endpoints were freed before.
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

        // The completion of each flow is taken before the next flow comes, so few flows are kept.
        let mut freed = FreedFlows::default();
        for _ in 0..ENDPOINTS {
            let flow = flow(1, false);
            freed.add((7, Arc::clone(&empty_polls)), &flow, QueueKind::Requests);
            flow.requests.take(1);
        }
        assert!(freed.len() <= 2 * MIN_INSPECTED_FLOWS, "{} flows are kept", freed.len());
        assert!(freed.inspections <= 4 * ENDPOINTS, "{} inspections", freed.inspections);
        freed.forget_evd(7);
        assert_eq!(freed.len(), 0);
    }
}
