//! A DAT provider for every device that libibverbs and librdmacm drive: host channel adapters and
//! the kernel's rxe and siw.
//! # Example
//!
//! Every port of every device has an entry. A host without a device has no entry, and its error
//! says how to get one:
//!
//! ```
//! use dat_core::provider::Provider;
//! use provider_verbs::Verbs;
//!
//! let entries = provider_verbs::entries();
//! for (name, params) in &entries {
//!     println!("{name}: {params}");
//!     provider_verbs::check(params, "strict=on")?;
//! }
//! if entries.is_empty() {
//!     let error = Verbs.open("verbs", "").err().ok_or("a device without a port opened")?;
//!     assert!(error.reason.contains("rdma link add rxe0 type rxe"), "{error}");
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | file | contents |
//! |---|---|
//! | [`params`] | ia_params: an address, a network device, or an RDMA device and its port |
//! | `entries` | the registry entries for this host's devices: [`entries()`] |
//! | [`device`] | the device behind an address: limits and names |
//! | `transport` | dat-core's transport trait: [`Adapter`] |
//! | `mr`, `mw` | protection domains and memory regions; memory windows |
//! | `key_table` | the memory that local keys name, read without a lock |
//! | `cq`, `srq` | completion queues; shared receive queues |
//! | `qp` | queue pairs: posting and completing |
//! | `work_queue` | the send queue and the receive queue of a queue pair |
//! | `work_request` | conversion of work requests to verbs |
//! | `connection` | connections of queue pairs, and how they end |
//! | `resolution` | service ID resolution: the peers of datagram queue pairs |
//! | `address` | address handles, to which datagrams are sent |
//! | `cm` | rdma_cm: event channel, identifiers, listeners, requests |
//! | `progress` | the state that threads share, and the progress thread |
//! | [`map`] | conversion of statuses, access flags and events to dat-core's types |
//! | [`gate`] | a lock that excludes the consumer from a queue and costs the consumer nothing |
//! | `qp_table`, `paged_table` | queue pairs by number; the table on which `qp_table` and `key_table` are built |
//! | `descriptor` | file descriptors that threads sleep on |
//!
//! # How dat-core's transport maps to verbs
//!
//! Each item names a method of [`Transport`](dat_core::provider::Transport) or a feature.
//!
//! - `pd`: `ibv_alloc_pd`.
//! - `mr`: `ibv_reg_mr`. A zero-based region uses `ibv_reg_mr_iova` with address 0, and must start
//!   at a page boundary.
//! - `mw`, `post_bind`: `ibv_bind_mw`. A window for all peers of a protection domain is of type 1,
//!   a window for the peer of one queue pair is of type 2. Each bind uses a new window of the
//!   device. Every bind is signalled, so that this crate learns when the bind has completed.
//! - Reads into windows and zero-based windows of type 1 are refused, because verbs have neither.
//! - `cq`: `ibv_create_cq` with a completion channel of its own, so that a notification wakes only
//!   the thread that waits for this queue.
//! - `srq`: `ibv_create_srq`. The low watermark is the limit of the queue; each `set_low_watermark`
//!   arms it again.
//! - `qp`: `ibv_create_qp`, followed at once by the transition to INIT, the first state in which
//!   receives can be posted. `rdma_create_qp` is not used, because an endpoint exists before its
//!   peer is known. So this crate makes the transitions itself, with the attributes of
//!   `rdma_init_qp_attr`.
//! - `qp` for datagrams: the transitions to RTR and RTS follow at once, with the Q_Key of rdma_cm.
//!   So the queue pair receives datagrams from its creation on.
//! - `listen`: `rdma_bind_addr` to the adapter's own address and to the port, as in libdaplofa. On
//!   a device with datagrams, a second identifier has the same number in the port space of
//!   datagrams.
//! - `connect`: `rdma_resolve_addr`, `rdma_resolve_route`, `rdma_connect`. When the answer arrives,
//!   the queue pair moves to RTS and `rdma_establish` follows.
//! - `resolve`: the same calls in the port space of datagrams, for which rdma_cm uses service ID
//!   resolution. The private data of both messages end with a trailer
//!   ([`wire::cm::sidr_trailer`]). `ibv_create_ah` makes the address handle from the attributes in
//!   the event that reports the answer.
//! - `answer`: `rdma_accept`. The address handle is made from the IP addresses of the request's
//!   identifier. The queue pair of the peer comes from the trailer. If there is none, it is 0.
//! - Immediate data are sent in the byte order of this host, as libdaplofa does. So a peer sees the
//!   same number only if it has the same byte order.
//! - `watch`: asynchronous events of the adapter, which report a fault of the device, its removal
//!   (reported by rdma_cm), or that its port is down. Events of queue pairs and queues go to the
//!   sinks of those objects.
//! - `reject`: `rdma_reject` with [`map::REJECT_HEADER`] in front of the private data. A request
//!   that is dropped is rejected without the header.
//! - The device checks the local keys and the bounds of a post. So a wrong key is reported by a
//!   completion ([`LocalProtection`](dat_core::provider::WcStatus::LocalProtection)) and not by a
//!   refused post. A device does not check data that the request itself carries (inline data). So a
//!   request carries its data only if `key_table` finds the keys valid. Otherwise the device
//!   fetches the data and checks the keys.
//!
//! # Who polls
//!
//! The consumer polls its completion queue: one call through `ibv_context.ops`, without a lock of
//! this crate. A completion carries the 64-bit ID of its work request and the number of the queue
//! pair. A failed completion does not name its operation. So the ID names a slot of the work queue,
//! and the slot holds dat-core's ID and the operation.
//!
//! Arming is `ibv_req_notify_cq` followed by one more poll. A completion that arrived in between is
//! kept for the next poll, and arming reports that the queue is not empty. So no wake-up is lost. A
//! thread that waits for events of an EVD with completions sleeps on the channel of its completion
//! queue and on a descriptor that interrupts the sleep. So a completion wakes only the thread that
//! waits for it.
//!
//! The progress thread sleeps on the event channel of rdma_cm, on the device's asynchronous events,
//! and on the channels of completion queues that feed a notification object. While there are
//! connections, it also searches for queue pairs that have failed: only the completion of a request
//! reports its failure, and the consumer may wait for the connection event before it polls. It
//! searches every 50 ms. While no event happens, the interval doubles up to one second. The thread
//! does not take completions that the consumer polls itself.
//!
//! Where the kernel does the device's work (rxe, siw), a consumer that polls without success yields
//! its processor now and then, because that work may need this processor.
//!
//! # fork(2)
//!
//! From Linux 5.12 on, the kernel copies registered memory for children, which is sufficient. On
//! older kernels `ibv_fork_init` is called before any memory is registered. The library then hides
//! the pages of registered memory, with everything else on these pages, from children. Each region
//! costs a system call. A child has no handles ([`dat_core::handle`]), so it does not access the
//! objects that it shares with its parent: queues, event channels, the device.
//!
//! # How a connection ends
//!
//! dat-core expects every completion before the event that reports the end of a connection. The
//! device flushes asynchronously, unsignalled successes leave no completion, and the consumer
//! possibly does not poll until it has received the event. So this crate marks the end of the work
//! requests:
//!
//! 1. The [`gate`] excludes posters. Both work queues have room for an additional work request, the
//!    *marker*, which is posted after the last work request.
//! 2. The completion queue is emptied into a list in front of it until the marker has completed.
//!    While the queue is emptied, the gate keeps the consumer out. Afterwards the consumer polls
//!    the list first.
//! 3. Work requests that are posted after the marker are flushed into the same list without the
//!    device, because rxe would ignore receives.
//!
//! Completion queues have room for the markers in addition to the consumer's depth, so that a
//! marker never causes an overrun. Over iWARP the transition to the error state flushes before it
//! returns, so only a graceful close needs a marker. A device that was removed may never complete
//! its work requests. So after half a second they are flushed without the device. A graceful close
//! first posts another marker, an RDMA write of no data, which completes when all requests before
//! it have completed.
//!
//! # How address handles end
//!
//! rxe looks for the address handle of a datagram when it sends the datagram. If the handle does
//! not exist any more, the queue pair fails. A consumer may free an address as soon as it has
//! posted a datagram. So the address handle is destroyed only when every datagram of its protection
//! domain has completed, or after a second. The completions must be known for that, so every
//! datagram is signalled, and its completion is hidden if the consumer has not asked for it. This
//! also shows when a datagram queue pair is flushed, so it needs no markers.
//!
//! # Where a device deviates from dat-core's contract
//!
//! - After a thread has requested a notification for any completion, it cannot restrict the request
//!   to solicited completions. A notification that is already under way may wake a thread
//!   unnecessarily. The device decides which requests and quiet receives cause a notification,
//!   regardless of [`SendWr::quiet`](dat_core::provider::SendWr::quiet).
//! - Held buffers are counted when their completions are taken: by the consumer or, for an endpoint
//!   with a high watermark, by the progress thread every 50 ms. So an exceeded watermark may be
//!   noticed late, when messages have already taken more buffers.
//! - A peer can invalidate only windows of type 2. Invalidating any other key ends the connection.
//! - rxe looks for the buffers of a shared receive queue in the protection domain of the endpoint,
//!   so the endpoint must be in the queue's domain
//!   ([`srq_across_pds`](dat_core::provider::Attrs::srq_across_pds)). rxe refuses misaligned atomic
//!   operations when they are posted.
//! - [`map::request`] and [`map::receive`] disambiguate the statuses of rxe and siw.
//! - A shared receive queue of rxe completes a buffer that is too small for a datagram. The
//!   consumer gets the completion as [`LocalLength`](dat_core::provider::WcStatus::LocalLength),
//!   and the endpoint works as before.
//! - InfiniBand devices have no datagrams here, because the address of a peer that calls must be
//!   found out from the subnet manager. RoCE needs only its IP address.
//! - siw connects the TCP socket before `rdma_connect` returns, so an address that does not answer
//!   delays the adapter's other connections. siw lets peers read all registered memory. siw has no
//!   windows, and its queues cannot grow.
//!
//! The device reports a completion queue that overruns (`IBV_EVENT_CQ_ERR`). The connections of its
//! queue pairs then end. A successful completion frees the work queue entries of the unsignalled
//! requests before it, and dat-core counts requests in the same manner. If the consumer has no
//! completion queue, the provider creates one, and takes its completions when the work queue is
//! full.

