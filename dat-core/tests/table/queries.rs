//! Tests of the results of queries.

use std::ffi::CStr;
use std::ptr::null_mut;

use dat_core::Error;
use dat_core::provider::{Provider, Transport};
use dat_sys::*;

use crate::client::*;

#[test]
fn an_adapter_reports_the_attributes_of_its_transport() {
    let (table, name) = mem(false);
    let (ia, evd) = open(table, &name);
    let mut told = null_mut();
    let (mut attr, mut provider) = (DAT_IA_ATTR::zeroed(), DAT_PROVIDER_ATTR::zeroed());
    dat!(
        table,
        ia_query_func(
            ia,
            &mut told,
            DAT_IA_FIELD_ALL,
            &mut attr,
            DAT_PROVIDER_FIELD_ALL,
            &mut provider
        )
    )
    .unwrap();
    assert_eq!(told, evd);

    let limits = provider_mem::Mem.open(&name, &name).unwrap().attrs().clone();
    let text = |field: &[std::ffi::c_char]| {
        // SAFETY: the field is terminated. The next assertions would detect an error.
        unsafe { CStr::from_ptr(field.as_ptr()) }.to_str().unwrap().to_owned()
    };
    assert_eq!(text(&attr.adapter_name), limits.adapter);
    assert_eq!(text(&attr.vendor_name), limits.vendor);
    assert_eq!(text(&provider.provider_name), "mem");
    // SAFETY: this is the adapter's own address.
    let address = unsafe { dat_core::addr::parse(attr.ia_address_ptr) }.unwrap();
    assert_eq!(address, limits.address);

    let count = |n: usize| n as DAT_COUNT;
    assert_eq!(attr.max_eps, count(limits.max_eps));
    assert_eq!(attr.max_dto_per_ep, count(limits.max_dtos));
    assert_eq!(attr.max_rdma_read_per_ep_in, limits.max_read_depth as DAT_COUNT);
    assert_eq!(attr.max_rdma_read_per_ep_out, limits.max_read_depth as DAT_COUNT);
    assert_eq!(attr.max_evds, count(limits.max_evds));
    assert_eq!(attr.max_evd_qlen, count(limits.max_evd_depth));
    assert_eq!(attr.max_iov_segments_per_dto, count(limits.max_segments));
    assert_eq!(attr.max_iov_segments_per_rdma_read, count(limits.max_read_segments));
    assert_eq!(attr.max_lmrs, count(limits.max_regions));
    assert_eq!(attr.max_pzs, count(limits.max_pds));
    assert_eq!(attr.max_message_size, limits.max_message);
    assert_eq!(attr.max_rdma_size, limits.max_message);
    assert_eq!(attr.max_srqs, count(limits.max_srqs));
    assert_eq!(attr.max_recv_per_srq, count(limits.max_srq_depth));
    // A size that exceeds its field is reported as the maximum of the field.
    assert_eq!(attr.max_lmr_block_size, u32::MAX);
    assert_eq!(
        (attr.max_rmrs, attr.zb_supported, attr.extension_supported),
        (count(limits.max_windows), DAT_TRUE, DAT_EXTENSION_IB)
    );
    assert_eq!(attr.num_transport_attr, 2);
    // SAFETY: the pointer leads to as many attributes as the count says, with terminated texts, as
    // long as the adapter is open.
    unsafe {
        assert_eq!(CStr::from_ptr((*attr.transport_attr).name), c"fabric");
        assert_eq!(CStr::from_ptr((*attr.transport_attr).value).to_str(), Ok(name.as_str()));
    }

    assert_eq!((provider.dapl_version_major, provider.dapl_version_minor), (2, 0));
    let kinds = DAT_MEM_TYPE_VIRTUAL | DAT_MEM_TYPE_LMR | DAT_MEM_TYPE_SHARED_VIRTUAL;
    assert_eq!(provider.lmr_mem_types_supported, kinds);
    assert_eq!(provider.rmr_scope_supported, DAT_RMR_SCOPE_ANY);
    // Memory is coherent. Peers need no privileges for the sink of an RDMA read and do not learn
    // its context.
    assert_eq!(
        (provider.lmr_sync_req, provider.rdma_write_for_rdma_read_req),
        (DAT_FALSE, DAT_FALSE)
    );
    assert_eq!(provider.rdma_read_lmr_rmr_context_exposure, DAT_FALSE);
    assert_eq!(provider.max_private_data_size, count(limits.max_private));
    assert_eq!(provider.evd_stream_merging_supported, [[DAT_TRUE; 6]; 6]);
    assert_eq!(provider.srq_supported, DAT_TRUE);
    assert_eq!(provider.srq_ep_pz_difference_supported, DAT_TRUE);
    // The bits stand for: low, soft high and hard high watermarks; available and outstanding
    // buffers; buffers and span.
    let supported = (
        provider.srq_watermarks_supported,
        provider.srq_info_supported,
        provider.ep_recv_info_supported,
    );
    assert_eq!(supported, (0x111, 0x11, 0x11));
    assert_eq!(DAT_OPTIMAL_ALIGNMENT as u32 % provider.optimal_buffer_alignment, 0);
    dat!(table, ia_close_func(ia, DAT_CLOSE_GRACEFUL_FLAG)).unwrap();
}

