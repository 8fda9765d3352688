//! Makes the calls on two adapters of one fabric, and stores the created objects in slots.

use std::ffi::c_void;
use std::net::{Ipv4Addr, SocketAddr};
use std::ptr::null_mut;

use dat_core::Error;
use dat_core::addr::SockAddr;
use dat_sys::ib::*;
use dat_sys::*;

use crate::call::*;
use crate::client::{self, ProviderTable, c_bytes, cookie, dat};

/// The result of a call.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// The `DAT_RETURN` of the call without class and subtype. 0 is success.
    pub(crate) kind: DAT_RETURN,
    pub(crate) event: Option<ObservedEvent>,
    /// The number of remaining events that dat_evd_wait has returned.
    pub(crate) more: usize,
    /// The handle that the call has created, or the EVD that dat_cno_wait has returned.
    pub(crate) handle: usize,
    /// The state of the endpoint after the call.
    pub(crate) state: DAT_EP_STATE,
    /// Whether the two queues are idle, as dat_ep_get_status reports it.
    pub(crate) idle: (bool, bool),
}

/// An event as the consumer sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ObservedEvent {
    Software(u64),
    Arrival {
        cr: usize,
        qualifier: DAT_CONN_QUAL,
    },
    /// A connection event. Its private data is empty if it no longer exists.
    Connection {
        ep: usize,
        number: DAT_EVENT_NUMBER,
        private: Option<Vec<u8>>,
    },
    Dto {
        ep: usize,
        cookie: u64,
        status: DAT_DTO_COMPLETION_STATUS,
        length: u32,
        operation: DAT_DTOS,
    },
    Other(DAT_EVENT_NUMBER),
}

pub(crate) struct World {
    table: ProviderTable,
    ia: [DAT_IA_HANDLE; 2],
    asynchronous: [DAT_EVD_HANDLE; 2],
    cno: [DAT_CNO_HANDLE; CNOS],
    evd: [DAT_EVD_HANDLE; EVDS],
    pz: [DAT_PZ_HANDLE; PZS],
    ep: [DAT_EP_HANDLE; EPS],
    lmr: [Region; LMRS],
    sp: [(bool, *mut c_void); SPS],
    srq: [DAT_SRQ_HANDLE; SRQS],
    /// The endpoints that were reset or freed. The private data of their queued events no longer
    /// exists.
    past: Vec<usize>,
    /// The connection requests, in the order in which the consumer got them.
    cr: Vec<DAT_CR_HANDLE>,
    /// The address of the adapters.
    to: Ipv4Addr,
    /// The qualifier that is used where a call says 1000. The following qualifiers follow it.
    qualifiers: DAT_CONN_QUAL,
}

/// A region. Its buffer belongs to the slot and is reused by the next region.
struct Region {
    handle: DAT_LMR_HANDLE,
    context: DAT_LMR_CONTEXT,
    rmr_context: DAT_RMR_CONTEXT,
    buffer: Box<[u8; BYTES as usize]>,
}

/// The handle in a slot in which no object was ever created.
const GARBAGE: *mut c_void = 0x5150 as *mut c_void;

fn at<T>(slots: &[*mut T], slot: usize) -> *mut T {
    slots.get(slot).copied().unwrap_or(null_mut())
}

impl World {
    /// Opens both adapters. All slots are empty.
    pub(crate) fn open(table: ProviderTable, name: &str) -> World {
        let [(a, a_async), (b, b_async)] = [client::open(table, name), client::open(table, name)];
        let region = |_| Region {
            handle: GARBAGE,
            context: 0,
            rmr_context: 0,
            buffer: Box::new([0; BYTES as usize]),
        };
        World {
            table,
            ia: [a, b],
            asynchronous: [a_async, b_async],
            cno: [GARBAGE; CNOS],
            evd: [GARBAGE; EVDS],
            pz: [GARBAGE; PZS],
            ep: [GARBAGE; EPS],
            lmr: std::array::from_fn(region),
            sp: [(true, GARBAGE); SPS],
            srq: [GARBAGE; SRQS],
            to: Ipv4Addr::LOCALHOST,
            qualifiers: 1000,
            past: Vec::new(),
            cr: Vec::new(),
        }
    }