mod address;
mod cm;
mod connection;
mod cq;
mod descriptor;
pub mod device;
mod entries;
pub mod gate;
mod key_table;
pub mod map;
mod mr;
mod mw;
mod paged_table;
pub mod params;
mod progress;
mod qp;
mod qp_table;
mod resolution;
mod srq;
mod transport;
mod work_queue;
mod work_request;

use std::path::Path;

use dat_core::OpenError;
use dat_core::export::{AnyProvider, Opened};
use dat_core::provider::Provider;

pub use crate::entries::entries;
pub use crate::params::KEYS;
use crate::params::{Params, SYSFS};
pub use crate::transport::Adapter;

/// The provider, which opens adapters.
#[derive(Clone, Copy, Debug, Default)]
pub struct Verbs;

/// Returns the provider without its Rust type. It is not inlined, so that the code of dat-core for
/// this provider's transport is compiled once, with this crate.
#[inline(never)]
pub fn provider() -> AnyProvider {
    AnyProvider::of::<Verbs>()
}

/// Opens an adapter that has one more named attribute.
///
/// # Errors
/// Those of [`Verbs::open`](Provider::open).
pub fn open(ia: &str, params: &str, (name, value): (&str, &str)) -> Result<Opened, OpenError> {
    Verbs.open(ia, params).map(|adapter| Opened::new(adapter.with_attribute(name, value)))
}

/// Checks ia_params and the value of `OPENDAT_PARAMS` without opening a device.
///
/// # Errors
/// The errors of [`Verbs::open`](Provider::open) that can be found without a device.
pub fn check(params: &str, defaults: &str) -> Result<(), OpenError> {
    params::check(params, defaults)
}

impl Provider for Verbs {
    type Transport = Adapter;
    const NAME: &'static str = "verbs";

    fn open(&self, ia: &str, params: &str) -> Result<Adapter, OpenError> {
        let sysfs = Path::new(SYSFS);
        let params = Params::parse(params, sysfs, &adapter::params::defaults())?;
        entries::require_device(sysfs)?;
        Adapter::open(ia, &params)
    }
}
