//! An adapter can have exactly as many objects as its attributes say.

mod support;

use std::ffi::CStr;

use dat_core::ep::{self, Handles, PinnedParams};
use dat_core::error::{Error, OpenError, Result};
use dat_core::handle::{Node, Object};
use dat_core::ia::{self, AsyncEvd, Ia};
use dat_core::mem::lmr::{self, Memory};
use dat_core::mem::{Pz, pz, rmr};
use dat_core::provider::Provider;
use dat_core::{evd, srq};
use dat_sys::ib::*;
use dat_sys::*;
use provider_mem::{Adapter, Mem};
use support::*;

/// The provider mem with room for few objects.
struct SmallProvider;

impl Provider for SmallProvider {
    type Transport = Adapter;
    const NAME: &'static str = "small";

    fn open(&self, ia: &str, params: &str) -> std::result::Result<Adapter, OpenError> {
        Ok(Mem.open(ia, params)?.with_attrs(|attrs| {
            (attrs.max_pds, attrs.max_eps, attrs.max_evds) = (2, 2, 3);
            (attrs.max_regions, attrs.max_windows, attrs.max_srqs) = (4, 3, 2);
            (attrs.srq_across_pds, attrs.zero_based) = (false, false);
            (attrs.window_scopes, attrs.atomics) = (DAT_RMR_SCOPE_PZ, false);
        }))
    }
}

fn open_small() -> &'static Node<Ia<T>> {
    // SAFETY: the call passes no EVD that another thread could free.
    unsafe { ia::open(&SmallProvider, &fabric(), entry("small"), AsyncEvd::Create(8)) }.unwrap()
}

/// Creates objects until the adapter refuses one. Then frees one of them and checks that another
/// one can be created.
fn fill<O: Object>(
    count: usize,
    resource: DAT_RETURN,
    make: impl Fn() -> Result<&'static Node<O>>,
    free: unsafe fn(&Node<O>) -> Result<()>,
) {
    let refused = Error::new(DAT_INSUFFICIENT_RESOURCES, resource);
    let made: Vec<_> = (0..count).map(|_| make().unwrap()).collect();
    assert_eq!(make().err(), Some(refused));
    // SAFETY: nobody uses the object any more.
    let free = |node: &Node<O>| unsafe { free(node) }.unwrap();
    free(made[0]);
    let again = make().unwrap();
    assert_eq!(make().err(), Some(refused));
    made[1..].iter().copied().chain([again]).for_each(free);
}

#[test]
fn a_query_names_only_what_the_adapter_has() {
    let mut attr = DAT_PROVIDER_ATTR::zeroed();
    open_small().provider_attributes(&mut attr);
    assert_eq!(attr.rmr_scope_supported, DAT_RMR_SCOPE_PZ);
    let count = attr.num_provider_specific_attr as usize;
    // SAFETY: the attributes and their names are valid as long as the adapter is open.
    let has = |name: &CStr| unsafe {
        let attributes = std::slice::from_raw_parts(attr.provider_specific_attr, count);
        attributes.iter().any(|attribute| CStr::from_ptr(attribute.name) == name)
    };
    assert!(has(DAT_IB_ATTR_IMMED_DATA));
    assert!(!has(DAT_IB_ATTR_FETCH_AND_ADD) && !has(DAT_IB_ATTR_CMP_AND_SWAP));
}

