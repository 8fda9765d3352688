//! The operations in the table of endpoint states.

use std::ptr::null_mut;

use dat_sys::ib::DAT_IB_DTO_EVENT;
use dat_sys::*;

use super::super::ib_posts::{self, IbPost};
use crate::check::{Outcome, ensure_equal, ok};
use crate::rig::{
    CommonPoint, Ep, Listener, Pair, Region, RequestEvent, Rig, cookie, dto_completion,
    event_timeout_us,
};

/// An operation on an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each name is a function of the standard and its variant")]
pub(super) enum Operation {
    Query,
    GetStatus,
    RecvQuery,
    ModifyPz,
    ModifyTransportAttr,
    ModifyRequestEvd,
    ModifyMaxRecvDtos,
    ModifyAddress,
    Connect,
    DupConnect,
    CommonConnect,
    RspCreate,
    CrAccept,
    DisconnectGracefully,
    DisconnectAbruptly,
    Reset,
    Free,
    PostRecv,
    PostSend,
    PostRdmaWrite,
    PostRdmaRead,
    RmrBind,
    PostSendWithInvalidate,
    PostRdmaReadToRmr,
    Ib(IbPost),
}

use Operation::*;

impl Operation {
    /// Returns the name of the function that the operation calls, and the word for the arguments of
    /// the call.
    pub(super) fn names(self) -> (&'static str, &'static str) {
        match self {
            Query => ("dat_ep_query", ""),
            GetStatus => ("dat_ep_get_status", ""),
            RecvQuery => ("dat_ep_recv_query", ""),
            ModifyPz => ("dat_ep_modify", "pz-"),
            ModifyTransportAttr => ("dat_ep_modify", "transport-attributes-"),
            ModifyRequestEvd => ("dat_ep_modify", "request-evd-"),
            ModifyMaxRecvDtos => ("dat_ep_modify", "max-recv-dtos-"),
            ModifyAddress => ("dat_ep_modify", "address-"),
            Connect => ("dat_ep_connect", ""),
            DupConnect => ("dat_ep_dup_connect", ""),
            CommonConnect => ("dat_ep_common_connect", ""),
            RspCreate => ("dat_rsp_create", ""),
            CrAccept => ("dat_cr_accept", ""),
            DisconnectGracefully => ("dat_ep_disconnect", "graceful-"),
            DisconnectAbruptly => ("dat_ep_disconnect", "abrupt-"),
            Reset => ("dat_ep_reset", ""),
            Free => ("dat_ep_free", ""),
            PostRecv => ("dat_ep_post_recv", ""),
            PostSend => ("dat_ep_post_send", ""),
            PostRdmaWrite => ("dat_ep_post_rdma_write", ""),
            PostRdmaRead => ("dat_ep_post_rdma_read", ""),
            RmrBind => ("dat_rmr_bind", ""),
            PostSendWithInvalidate => ("dat_ep_post_send_with_invalidate", ""),
            PostRdmaReadToRmr => ("dat_ep_post_rdma_read_to_rmr", ""),
            Ib(IbPost::WriteImmed) => ("dat_extension_op", "write-immed-"),
            Ib(IbPost::FetchAdd) => ("dat_extension_op", "fetch-and-add-"),
            Ib(IbPost::CmpSwap) => ("dat_extension_op", "cmp-and-swap-"),
        }
    }