    /// Returns the same world, but with adapters at the address `to` and with other qualifiers.
    pub(crate) fn at(self, to: Ipv4Addr, qualifiers: DAT_CONN_QUAL) -> World {
        World { to, qualifiers, ..self }
    }

    fn qualifier(&self, of_call: DAT_CONN_QUAL) -> DAT_CONN_QUAL {
        of_call - 1000 + self.qualifiers
    }

    /// The handle of the EVD in a slot.
    pub(crate) fn evd(&self, slot: usize) -> usize {
        at(&self.evd, slot) as usize
    }

    /// Takes the next event of an adapter's asynchronous EVD. Returns its number and the handle of
    /// the object that it is about.
    pub(crate) fn async_event(&self, side: usize) -> Option<(DAT_EVENT_NUMBER, usize)> {
        let mut event = DAT_EVENT::zeroed();
        let taken = dat!(self.table, evd_dequeue_func(self.asynchronous[side], &mut event));
        // SAFETY: all events of this EVD are asynchronous errors, which have this member.
        let about = unsafe { event.event_data.asynch_error_event_data.dat_handle };
        taken.is_ok().then_some((event.event_number, about as usize))
    }

    /// Calls dat_ia_close. Returns the type of the error.
    pub(crate) fn close(&self, side: usize, flags: DAT_CLOSE_FLAGS) -> DAT_RETURN {
        kind(dat!(self.table, ia_close_func(self.ia[side], flags)))
    }

    /// The segment that a call names. A call with length 0 has no segment.
    fn local(&self, lmr: usize, length: u32) -> (DAT_COUNT, DAT_LMR_TRIPLET) {
        let region = &self.lmr[lmr];
        let virtual_address = region.buffer.as_ptr() as u64;
        let triplet = DAT_LMR_TRIPLET {
            virtual_address,
            segment_length: length,
            lmr_context: region.context,
        };
        ((length > 0).into(), triplet)
    }

    fn state(&self, ep: usize) -> DAT_EP_STATE {
        let (mut state, mut recv, mut request) = (DAT_EP_STATE::MAX, 0, 0);
        let asked = dat!(
            self.table,
            ep_get_status_func(at(&self.ep, ep), &mut state, &mut recv, &mut request)
        );
        asked.map_or(DAT_EP_STATE::MAX, |()| state)
    }

