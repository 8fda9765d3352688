//! The functions of the function table, each with arguments that are mostly valid.

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use dat_core::Error;
use dat_sys::ib::*;
use dat_sys::opendat::DAT_OPENDAT_POST_SEND_UD_IMMED_OP;
use dat_sys::*;

use crate::client::{cookie, dat, extended, word};
use crate::world::{Caller, Kind, MEMORY};

type Answer = Result<(), Error>;

/// The name of a function, and a call of it.
type Call = (&'static str, fn(&mut Caller<'_>) -> Answer);

macro_rules! calls {
    ($($name:ident($caller:ident) $body:block)*) => {
        pub(crate) const CALLS: [Call; [$(stringify!($name)),*].len()] =
            [$((stringify!($name), |$caller: &mut Caller<'_>| -> Answer { $body })),*];
    };
}

/// Calls a query function for all fields of an object.
macro_rules! query {
    ($caller:ident, $kind:ident, $func:ident, $mask:ident, $param:ident) => {{
        let handle = $caller.pick(Kind::$kind);
        let mut param = $param::zeroed();
        dat!($caller.world.table, $func(handle, $mask.into(), &mut param)).map(|()| param)
    }};
}

/// Makes a call whose only argument is a handle.
macro_rules! plain {
    ($caller:ident, $kind:ident, $func:ident) => {{
        let handle = $caller.pick(Kind::$kind);
        dat!($caller.world.table, $func(handle))
    }};
}

const STREAMS: DAT_EVD_FLAGS = DAT_EVD_SOFTWARE_FLAG
    | DAT_EVD_CR_FLAG
    | DAT_EVD_DTO_FLAG
    | DAT_EVD_CONNECTION_FLAG
    | DAT_EVD_RMR_BIND_FLAG;
/// The time limit of connections, in microseconds.
const CONNECT_TIMEOUT_US: DAT_TIMEOUT = 50_000;
const WAIT_TIMEOUT_US: DAT_TIMEOUT = 50;
/// The average number of calls between two that close an adapter with all its objects.
const CALLS_PER_CLOSE: usize = 64;
/// The average number of calls between two that create an endpoint for datagrams.
const CALLS_PER_CREATION: usize = 32;

/// The agent of a CNO. From time to time it frees the EVD that it is called with.
unsafe extern "C" fn agent(table: *mut c_void, evd: DAT_EVD_HANDLE) {
    // SAFETY: tables are never freed.
    let table = unsafe { &*table.cast_const().cast::<DAT_PROVIDER>() };
    let mut event = DAT_EVENT::zeroed();
    let _ = dat!(table, evd_dequeue_func(evd, &mut event));
    let (mut param, mask) = (DAT_EVD_PARAM::zeroed(), DAT_EVD_FIELD_ALL);
    if dat!(table, evd_query_func(evd, mask, &mut param)).is_ok() {
        let mut of_cno = DAT_CNO_PARAM::zeroed();
        let _ = dat!(table, cno_query_func(param.cno_handle, DAT_CNO_FIELD_ALL, &mut of_cno));
    }
}

impl Caller<'_> {
    fn agent(&mut self) -> DAT_OS_WAIT_PROXY_AGENT {
        match self.one_in(2) {
            true => DAT_OS_WAIT_PROXY_AGENT_NULL,
            false => DAT_OS_WAIT_PROXY_AGENT {
                instance_data: std::ptr::from_ref(self.world.table).cast_mut().cast(),
                proxy_agent_func: Some(agent),
            },
        }
    }

    /// A segment of the shared memory.
    fn local(&mut self) -> DAT_LMR_TRIPLET {
        let at = self.below(MEMORY - 8) & !7;
        DAT_LMR_TRIPLET {
            virtual_address: self.world.memory.addr() as u64 + at as u64,
            segment_length: self.world.octets,
            lmr_context: self.world.lmr_context.load(std::sync::atomic::Ordering::Relaxed),
        }
    }

    fn remote(&mut self) -> DAT_RMR_TRIPLET {
        let DAT_LMR_TRIPLET { virtual_address, segment_length, .. } = self.local();
        let rmr_context = self.world.rmr_context.load(std::sync::atomic::Ordering::Relaxed);
        DAT_RMR_TRIPLET { virtual_address, segment_length, rmr_context }
    }

    fn qualifier(&mut self) -> DAT_CONN_QUAL {
        self.world.qualifier.load(std::sync::atomic::Ordering::Relaxed)
    }

    fn listens_at(&mut self, qualifier: DAT_CONN_QUAL) {
        self.world.qualifier.store(qualifier, std::sync::atomic::Ordering::Relaxed);
    }

    /// Returns one of a few qualifiers, for calls that create a service point with a given
    /// qualifier.
    fn some_port(&mut self) -> DAT_CONN_QUAL {
        52_000 + self.below(16) as DAT_CONN_QUAL
    }

    fn flags(&mut self) -> DAT_COMPLETION_FLAGS {
        if self.one_in(4) { DAT_COMPLETION_SUPPRESS_FLAG } else { DAT_COMPLETION_DEFAULT_FLAG }
    }

    fn create_lmr(&mut self, kind: DAT_MEM_TYPE, of: DAT_REGION_DESCRIPTION) -> Answer {
        let (ia, pz) = (self.pick(Kind::Ia), self.pick(Kind::Pz));
        let (mut lmr, mut context, mut remote) = (null_mut(), 0, 0);
        let (length, none) = (MEMORY as DAT_VLEN, null_mut());
        let (all, va) = (DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA);
        let made = dat!(
            self.world.table,
            lmr_create_func(
                ia,
                kind,
                of,
                length,
                pz,
                all,
                va,
                &mut lmr,
                &mut context,
                &mut remote,
                none,
                null_mut()
            )
        );
        if made.is_ok() {
            self.world.lmr_context.store(context, std::sync::atomic::Ordering::Relaxed);
            self.world.rmr_context.store(remote, std::sync::atomic::Ordering::Relaxed);
        }
        self.publish(Kind::Lmr, lmr, made)
    }

    fn attr(&mut self) -> DAT_EP_ATTR {
        DAT_EP_ATTR {
            service_type: DAT_SERVICE_TYPE_RC,
            max_message_size: 4096,
            max_rdma_size: 4096,
            qos: DAT_QOS_BEST_EFFORT,
            recv_completion_flags: DAT_COMPLETION_EVD_THRESHOLD_FLAG,
            request_completion_flags: DAT_COMPLETION_EVD_THRESHOLD_FLAG,
            max_recv_dtos: 8,
            max_request_dtos: 8,
            max_recv_iov: 1,
            max_request_iov: 1,
            max_rdma_read_in: 1,
            max_rdma_read_out: 1,
            srq_soft_hw: DAT_WATERMARK_INFINITE,
            max_rdma_read_iov: 1,
            max_rdma_write_iov: 1,
            ..DAT_EP_ATTR::zeroed()
        }
    }
}

calls! {
    ia_open(c) {
        if !c.one_in(CALLS_PER_CLOSE) && !c.pick(Kind::Ia).is_null() {
            return Ok(());
        }
        let (mut ia, mut evd) = (null_mut(), DAT_HANDLE_NULL);
        // Sometimes the call names an existing EVD for asynchronous errors, which belongs to
        // another adapter. Most of these EVDs do not accept asynchronous errors.
        if c.one_in(4) {
            evd = c.pick(Kind::Evd);
        }
        let name = c.world.name.as_ptr().cast_mut();
        let made = dat!(c.world.table, ia_open_func(name, 8, &mut evd, &mut ia));
        c.publish(Kind::Ia, ia, made)
    }
    ia_query(c) {
        let ia = c.pick(Kind::Ia);
        let (mut evd, mut attr) = (null_mut(), DAT_IA_ATTR::zeroed());
        let mut provider = DAT_PROVIDER_ATTR::zeroed();
        let (all, of_provider) = (DAT_IA_FIELD_ALL, DAT_PROVIDER_FIELD_ALL);
        dat!(c.world.table, ia_query_func(ia, &mut evd, all, &mut attr, of_provider, &mut provider))
    }
    ia_close(c) {
        let ia = c.pick(Kind::Ia);
        let abrupt = c.one_in(CALLS_PER_CLOSE);
        let flags = if abrupt { DAT_CLOSE_ABRUPT_FLAG } else { DAT_CLOSE_GRACEFUL_FLAG };
        dat!(c.world.table, ia_close_func(ia, flags))
    }
    set_consumer_context(c) {
        let handle = c.pick(Kind::Evd);
        dat!(c.world.table, set_consumer_context_func(handle, DAT_CONTEXT { as_64: 7 }))
    }
    get_consumer_context(c) {
        let (handle, mut context) = (c.pick(Kind::Ep), DAT_CONTEXT { as_64: 0 });
        dat!(c.world.table, get_consumer_context_func(handle, &mut context))
    }
    get_handle_type(c) {
        let (handle, mut kind) = (c.pick(Kind::Cr), 0);
        dat!(c.world.table, get_handle_type_func(handle, &mut kind))
    }
    cno_create(c) {
        let (ia, agent, mut cno) = (c.pick(Kind::Ia), c.agent(), null_mut());
        let made = dat!(c.world.table, cno_create_func(ia, agent, &mut cno));
        c.publish(Kind::Cno, cno, made)
    }
    cno_fd_create(c) {
        let (ia, mut fd, mut cno) = (c.pick(Kind::Ia), 0, null_mut());
        let made = dat!(c.world.table, cno_fd_create_func(ia, &mut fd, &mut cno));
        c.publish(Kind::Cno, cno, made)
    }
    cno_modify_agent(c) {
        let (cno, agent) = (c.pick(Kind::Cno), c.agent());
        dat!(c.world.table, cno_modify_agent_func(cno, agent))
    }
    cno_query(c) { query!(c, Cno, cno_query_func, DAT_CNO_FIELD_ALL, DAT_CNO_PARAM).map(drop) }
    cno_wait(c) {
        let (cno, mut evd) = (c.pick(Kind::Cno), null_mut());
        dat!(c.world.table, cno_wait_func(cno, WAIT_TIMEOUT_US, &mut evd))
    }
    cno_trigger(c) {
        let (cno, mut evd) = (c.pick(Kind::Cno), null_mut());
        dat!(c.world.table, cno_trigger_func(cno, &mut evd))
    }
    cno_free(c) { plain!(c, Cno, cno_free_func) }
    evd_create(c) {
        let (ia, mut evd) = (c.pick(Kind::Ia), null_mut());
        let cno = if c.one_in(2) { c.pick(Kind::Cno) } else { null_mut() };
        let made = dat!(c.world.table, evd_create_func(ia, 16, cno, STREAMS, &mut evd));
        c.publish(Kind::Evd, evd, made)
    }
    evd_query(c) { query!(c, Evd, evd_query_func, DAT_EVD_FIELD_ALL, DAT_EVD_PARAM).map(drop) }
    evd_modify_cno(c) {
        let (evd, cno) = (c.pick(Kind::Evd), c.pick(Kind::Cno));
        dat!(c.world.table, evd_modify_cno_func(evd, cno))
    }
    evd_enable(c) { plain!(c, Evd, evd_enable_func) }
    evd_disable(c) { plain!(c, Evd, evd_disable_func) }
    evd_set_unwaitable(c) { plain!(c, Evd, evd_set_unwaitable_func) }
    evd_clear_unwaitable(c) { plain!(c, Evd, evd_clear_unwaitable_func) }
    evd_wait(c) {
        let (evd, mut event, mut more) = (c.pick(Kind::Evd), DAT_EVENT::zeroed(), 0);
        dat!(
            c.world.table, evd_wait_func(evd, WAIT_TIMEOUT_US, 1, &mut event, &mut more)
        ).map(|()| c.publish_handles_of(&event))
    }
    evd_dequeue(c) {
        let (evd, mut event) = (c.pick(Kind::Evd), DAT_EVENT::zeroed());
        dat!(
            c.world.table, evd_dequeue_func(evd, &mut event)
        ).map(|()| c.publish_handles_of(&event))
    }
    evd_resize(c) {
        let (evd, depth) = (c.pick(Kind::Evd), 8 + c.below(32) as DAT_COUNT);
        dat!(c.world.table, evd_resize_func(evd, depth))
    }
    evd_post_se(c) {
        let (evd, mut event) = (c.pick(Kind::Evd), DAT_EVENT::zeroed());
        event.event_number = DAT_SOFTWARE_EVENT;
        dat!(c.world.table, evd_post_se_func(evd, &event))
    }
    evd_free(c) { plain!(c, Evd, evd_free_func) }
    ep_create(c) {
        let (ia, pz, mut ep) = (c.pick(Kind::Ia), c.pick(Kind::Pz), null_mut());
        let [recv, request, connect] = [(); 3].map(|()| c.pick(Kind::Evd));
        let made = dat!(
            c.world.table, ep_create_func(ia, pz, recv, request, connect, null(), &mut ep)
        );
        c.publish(Kind::Ep, ep, made)
    }
    ep_create_with_srq(c) {
        let (ia, pz, srq, mut ep) = (
            c.pick(Kind::Ia), c.pick(Kind::Pz), c.pick(Kind::Srq), null_mut()
        );
        let [recv, request, connect] = [(); 3].map(|()| c.pick(Kind::Evd));
        let attr = c.attr();
        let made = dat!(
            c.world.table,
            ep_create_with_srq_func(ia, pz, recv, request, connect, srq, &attr, &mut ep)
        );
        c.publish(Kind::Ep, ep, made)
    }
    ep_create_for_datagrams(c) {
        // An endpoint lasts for a while, because it can send only after the requests for it were
        // accepted and its events were taken.
        if !c.one_in(CALLS_PER_CREATION) && !c.pick(Kind::DatagramEp).is_null() {
            return Ok(());
        }
        let (ia, pz, mut ep) = (c.pick(Kind::Ia), c.pick(Kind::Pz), null_mut());
        let [recv, request, connect] = [(); 3].map(|()| c.pick(Kind::Evd));
        let attr = DAT_EP_ATTR { service_type: DAT_IB_SERVICE_TYPE_UD, ..c.attr() };
        let made = dat!(
            c.world.table, ep_create_func(ia, pz, recv, request, connect, &attr, &mut ep)
        );
        c.publish(Kind::DatagramEp, ep, made)
    }
    ep_query(c) { query!(c, Ep, ep_query_func, DAT_EP_FIELD_ALL, DAT_EP_PARAM).map(drop) }
    ep_modify(c) {
        let ep = c.pick(Kind::Ep);
        let mut param = DAT_EP_PARAM::zeroed();
        param.pz_handle = c.pick(Kind::Pz);
        param.recv_evd_handle = c.pick(Kind::Evd);
        param.connect_evd_handle = c.pick(Kind::Evd);
        let mask = DAT_EP_FIELD_PZ_HANDLE | DAT_EP_FIELD_RECV_EVD_HANDLE
            | DAT_EP_FIELD_CONNECT_EVD_HANDLE;
        dat!(c.world.table, ep_modify_func(ep, mask, &param))
    }
    ep_connect(c) {
        let (ep, qualifier, address) = (c.pick(Kind::Ep), c.qualifier(), c.world.address.as_ptr());
        let (qos, flags) = (DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG);
        dat!(
            c.world.table,
            ep_connect_func(ep, address, qualifier, CONNECT_TIMEOUT_US, 0, null_mut(), qos, flags)
        )
    }
    ep_dup_connect(c) {
        let (ep, model) = (c.pick(Kind::Ep), c.pick(Kind::Ep));
        dat!(
            c.world.table,
            ep_dup_connect_func(ep, model, CONNECT_TIMEOUT_US, 0, null_mut(), DAT_QOS_BEST_EFFORT)
        )
    }
    ep_common_connect(c) {
        let (ep, port) = (c.pick(Kind::Ep), c.qualifier() as u16);
        let to = dat_core::addr::SockAddr::from(std::net::SocketAddr::from(([127, 0, 0, 1], port)));
        dat!(
            c.world.table,
            ep_common_connect_func(ep, to.as_ptr(), CONNECT_TIMEOUT_US, 0, null_mut())
        )
    }
    ep_disconnect(c) {
        let ep = c.pick(Kind::Ep);
        let flags = if c.one_in(2) { DAT_CLOSE_ABRUPT_FLAG } else { DAT_CLOSE_GRACEFUL_FLAG };
        dat!(c.world.table, ep_disconnect_func(ep, flags))
    }
    ep_post_send(c) {
        let (ep, mut segment, flags) = (c.pick(Kind::Ep), c.local(), c.flags());
        dat!(c.world.table, ep_post_send_func(ep, 1, &mut segment, cookie(1), flags))
    }
    ep_post_send_with_invalidate(c) {
        let (ep, mut segment, flags) = (c.pick(Kind::Ep), c.local(), c.flags());
        dat!(
            c.world.table,
            ep_post_send_with_invalidate_func(ep, 1, &mut segment, cookie(1), flags, DAT_FALSE, 0)
        )
    }
    ep_post_recv(c) {
        let (ep, mut segment) = (c.pick(Kind::Ep), c.local());
        dat!(
            c.world.table,
            ep_post_recv_func(ep, 1, &mut segment, cookie(2), DAT_COMPLETION_DEFAULT_FLAG)
        )
    }
    ep_post_rdma_read(c) {
        let (ep, mut segment, from, flags) = (c.pick(Kind::Ep), c.local(), c.remote(), c.flags());
        dat!(c.world.table, ep_post_rdma_read_func(ep, 1, &mut segment, cookie(3), &from, flags))
    }
    ep_post_rdma_read_to_rmr(c) {
        let (ep, into, from, flags) = (c.pick(Kind::Ep), c.remote(), c.remote(), c.flags());
        dat!(c.world.table, ep_post_rdma_read_to_rmr_func(ep, &into, cookie(3), &from, flags))
    }
    ep_post_rdma_write(c) {
        let (ep, mut segment, to, flags) = (c.pick(Kind::Ep), c.local(), c.remote(), c.flags());
        dat!(c.world.table, ep_post_rdma_write_func(ep, 1, &mut segment, cookie(4), &to, flags))
    }
    ep_get_status(c) {
        let (ep, mut state, mut recv, mut request) = (c.pick(Kind::Ep), 0, 0, 0);
        dat!(c.world.table, ep_get_status_func(ep, &mut state, &mut recv, &mut request))
    }
    ep_recv_query(c) {
        let (ep, mut buffers, mut span) = (c.pick(Kind::Ep), 0, 0);
        dat!(c.world.table, ep_recv_query_func(ep, &mut buffers, &mut span))
    }
    ep_set_watermark(c) {
        let ep = c.pick(Kind::Ep);
        dat!(c.world.table, ep_set_watermark_func(ep, 4, DAT_WATERMARK_INFINITE))
    }
    ep_reset(c) { plain!(c, Ep, ep_reset_func) }
    ep_free(c) { plain!(c, Ep, ep_free_func) }
    lmr_create(c) {
        let for_va = c.world.memory.cast();
        c.create_lmr(DAT_MEM_TYPE_VIRTUAL, DAT_REGION_DESCRIPTION { for_va })
    }
    lmr_create_of_lmr(c) {
        let for_lmr_handle = c.pick(Kind::Lmr);
        c.create_lmr(DAT_MEM_TYPE_LMR, DAT_REGION_DESCRIPTION { for_lmr_handle })
    }
    lmr_query(c) { query!(c, Lmr, lmr_query_func, DAT_LMR_FIELD_ALL, DAT_LMR_PARAM).map(drop) }
    lmr_free(c) { plain!(c, Lmr, lmr_free_func) }
    lmr_sync_rdma_read(c) {
        let (ia, segment) = (c.pick(Kind::Ia), c.local());
        dat!(c.world.table, lmr_sync_rdma_read_func(ia, &segment, 1))
    }
    lmr_sync_rdma_write(c) {
        let (ia, segment) = (c.pick(Kind::Ia), c.local());
        dat!(c.world.table, lmr_sync_rdma_write_func(ia, &segment, 1))
    }
    rmr_create(c) {
        let (pz, mut rmr) = (c.pick(Kind::Pz), null_mut());
        let made = dat!(c.world.table, rmr_create_func(pz, &mut rmr));
        c.publish(Kind::Rmr, rmr, made)
    }
    rmr_create_for_ep(c) {
        let (pz, mut rmr) = (c.pick(Kind::Pz), null_mut());
        let made = dat!(c.world.table, rmr_create_for_ep_func(pz, &mut rmr));
        c.publish(Kind::Rmr, rmr, made)
    }
    rmr_query(c) { query!(c, Rmr, rmr_query_func, DAT_RMR_FIELD_ALL, DAT_RMR_PARAM).map(drop) }
    rmr_bind(c) {
        let (rmr, lmr, ep) = (c.pick(Kind::Rmr), c.pick(Kind::Lmr), c.pick(Kind::Ep));
        let (mut segment, mut context) = (c.local(), 0);
        let mut param = DAT_LMR_PARAM::zeroed();
        if dat!(c.world.table, lmr_query_func(lmr, DAT_LMR_FIELD_ALL, &mut param)).is_ok() {
            segment.lmr_context = param.lmr_context;
        }
        let (rights, va) = (DAT_MEM_PRIV_REMOTE_READ_FLAG, DAT_VA_TYPE_VA);
        let (cookie, flags) = (DAT_RMR_COOKIE { as_64: 5 }, DAT_COMPLETION_DEFAULT_FLAG);
        dat!(
            c.world.table,
            rmr_bind_func(rmr, lmr, &segment, rights, va, ep, cookie, flags, &mut context)
        )
    }
    rmr_free(c) { plain!(c, Rmr, rmr_free_func) }
    psp_create(c) {
        let (ia, evd, port, mut psp) = (
            c.pick(Kind::Ia), c.pick(Kind::Evd), c.some_port(), null_mut()
        );
        let made = dat!(
            c.world.table, psp_create_func(ia, port, evd, DAT_PSP_CONSUMER_FLAG, &mut psp)
        );
        if made.is_ok() {
            c.listens_at(port);
        }
        c.publish(Kind::Psp, psp, made)
    }
    psp_create_any(c) {
        let (ia, evd, mut port, mut psp) = (c.pick(Kind::Ia), c.pick(Kind::Evd), 0, null_mut());
        let flags = if c.one_in(2) { DAT_PSP_CONSUMER_FLAG } else { DAT_PSP_PROVIDER_FLAG };
        let made = dat!(c.world.table, psp_create_any_func(ia, &mut port, evd, flags, &mut psp));
        if made.is_ok() {
            c.listens_at(port);
        }
        c.publish(Kind::Psp, psp, made)
    }
    psp_query(c) { query!(c, Psp, psp_query_func, DAT_PSP_FIELD_ALL, DAT_PSP_PARAM).map(drop) }
    psp_free(c) { plain!(c, Psp, psp_free_func) }
    rsp_create(c) {
        let (ia, ep, evd, port) = (
            c.pick(Kind::Ia), c.pick(Kind::Ep), c.pick(Kind::Evd), c.some_port()
        );
        let mut rsp = null_mut();
        let made = dat!(c.world.table, rsp_create_func(ia, port, ep, evd, &mut rsp));
        if made.is_ok() {
            c.listens_at(port);
        }
        c.publish(Kind::Rsp, rsp, made)
    }
    rsp_query(c) { query!(c, Rsp, rsp_query_func, DAT_RSP_FIELD_ALL, DAT_RSP_PARAM).map(drop) }
    rsp_free(c) { plain!(c, Rsp, rsp_free_func) }
    csp_create(c) {
        let (ia, evd, mut csp) = (c.pick(Kind::Ia), c.pick(Kind::Evd), null_mut());
        let mut comm =
            DAT_COMM { domain: libc::AF_INET, r#type: libc::SOCK_STREAM, protocol: libc::IPPROTO_TCP };
        let address = c.world.address.as_ptr();
        let made = dat!(c.world.table, csp_create_func(ia, &mut comm, address, evd, &mut csp));
        c.publish(Kind::Csp, csp, made)
    }
    csp_query(c) { query!(c, Csp, csp_query_func, DAT_CSP_FIELD_ALL, DAT_CSP_PARAM).map(drop) }
    csp_free(c) { plain!(c, Csp, csp_free_func) }
    cr_query(c) {
        let param = query!(c, Cr, cr_query_func, DAT_CR_FIELD_ALL, DAT_CR_PARAM)?;
        if param.local_ep_handle.is_null() {
            return Ok(());
        }
        // The endpoint that belongs to the request: the provider has created it, or it was
        // reserved.
        c.publish(Kind::Ep, param.local_ep_handle, Ok(()))
    }
    cr_accept(c) {
        let cr = c.pick(Kind::Cr);
        let ep = if c.one_in(3) { null_mut() } else { c.pick(Kind::Ep) };
        dat!(c.world.table, cr_accept_func(cr, ep, 0, null_mut()))
    }
    cr_reject(c) {
        let cr = c.pick(Kind::Cr);
        dat!(c.world.table, cr_reject_func(cr, 0, null_mut()))
    }
    cr_handoff(c) {
        let (cr, qualifier) = (c.pick(Kind::Cr), c.qualifier());
        dat!(c.world.table, cr_handoff_func(cr, qualifier))
    }
    pz_create(c) {
        let (ia, mut pz) = (c.pick(Kind::Ia), null_mut());
        let made = dat!(c.world.table, pz_create_func(ia, &mut pz));
        c.publish(Kind::Pz, pz, made)
    }
    pz_query(c) { query!(c, Pz, pz_query_func, DAT_PZ_FIELD_ALL, DAT_PZ_PARAM).map(drop) }
    pz_free(c) { plain!(c, Pz, pz_free_func) }
    srq_create(c) {
        let (ia, pz, mut srq) = (c.pick(Kind::Ia), c.pick(Kind::Pz), null_mut());
        let mut attr =
            DAT_SRQ_ATTR { max_recv_dtos: 8, max_recv_iov: 1, low_watermark: DAT_SRQ_LW_DEFAULT };
        let made = dat!(c.world.table, srq_create_func(ia, pz, &mut attr, &mut srq));
        c.publish(Kind::Srq, srq, made)
    }
    srq_query(c) { query!(c, Srq, srq_query_func, DAT_SRQ_FIELD_ALL, DAT_SRQ_PARAM).map(drop) }
    srq_post_recv(c) {
        let (srq, mut segment) = (c.pick(Kind::Srq), c.local());
        dat!(c.world.table, srq_post_recv_func(srq, 1, &mut segment, cookie(6)))
    }
    srq_resize(c) {
        let (srq, depth) = (c.pick(Kind::Srq), 8 + c.below(8) as DAT_COUNT);
        dat!(c.world.table, srq_resize_func(srq, depth))
    }
    srq_set_lw(c) {
        let srq = c.pick(Kind::Srq);
        dat!(c.world.table, srq_set_lw_func(srq, 2))
    }
    srq_free(c) { plain!(c, Srq, srq_free_func) }
    ia_ha_related(c) {
        let (ia, name, mut answer) = (c.pick(Kind::Ia), c.world.name.as_ptr().cast_mut(), 0);
        dat!(c.world.table, ia_ha_related_func(ia, name, &mut answer))
    }
    handle_extendedop(c) {
        let kind = [Kind::Ia, Kind::Ep, Kind::Evd][c.below(3)];
        let (handle, mut counters) = (c.pick(kind), [0u64; 256]);
        // Counter 0 exists for all three types of objects, so the same query fits each of them.
        let args = [0, (&raw mut counters).expose_provenance() as u64, 0];
        extended(c.world.table, handle, DAT_IB_QUERY_COUNTERS_OP, &args, 4)
    }
    ib_post_rdma_write_immed(c) {
        let (ep, segment, to, flags) = (c.pick(Kind::Ep), c.local(), c.remote(), c.flags());
        let args = [1, word(&segment), 8, word(&to), 9, u64::from(flags)];
        extended(c.world.table, ep, DAT_IB_RDMA_WRITE_IMMED_OP, &args, 4)
    }
    ib_post_send_ud(c) {
        let (ep, address, segment) = (c.pick(Kind::DatagramEp), c.pick(Kind::Address), c.local());
        let (peer, flags) = (c.peer(address), c.flags());
        let args = [1, word(&segment), word(&peer), 10, u64::from(flags)];
        extended(c.world.table, ep, DAT_IB_UD_SEND_OP, &args, 4)
    }
    opendat_post_send_ud_immed(c) {
        let (ep, address, segment) = (c.pick(Kind::DatagramEp), c.pick(Kind::Address), c.local());
        let (peer, flags) = (c.peer(address), c.flags());
        let args = [1, word(&segment), word(&peer), 11, 12, u64::from(flags)];
        extended(c.world.table, ep, DAT_OPENDAT_POST_SEND_UD_IMMED_OP as DAT_IB_OP, &args, 4)
    }
    ib_ud_cm_free(c) {
        let ep = c.pick(Kind::DatagramEp);
        let context = c.world.peer_context.load(std::sync::atomic::Ordering::Relaxed);
        extended(c.world.table, ep, DAT_IB_UD_CM_FREE_OP, &[context], 4)
    }
    ib_ud_ah_free(c) {
        let (ep, address) = (c.pick(Kind::DatagramEp), c.pick(Kind::Address));
        let peer = c.peer(address);
        extended(c.world.table, ep, DAT_IB_UD_AH_FREE_OP, &[word(&peer)], 4)
    }
}
