//! The limits that dat_ia_query reports: exactly as many objects as the limit are accepted, and one
//! more is refused. The tests of the providers run these checks, too.

use std::ptr::null_mut;

use dat_core::Error;
use dat_sys::*;

use crate::client::*;

/// The largest number of objects or posts that these tests try. More would take too long.
const MAX_TRIED_COUNT: DAT_COUNT = 1 << 16;

struct ReportedLimits {
    side: Side,
    ia: DAT_IA_ATTR,
    max_private: DAT_COUNT,
}

/// Checks all limits of an adapter.
pub(crate) fn limits_hold(table: ProviderTable, name: &str) {
    let side = Side::new(table, name);
    let (mut evd, mut ia, mut provider) =
        (null_mut(), DAT_IA_ATTR::zeroed(), DAT_PROVIDER_ATTR::zeroed());
    let (mask, of_provider) = (DAT_IA_FIELD_ALL, DAT_PROVIDER_FIELD_ALL);
    dat!(table, ia_query_func(side.ia, &mut evd, mask, &mut ia, of_provider, &mut provider))
        .unwrap();
    let told = ReportedLimits { side, ia, max_private: provider.max_private_data_size };
    told.zones();
    told.dispatchers();
    told.shared_queues();
    told.attributes();
    told.receives();
    told.requests();
    told.private_data();
    side.close();
}

impl ReportedLimits {
    fn zones(&self) {
        let Side { table, ia, .. } = self.side;
        if self.ia.max_pzs > MAX_TRIED_COUNT {
            return;
        }
        let create = || {
            let mut pz = null_mut();
            dat!(table, pz_create_func(ia, &mut pz)).map(|()| pz)
        };
        // `self.side` already has one protection zone.
        let made: Vec<_> = (1..self.ia.max_pzs).map(|_| create().unwrap()).collect();
        assert_eq!(create().unwrap_err().kind(), DAT_INSUFFICIENT_RESOURCES);
        made.into_iter().for_each(|pz| dat!(table, pz_free_func(pz)).unwrap());
    }

    fn evd(&self, qlen: DAT_COUNT) -> Result<DAT_EVD_HANDLE, Error> {
        let mut evd = null_mut();
        let Side { table, ia, .. } = self.side;
        dat!(table, evd_create_func(ia, qlen, null_mut(), DAT_EVD_DTO_FLAG, &mut evd)).map(|()| evd)
    }

