//! What is outstanding on an endpoint's queues, and how a completion becomes an event.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use dat_sys::ib::*;
use dat_sys::*;

use super::watermark::Holding;
use crate::counters::{self, Tally};
use crate::evd::Evd;
use crate::handle::Node;
use crate::log;
use crate::provider::{Transport, Wc, WcOp, WcStatus};
use crate::srq::SrqShare;

/// Both queues of one incarnation of an endpoint. Its address is the `token` of the queue pair, so it must stay
/// until the last completion has been taken: see [`Orphans`].
pub struct Flow {
    ep: usize,
    /// Of its adapter.
    ia: String,
    /// The connection, or 0: see [`log::connection`].
    pub(super) connection: AtomicU64,
    pub(super) requests: Depth,
    pub(super) receives: Depth,
    /// Cookies of requests, by sequence number. Receives need none: the cookie is their id.
    cookies: Box<[UnsafeCell<u64>]>,
    /// The RMRs of binds, likewise; made by the first one.
    rmrs: OnceLock<Box<[AtomicUsize]>>,
    srq: Option<SrqShare>,
    pub(super) holding: Arc<Holding>,
    /// Posts are counted by whoever posts to each queue, receives by whoever takes their completions.
    pub(super) tally: Arc<Tally<{ counters::EP_ALL }>>,
}

// SAFETY: a cookie's cell is written by the poster before the request is posted and read by the taker after it has
// completed; it is not reused before it is retired.
unsafe impl Send for Flow {}
// SAFETY: as above.
unsafe impl Sync for Flow {}

