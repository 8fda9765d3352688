//! iWARP has no datagrams. The adapter says so in its attributes, and refuses them.

#[path = "../../dat-core/tests/table/client.rs"]
#[allow(dead_code)] // Other tests use the rest.
mod client;

use std::ptr::null_mut;

use client::*;
use dat_core::Error;
use dat_sys::ib::*;
use dat_sys::opendat::DAT_OPENDAT_POST_SEND_UD_IMMED_OP;
use dat_sys::*;

#[test]
fn datagrams_are_not_supported() {
    for thread_safe in [false, true] {
        let name = format!("datagrams-{thread_safe}");
        let table = register::<provider_tcp_emu::TcpEmu>(&name, "127.0.0.1", thread_safe);
        let side = Side::new(table, &name);
        let (ep, refused) = (side.new_ep(), Err(Error::of(DAT_MODEL_NOT_SUPPORTED)));

        let mut param = DAT_EP_PARAM::zeroed();
        dat!(table, ep_query_func(ep, DAT_EP_FIELD_ALL, &mut param)).unwrap();
        param.ep_attr.service_type = DAT_IB_SERVICE_TYPE_UD;
        let Side { ia, pz, evd, .. } = side;
        let (mut other, attr) = (null_mut(), &param.ep_attr);
        let created = dat!(table, ep_create_func(ia, pz, evd, evd, evd, attr, &mut other));
        assert_eq!(created, refused);
        let modified = dat!(table, ep_modify_func(ep, DAT_EP_FIELD_EP_ATTR_SERVICE_TYPE, &param));
        assert_eq!(modified, refused);

        // No adapter has an address for these calls.
        let own = DAT_OPENDAT_POST_SEND_UD_IMMED_OP as DAT_IB_OP;
        let nowhere = DAT_IB_ADDR_HANDLE::zeroed();
        for address in [0, word(&nowhere)] {
            let args = [0, 0, address, 1, 0, 0];
            for op in [DAT_IB_UD_SEND_OP, own] {
                assert_eq!(extended(table, ep, op, &args, 4), refused);
            }
            assert_eq!(extended(table, ep, DAT_IB_UD_AH_FREE_OP, &[address], 4), refused);
        }
        assert_eq!(extended(table, ep, DAT_IB_UD_CM_FREE_OP, &[1], 4), refused);
        side.close();
    }
}
