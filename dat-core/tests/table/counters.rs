//! Tests of the counters, which are queried through the function table.

use std::ptr::null_mut;

use dat_core::Error;
use dat_sys::ib::*;
use dat_sys::*;

use crate::client::*;
use crate::extended::extended_completion;

/// The number of elements that are enough for the counters of any object.
type Values = [u64; DCNT_IA_ALL_COUNTERS as usize];
/// The initial value of the elements. A query that does not write to an element leaves this value.
const UNTOUCHED: u64 = u64::MAX;

fn query(
    table: ProviderTable,
    handle: DAT_HANDLE,
    counter: u32,
    reset: bool,
) -> Result<Values, Error> {
    let mut values = [UNTOUCHED; DCNT_IA_ALL_COUNTERS as usize];
    let args = [counter.into(), (&raw mut values).expose_provenance() as u64, reset.into()];
    extended(table, handle, DAT_IB_QUERY_COUNTERS_OP, &args, 4)?;
    Ok(values)
}

/// The value of a counter.
pub(crate) fn value(table: ProviderTable, handle: DAT_HANDLE, counter: u32) -> u64 {
    query(table, handle, counter, false).unwrap()[counter as usize]
}

/// Checks that these counters have the expected values, and that all other counters of `all` are 0.
pub(crate) fn expect(table: ProviderTable, handle: DAT_HANDLE, all: u32, expected: &[(u32, u64)]) {
    let values = query(table, handle, all, false).unwrap();
    for (counter, value) in values.iter().enumerate() {
        let expected = expected.iter().find(|(number, _)| *number as usize == counter);
        let default = if counter < all as usize { 0 } else { UNTOUCHED };
        assert_eq!(*value, expected.map_or(default, |(_, value)| *value), "counter {counter}");
    }
}