#[test]
fn queries_of_an_adapter_need_a_known_mask_and_a_record() {
    let (table, name) = mem(false);
    let (ia, _) = open(table, &name);
    let (mut attr, mut provider) = (DAT_IA_ATTR::zeroed(), DAT_PROVIDER_ATTR::zeroed());
    let mut query = |ia_mask, with_attr: bool, provider_mask, with_provider: bool| {
        let attr = if with_attr { &raw mut attr } else { null_mut() };
        let provider = if with_provider { &raw mut provider } else { null_mut() };
        dat!(table, ia_query_func(ia, null_mut(), ia_mask, attr, provider_mask, provider))
    };
    assert_eq!(query(0, false, 0, false), Ok(()));
    assert_eq!(query(DAT_IA_FIELD_IA_MAX_EPS, false, 0, false), Err(Error::arg(4)));
    assert_eq!(query(0, false, DAT_PROVIDER_FIELD_PROVIDER_NAME, false), Err(Error::arg(6)));
    assert_eq!(query(1 << 38, true, 0, false), Err(Error::arg(3)));
    assert_eq!(query(0, false, 1 << 31, true), Err(Error::arg(5)));
    for bit in 0..38 {
        assert_eq!(query(1 << bit, true, 0, false), Ok(()), "bit {bit}");
    }
    for bit in 0..31 {
        assert_eq!(query(0, false, 1 << bit, true), Ok(()), "bit {bit}");
    }
    dat!(table, ia_close_func(ia, DAT_CLOSE_GRACEFUL_FLAG)).unwrap();
}