    /// Makes the call. `number` is unique and becomes the cookie.
    pub(crate) fn make(&mut self, call: Call, number: u64) -> Answer {
        let t = self.table;
        let ia = |slot: usize| self.ia[slot % 2];
        let mut answer = Answer::default();
        let mut event = DAT_EVENT::zeroed();
        let result = match call {
            Call::CnoCreate { cno } => {
                let none = DAT_OS_WAIT_PROXY_AGENT_NULL;
                dat!(t, cno_create_func(ia(cno), none, &mut self.cno[cno]))
            }
            Call::CnoFree { cno } => dat!(t, cno_free_func(at(&self.cno, cno))),
            Call::CnoWait { cno } => {
                let mut evd = null_mut();
                let result = dat!(t, cno_wait_func(at(&self.cno, cno), 0, &mut evd));
                answer.handle = evd as usize;
                result
            }
            Call::EvdCreate { evd, qlen, cno, flags } => {
                let cno = at(&self.cno, cno);
                dat!(t, evd_create_func(ia(evd), qlen, cno, flags, &mut self.evd[evd]))
            }
            Call::EvdFree { evd } => dat!(t, evd_free_func(at(&self.evd, evd))),
            Call::EvdDequeue { evd } => dat!(t, evd_dequeue_func(at(&self.evd, evd), &mut event)),
            Call::EvdWait { evd, threshold } => {
                let mut more = 0;
                let result =
                    dat!(t, evd_wait_func(at(&self.evd, evd), 0, threshold, &mut event, &mut more));
                answer.more = usize::try_from(more).unwrap_or(usize::MAX);
                result
            }
            Call::EvdPostSe { evd, number: event_number } => {
                event.event_number = event_number;
                let pointer = number as *mut c_void;
                event.event_data.software_event_data = DAT_SOFTWARE_EVENT_DATA { pointer };
                let result = dat!(t, evd_post_se_func(at(&self.evd, evd), &event));
                event = DAT_EVENT::zeroed();
                result
            }
            Call::EvdResize { evd, qlen } => dat!(t, evd_resize_func(at(&self.evd, evd), qlen)),
            Call::EvdModifyCno { evd, cno } => {
                dat!(t, evd_modify_cno_func(at(&self.evd, evd), at(&self.cno, cno)))
            }
            Call::EvdSetWaitable { evd, waitable: true } => {
                dat!(t, evd_clear_unwaitable_func(at(&self.evd, evd)))
            }
            Call::EvdSetWaitable { evd, .. } => {
                dat!(t, evd_set_unwaitable_func(at(&self.evd, evd)))
            }
            Call::EvdEnable { evd, enable: true } => dat!(t, evd_enable_func(at(&self.evd, evd))),
            Call::EvdEnable { evd, .. } => dat!(t, evd_disable_func(at(&self.evd, evd))),
            Call::PzCreate { pz } => dat!(t, pz_create_func(ia(pz), &mut self.pz[pz])),
            Call::PzFree { pz } => dat!(t, pz_free_func(at(&self.pz, pz))),
            Call::LmrCreate { lmr, pz, privileges } => {
                let (ia, pz) = (ia(lmr), at(&self.pz, pz));
                let region = &mut self.lmr[lmr];
                let of = DAT_REGION_DESCRIPTION { for_va: region.buffer.as_mut_ptr().cast() };
                let (mut size, mut address) = (0, 0);
                dat!(
                    t,
                    lmr_create_func(
                        ia,
                        DAT_MEM_TYPE_VIRTUAL,
                        of,
                        BYTES.into(),
                        pz,
                        privileges,
                        DAT_VA_TYPE_VA,
                        &mut region.handle,
                        &mut region.context,
                        &mut region.rmr_context,
                        &mut size,
                        &mut address
                    )
                )
            }
            Call::LmrFree { lmr } => dat!(t, lmr_free_func(self.lmr[lmr].handle)),
            Call::EpCreate { ep, pz, recv, request, connect, kind: Kind { srq, unsignalled } } => {
                let [recv, request, connect] =
                    [recv, request, connect].map(|evd| at(&self.evd, evd));
                let (ia, pz, mut attr) = (ia(ep), at(&self.pz, pz), attributes());
                (attr.recv_completion_flags, attr.request_completion_flags) =
                    completion_flags(unsignalled);
                if srq == NULL {
                    dat!(t, ep_create_func(ia, pz, recv, request, connect, &attr, &mut self.ep[ep]))
                } else {
                    let srq = at(&self.srq, srq);
                    dat!(
                        t,
                        ep_create_with_srq_func(
                            ia,
                            pz,
                            recv,
                            request,
                            connect,
                            srq,
                            &attr,
                            &mut self.ep[ep]
                        )
                    )
                }
            }
            Call::EpModify { ep, change } => {
                let (mask, param) = self.parameters(change);
                dat!(t, ep_modify_func(at(&self.ep, ep), mask, &param))
            }
            Call::SrqCreate { srq, pz, depth } => {
                let (ia, pz) = (ia(srq), at(&self.pz, pz));
                let mut attr = DAT_SRQ_ATTR {
                    max_recv_dtos: depth,
                    max_recv_iov: 1,
                    low_watermark: DAT_SRQ_LW_DEFAULT,
                };
                dat!(t, srq_create_func(ia, pz, &mut attr, &mut self.srq[srq]))
            }
            Call::SrqFree { srq } => dat!(t, srq_free_func(at(&self.srq, srq))),
            Call::SrqResize { srq, depth } => dat!(t, srq_resize_func(at(&self.srq, srq), depth)),
            Call::SrqPost { srq, lmr, length } => {
                let (n, mut local) = self.local(lmr, length);
                dat!(t, srq_post_recv_func(at(&self.srq, srq), n, &mut local, cookie(number)))
            }
            Call::EpFree { ep } => dat!(t, ep_free_func(at(&self.ep, ep))),
            Call::EpReset { ep } => dat!(t, ep_reset_func(at(&self.ep, ep))),
            Call::EpStatus { ep } => {
                let (mut state, mut recv, mut request) = (0, 0, 0);
                let status = dat!(
                    t,
                    ep_get_status_func(at(&self.ep, ep), &mut state, &mut recv, &mut request)
                );
                answer.idle = (recv != 0, request != 0);
                status
            }
            Call::EpConnect { ep, qualifier } => {
                let address = SockAddr::from(SocketAddr::from((self.to, 0)));
                let (size, data) = c_bytes(b"caller");
                let (qos, flags) = (DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG);
                let (ep, to) = (at(&self.ep, ep), address.as_ptr());
                let qualifier = self.qualifier(qualifier);
                dat!(t, ep_connect_func(ep, to, qualifier, 1_000_000_000, size, data, qos, flags))
            }
            Call::EpDisconnect { ep, flags } => {
                dat!(t, ep_disconnect_func(at(&self.ep, ep), flags))
            }
            Call::PostRecv { ep, lmr, length, flags } => {
                let (n, mut local) = self.local(lmr, length);
                dat!(t, ep_post_recv_func(at(&self.ep, ep), n, &mut local, cookie(number), flags))
            }
            Call::PostSend { ep, lmr, length, flags } => {
                let (n, mut local) = self.local(lmr, length);
                dat!(t, ep_post_send_func(at(&self.ep, ep), n, &mut local, cookie(number), flags))
            }
            Call::PostWrite { ep, lmr, length, remote } => {
                let (n, mut local) = self.local(lmr, length);
                let target = &self.lmr[remote];
                let remote = DAT_RMR_TRIPLET {
                    virtual_address: target.buffer.as_ptr() as u64,
                    segment_length: BYTES,
                    rmr_context: target.rmr_context,
                };
                let (ep, cookie) = (at(&self.ep, ep), cookie(number));
                dat!(t, ep_post_rdma_write_func(ep, n, &mut local, cookie, &remote, 0))
            }
            Call::PspCreate { sp, evd, qualifier } => {
                let (evd, mut psp) = (at(&self.evd, evd), null_mut());
                let qualifier = self.qualifier(qualifier);
                let result = dat!(
                    t,
                    psp_create_func(ia(sp), qualifier, evd, DAT_PSP_CONSUMER_FLAG, &mut psp)
                );
                if result.is_ok() {
                    self.sp[sp] = (true, psp.cast());
                }
                result
            }
            Call::RspCreate { sp, ep, evd, qualifier } => {
                let (ep, evd, mut rsp) = (at(&self.ep, ep), at(&self.evd, evd), null_mut());
                let qualifier = self.qualifier(qualifier);
                let result = dat!(t, rsp_create_func(ia(sp), qualifier, ep, evd, &mut rsp));
                if result.is_ok() {
                    self.sp[sp] = (false, rsp.cast());
                }
                result
            }
            Call::SpFree { sp } => match self.sp[sp] {
                (true, psp) => dat!(t, psp_free_func(psp.cast())),
                (false, rsp) => dat!(t, rsp_free_func(rsp.cast())),
            },
            Call::CrAccept { cr, ep, private } => {
                let bytes = vec![7; private];
                let (size, data) = c_bytes(&bytes);
                dat!(t, cr_accept_func(self.cr(cr), at(&self.ep, ep), size, data))
            }
            Call::CrReject { cr } => dat!(t, cr_reject_func(self.cr(cr), 0, null_mut())),
        };
        answer.kind = kind(result);
        if answer.kind == DAT_SUCCESS {
            self.record(call, &event, &mut answer);
        }
        answer
    }