    /// Returns the section of the function's manual page that says in which states the operation is
    /// valid.
    pub(super) fn clause(self) -> &'static str {
        match self {
            Query | GetStatus | RecvQuery => "DESCRIPTION: no state is excluded",
            ModifyPz | ModifyTransportAttr | ModifyRequestEvd | ModifyMaxRecvDtos
            | ModifyAddress => "DESCRIPTION: list of parameters",
            CommonConnect => "2.0: as dat_ep_connect, RETURN VALUES: invalid state",
            PostSendWithInvalidate | PostRdmaReadToRmr | Ib(_) => {
                "2.0: as dat_ep_post_send, DESCRIPTION: valid states"
            }
            PostRecv | PostSend | PostRdmaWrite | PostRdmaRead | RmrBind => {
                "DESCRIPTION: valid states"
            }
            DisconnectGracefully | DisconnectAbruptly | Reset | Free => {
                "DESCRIPTION: state transitions"
            }
            Connect | DupConnect | RspCreate | CrAccept => "RETURN VALUES: invalid state",
        }
    }

    /// Runs the operation on the endpoint.
    pub(super) fn run(self, rig: &Rig, tools: &Tools, end: Ep) -> DAT_RETURN {
        let (api, ep, memory) = (rig.api, end.ep, tools.memory);
        let (mut iov, remote, id) = ([memory.part(0, 8)], memory.remote_part(0, 8), cookie(ID));
        let flags = DAT_COMPLETION_DEFAULT_FLAG;
        match self {
            Query => api.dat_ep_query(ep, DAT_EP_FIELD_ALL, &mut DAT_EP_PARAM::zeroed()),
            GetStatus => api.dat_ep_get_status(ep, &mut 0, &mut 0, &mut 0),
            RecvQuery => api.dat_ep_recv_query(ep, &mut 0, &mut 0),
            ModifyPz => modify(rig, ep, DAT_EP_FIELD_PZ_HANDLE, tools),
            ModifyTransportAttr => modify(rig, ep, DAT_EP_FIELD_EP_ATTR_NUM_TRANSPORT_ATTR, tools),
            ModifyRequestEvd => modify(rig, ep, DAT_EP_FIELD_REQUEST_EVD_HANDLE, tools),
            ModifyMaxRecvDtos => modify(rig, ep, DAT_EP_FIELD_EP_ATTR_MAX_RECV_DTOS, tools),
            ModifyAddress => modify(rig, ep, DAT_EP_FIELD_REMOTE_IA_ADDRESS_PTR, tools),
            Connect => rig.connect(ep, tools.listener.qualifier, b""),
            DupConnect => {
                let model = tools.pair.map_or(DAT_HANDLE_NULL, |pair| pair.active.ep);
                api.dat_ep_dup_connect(
                    ep,
                    model,
                    event_timeout_us(),
                    0,
                    null_mut(),
                    DAT_QOS_BEST_EFFORT,
                )
            }
            CommonConnect => {
                let address = tools.common.map_or(null_mut(), |point| point.address);
                api.dat_ep_common_connect(ep, address, event_timeout_us(), 0, null_mut())
            }
            RspCreate => {
                let Listener { qualifier, evd, .. } = tools.listener;
                api.dat_rsp_create(rig.ia, qualifier, ep, evd, &mut null_mut())
            }
            CrAccept => {
                rig.accept(tools.arrival.map_or(DAT_HANDLE_NULL, |arrival| arrival.cr), ep, b"")
            }
            DisconnectGracefully => api.dat_ep_disconnect(ep, DAT_CLOSE_GRACEFUL_FLAG),
            DisconnectAbruptly => api.dat_ep_disconnect(ep, DAT_CLOSE_ABRUPT_FLAG),
            Reset => api.dat_ep_reset(ep),
            Free => api.dat_ep_free(ep),
            PostRecv => rig.recv(ep, &iov, ID),
            PostSend => rig.send(ep, &iov, ID),
            PostRdmaWrite => rig.write(ep, &iov, ID, &remote),
            PostRdmaRead => rig.read(ep, &iov, ID, &remote),
            RmrBind => {
                let (all, va, privileges) = (memory.all(), DAT_VA_TYPE_VA, DAT_MEM_PRIV_ALL_FLAG);
                api.dat_rmr_bind(tools.rmr, memory.lmr, &all, privileges, va, ep, id, flags, &mut 0)
            }
            PostSendWithInvalidate => api.dat_ep_post_send_with_invalidate(
                ep,
                1,
                iov.as_mut_ptr(),
                id,
                flags,
                DAT_FALSE,
                0,
            ),
            PostRdmaReadToRmr => api.dat_ep_post_rdma_read_to_rmr(ep, &remote, id, &remote, flags),
            Ib(post) => post.post(rig, ep, &iov[0], ID, &remote, flags),
        }
    }

    /// Checks that an operation that was posted to a disconnected endpoint is flushed.
    pub(super) fn is_flushed(self, rig: &Rig, end: Ep) -> Outcome {
        match self {
            RmrBind => {
                let bound = rig.bind_completion(end.request)?;
                let flushed = (ID, DAT_DTO_ERR_FLUSHED);
                ensure_equal("cookie and status of the bind", (bound.cookie, bound.status), flushed)
            }
            PostRecv => rig.completes(end.recv, ID, DAT_DTO_ERR_FLUSHED).map(drop),
            Ib(_) => {
                let dto = dto_completion(&rig.expect(end.request, DAT_IB_DTO_EVENT)?);
                let flushed = (ID, DAT_DTO_ERR_FLUSHED);
                ensure_equal("cookie and status of the post", (dto.cookie, dto.status), flushed)
            }
            _ => rig.completes(end.request, ID, DAT_DTO_ERR_FLUSHED).map(drop),
        }
    }
}