#[test]
fn objects_report_their_parameters() {
    let (table, name) = mem(false);
    let side = Side::new(table, &name);
    let ia = consumer_handle(side.ia);

    let mut pz = DAT_PZ_PARAM::zeroed();
    dat!(table, pz_query_func(side.pz, DAT_PZ_FIELD_ALL, &mut pz)).unwrap();
    assert_eq!(pz.ia_handle, ia);

    let mut cno = null_mut();
    unsafe extern "C" fn proxy(_: DAT_PVOID, _: DAT_EVD_HANDLE) {}
    let agent =
        DAT_OS_WAIT_PROXY_AGENT { instance_data: null_mut(), proxy_agent_func: Some(proxy) };
    dat!(table, cno_create_func(side.ia, agent, &mut cno)).unwrap();
    let mut param = DAT_CNO_PARAM::zeroed();
    dat!(table, cno_query_func(cno, DAT_CNO_FIELD_ALL, &mut param)).unwrap();
    assert_eq!((param.ia_handle, param.proxy_type), (ia, DAT_PROXY_TYPE_AGENT));
    // SAFETY: the type says that this member of the union is valid.
    assert!(unsafe { param.proxy.agent }.proxy_agent_func.is_some());
    dat!(table, cno_modify_agent_func(cno, DAT_OS_WAIT_PROXY_AGENT_NULL)).unwrap();
    dat!(table, cno_query_func(cno, DAT_CNO_FIELD_PROXY_TYPE, &mut param)).unwrap();
    assert_eq!(param.proxy_type, DAT_PROXY_TYPE_NONE);

    let mut evd = null_mut();
    dat!(table, evd_create_func(side.ia, 5, cno, DAT_EVD_SOFTWARE_FLAG, &mut evd)).unwrap();
    let mut param = DAT_EVD_PARAM::zeroed();
    dat!(table, evd_query_func(evd, DAT_EVD_FIELD_ALL, &mut param)).unwrap();
    assert_eq!(
        (param.ia_handle, param.cno_handle, param.evd_flags),
        (ia, cno, DAT_EVD_SOFTWARE_FLAG)
    );
    assert!(param.evd_qlen >= 5);
    let config = DAT_EVD_STATE_CONFIG_THRESHOLD;
    assert_eq!(param.evd_state, DAT_EVD_STATE_ENABLED | DAT_EVD_STATE_WAITABLE | config);
    dat!(table, evd_disable_func(evd)).unwrap();
    dat!(table, evd_set_unwaitable_func(evd)).unwrap();
    dat!(table, evd_modify_cno_func(evd, null_mut())).unwrap();
    dat!(table, evd_query_func(evd, DAT_EVD_FIELD_ALL, &mut param)).unwrap();
    assert_eq!(param.evd_state, DAT_EVD_STATE_DISABLED | DAT_EVD_STATE_UNWAITABLE | config);
    assert!(param.cno_handle.is_null());

    let ep = side.new_ep();
    let mut param = DAT_EP_PARAM::zeroed();
    dat!(table, ep_query_func(ep, DAT_EP_FIELD_ALL, &mut param)).unwrap();
    assert_eq!((param.ia_handle, param.pz_handle), (ia, side.pz));
    assert_eq!(
        [param.recv_evd_handle, param.request_evd_handle, param.connect_evd_handle],
        [side.evd; 3]
    );
    assert_eq!(param.ep_state, DAT_EP_STATE_UNCONNECTED);

    let (psp, qualifier) = side.new_psp(DAT_PSP_PROVIDER_FLAG);
    let mut param = DAT_PSP_PARAM::zeroed();
    dat!(table, psp_query_func(psp, DAT_PSP_FIELD_ALL, &mut param)).unwrap();
    assert_eq!((param.ia_handle, param.conn_qual, param.evd_handle), (ia, qualifier, side.cr_evd));
    assert_eq!(param.psp_flags, DAT_PSP_PROVIDER_FLAG);

    let mut rsp = null_mut();
    dat!(table, rsp_create_func(side.ia, qualifier + 1, ep, side.cr_evd, &mut rsp)).unwrap();
    let mut param = DAT_RSP_PARAM::zeroed();
    dat!(table, rsp_query_func(rsp, DAT_RSP_FIELD_ALL, &mut param)).unwrap();
    assert_eq!((param.ia_handle, param.conn_qual), (ia, qualifier + 1));
    assert_eq!((param.ep_handle, param.evd_handle), (ep, side.cr_evd));
    side.close();
}

#[test]
fn every_handle_keeps_its_consumers_context() {
    let (table, name) = mem(false);
    let side = Side::new(table, &name);
    let ep = side.new_ep();
    let mut buffer = [0; 8];
    let all = [
        (side.ia, DAT_HANDLE_TYPE_IA),
        (side.async_evd, DAT_HANDLE_TYPE_EVD),
        (side.pz, DAT_HANDLE_TYPE_PZ),
        (ep, DAT_HANDLE_TYPE_EP),
        (side.new_cno(), DAT_HANDLE_TYPE_CNO),
        (side.new_psp(DAT_PSP_CONSUMER_FLAG).0, DAT_HANDLE_TYPE_PSP),
        (side.new_srq(4), DAT_HANDLE_TYPE_SRQ),
        (side.register(&mut buffer).handle, DAT_HANDLE_TYPE_LMR),
    ];
    for (i, (handle, kind)) in all.into_iter().enumerate() {
        let mut context = DAT_CONTEXT { as_64: 1 };
        dat!(table, get_consumer_context_func(handle, &mut context)).unwrap();
        // SAFETY: the member of the union is an integer, for which any bits are valid.
        assert_eq!(unsafe { context.as_64 }, 0);
        let mine = u64::MAX - i as u64;
        dat!(table, set_consumer_context_func(handle, DAT_CONTEXT { as_64: mine })).unwrap();
        let mut told = DAT_HANDLE_TYPE::MAX;
        dat!(table, get_handle_type_func(handle, &mut told)).unwrap();
        assert_eq!(told, kind);
    }
    for (i, (handle, _)) in all.into_iter().enumerate() {
        let mut context = DAT_CONTEXT { as_64: 1 };
        dat!(table, get_consumer_context_func(handle, &mut context)).unwrap();
        // SAFETY: the member of the union is an integer, for which any bits are valid.
        assert_eq!(unsafe { context.as_64 }, u64::MAX - i as u64);
    }
    side.close();
}