#[test]
fn one_object_more_than_promised_is_refused() {
    let ia = open_small();
    // The EVD of asynchronous errors is one of the three permitted EVDs.
    fill(2, DAT_RESOURCE_TEVD, || evd::create(ia, 1, None, DAT_EVD_SOFTWARE_FLAG), evd::free);
    fill(2, DAT_RESOURCE_PROTECTION_DOMAIN, || pz::create(ia), pz::free);

    let zone = pz::create(ia).unwrap();
    let none = || Handles { pz: Some(zone), recv: None, request: None, connect: None, srq: None };
    fill(2, DAT_RESOURCE_TEP, || ep::create(ia, none(), None), ep::free);
    let attr = DAT_SRQ_ATTR { max_recv_dtos: 4, max_recv_iov: 1, low_watermark: 0 };
    fill(2, DAT_RESOURCE_SRQ, || srq::create(ia, zone, &attr), srq::free);

    let mut buffer = [0u8; 16];
    let addr = buffer.as_mut_ptr();
    let register = || {
        let memory = Memory::Virtual { addr: addr.cast(), length: 16 };
        // SAFETY: the buffer outlives the regions, which are freed below.
        unsafe { lmr::create(ia, memory, zone, DAT_MEM_PRIV_LOCAL_READ_FLAG, DAT_VA_TYPE_VA) }
    };
    fill(4, DAT_RESOURCE_MEMORY_REGION, register, lmr::free);
    for scope in [DAT_RMR_SCOPE_PZ, DAT_RMR_SCOPE_EP] {
        fill(3, DAT_RESOURCE_MEMORY_REGION, || rmr::create(zone, scope), rmr::free);
    }

    // SAFETY: nobody uses the zone any more.
    unsafe { pz::free(zone) }.unwrap();
    // Objects whose creation was refused are not counted.
    // SAFETY: after this call nobody uses a reference to the adapter.
    unsafe { ia::close(ia, DAT_CLOSE_GRACEFUL_FLAG) }.unwrap();
}

#[test]
fn an_srq_of_another_zone_needs_support_of_the_transport() {
    let ia = open_small();
    let (own, other) = (pz::create(ia).unwrap(), pz::create(ia).unwrap());
    let attr = DAT_SRQ_ATTR { max_recv_dtos: 4, max_recv_iov: 1, low_watermark: 0 };
    let srq = srq::create(ia, own, &attr).unwrap();
    let ep_in = |pz| {
        let handles = Handles { pz, recv: None, request: None, connect: None, srq: Some(srq) };
        ep::create(ia, handles, Some(&DAT_EP_ATTR::zeroed()))
    };
    assert_eq!(ep_in(Some(other)).err(), Some(Error::arg(6)));
    ep_in(Some(own)).unwrap();
    // This endpoint gets its zone later, through dat_ep_modify.
    let ep = ep_in(None).unwrap();
    let into = |zone: &Node<Pz<T>>| {
        let param = DAT_EP_PARAM { pz_handle: zone.handle(), ..DAT_EP_PARAM::zeroed() };
        // SAFETY: the handles are live.
        unsafe {
            ep.modify(
                DAT_EP_FIELD_PZ_HANDLE,
                &param,
                PinnedParams::pin(DAT_EP_FIELD_PZ_HANDLE, &param),
            )
        }
    };
    assert_eq!(into(other), Err(Error::arg(3)));
    into(own).unwrap();
    // SAFETY: after this call nobody uses a reference to the adapter.
    unsafe { ia::close(ia, DAT_CLOSE_ABRUPT_FLAG) }.unwrap();
}

#[test]
fn zero_based_regions_need_support_of_the_transport() {
    let ia = open_small();
    let zone = pz::create(ia).unwrap();
    let mut buffer = [0u8; 16];
    let memory = Memory::Virtual { addr: buffer.as_mut_ptr().cast(), length: 16 };
    // SAFETY: the call is refused, so no memory is registered.
    let made =
        unsafe { lmr::create(ia, memory, zone, DAT_MEM_PRIV_LOCAL_READ_FLAG, DAT_VA_TYPE_ZB) };
    assert_eq!(made.err(), Some(Error::of(DAT_MODEL_NOT_SUPPORTED)));
    // SAFETY: after this call nobody uses a reference to the adapter.
    unsafe { ia::close(ia, DAT_CLOSE_ABRUPT_FLAG) }.unwrap();
}

#[test]
fn limits_are_each_adapters_own() {
    let (one, other) = (open_small(), open_small());
    for _ in 0..2 {
        pz::create(one).unwrap();
    }
    assert!(pz::create(one).is_err());
    pz::create(other).unwrap();
    for ia in [one, other] {
        // SAFETY: after this call nobody uses a reference to the adapter.
        unsafe { ia::close(ia, DAT_CLOSE_ABRUPT_FLAG) }.unwrap();
    }
}