    /// The parameters that dat_ep_modify gets for this change.
    fn parameters(&self, change: Change) -> (DAT_EP_PARAM_MASK, DAT_EP_PARAM) {
        let mut param = DAT_EP_PARAM::zeroed();
        let attr = &mut param.ep_attr;
        let mask = match change {
            Change::MaxRecvDtos(n) => {
                attr.max_recv_dtos = n;
                DAT_EP_FIELD_EP_ATTR_MAX_RECV_DTOS
            }
            Change::MaxRequestDtos(n) => {
                attr.max_request_dtos = n;
                DAT_EP_FIELD_EP_ATTR_MAX_REQUEST_DTOS
            }
            Change::Unsignalled(on) => {
                (attr.recv_completion_flags, attr.request_completion_flags) = completion_flags(on);
                DAT_EP_FIELD_EP_ATTR_RECV_COMPLETION_FLAGS
                    | DAT_EP_FIELD_EP_ATTR_REQUEST_COMPLETION_FLAGS
            }
            Change::Recv(evd) => {
                param.recv_evd_handle = at(&self.evd, evd);
                DAT_EP_FIELD_RECV_EVD_HANDLE
            }
            Change::Request(evd) => {
                param.request_evd_handle = at(&self.evd, evd);
                DAT_EP_FIELD_REQUEST_EVD_HANDLE
            }
            Change::Pz(pz) => {
                param.pz_handle = at(&self.pz, pz);
                DAT_EP_FIELD_PZ_HANDLE
            }
        };
        (mask, param)
    }