fn parameters(side: &Side, ep: DAT_EP_HANDLE) -> DAT_EP_PARAM {
    let mut param = DAT_EP_PARAM::zeroed();
    dat!(side.table, ep_query_func(ep, DAT_EP_FIELD_ALL, &mut param)).unwrap();
    param
}

/// An endpoint that is created without attributes gets the provider's default attributes (uDAPL
/// 1.2, dat_ep_create).
#[test]
fn an_endpoint_without_attributes_has_those_of_the_provider() {
    let (table, name) = mem(false);
    let side = Side::new(table, &name);
    let limits = provider_mem::Mem.open(&name, &name).unwrap().attrs().clone();
    let mut ep = null_mut();
    dat!(
        table,
        ep_create_func(
            side.ia,
            side.pz,
            side.evd,
            side.evd,
            side.evd,
            std::ptr::null_mut(),
            &mut ep
        )
    )
    .unwrap();
    let attr = parameters(&side, ep).ep_attr;
    assert_eq!(attr.service_type, DAT_SERVICE_TYPE_RC);
    assert_eq!(
        (attr.max_message_size, attr.max_rdma_size),
        (limits.max_message, limits.max_message)
    );
    assert_eq!(attr.qos, DAT_QOS_BEST_EFFORT);
    let flags = (attr.recv_completion_flags, attr.request_completion_flags);
    assert_eq!(flags, (DAT_COMPLETION_EVD_THRESHOLD_FLAG, DAT_COMPLETION_EVD_THRESHOLD_FLAG));
    assert_eq!((attr.max_recv_dtos, attr.max_request_dtos), (64, 64));
    assert_eq!((attr.max_recv_iov, attr.max_request_iov), (4, 4));
    assert_eq!((attr.max_rdma_read_in, attr.max_rdma_read_out), (4, 4));
    assert_eq!((attr.srq_soft_hw, attr.max_rdma_read_iov, attr.max_rdma_write_iov), (-1, 4, 4));
    side.close();
}

/// The standard defines no named attributes of endpoints, and the library knows none.
#[test]
fn an_endpoint_has_no_named_attributes() {
    let (table, name) = mem(false);
    let side = Side::new(table, &name);
    let mut named = DAT_NAMED_ATTR { name: c"color".as_ptr(), value: c"green".as_ptr() };
    let none = DAT_EP_ATTR { service_type: DAT_SERVICE_TYPE_RC, ..DAT_EP_ATTR::zeroed() };
    let mut ep = null_mut();
    for attr in [
        DAT_EP_ATTR { ep_transport_specific_count: 1, ep_transport_specific: &mut named, ..none },
        DAT_EP_ATTR { ep_provider_specific_count: 1, ep_provider_specific: &mut named, ..none },
    ] {
        let Side { ia, pz, evd, .. } = side;
        let created = dat!(table, ep_create_func(ia, pz, evd, evd, evd, &attr, &mut ep));
        assert_eq!(created, Err(Error::arg(6)));
    }
    let kept = parameters(&side, side.new_ep()).ep_attr;
    assert_eq!((kept.ep_transport_specific_count, kept.ep_provider_specific_count), (0, 0));
    assert_eq!((kept.ep_transport_specific, kept.ep_provider_specific), (null_mut(), null_mut()));
    side.close();
}

