//! A DAT provider for every device that libibverbs and librdmacm drive: host channel adapters, the kernel's rxe and siw.
//!
//! | file | what |
//! |---|---|
//! | [`params`] | ia_params: an address, a network device, or an RDMA device and its port |
//! | `entries` | the registry's entries for this host's devices: [`entries()`] |
//! | [`device`] | the device behind an address: limits and names |
//! | `transport` | dat-core's contract: [`Adapter`] |
//! | `mr`, `mw`, `keys` | protection domains and regions; windows; what local keys name, for whoever posts |
//! | `cq`, `srq` | completion queues, shared receive queues |
//! | `qp`, `side`, `work` | queue pairs: posting and completing, each of its queues, work requests in verbs' words |
//! | `link` | connections of queue pairs, and how they end |
//! | `cm` | rdma_cm: the event channel, identifiers, service points, requests |
//! | `station` | who looks for events, and how threads sleep |
//! | [`map`] | statuses, accesses and events, in dat-core's words |
//! | [`gate`] | how another thread gets between a consumer and its queue, at no cost to the consumer |
//! | `numbers`, `pages` | queue pairs by their numbers; the table that numbers and keys are looked up in |
//! | `descriptor` | descriptors that threads sleep on |
//!
//! # What becomes of dat-core's contract
//!
//! | [`Transport`](dat_core::provider::Transport) | here |
//! |---|---|
//! | `pd`, `mr` | `ibv_alloc_pd`; `ibv_reg_mr`, and `ibv_reg_mr_iova` with address 0 for a region that counts from zero, which has to start with a page |
//! | `mw`, `post_bind` | a window of type 1 for the peers of a domain, `ibv_bind_mw`; of type 2 for the peer of one queue pair; a new one for each bind. Every bind completes at the device, so that its end is known |
//! | reads into windows, windows of type 1 that count from zero | refused: verbs have neither |
//! | `cq` | `ibv_create_cq` with a channel of its own, so that `dat_evd_wait` sleeps on one descriptor |
//! | `srq` | `ibv_create_srq`; the low watermark is its limit, armed again by each `set_low_watermark` |
//! | `qp` | `ibv_create_qp`, and at once to INIT, where it takes receives. Not `rdma_create_qp`: endpoints exist before anybody knows whom they will call, so the transitions are made here, with what `rdma_init_qp_attr` says |
//! | `listen` | `rdma_bind_addr` to the adapter's own address and [`adapter::port`] of the qualifier, as libdaplofa does |
//! | `connect` | `rdma_resolve_addr`, `rdma_resolve_route`, `rdma_connect`; the queue pair to RTS and `rdma_establish` on the answer |
//! | immediate data | handed on as they lie in memory, as libdaplofa does: peers of one byte order see the same number |
//! | `watch` | asynchronous events: a fault of the device, or its removal, which rdma_cm tells of; its port that goes down. Those of queue pairs and queues go to their own sinks |
//! | `reject` | `rdma_reject` with [`map::REJECT_HEADER`] in front; a request that is dropped, without it |
//! | local keys and bounds of a post | checked by the device, so a wrong one is a completion ([`LocalProtection`](dat_core::provider::WcStatus::LocalProtection)), not a refused post. A device does not look where a request carries its data itself: so it does if `keys` knows them, and is left to the device if not |
//!
//! # Who polls
//!
//! The consumer polls its completion queue: one call through `ibv_context.ops`, no lock of ours. A completion carries 64 bits of
//! ours and the queue pair's number; what failed does not say what it was. So these bits name a slot of the queue, and the slot
//! has dat-core's id and the operation.
//!
//! Arming is `ibv_req_notify_cq`, then one more poll: what came in between is kept for the next poll, and the answer is "not
//! empty". So no wake-up is lost. Who waits for events of an EVD with completions sleeps on the channel of its queue, beside a
//! descriptor by which others interrupt it: a completion wakes the thread that wants it, and no other. The station's thread
//! sleeps on the event channel of rdma_cm, the device's asynchronous events, and the channels of queues that a notification
//! object wants to hear of. While there are connections it looks for queue pairs that have failed, since a request that fails says
//! so by its completion only, and the consumer may wait for the news before it takes that: every 50 ms, and where nothing happens
//! less and less often, up to a second. Completions that the consumer takes itself are left to it.
//!
//! Where the kernel does the device's work (rxe, siw), a consumer that polls in vain gives its processor up now and then: it may
//! be the one that the work waits for.
//!
//! # fork(2)
//!
//! Where the kernel copies registered memory for children (5.12) there is nothing to do. Where not, `ibv_fork_init` comes before
//! anything is registered: the library keeps it from children, page by page and with what else is on its pages, which takes a
//! system call for each region. A child has no handles
//! ([`dat_core::handle`]), so it does not touch what it shares with its parent: queues, event channels, the device.
//!
//! # How a connection ends
//!
//! dat-core is promised every completion before the news. The device flushes in its own time, unsignalled successes leave no
//! trace, and the consumer may not poll before it has heard. So the end is marked: both queues have room for one work request
//! more, which is posted after the last one ([`gate`] keeps posters out meanwhile), and then the completion queue is emptied into
//! a list in front of it until the mark has come by (the gate keeps the consumer out; it polls the list). What is posted after
//! that is flushed into the same list, and never sees the device: rxe's receives would not even be looked at. Completion queues have
//! room for the marks besides what the consumer asked for: a mark must not be what makes one overrun.
//! Over iWARP the transition to the error state flushes before it returns, and there are no marks but the next.
//! A device that was removed may say nothing any more: half a second later what it has not completed is flushed without it.
//! A graceful close sends a mark first, a WRITE of nothing, which completes when all before it has.
//!
//! # What a device decides, and dat-core's contract does not expect
//!
//! - An event for any completion cannot be taken back in favour of one for solicited ones; an event that was under way may wake in
//!   vain; requests and quiet receives wake as the device says, not as [`SendWr::quiet`](dat_core::provider::SendWr::quiet) does.
//! - Buffers held count when completions are taken: by the consumer or, of an endpoint with a high watermark, by the station every
//!   50 ms. So late the watermark may be noticed, and messages have taken more buffers meanwhile.
//! - A peer's invalidation ends windows of type 2 only; of any other key, it ends the connection.
//! - rxe looks for a shared queue's buffers in the domain of the endpoint: it has to be the queue's
//!   ([`srq_across_pds`](dat_core::provider::Attrs::srq_across_pds)). It refuses misaligned atomics when they are posted.
//! - Statuses of rxe and siw are told apart by [`map::request`] and [`map::receive`].
//! - siw calls TCP's peer before `rdma_connect` returns: an address that says nothing holds up its adapter's other connections.
//!   It lets peers read whatever is registered, and has neither windows nor queues that become longer.
//!
//! A queue that overruns is reported by the device (`IBV_EVENT_CQ_ERR`), and that is the end of its queue pairs.
//! A successful completion gives back the places of the unsignalled requests before it, as dat-core counts; where there is no
//! queue to complete to, one of the provider's own is polled when it is full.