    fn cr(&self, cr: usize) -> DAT_CR_HANDLE {
        let cr = if cr == LATEST_REQUEST { self.cr.last() } else { self.cr.get(cr) };
        cr.copied().unwrap_or(null_mut())
    }

    fn record(&mut self, call: Call, event: &DAT_EVENT, answer: &mut Answer) {
        match call {
            Call::EvdDequeue { .. } | Call::EvdWait { .. } => {
                let seen = self.observe(event);
                if let ObservedEvent::Arrival { cr, .. } = seen {
                    self.cr.push(cr as DAT_CR_HANDLE);
                }
                answer.event = Some(seen);
            }
            Call::EvdCreate { evd, .. } => answer.handle = self.evd(evd),
            Call::EpCreate { ep, .. } => answer.handle = self.ep[ep] as usize,
            Call::EpConnect { ep, .. } | Call::EpStatus { ep } => answer.state = self.state(ep),
            Call::EpFree { ep } | Call::EpReset { ep } => self.past.push(self.ep[ep] as usize),
            _ => {}
        }
    }
}

/// What the library reports about an endpoint.
#[derive(Debug)]
pub(crate) struct Reported {
    pub(crate) state: DAT_EP_STATE,
    /// Whether the queues of receives and requests are idle.
    pub(crate) idle: [bool; 2],
    /// The buffers according to dat_ep_recv_query.
    pub(crate) buffers: usize,
    /// The library's counters: posted receives and requests, and received messages.
    pub(crate) posted: [u64; 2],
    pub(crate) received: u64,
}

/// The library's report about a shared receive queue.
#[derive(Debug)]
pub(crate) struct SrqReported {
    pub(crate) depth: usize,
    pub(crate) available: usize,
    pub(crate) outstanding: usize,
}

/// Queries of the library.
impl World {
    pub(crate) fn ep(&self, slot: usize) -> usize {
        at(&self.ep, slot) as usize
    }

    pub(crate) fn srq(&self, slot: usize) -> usize {
        at(&self.srq, slot) as usize
    }

    pub(crate) fn requests(&self) -> usize {
        self.cr.len()
    }

    /// The position of the request that a call refers to.
    pub(crate) fn request(&self, cr: usize) -> usize {
        if cr == LATEST_REQUEST { self.cr.len().wrapping_sub(1) } else { cr }
    }