#[test]
fn an_endpoint_reports_its_connection() {
    let [(a, x), (b, y)] = connected(false);
    let (near, far) = (parameters(&a, x), parameters(&b, y));
    assert_eq!((near.ia_handle, near.ep_state), (consumer_handle(a.ia), DAT_EP_STATE_CONNECTED));
    assert_eq!(
        (near.recv_evd_handle, near.request_evd_handle, near.connect_evd_handle),
        (a.evd, a.evd, a.evd)
    );
    assert_eq!((near.pz_handle, near.srq_handle), (a.pz, null_mut()));
    // SAFETY: the addresses of the adapter are valid as long as the endpoints exist.
    let addresses = unsafe {
        [
            near.local_ia_address_ptr,
            near.remote_ia_address_ptr,
            far.local_ia_address_ptr,
            far.remote_ia_address_ptr,
        ]
        .map(|address| dat_core::addr::parse(address).unwrap().ip())
    };
    assert_eq!(addresses, [addresses[0]; 4]);
    assert_eq!(
        (near.local_port_qual, near.remote_port_qual),
        (far.remote_port_qual, far.local_port_qual)
    );
    assert_ne!(near.remote_port_qual, 0);
}

/// A queue of the maximum length can be created, and a longer queue cannot (uDAPL 1.2,
/// dat_srq_create, dat_srq_resize).
#[test]
fn a_shared_queue_reaches_its_maximum_depth() {
    let (table, name) = mem(false);
    let side = Side::new(table, &name);
    let limits = provider_mem::Mem.open(&name, &name).unwrap().attrs().clone();
    let (depth, iov) = (limits.max_srq_depth as DAT_COUNT, limits.max_segments as DAT_COUNT);
    let create = |max_recv_dtos, max_recv_iov, low_watermark| {
        let mut attr = DAT_SRQ_ATTR { max_recv_dtos, max_recv_iov, low_watermark };
        let mut srq = null_mut();
        dat!(table, srq_create_func(side.ia, side.pz, &mut attr, &mut srq)).map(|()| srq)
    };
    let no_room = Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_SRQ);
    assert_eq!(create(depth + 1, iov, 0), Err(no_room));
    assert_eq!(create(depth, iov + 1, 0), Err(Error::arg(3)));
    assert_eq!(create(4, iov, 5), Err(Error::arg(3)));
    assert_eq!(create(0, iov, 0), Err(Error::arg(3)));
    let resize = |srq, depth| dat!(table, srq_resize_func(srq, depth));
    let deepest = create(depth, iov, 0).unwrap();
    assert_eq!(resize(deepest, depth), Ok(()));
    assert_eq!(resize(deepest, depth + 1), Err(no_room));

    let srq = create(8, 1, 8).unwrap();
    assert_eq!(
        resize(srq, 7),
        Err(Error::of(DAT_INVALID_STATE)),
        "a size below the watermark of 8 must be refused"
    );
    assert_eq!(resize(srq, 8), Ok(()));
    dat!(table, srq_set_lw_func(srq, 2)).unwrap();
    for id in 0..3 {
        dat!(table, srq_post_recv_func(srq, 0, null_mut(), cookie(id))).unwrap();
    }
    assert_eq!(
        resize(srq, 2),
        Err(Error::of(DAT_INVALID_STATE)),
        "a size below the 3 posted buffers must be refused"
    );
    assert_eq!(resize(srq, 3), Ok(()));
    for srq in [srq, deepest] {
        dat!(table, srq_free_func(srq)).unwrap();
        assert!(
            dat!(table, srq_free_func(srq)).is_err(),
            "a queue that is gone cannot be freed again"
        );
    }
    side.close();
}

#[test]
fn an_evd_holds_as_many_events_as_reported() {
    let (table, name) = mem(false);
    let side = Side::new(table, &name);
    let limits = provider_mem::Mem.open(&name, &name).unwrap().attrs().clone();
    let mut evd = null_mut();
    let mut create = |depth| {
        dat!(table, evd_create_func(side.ia, depth, null_mut(), DAT_EVD_SOFTWARE_FLAG, &mut evd))
    };
    let deepest = limits.max_evd_depth as DAT_COUNT;
    assert_eq!(create(deepest), Ok(()));
    assert_eq!(create(deepest + 1), Err(Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_TEVD)));
}