/// How many work requests are outstanding: two counters, each with one writer.
pub(super) struct Depth {
    posted: AtomicU64,
    retired: AtomicU64,
    max: u64,
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
    ) -> Self {
        let ring = max_requests.max(1).next_power_of_two();
        Flow {
            ep: ep as usize,
            ia: ia.to_owned(),
            connection: AtomicU64::new(0),
            requests: Depth::new(max_requests),
            receives: Depth::new(max_recvs),
            cookies: (0..ring).map(|_| UnsafeCell::new(0)).collect(),
            rmrs: OnceLock::new(),
            srq,
            holding,
            tally,
        }
    }

    /// Without an EVD nobody learns of completions, so that nothing is counted back here: then the transport's own queue is
    /// the limit (uDAPL 1.2, dat_ep_create: a NULL EVD, the consumer is not interested in completions).
    pub(super) fn count_only_reported(&mut self, requests: bool, receives: bool) {
        if !requests {
            self.requests.max = u64::MAX;
        }
        if !receives {
            self.receives.max = u64::MAX;
        }
    }

    /// No receive is outstanding: of an endpoint on a shared queue, those that it has taken count.
    pub(super) fn receives_idle(&self) -> bool {
        self.receives.is_idle() && (self.srq.is_none() || self.holding.held() == 0)
    }

    /// Remembers the cookie of request number `seq`.
    #[inline]
    pub(super) fn set_cookie(&self, seq: u64, cookie: u64) {
        let cell = &self.cookies[seq as usize & (self.cookies.len() - 1)];
        // SAFETY: fewer requests than cells are outstanding, so nobody reads this one now.
        unsafe { *cell.get() = cookie }
    }

    /// Remembers the RMR that request number `seq` binds.
    pub(super) fn set_rmr(&self, seq: u64, rmr: *mut c_void) {
        let rmrs = self.rmrs.get_or_init(|| self.cookies.iter().map(|_| AtomicUsize::new(0)).collect());
        rmrs[seq as usize & (rmrs.len() - 1)].store(rmr as usize, Ordering::Relaxed);
    }

    /// As [`Flow::retire`], for a bind.
    #[cold]
    pub fn retire_bind(&self, wc: &Wc) -> DAT_RMR_BIND_COMPLETION_EVENT_DATA {
        let rmr =
            self.rmrs.get().map_or(0, |rmrs| rmrs[wc.id as usize & (rmrs.len() - 1)].load(Ordering::Relaxed));
        let DAT_DTO_COMPLETION_EVENT_DATA { user_cookie, status, .. } = self.retire(wc);
        DAT_RMR_BIND_COMPLETION_EVENT_DATA { rmr_handle: rmr as DAT_RMR_HANDLE, user_cookie, status }
    }

    /// Turns a completion into the event's data and gives its place in the queue back.
    #[inline]
    pub fn retire(&self, wc: &Wc) -> DAT_DTO_COMPLETION_EVENT_DATA {
        let cookie = if wc.op == WcOp::Recv {
            match &self.srq {
                Some(srq) => {
                    srq.retire();
                    self.holding.gave_back();
                }
                None => {
                    self.receives.retire(self.receives.retired() + 1);
                    // One that was flushed from the queue was no message's, and after it there will be none.
                    if wc.status != WcStatus::Flushed {
                        self.holding.gave_back();
                    }
                }
            }
            if wc.status == WcStatus::Success {
                let (messages, bytes) = match wc.immediate {
                    None => (DCNT_EP_RECV, DCNT_EP_RECV_DATA),
                    Some(_) => (DCNT_EP_RECV_RDMA_IMM, DCNT_EP_RECV_RDMA_IMM_DATA),
                };
                self.tally.add(messages, 1);
                self.tally.add(bytes, wc.bytes.into());
            }
            wc.id
        } else {
            let cell = &self.cookies[wc.id as usize & (self.cookies.len() - 1)];
            // SAFETY: the request was posted after its cookie was written and is retired only below.
            let cookie = unsafe { *cell.get() };
            // Requests complete in order: this one also retires the suppressed ones before it.
            self.requests.retire(wc.id + 1);
            cookie
        };
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
        event
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

impl Depth {
    fn new(max: usize) -> Self {
        Depth { posted: AtomicU64::new(0), retired: AtomicU64::new(0), max: max as u64 }
    }

    /// The number of the next work request, or none if all are outstanding.
    #[inline]
    pub(super) fn next(&self) -> Option<u64> {
        let posted = self.posted.load(Ordering::Relaxed);
        (posted - self.retired() < self.max).then_some(posted)
    }

    #[inline]
    pub(super) fn posted(&self, count: u64) {
        self.posted.store(count, Ordering::Release);
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

/// Flows whose queue pair is gone (dat_ep_free, dat_ep_reset) while completions of it may still be queued. The
/// consumer gets those (dat_ep_free: they may still be on the EVD), so each flow is kept until both its EVDs have
/// been seen empty or are gone.
#[derive(Default)]
pub struct Orphans(Vec<Orphan>);

struct Orphan {
    /// Never read again except through the tokens of completions.
    _flow: Arc<Flow>,
    evds: Vec<Watch>,
}

struct Watch {
    evd: usize,
    empties: Arc<AtomicU64>,
    /// The flow's completions have been taken when the count gets here.
    until: u64,
}

impl Orphans {
    /// Takes over a flow whose queue pair has just been dropped.
    pub(super) fn adopt<'a, T: Transport>(
        &mut self,
        flow: Arc<Flow>,
        evds: impl IntoIterator<Item = &'a Node<Evd<T>>>,
    ) {
        self.reap();
        let watch = |evd: &Node<Evd<T>>| {
            let empties = evd.empties();
            // One look at the queue may be under way and have begun too early; the second one counts.
            let until = empties.load(Ordering::Acquire) + 2;
            Watch { evd: evd.handle() as usize, empties, until }
        };
        self.0.push(Orphan { _flow: flow, evds: evds.into_iter().map(watch).collect() });
    }

    /// An EVD is being freed: what it still holds is never taken.
    pub fn forget_evd(&mut self, evd: usize) {
        for orphan in &mut self.0 {
            orphan.evds.retain(|watch| watch.evd != evd);
        }
        self.reap();
    }

    fn reap(&mut self) {
        self.0.retain(|orphan| orphan.evds.iter().any(|w| w.empties.load(Ordering::Acquire) < w.until));
    }
}
