//! A DAT provider for every device that libibverbs and librdmacm drive: host channel adapters, the kernel's rxe and siw.
//!
//! Not complete yet: it finds and opens devices, and has the tables and the tools that the rest is made of. What follows is
//! what it is built to; a file that is not listed is not there.
//!
//! | file | what |
//! |---|---|
//! | [`params`] | ia_params: an address, a network device, or an RDMA device and its port |
//! | [`device`] | the device behind an address: limits and names |
//! | `cm` | rdma_cm: the event channel, identifiers |
//! | [`map`] | statuses, accesses and events, in dat-core's words |
//! | [`gate`] | how another thread gets between a consumer and its queue, at no cost to the consumer |
//!
//! # What becomes of dat-core's contract
//!
//! | [`Transport`](dat_core::provider::Transport) | here |
//! |---|---|
//! | `pd`, `mr` | `ibv_alloc_pd`; `ibv_reg_mr`, and `ibv_reg_mr_iova` with address 0 for a region that counts from zero |
//! | `mw`, `post_bind` | a window of type 2: bound by a request, its key the last one with the next octet; type 1 cannot be unbound in the queue's order |
//! | `cq` | `ibv_create_cq` with a channel of its own, so that `dat_evd_wait` sleeps on one descriptor |
//! | `srq` | `ibv_create_srq`; the low watermark is its limit, armed again by each `set_low_watermark` |
//! | `qp` | `ibv_create_qp`, and at once to INIT, where it takes receives. Not `rdma_create_qp`: endpoints exist before anybody knows whom they will call, so the transitions are made here, with what `rdma_init_qp_attr` says |
//! | `listen` | `rdma_bind_addr` to the adapter's own address and [`adapter::port`] of the qualifier, as libdaplofa does |
//! | `connect` | `rdma_resolve_addr`, `rdma_resolve_route`, `rdma_connect`; the queue pair to RTS and `rdma_establish` on the answer |
//! | `reject` | `rdma_reject` with [`map::REJECT_HEADER`] in front; a request that is dropped, without it |
//! | local keys and bounds of a post | checked by the device, so a wrong one is a completion ([`LocalProtection`](dat_core::provider::WcStatus::LocalProtection)), not a refused post |
//!
//! # Who polls
//!
//! The consumer polls its completion queue: one call through `ibv_context.ops`, no lock of ours. A completion carries 64 bits of
//! ours and the queue pair's number; what failed does not say what it was. So these bits name a slot of the queue, and the slot
//! has dat-core's id and the operation.
//!
//! Arming is `ibv_req_notify_cq`, then one more poll: what came in between is kept for the next poll, and the answer is "not
//! empty". So no wake-up is lost. A sleeper waits in poll(2) for the channel of its queue, the event channel of rdma_cm and a
//! descriptor of its own by which others interrupt it: a completion and a connection's event wake the thread that wants
//! them. Events of rdma_cm are handled by whoever is awake, one thread at a time; one thread of the adapter sleeps on the same
//! descriptors, serves consumers that do not wait (CNOs, agents, connection requests while they compute), and hears of
//! asynchronous events.
//!
//! # How a connection ends
//!
//! dat-core is promised every completion before the news. The device flushes in its own time, unsignalled successes leave no
//! trace, and the consumer may not poll before it has heard. So the end is marked: both queues have room for one work request
//! more, which is posted after the last one ([`gate`] keeps posters out meanwhile), and then the completion queue is emptied into
//! a list in front of it until the mark has come by (the gate keeps the consumer out; it polls the list). What is posted after
//! that is flushed into the same list, and never sees the device: rxe's receives would not even be looked at.
//! A graceful close sends a mark first, a WRITE of nothing, which completes when all before it has.
//!
//! A queue that overruns is reported by the device (`IBV_EVENT_CQ_ERR`), and that is the end of its queue pairs.
//! A successful completion gives back the places of the unsignalled requests before it, as dat-core counts; where there is no
//! queue to complete to, one of the provider's own is polled when the send queue is full.

mod cm;
pub mod device;
pub mod gate;
pub mod map;
pub mod params;