    pub(crate) fn reported(&self, slot: usize) -> Reported {
        let (t, ep) = (self.table, at(&self.ep, slot));
        let (mut state, mut recv, mut request) = (0, 0, 0);
        dat!(t, ep_get_status_func(ep, &mut state, &mut recv, &mut request))
            .expect("a live endpoint");
        let (mut buffers, mut span) = (0, 0);
        dat!(t, ep_recv_query_func(ep, &mut buffers, &mut span)).expect("a live endpoint");
        let mut counters = [0u64; DCNT_EP_ALL_COUNTERS as usize];
        let to = (&raw mut counters).expose_provenance() as u64;
        let args = [DCNT_EP_ALL_COUNTERS.into(), to, 0];
        client::extended(t, ep, DAT_IB_QUERY_COUNTERS_OP, &args, 4).expect("counters");
        let of = |counter: u32| counters[counter as usize];
        Reported {
            state,
            idle: [recv != 0, request != 0],
            buffers: buffers as usize,
            posted: [of(DCNT_EP_POST_RECV), of(DCNT_EP_POST_SEND) + of(DCNT_EP_POST_WRITE)],
            received: of(DCNT_EP_RECV),
        }
    }

    pub(crate) fn srq_reported(&self, slot: usize) -> SrqReported {
        let mut param = DAT_SRQ_PARAM::zeroed();
        dat!(self.table, srq_query_func(at(&self.srq, slot), DAT_SRQ_FIELD_ALL, &mut param))
            .expect("a live queue");
        SrqReported {
            depth: param.max_recv_dtos as usize,
            available: param.available_dto_count as usize,
            outstanding: param.outstanding_dto_count as usize,
        }
    }
}

fn kind(result: Result<(), Error>) -> DAT_RETURN {
    result.err().map_or(DAT_SUCCESS, Error::kind)
}

/// The flags for receives and for requests.
fn completion_flags(unsignalled: bool) -> (DAT_COMPLETION_FLAGS, DAT_COMPLETION_FLAGS) {
    let flags = if unsignalled {
        DAT_COMPLETION_UNSIGNALLED_FLAG
    } else {
        DAT_COMPLETION_EVD_THRESHOLD_FLAG
    };
    (flags, flags)
}

fn attributes() -> DAT_EP_ATTR {
    DAT_EP_ATTR {
        service_type: DAT_SERVICE_TYPE_RC,
        max_message_size: 4096,
        max_rdma_size: 4096,
        qos: DAT_QOS_BEST_EFFORT,
        max_recv_dtos: DTOS as DAT_COUNT,
        max_request_dtos: DTOS as DAT_COUNT,
        max_recv_iov: 1,
        max_request_iov: 1,
        max_rdma_write_iov: 1,
        srq_soft_hw: DAT_WATERMARK_INFINITE,
        ..DAT_EP_ATTR::zeroed()
    }
}

impl World {
    fn observe(&self, event: &DAT_EVENT) -> ObservedEvent {
        // SAFETY: the event number selects each member. Private data is valid until the endpoint is
        // reset or freed.
        unsafe {
            let data = &event.event_data;
            match event.event_number {
                DAT_SOFTWARE_EVENT => {
                    ObservedEvent::Software(data.software_event_data.pointer as u64)
                }
                DAT_CONNECTION_REQUEST_EVENT => {
                    let data = data.cr_arrival_event_data;
                    ObservedEvent::Arrival {
                        cr: data.cr_handle as usize,
                        qualifier: data.conn_qual,
                    }
                }
                DAT_DTO_COMPLETION_EVENT => {
                    let data = data.dto_completion_event_data;
                    ObservedEvent::Dto {
                        ep: data.ep_handle as usize,
                        cookie: data.user_cookie.as_64,
                        status: data.status,
                        length: data.transfered_length,
                        operation: data.operation,
                    }
                }
                number @ DAT_CONNECTION_EVENT_ESTABLISHED..0x5000 => {
                    let data = data.connect_event_data;
                    let private = match data.private_data_size {
                        _ if self.past.contains(&(data.ep_handle as usize)) => None,
                        0 => Some(Vec::new()),
                        n => {
                            let data = data.private_data.cast::<u8>();
                            Some(std::slice::from_raw_parts(data, n as usize).to_vec())
                        }
                    };
                    ObservedEvent::Connection { ep: data.ep_handle as usize, number, private }
                }
                number => ObservedEvent::Other(number),
            }
        }
    }
}