#[test]
fn of_an_endpoint() {
    for thread_safe in [false, true] {
        let [(a, x), (b, y)] = connected(thread_safe);
        let (mut near, mut far) = (vec![[0u64; 8]; 8], vec![[0u64; 8]; 8]);
        let (from, to) = (a.register(near.as_flattened_mut().as_bytes()), {
            let privileges = DAT_MEM_PRIV_ALL_FLAG | DAT_IB_MEM_PRIV_REMOTE_ATOMIC;
            b.register_as(far.as_flattened_mut().as_bytes(), privileges, DAT_VA_TYPE_VA)
        });
        let (flags, none) = (DAT_COMPLETION_DEFAULT_FLAG, cookie(0));
        let mut receives = [to.local(0, 100)];
        for _ in 0..3 {
            dat!(b.table, ep_post_recv_func(y, 1, receives.as_mut_ptr(), none, 0)).unwrap();
        }
        let (mut local, remote) = ([from.local(0, 30), from.local(64, 10)], to.remote(128, 40));
        let iov = local.as_mut_ptr();
        dat!(a.table, ep_post_send_func(x, 2, iov, none, flags)).unwrap();
        dat!(a.table, ep_post_send_func(x, 0, null_mut(), none, flags)).unwrap();
        dat!(a.table, ep_post_rdma_write_func(x, 2, iov, none, &remote, flags)).unwrap();
        let small = to.remote(128, 20);
        dat!(a.table, ep_post_rdma_read_func(x, 1, iov, none, &small, flags)).unwrap();
        let args = [1, word(&local), 0, word(&remote), 7, 0];
        extended(a.table, x, DAT_IB_RDMA_WRITE_IMMED_OP, &args, 4).unwrap();
        let (sink, word_there) = (from.local(0, 8), to.remote(128, 8));
        extended(
            a.table,
            x,
            DAT_IB_FETCH_AND_ADD_OP,
            &[1, word(&sink), 0, word(&word_there), 0],
            4,
        )
        .unwrap();
        let args = [1, 2, word(&sink), 0, word(&word_there), 0];
        extended(a.table, x, DAT_IB_CMP_AND_SWAP_OP, &args, 4).unwrap();
        // A refused post is not counted.
        assert!(dat!(a.table, ep_post_send_func(x, -1, iov, none, flags)).is_err());
        for _ in 0..4 {
            a.completion();
        }
        for _ in 0..3 {
            extended_completion(&a);
        }
        for _ in 0..2 {
            b.completion();
        }
        extended_completion(&b);

        let sent = [
            (DCNT_EP_CONNECT, 1),
            (DCNT_EP_POST_SEND, 2),
            (DCNT_EP_POST_SEND_DATA, 40),
            (DCNT_EP_POST_WRITE, 1),
            (DCNT_EP_POST_WRITE_DATA, 40),
            (DCNT_EP_POST_READ, 1),
            (DCNT_EP_POST_READ_DATA, 20),
            (DCNT_EP_POST_WRITE_IMM, 1),
            (DCNT_EP_POST_WRITE_IMM_DATA, 30),
            (DCNT_EP_POST_FETCH_ADD, 1),
            (DCNT_EP_POST_CMP_SWAP, 1),
        ];
        expect(a.table, x, DCNT_EP_ALL_COUNTERS, &sent);
        let received = [
            (DCNT_EP_POST_RECV, 3),
            (DCNT_EP_POST_RECV_DATA, 300),
            (DCNT_EP_RECV, 2),
            (DCNT_EP_RECV_DATA, 40),
            (DCNT_EP_RECV_RDMA_IMM, 1),
            (DCNT_EP_RECV_RDMA_IMM_DATA, 30),
        ];
        expect(b.table, y, DCNT_EP_ALL_COUNTERS, &received);

        // A query of one counter writes one element. After a reset the counter begins at 0.
        let one = query(a.table, x, DCNT_EP_POST_SEND_DATA, true).unwrap();
        let places: Vec<_> = (0..one.len()).filter(|i| one[*i] != UNTOUCHED).collect();
        assert_eq!(
            (places, one[DCNT_EP_POST_SEND_DATA as usize]),
            (vec![DCNT_EP_POST_SEND_DATA as usize], 40)
        );
        let rest: Vec<_> =
            sent.into_iter().filter(|(counter, _)| *counter != DCNT_EP_POST_SEND_DATA).collect();
        expect(a.table, x, DCNT_EP_ALL_COUNTERS, &rest);

        // The counters keep their values when the connection ends and the queue pair is replaced.
        // Flushed receives are not counted as received.
        dat!(b.table, ep_post_recv_func(y, 1, receives.as_mut_ptr(), none, 0)).unwrap();
        dat!(a.table, ep_disconnect_func(x, DAT_CLOSE_ABRUPT_FLAG)).unwrap();
        assert_eq!(a.next(a.evd).event_number, DAT_CONNECTION_EVENT_DISCONNECTED);
        assert_eq!(b.completion().status, DAT_DTO_ERR_FLUSHED);
        assert_eq!(b.next(b.evd).event_number, DAT_CONNECTION_EVENT_DISCONNECTED);
        dat!(b.table, ep_reset_func(y)).unwrap();
        let counted = query(b.table, y, DCNT_EP_ALL_COUNTERS, true).unwrap();
        let of = |counter: u32| counted[counter as usize];
        assert_eq!((of(DCNT_EP_POST_RECV), of(DCNT_EP_RECV), of(DCNT_EP_DISCONNECT)), (4, 2, 0));
        assert_eq!(
            query(a.table, x, DCNT_EP_DISCONNECT, false).unwrap()[DCNT_EP_DISCONNECT as usize],
            1
        );
        expect(b.table, y, DCNT_EP_ALL_COUNTERS, &[]);
        a.close();
        b.close();
    }
}

