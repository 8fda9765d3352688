//! Tests of dat_extension_op, which is called through the function table.

use std::ptr::null_mut;

use dat_core::Error;
use dat_sys::ib::*;
use dat_sys::*;

use crate::client::*;

/// Takes an event of an extended operation. Returns its completion and its extension data.
pub(crate) fn extended_completion(
    side: &Side,
) -> (DAT_DTO_COMPLETION_EVENT_DATA, DAT_IB_EXTENSION_EVENT_DATA) {
    let event = side.next(side.evd);
    assert_eq!(event.event_number, DAT_IB_DTO_EVENT);
    let data = (&raw const event.event_extension_data).cast::<DAT_IB_EXTENSION_EVENT_DATA>();
    // SAFETY: the number of the event says that this member of the union is valid and the extension
    // data.
    unsafe { (event.event_data.dto_completion_event_data, data.read()) }
}

fn outcome(
    (dto, data): (DAT_DTO_COMPLETION_EVENT_DATA, DAT_IB_EXTENSION_EVENT_DATA),
) -> (DAT_DTOS, u32, u64, DAT_IB_EXT_TYPE, u32) {
    assert_eq!((dto.status, data.status), (DAT_DTO_SUCCESS, DAT_OP_SUCCESS));
    // SAFETY: both members are integers, which may have any bits.
    let (cookie, immediate) = unsafe { (dto.user_cookie.as_64, data.val.immed.data) };
    (dto.operation, dto.transfered_length, cookie, data.r#type, immediate)
}

#[test]
fn undefined_flags_are_refused() {
    let [(a, x), (b, _)] = connected(false);
    let table = a.table;
    let (mut source, mut target) = (vec![7u8; 8], vec![0u8; 8]);
    let (from, to) = (a.register(&mut source), b.register(&mut target));
    let (iov, remote, flags) = ([from.local(0, 8)], to.remote(0, 8), 1 << 20);
    let args = [1, word(&iov), 2, word(&remote), 0x7777, flags];
    assert_eq!(extended(table, x, DAT_IB_RDMA_WRITE_IMMED_OP, &args, 4), Err(Error::arg(8)));
    let args = [1, word(&iov), 5, word(&remote), flags];
    assert_eq!(extended(table, x, DAT_IB_FETCH_AND_ADD_OP, &args, 4), Err(Error::arg(7)));
    a.close();
    b.close();
}

#[test]
fn a_write_with_immediate_data() {
    for thread_safe in [false, true] {
        let [(a, x), (b, y)] = connected(thread_safe);
        let (mut source, mut target) = (vec![7u8; 64], vec![0u8; 64]);
        let (from, to) = (a.register(&mut source), b.register(&mut target));
        dat!(a.table, ep_post_recv_func(y, 0, null_mut(), cookie(1), 0)).unwrap();
        let (iov, remote) = ([from.local(0, 10), from.local(20, 30)], to.remote(8, 40));
        let post = |count: u64, flags| {
            let args = [count, word(&iov), 2, word(&remote), 0x7777, flags];
            // The thread-safe run passes four words in registers, as libdat does. The other run
            // passes all words in memory.
            extended(a.table, x, DAT_IB_RDMA_WRITE_IMMED_OP, &args, if thread_safe { 4 } else { 0 })
        };
        post(2, 0).unwrap();
        let sent = outcome(extended_completion(&a));
        assert_eq!(sent, (DAT_IB_DTO_RDMA_WRITE_IMMED, 40, 2, DAT_IB_RDMA_WRITE_IMMED, 0));
        let received = outcome(extended_completion(&b));
        assert_eq!(received, (DAT_IB_DTO_RECV_IMMED, 40, 1, DAT_IB_RDMA_WRITE_IMMED_DATA, 0x7777));

        // Invalid arguments are reported with their positions.
        assert_eq!(post(u64::MAX, 0), Err(Error::arg(3)));
        assert_eq!(
            post(100, 0),
            Err(Error::arg(3)),
            "more segments than there can be must be refused"
        );
        let other = |args: [u64; 6]| extended(a.table, x, DAT_IB_RDMA_WRITE_IMMED_OP, &args, 4);
        assert_eq!(other([1, 0, 2, word(&remote), 1, 0]), Err(Error::arg(4)));
        assert_eq!(other([1, word(&iov), 2, 0, 1, 0]), Err(Error::arg(6)));
        let stranger = DAT_LMR_TRIPLET { lmr_context: !iov[0].lmr_context, ..iov[0] };
        let refused = Err(Error::of(DAT_PRIVILEGES_VIOLATION));
        assert_eq!(other([1, word(&stranger), 2, word(&remote), 1, 0]), refused);

        a.close();
        b.close();
        assert_eq!(target[8..48], [7; 40]);
    }
}

#[test]
fn atomic_operations() {
    let [(a, x), (b, _)] = connected(false);
    // Atomic operations require aligned words.
    let (mut near, mut far) = ([[0u64; 4]; 2], [[40u64; 4]; 2]);
    let bytes = |words: &mut [[u64; 4]; 2]| {
        // SAFETY: the slice has the length of the words, and bytes may have any value.
        unsafe {
            std::slice::from_raw_parts_mut(
                words.as_mut_ptr().cast::<u8>(),
                size_of::<[[u64; 4]; 2]>(),
            )
        }
    };
    let from = a.register(bytes(&mut near));
    let privileges = DAT_MEM_PRIV_ALL_FLAG | DAT_IB_MEM_PRIV_REMOTE_ATOMIC;
    let to = b.register_as(bytes(&mut far), privileges, DAT_VA_TYPE_VA);
    let plain = b.register(bytes(&mut far));

    let add = |local: &DAT_LMR_TRIPLET, remote: &DAT_RMR_TRIPLET, flags| {
        extended(a.table, x, DAT_IB_FETCH_AND_ADD_OP, &[2, word(local), 5, word(remote), flags], 4)
    };
    let (sink, target) = (from.local(0, 8), to.remote(16, 8));
    add(&sink, &target, 0).unwrap();
    assert_eq!(
        outcome(extended_completion(&a)),
        (DAT_IB_DTO_FETCH_ADD, 8, 5, DAT_IB_FETCH_AND_ADD, 0)
    );
    // A sink may be longer than eight bytes.
    let sink = from.local(8, 20);
    let swap = [42, u64::MAX - 1, word(&sink), 6, word(&target), 0];
    extended(a.table, x, DAT_IB_CMP_AND_SWAP_OP, &swap, 4).unwrap();
    assert_eq!(
        outcome(extended_completion(&a)),
        (DAT_IB_DTO_CMP_SWAP, 8, 6, DAT_IB_CMP_AND_SWAP, 0)
    );

    assert_eq!(add(&from.local(0, 7), &target, 0), Err(Error::of(DAT_LENGTH_ERROR)));
    let args = |local, remote| [1, 2, local, 6, remote, 0];
    for (args, arg) in [(args(0, word(&target)), 5), (args(word(&sink), 0), 7)] {
        assert_eq!(extended(a.table, x, DAT_IB_CMP_AND_SWAP_OP, &args, 4), Err(Error::arg(arg)));
    }
    // If the region does not permit atomic access, the connection breaks, and the completion
    // reports the reason.
    add(&sink, &plain.remote(16, 8), 0).unwrap();
    let (dto, data) = extended_completion(&a);
    assert_eq!((dto.operation, dto.status), (DAT_IB_DTO_FETCH_ADD, DAT_DTO_ERR_REMOTE_ACCESS));
    assert_eq!((data.r#type, data.status), (DAT_IB_FETCH_AND_ADD, DAT_IB_OP_ERR));
    assert_eq!(a.next(a.evd).event_number, DAT_CONNECTION_EVENT_BROKEN);

    a.close();
    b.close();
    assert_eq!((near[0][..2].to_vec(), far[0][2]), (vec![40, 42], u64::MAX - 1));
}

#[test]
fn unsupported_operations() {
    let [(a, x), (b, _)] = connected(false);
    let unsupported = [DAT_IB_COLLECTIVE_CREATE_MEMBER_OP, DAT_IB_COLLECTIVE_BARRIER_OP];
    for op in unsupported {
        assert_eq!(extended(a.table, x, op, &[], 4), Err(Error::of(DAT_MODEL_NOT_SUPPORTED)));
    }
    assert_eq!(extended(a.table, x, 99, &[], 4), Err(Error::of(DAT_NOT_IMPLEMENTED)));
    // Tries operations of an endpoint on an object of another type and on NULL.
    for (handle, invalid) in [(a.evd, DAT_INVALID_HANDLE_EP), (null_mut(), DAT_INVALID_HANDLE1)] {
        let invalid = Err(Error::handle(invalid));
        assert_eq!(extended(a.table, handle, DAT_IB_RDMA_WRITE_IMMED_OP, &[0; 6], 4), invalid);
        assert_eq!(extended(a.table, handle, DAT_IB_FETCH_AND_ADD_OP, &[0; 5], 4), invalid);
    }
    let unconnected = a.new_ep();
    let place = DAT_RMR_TRIPLET::zeroed();
    let post = extended(
        a.table,
        unconnected,
        DAT_IB_RDMA_WRITE_IMMED_OP,
        &[0, 0, 0, word(&place), 0, 0],
        4,
    );
    assert_eq!(post.map_err(|e| e.kind()), Err(DAT_INVALID_STATE));
    a.close();
    b.close();
}

/// The consumer sets the attributes of its endpoint to zero, so the peers agree on a read depth of
/// 0. A read or an atomic operation could never start, so the post is refused. The connection
/// continues.
#[test]
fn without_a_read_depth_reads_and_atomic_operations_are_refused() {
    let (table, name) = mem(false);
    let (a, b) = (Side::new(table, &name), Side::new(table, &name));
    let (x, y) = (a.new_ep(), b.new_ep());
    let mut param = DAT_EP_PARAM::zeroed();
    param.ep_attr.max_rdma_read_out = 0;
    dat!(table, ep_modify_func(x, DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_OUT, &mut param)).unwrap();
    let (_, qualifier) = b.new_psp(DAT_PSP_CONSUMER_FLAG);
    a.connect(x, qualifier, b"");
    dat!(table, cr_accept_func(b.arrival(), y, 0, null_mut())).unwrap();
    for side in [&a, &b] {
        assert_eq!(side.next(side.evd).event_number, DAT_CONNECTION_EVENT_ESTABLISHED);
    }
    let (mut near, mut far) = (vec![0u8; 8], vec![7u8; 8]);
    let (to, from) = (a.register(&mut near), b.register(&mut far));
    let (mut sink, remote) = (to.local(0, 8), from.remote(0, 8));
    let refused = Err(Error::of(DAT_INSUFFICIENT_RESOURCES));
    assert_eq!(
        dat!(table, ep_post_rdma_read_func(x, 1, &mut sink, cookie(1), &remote, 0)),
        refused
    );
    let args = [1, word(&sink), 2, word(&remote), 0];
    assert_eq!(extended(table, x, DAT_IB_FETCH_AND_ADD_OP, &args, 4), refused);

    dat!(table, ep_post_rdma_write_func(x, 1, &mut sink, cookie(3), &remote, 0)).unwrap();
    assert_eq!(a.completion().status, DAT_DTO_SUCCESS);
    // The peer may still read.
    let (mut sink, remote) = (from.local(0, 8), to.remote(0, 8));
    dat!(table, ep_post_rdma_read_func(y, 1, &mut sink, cookie(4), &remote, 0)).unwrap();
    assert_eq!(b.completion().status, DAT_DTO_SUCCESS);
    a.close();
    b.close();
}

#[test]
fn a_region_for_atomic_operations_alone_has_a_context_for_peers() {
    let [(a, x), (b, _)] = connected(false);
    let (mut near, mut far) = (0u64.to_ne_bytes(), Box::new(40u64));
    let sink = a.register(&mut near).local(0, 8);
    // SAFETY: the slice has the length of the word, and bytes may have any value.
    let bytes = unsafe { std::slice::from_raw_parts_mut((&raw mut *far).cast::<u8>(), 8) };
    let target = b.register_as(bytes, DAT_IB_MEM_PRIV_REMOTE_ATOMIC, DAT_VA_TYPE_VA);
    assert_ne!(target.rmr_context, 0);
    let remote = target.remote(0, 8);
    let args = [2, word(&sink), 5, word(&remote), 0];
    extended(a.table, x, DAT_IB_FETCH_AND_ADD_OP, &args, 4).unwrap();
    assert_eq!(extended_completion(&a).0.status, DAT_DTO_SUCCESS);
    a.close();
    b.close();
    assert_eq!((*far, u64::from_ne_bytes(near)), (42, 40));
}

#[test]
fn only_an_adapter_that_was_opened_for_queries_is_closed_as_one() {
    let (table, name) = mem(false);
    let side = Side::new(table, &name);
    assert_eq!(
        extended(table, side.ia, DAT_IB_CLOSE_QUERY_OP, &[], 4),
        Err(Error::handle(DAT_INVALID_HANDLE_IA))
    );
    side.close();
}

#[test]
fn an_adapter_is_queried_by_name() {
    let (table, name) = mem(false);
    let name = std::ffi::CString::new(name).unwrap();
    let handle = name.as_ptr().cast_mut().cast();
    let mut ia: DAT_IA_HANDLE = null_mut();
    let (mut attr, mut provider) = (DAT_IA_ATTR::zeroed(), DAT_PROVIDER_ATTR::zeroed());
    let mut query = |ia: u64, ia_mask, provider_mask| {
        let args = [
            ia,
            ia_mask,
            (&raw mut attr).expose_provenance() as u64,
            provider_mask,
            (&raw mut provider).expose_provenance() as u64,
        ];
        extended(table, handle, DAT_IB_OPEN_QUERY_OP, &args, 3)
    };
    let out = (&raw mut ia).expose_provenance() as u64;
    assert_eq!(query(0, 0, 0), Err(Error::arg(4)));
    assert_eq!(query(out, u64::MAX, 0), Err(Error::arg(5)));
    assert_eq!(query(out, 0, u64::MAX), Err(Error::arg(7)));
    query(out, DAT_IA_FIELD_ALL, DAT_PROVIDER_FIELD_ALL).unwrap();
    assert_eq!((attr.extension_supported, attr.extension_version), (DAT_EXTENSION_IB, 209));
    // SAFETY: the pointer leads to as many attributes as the count says, with terminated texts, as
    // long as the adapter is open.
    let names: Vec<_> = (0..provider.num_provider_specific_attr as usize)
        .map(|n| unsafe {
            std::ffi::CStr::from_ptr((*provider.provider_specific_attr.add(n)).name)
        })
        .collect();
    for expected in [
        c"DAT_EXTENSION_INTERFACE",
        DAT_IB_ATTR_FETCH_AND_ADD,
        DAT_IB_ATTR_CMP_AND_SWAP,
        DAT_IB_ATTR_IMMED_DATA,
        DAT_IB_ATTR_COUNTERS,
    ] {
        assert!(names.contains(&expected), "{expected:?}");
    }
    extended(table, ia, DAT_IB_CLOSE_QUERY_OP, &[], 4).unwrap();
    assert_eq!(
        extended(table, ia, DAT_IB_CLOSE_QUERY_OP, &[], 4),
        Err(Error::handle(DAT_INVALID_HANDLE1))
    );
}