/// The cookie with which operations are posted.
const ID: u64 = 0x7a11;

/// The objects other than the endpoint that operations need.
pub(super) struct Tools {
    memory: Region,
    pz: DAT_PZ_HANDLE,
    request_evd: DAT_EVD_HANDLE,
    rmr: DAT_RMR_HANDLE,
    /// The qualifier and the EVD for dat_rsp_create. No service point uses the qualifier.
    listener: Listener,
    /// A connection request that waits for an answer, for dat_cr_accept.
    arrival: Option<RequestEvent>,
    /// The common service point to which dat_ep_common_connect connects.
    common: Option<CommonPoint>,
    /// The connection that dat_ep_dup_connect duplicates.
    pair: Option<Pair>,
}

impl Tools {
    pub(super) fn new(rig: &Rig, operation: Operation) -> Outcome<Tools> {
        let listener = rig.listen()?;
        let mut tools = Tools {
            memory: rig.memory(64)?,
            pz: rig.pz()?,
            request_evd: rig.evd(DAT_EVD_DTO_FLAG | DAT_EVD_RMR_BIND_FLAG)?,
            rmr: null_mut(),
            listener,
            arrival: None,
            common: None,
            pair: None,
        };
        match operation {
            RspCreate => ok(rig.api.dat_psp_free(listener.psp))?,
            CrAccept => tools.arrival = Some(rig.request(b"")?.1),
            CommonConnect => tools.common = Some(rig.common_point()?),
            RmrBind => tools.rmr = rig.rmr()?,
            DupConnect => tools.pair = Some(like_this(rig, listener)?),
            Ib(post) => {
                post.is_listed(rig)?;
                tools.memory = ib_posts::memory(rig, 64)?;
            }
            _ => {}
        }
        Ok(tools)
    }
}

/// Creates a connection to a service point that continues to listen.
fn like_this(rig: &Rig, listener: Listener) -> Outcome<Pair> {
    let (active, passive) = (rig.ep()?, rig.ep()?);
    ok(rig.connect(active.ep, listener.qualifier, b""))?;
    ok(rig.accept(rig.request_event(listener.evd)?.cr, passive.ep, b""))?;
    rig.connection(active.connect, DAT_CONNECTION_EVENT_ESTABLISHED)?;
    Ok(Pair { active, passive })
}

fn modify(rig: &Rig, ep: DAT_EP_HANDLE, mask: DAT_EP_PARAM_MASK, tools: &Tools) -> DAT_RETURN {
    let param = DAT_EP_PARAM {
        pz_handle: tools.pz,
        request_evd_handle: tools.request_evd,
        remote_ia_address_ptr: rig.attr.ia_address_ptr,
        ep_attr: DAT_EP_ATTR { max_recv_dtos: 9, ..rig.ep_attr() },
        ..DAT_EP_PARAM::zeroed()
    };
    rig.api.dat_ep_modify(ep, mask, &param)
}