#[test]
fn of_a_dispatcher() {
    let (table, name) = mem(false);
    let side = Side::new(table, &name);
    let mut event = DAT_EVENT::zeroed();
    let dequeue = |event: &mut DAT_EVENT| dat!(table, evd_dequeue_func(side.evd, event));
    let software = DAT_EVENT { event_number: DAT_SOFTWARE_EVENT, ..DAT_EVENT::zeroed() };
    dat!(table, evd_post_se_func(side.evd, &software)).unwrap();
    dequeue(&mut event).unwrap();
    assert_eq!(dequeue(&mut event), Err(Error::of(DAT_QUEUE_EMPTY)));
    let counted = query(table, side.evd, DCNT_EVD_ALL_COUNTERS, true).unwrap();
    let of = |counter: u32| counted[counter as usize];
    assert_eq!(
        (of(DCNT_EVD_DEQUEUE), of(DCNT_EVD_DEQUEUE_FOUND), of(DCNT_EVD_DEQUEUE_NOT_FOUND)),
        (2, 1, 1)
    );
    assert!(
        of(DCNT_EVD_DEQUEUE_POLL) >= 1,
        "the counter must show that the call looked for completions"
    );
    expect(table, side.evd, DCNT_EVD_ALL_COUNTERS, &[]);

    // One wait finds an event at once. Another wait sleeps until its timeout expires.
    dat!(table, evd_post_se_func(side.evd, &software)).unwrap();
    side.next(side.evd);
    let mut more = 0;
    let late = dat!(table, evd_wait_func(side.evd, 1, 1, &mut event, &mut more));
    assert_eq!(late, Err(Error::of(DAT_TIMEOUT_EXPIRED)));
    let waits = [(DCNT_EVD_WAIT, 2), (DCNT_EVD_WAIT_BLOCKED, 1), (DCNT_EVD_WAIT_NOTIFY, 1)];
    expect(table, side.evd, DCNT_EVD_ALL_COUNTERS, &waits);
    side.close();

    let [(a, x), (b, y)] = connected(false);
    let counted = query(b.table, b.cr_evd, DCNT_EVD_CONN_CALLBACK, false).unwrap();
    assert_eq!(
        counted[DCNT_EVD_CONN_CALLBACK as usize], 1,
        "the connection request must be counted once"
    );
    dat!(b.table, ep_post_recv_func(y, 0, null_mut(), cookie(0), 0)).unwrap();
    dat!(a.table, ep_post_send_func(x, 0, null_mut(), cookie(0), 0)).unwrap();
    query(b.table, b.evd, DCNT_EVD_ALL_COUNTERS, true).unwrap();
    dat!(b.table, evd_dequeue_func(b.evd, &mut event)).unwrap();
    let counted = query(b.table, b.evd, DCNT_EVD_ALL_COUNTERS, false).unwrap();
    let of = |counter: u32| counted[counter as usize];
    assert_eq!((of(DCNT_EVD_DEQUEUE), of(DCNT_EVD_DEQUEUE_POLL_FOUND)), (1, 1));
    a.close();
    b.close();
}

#[test]
fn of_an_adapter() {
    let [(a, x), (b, y)] = connected(false);
    let mut buffer = vec![0; 64];
    let lmr = b.register(&mut buffer);
    dat!(b.table, lmr_free_func(lmr.handle)).unwrap();
    dat!(b.table, evd_free_func(b.new_evd(DAT_EVD_SOFTWARE_FLAG))).unwrap();
    dat!(b.table, srq_free_func(b.new_srq(1))).unwrap();
    let opened = [(DCNT_IA_PZ_CREATE, 1), (DCNT_IA_EP_CREATE, 1)];
    let dispatchers = |free| [(DCNT_IA_EVD_CREATE, 3 + free), (DCNT_IA_EVD_FREE, free)];
    let active = [(DCNT_IA_CM_REQ_TX, 1), (DCNT_IA_CM_REP_RX, 1), (DCNT_IA_CM_ACTIVE_EST, 1)];
    let passive = [
        (DCNT_IA_PSP_CREATE_ANY, 1),
        (DCNT_IA_PSP_FREE, 1),
        (DCNT_IA_CM_LISTEN, 1),
        (DCNT_IA_SP_CR, 1),
        (DCNT_IA_CM_REQ_RX, 1),
        (DCNT_IA_SP_CR_ACCEPTED, 1),
        (DCNT_IA_CM_REP_TX, 1),
        (DCNT_IA_CM_PASSIVE_EST, 1),
        (DCNT_IA_LMR_CREATE, 1),
        (DCNT_IA_LMR_FREE, 1),
        (DCNT_IA_SRQ_CREATE, 1),
        (DCNT_IA_SRQ_FREE, 1),
    ];
    expect(a.table, a.ia, DCNT_IA_ALL_COUNTERS, &[&opened, &dispatchers(0), &active[..]].concat());
    expect(b.table, b.ia, DCNT_IA_ALL_COUNTERS, &[&opened, &dispatchers(1), &passive[..]].concat());

    // The counters of connection management can be stopped and started.
    let sample = |side: &Side, op, kind: u32| extended(side.table, side.ia, op, &[kind.into()], 4);
    sample(&a, DAT_IB_STOP_COUNTERS_OP, DCNT_IA_CM).unwrap();
    sample(&b, DAT_IB_START_COUNTERS_OP, DCNT_IA_CM).unwrap();
    dat!(a.table, ep_disconnect_func(x, DAT_CLOSE_ABRUPT_FLAG)).unwrap();
    assert_eq!(b.next(b.evd).event_number, DAT_CONNECTION_EVENT_DISCONNECTED);
    expect(a.table, a.ia, DCNT_IA_ALL_COUNTERS, &[&opened, &dispatchers(0), &active[..]].concat());
    let others = passive.into_iter().filter(|(counter, _)| *counter < DCNT_IA_CM_LISTEN);
    let others: Vec<_> = others.chain([(DCNT_IA_CM_DREQ_RX, 1)]).collect();
    expect(b.table, b.ia, DCNT_IA_ALL_COUNTERS, &[&opened, &dispatchers(1), &others[..]].concat());

    // The peer's consumer refuses one request, and another one is not answered.
    sample(&a, DAT_IB_START_COUNTERS_OP, DCNT_IA_CM).unwrap();
    sample(&b, DAT_IB_START_COUNTERS_OP, DCNT_IA_CM).unwrap();
    let (psp, qualifier) = b.new_psp(DAT_PSP_CONSUMER_FLAG);
    let ep = a.new_ep();
    a.connect(ep, qualifier, b"");
    dat!(b.table, cr_reject_func(b.arrival(), 0, null_mut())).unwrap();
    dat!(b.table, psp_free_func(psp)).unwrap();
    assert_eq!(a.next(a.evd).event_number, DAT_CONNECTION_EVENT_DISCONNECTED);
    assert_eq!(a.next(a.evd).event_number, DAT_CONNECTION_EVENT_PEER_REJECTED);
    dat!(a.table, ep_reset_func(ep)).unwrap();
    a.connect(ep, qualifier, b"");
    assert_eq!(a.next(a.evd).event_number, DAT_CONNECTION_EVENT_NON_PEER_REJECTED);
    for (side, expected) in [
        (&a, [(DCNT_IA_CM_REQ_TX, 2), (DCNT_IA_CM_USER_REJ_RX, 1), (DCNT_IA_CM_ERR_REFUSED, 1)]),
        (&b, [(DCNT_IA_CM_REQ_RX, 1), (DCNT_IA_CM_USER_REJ_TX, 1), (DCNT_IA_CM_LISTEN, 1)]),
    ] {
        let counted = query(side.table, side.ia, DCNT_IA_ALL_COUNTERS, false).unwrap();
        for (counter, value) in expected {
            assert_eq!(counted[counter as usize], value, "counter {counter}");
        }
    }
    dat!(b.table, ep_free_func(y)).unwrap();
    a.close();
    b.close();
}