mod cm;
mod cq;
mod descriptor;
pub mod device;
mod entries;
pub mod gate;
mod keys;
mod link;
pub mod map;
mod mr;
mod mw;
mod numbers;
mod pages;
pub mod params;
mod qp;
mod side;
mod srq;
mod station;
mod transport;
mod work;

use std::path::Path;

use dat_core::OpenError;
use dat_core::environment::variable;
use dat_core::provider::Provider;

pub use crate::entries::entries;
use crate::params::{Params, SYSFS};
pub use crate::transport::Adapter;

/// The provider: opens adapters.
#[derive(Clone, Copy, Debug, Default)]
pub struct Verbs;

/// Whether it understands these ia_params and what the environment says.
///
/// # Errors
/// As [`Verbs`] would open an adapter, as far as that can be told without.
pub fn check(params: &str, env: impl Fn(&str) -> Option<String>) -> Result<(), OpenError> {
    Params::parse(params, Path::new(SYSFS), env).map(drop)
}

impl Provider for Verbs {
    type Transport = Adapter;
    type Other = Adapter;
    const NAME: &'static str = "verbs";

    fn open(&self, ia: &str, params: &str) -> Result<Adapter, OpenError> {
        let sysfs = Path::new(SYSFS);
        let params = Params::parse(params, sysfs, variable)?;
        entries::there_is_one(sysfs)?;
        Adapter::open(ia, &params)
    }
}