    fn dispatchers(&self) {
        let (table, most) = (self.side.table, self.ia.max_evd_qlen);
        let full = Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_TEVD);
        let evd = self.evd(1).unwrap();
        dat!(table, evd_resize_func(evd, most)).unwrap();
        dat!(table, evd_free_func(evd)).unwrap();
        let evd = self.evd(most).unwrap();
        if let Some(more) = most.checked_add(1) {
            assert_eq!(self.evd(more).unwrap_err(), full);
            assert_eq!(dat!(table, evd_resize_func(evd, more)).unwrap_err(), full);
        }
        dat!(table, evd_free_func(evd)).unwrap();
    }

    fn srq(
        &self,
        max_recv_dtos: DAT_COUNT,
        max_recv_iov: DAT_COUNT,
    ) -> Result<DAT_SRQ_HANDLE, Error> {
        let mut attr =
            DAT_SRQ_ATTR { max_recv_dtos, max_recv_iov, low_watermark: DAT_SRQ_LW_DEFAULT };
        let Side { table, ia, pz, .. } = self.side;
        let mut srq = null_mut();
        dat!(table, srq_create_func(ia, pz, &mut attr, &mut srq)).map(|()| srq)
    }

    fn shared_queues(&self) {
        let table = self.side.table;
        let (depth, iov) = (self.ia.max_recv_per_srq, self.ia.max_iov_segments_per_dto);
        let full = Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_SRQ);
        let wide = self.srq(1, iov).unwrap();
        assert_eq!(self.srq(1, iov + 1).unwrap_err(), Error::arg(3));
        let deep = self.srq(depth, 1).unwrap();
        if let Some(more) = depth.checked_add(1) {
            assert_eq!(self.srq(more, 1).unwrap_err(), full);
            assert_eq!(dat!(table, srq_resize_func(wide, more)).unwrap_err(), full);
        }
        if depth <= MAX_TRIED_COUNT {
            let post = || dat!(table, srq_post_recv_func(deep, 0, null_mut(), cookie(0)));
            (0..depth).for_each(|_| post().unwrap());
            assert_eq!(post().unwrap_err(), Error::of(DAT_INSUFFICIENT_RESOURCES));
        }
        for srq in [wide, deep] {
            dat!(table, srq_free_func(srq)).unwrap();
        }
    }

    fn ep(&self, evd: DAT_EVD_HANDLE, attr: &DAT_EP_ATTR) -> Result<DAT_EP_HANDLE, Error> {
        let Side { table, ia, pz, evd: connect, .. } = self.side;
        let mut ep = null_mut();
        dat!(table, ep_create_func(ia, pz, evd, evd, connect, attr, &mut ep)).map(|()| ep)
    }

    /// Checks each attribute of an endpoint separately, when it is created and when it is modified.
    fn attributes(&self) {
        let (table, ia, evd) = (self.side.table, &self.ia, self.side.evd);
        let modified = self.ep(evd, &minimal_attributes()).unwrap();
        let check = |attr: DAT_EP_ATTR, mask: DAT_EP_PARAM_MASK, fits: bool| {
            let made = self.ep(evd, &attr);
            let param = DAT_EP_PARAM { ep_attr: attr, ..DAT_EP_PARAM::zeroed() };
            let changed = dat!(table, ep_modify_func(modified, mask, &param));
            if fits {
                dat!(table, ep_free_func(made.unwrap())).unwrap();
                changed.unwrap();
            } else {
                assert_eq!(
                    (made.unwrap_err(), changed.unwrap_err()),
                    (Error::arg(6), Error::arg(3))
                );
            }
        };
        macro_rules! limits {
            ($($field:ident $mask:ident $limit:expr;)*) => {$(
                let limit = $limit;
                check(DAT_EP_ATTR { $field: limit, ..minimal_attributes() }, $mask, true);
                if let Some(more) = limit.checked_add(1) {
                    check(DAT_EP_ATTR { $field: more, ..minimal_attributes() }, $mask, false);
                }
                let ep_attr = minimal_attributes();
                let param = DAT_EP_PARAM { ep_attr, ..DAT_EP_PARAM::zeroed() };
                dat!(table, ep_modify_func(modified, $mask, &param)).unwrap();
            )*};
        }
        limits! {
            max_message_size DAT_EP_FIELD_EP_ATTR_MAX_MESSAGE_SIZE ia.max_message_size;
            max_rdma_size DAT_EP_FIELD_EP_ATTR_MAX_RDMA_SIZE ia.max_rdma_size;
            max_recv_dtos DAT_EP_FIELD_EP_ATTR_MAX_RECV_DTOS ia.max_dto_per_ep;
            max_request_dtos DAT_EP_FIELD_EP_ATTR_MAX_REQUEST_DTOS ia.max_dto_per_ep;
            max_recv_iov DAT_EP_FIELD_EP_ATTR_MAX_RECV_IOV ia.max_iov_segments_per_dto;
            max_request_iov DAT_EP_FIELD_EP_ATTR_MAX_REQUEST_IOV ia.max_iov_segments_per_dto;
            max_rdma_write_iov DAT_EP_FIELD_EP_ATTR_MAX_RDMA_WRITE_IOV ia.max_iov_segments_per_rdma_write;
            max_rdma_read_iov DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_IOV ia.max_iov_segments_per_rdma_read;
            max_rdma_read_in DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_IN ia.max_rdma_read_per_ep_in;
            max_rdma_read_out DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_OUT ia.max_rdma_read_per_ep_out;
        }
        dat!(table, ep_free_func(modified)).unwrap();
    }

    /// Posts the maximum number of receives, each with the maximum number of segments.
    fn receives(&self) {
        let (table, iov) = (self.side.table, self.ia.max_iov_segments_per_dto);
        let mut byte = [0];
        let lmr = self.side.register(&mut byte);
        let mut segments = vec![lmr.local(0, 1); iov as usize + 1];
        let most = self.ia.max_dto_per_ep.min(MAX_TRIED_COUNT);
        let attr = DAT_EP_ATTR { max_recv_dtos: most, max_recv_iov: iov, ..minimal_attributes() };
        let ep = self.ep(self.side.evd, &attr).unwrap();
        let mut post =
            |count| dat!(table, ep_post_recv_func(ep, count, segments.as_mut_ptr(), cookie(0), 0));
        post(iov).unwrap();
        assert_eq!(post(iov + 1).unwrap_err(), Error::arg(2));
        (1..most).for_each(|_| post(0).unwrap());
        assert_eq!(post(0).unwrap_err(), Error::of(DAT_INSUFFICIENT_RESOURCES));
        dat!(table, ep_free_func(ep)).unwrap();
        dat!(table, lmr_free_func(lmr.handle)).unwrap();
    }

    /// Posts the maximum number of requests, each with the maximum number of segments, and then
    /// requests of the maximum size. The endpoint flushes all requests, so the memory is not
    /// accessed.
    fn requests(&self) {
        let (table, iov) = (self.side.table, self.ia.max_iov_segments_per_dto);
        let most = self.ia.max_dto_per_ep.min(MAX_TRIED_COUNT).min(self.ia.max_evd_qlen);
        let attr = DAT_EP_ATTR {
            max_request_dtos: most,
            max_request_iov: iov,
            max_rdma_write_iov: iov,
            ..minimal_attributes()
        };
        let evd = self.evd(most).unwrap();
        let ep = self.ep(evd, &attr).unwrap();
        self.end(ep);

        let size = u64::from(self.ia.max_message_size);
        let region = Reserved::new(size as usize);
        let mut lmr = Lmr::default();
        let Side { ia, pz, .. } = self.side;
        let memory = DAT_REGION_DESCRIPTION { for_va: region.start };
        let privileges = DAT_MEM_PRIV_LOCAL_READ_FLAG;
        let Lmr { handle, context, rmr_context, size: of, address } = &mut lmr;
        dat!(
            table,
            lmr_create_func(
                ia,
                DAT_MEM_TYPE_VIRTUAL,
                memory,
                size,
                pz,
                privileges,
                DAT_VA_TYPE_VA,
                handle,
                context,
                rmr_context,
                of,
                address
            )
        )
        .unwrap();
        let mut all = [lmr.local(0, self.ia.max_message_size), lmr.local(0, 1)];
        let remote = lmr.remote(0, u32::MAX);
        let mut send =
            |count| dat!(table, ep_post_send_func(ep, count, all.as_mut_ptr(), cookie(0), 0));
        send(1).unwrap();
        assert_eq!(send(2).unwrap_err(), Error::of(DAT_LENGTH_ERROR));
        let mut write = |count| {
            dat!(table, ep_post_rdma_write_func(ep, count, all.as_mut_ptr(), cookie(0), &remote, 0))
        };
        write(1).unwrap();
        assert_eq!(write(2).unwrap_err(), Error::of(DAT_LENGTH_ERROR));

        let mut segments = vec![lmr.local(0, 1); iov as usize + 1];
        let mut send =
            |count| dat!(table, ep_post_send_func(ep, count, segments.as_mut_ptr(), cookie(0), 0));
        send(iov).unwrap();
        assert_eq!(send(iov + 1).unwrap_err(), Error::arg(2));
        (3..most).for_each(|_| send(0).unwrap());
        assert_eq!(send(0).unwrap_err(), Error::of(DAT_INSUFFICIENT_RESOURCES));
        for _ in 0..most {
            assert_eq!(self.side.next(evd).event_number, DAT_DTO_COMPLETION_EVENT);
        }
        let mut event = DAT_EVENT::zeroed();
        let empty = dat!(table, evd_dequeue_func(evd, &mut event)).unwrap_err();
        assert_eq!(empty.kind(), DAT_QUEUE_EMPTY);
        dat!(table, ep_free_func(ep)).unwrap();
        dat!(table, evd_free_func(evd)).unwrap();
        dat!(table, lmr_free_func(lmr.handle)).unwrap();
    }

    fn private_data(&self) {
        let ep = self.side.new_ep();
        let bytes = vec![7; self.max_private as usize + 1];
        let refused = self.call(ep, &bytes).unwrap_err();
        assert_eq!(refused.kind(), DAT_INVALID_PARAMETER);
        self.call(ep, &bytes[1..]).unwrap();
        self.refused(ep);
        dat!(self.side.table, ep_free_func(ep)).unwrap();
    }

    /// Connects the endpoint to a service point that was freed. Waits until the endpoint is
    /// disconnected, because the request is refused.
    fn end(&self, ep: DAT_EP_HANDLE) {
        self.call(ep, &[]).unwrap();
        self.refused(ep);
    }

    fn refused(&self, ep: DAT_EP_HANDLE) {
        let event = self.side.next(self.side.evd);
        let refusals = DAT_CONNECTION_EVENT_PEER_REJECTED..=DAT_CONNECTION_EVENT_UNREACHABLE;
        assert!(refusals.contains(&event.event_number), "{:#x}", event.event_number);
        let (mut state, mut receives, mut requests) = (0, 0, 0);
        dat!(self.side.table, ep_get_status_func(ep, &mut state, &mut receives, &mut requests))
            .unwrap();
        assert_eq!(state, DAT_EP_STATE_DISCONNECTED);
    }

    /// Calls dat_ep_connect to a service point that was freed.
    fn call(&self, ep: DAT_EP_HANDLE, private: &[u8]) -> Result<(), Error> {
        let (psp, qualifier) = self.side.new_psp(DAT_PSP_CONSUMER_FLAG);
        dat!(self.side.table, psp_free_func(psp)).unwrap();
        let (size, data) = c_bytes(private);
        let (qos, flags, to) =
            (DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG, self.ia.ia_address_ptr);
        dat!(
            self.side.table,
            ep_connect_func(ep, to, qualifier, TEN_SECONDS, size, data, qos, flags)
        )
    }
}

fn minimal_attributes() -> DAT_EP_ATTR {
    DAT_EP_ATTR {
        service_type: DAT_SERVICE_TYPE_RC,
        qos: DAT_QOS_BEST_EFFORT,
        recv_completion_flags: DAT_COMPLETION_EVD_THRESHOLD_FLAG,
        request_completion_flags: DAT_COMPLETION_EVD_THRESHOLD_FLAG,
        max_recv_dtos: 1,
        max_request_dtos: 1,
        max_recv_iov: 1,
        max_request_iov: 1,
        srq_soft_hw: DAT_WATERMARK_INFINITE,
        ..DAT_EP_ATTR::zeroed()
    }
}

/// A range of addresses without memory.
struct Reserved {
    start: DAT_PVOID,
    length: usize,
}

impl Reserved {
    fn new(length: usize) -> Self {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: this is a new mapping.
        let start = unsafe { libc::mmap(null_mut(), length, libc::PROT_READ, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        Reserved { start, length }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // SAFETY: `new` has mapped the range, and it is not registered any more.
        unsafe { libc::munmap(self.start, self.length) };
    }
}