#[test]
fn wrong_arguments() {
    let (table, name) = mem(false);
    let side = Side::new(table, &name);
    let ep = side.new_ep();
    for (handle, all) in [
        (side.ia, DCNT_IA_ALL_COUNTERS),
        (ep, DCNT_EP_ALL_COUNTERS),
        (side.evd, DCNT_EVD_ALL_COUNTERS),
    ] {
        for counter in [all + 1, u32::MAX] {
            assert_eq!(query(table, handle, counter, false), Err(Error::arg(3)));
            let print = extended(table, handle, DAT_IB_PRINT_COUNTERS_OP, &[counter.into(), 0], 4);
            assert_eq!(print, Err(Error::arg(3)));
        }
        let nowhere = extended(table, handle, DAT_IB_QUERY_COUNTERS_OP, &[all.into(), 0, 0], 4);
        assert_eq!(nowhere, Err(Error::arg(4)));
    }
    // Some objects have no counters.
    assert_eq!(query(table, side.pz, 0, false), Err(Error::handle(DAT_INVALID_HANDLE1)));
    assert_eq!(query(table, null_mut(), 0, false), Err(Error::handle(DAT_INVALID_HANDLE1)));
    // Counters of a device are not supported, and counters of endpoints cannot be started or
    // stopped.
    for op in [DAT_IB_START_COUNTERS_OP, DAT_IB_STOP_COUNTERS_OP] {
        let sample = |handle, kind: u32| extended(table, handle, op, &[kind.into()], 4);
        assert_eq!(sample(side.ia, DCNT_IA_LNK), Err(Error::of(DAT_MODEL_NOT_SUPPORTED)));
        assert_eq!(sample(side.ia, DCNT_IA_DIAG), Err(Error::of(DAT_MODEL_NOT_SUPPORTED)));
        assert_eq!(sample(side.ia, DCNT_IA_DIAG + 1), Err(Error::arg(3)));
        assert_eq!(sample(ep, DCNT_IA_CM), Err(Error::handle(DAT_INVALID_HANDLE_IA)));
    }
    side.close();
}

/// Gives access to words as bytes. The test uses words because atomic operations need aligned
/// memory.
trait AsBytes {
    fn as_bytes(&mut self) -> &mut [u8];
}

impl AsBytes for [u64] {
    fn as_bytes(&mut self) -> &mut [u8] {
        // SAFETY: the slice has the length of the words, and bytes may have any value.
        unsafe { std::slice::from_raw_parts_mut(self.as_mut_ptr().cast(), size_of_val(self)) }
    }
}
