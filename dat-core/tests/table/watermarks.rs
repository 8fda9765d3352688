//! Tests of endpoints on a shared receive queue: how many buffers they may hold, and to which
//! protection zone the buffers belong.

use std::ptr::{null, null_mut};

use dat_core::Error;
use dat_sys::*;

use crate::client::*;

/// An endpoint `x` that is connected to an endpoint `y`. `y` uses an SRQ with room for 16 buffers.
struct SrqPair {
    a: Side,
    x: DAT_EP_HANDLE,
    b: Side,
    y: DAT_EP_HANDLE,
    srq: DAT_SRQ_HANDLE,
    /// The EVDs of `y` for receives and for connection events.
    recv: DAT_EVD_HANDLE,
    conn: DAT_EVD_HANDLE,
}

fn attributes(side: &Side) -> DAT_EP_ATTR {
    let (ep, mut param) = (side.new_ep(), DAT_EP_PARAM::zeroed());
    dat!(side.table, ep_query_func(ep, DAT_EP_FIELD_ALL, &mut param)).unwrap();
    dat!(side.table, ep_free_func(ep)).unwrap();
    param.ep_attr
}

impl SrqPair {
    fn new(change: impl FnOnce(&mut DAT_EP_ATTR)) -> SrqPair {
        let (table, name) = mem(false);
        let (a, b) = (Side::new(table, &name), Side::new(table, &name));
        let (srq, recv, conn) =
            (b.new_srq(16), b.new_evd(DAT_EVD_DTO_FLAG), b.new_evd(DAT_EVD_CONNECTION_FLAG));
        let mut attr = attributes(&b);
        change(&mut attr);
        let mut y = null_mut();
        dat!(table, ep_create_with_srq_func(b.ia, b.pz, recv, b.evd, conn, srq, &attr, &mut y))
            .unwrap();
        let mut drawn = SrqPair { a, x: null_mut(), b, y, srq, recv, conn };
        drawn.connect();
        drawn
    }

    fn connect(&mut self) {
        let SrqPair { a, b, .. } = *self;
        let conn = a.new_evd(DAT_EVD_CONNECTION_FLAG);
        dat!(a.table, ep_create_func(a.ia, a.pz, a.evd, a.evd, conn, null(), &mut self.x)).unwrap();
        let (psp, qualifier) = b.new_psp(DAT_PSP_CONSUMER_FLAG);
        a.connect(self.x, qualifier, b"");
        dat!(b.table, cr_accept_func(b.arrival(), self.y, 0, null_mut())).unwrap();
        assert_eq!(a.next(conn).event_number, DAT_CONNECTION_EVENT_ESTABLISHED);
        assert_eq!(b.next(self.conn).event_number, DAT_CONNECTION_EVENT_ESTABLISHED);
        dat!(b.table, psp_free_func(psp)).unwrap();
    }

    fn post(&self, buffers: u64) {
        for i in 0..buffers {
            dat!(self.b.table, srq_post_recv_func(self.srq, 0, null_mut(), cookie(i))).unwrap();
        }
    }

    fn send(&self) {
        dat!(self.a.table, ep_post_send_func(self.x, 0, null_mut(), cookie(0), 0)).unwrap();
    }

    fn set(&self, soft: DAT_COUNT, hard: DAT_COUNT) -> Result<(), Error> {
        dat!(self.b.table, ep_set_watermark_func(self.y, soft, hard))
    }

    fn take(&self) -> DAT_DTO_COMPLETION_STATUS {
        let event = self.b.next(self.recv);
        assert_eq!(event.event_number, DAT_DTO_COMPLETION_EVENT);
        // SAFETY: the number of the event says that this member of the union is valid.
        unsafe { event.event_data.dto_completion_event_data }.status
    }

    /// Takes the next asynchronous event about `y`. Returns its number and reason.
    fn error(&self) -> Option<(DAT_EVENT_NUMBER, u32)> {
        let mut event = DAT_EVENT::zeroed();
        let taken = dat!(self.b.table, evd_dequeue_func(self.b.async_evd, &mut event));
        if taken.is_err() {
            assert_eq!(taken, Err(Error::of(DAT_QUEUE_EMPTY)));
            return None;
        }
        // SAFETY: the event is an asynchronous error, so this member of the union is valid.
        let error = unsafe { event.event_data.asynch_error_event_data };
        assert_eq!(error.dat_handle, self.y);
        Some((event.event_number, error.reason as u32))
    }

    /// Returns whether exactly one asynchronous event reports that `y` holds more buffers than its
    /// soft watermark.
    fn soft_watermark_reported(&self) -> bool {
        let Some(error) = self.error() else { return false };
        assert_eq!(
            error,
            (DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR, DAT_SRQ_SOFT_HIGH_WATERMARK_EVENT)
        );
        assert_eq!(self.error(), None, "a watermark must be reported once for each setting");
        true
    }

    /// Returns whether exactly one asynchronous event reports that `y` takes no more buffers of the
    /// shared queue.
    fn srq_left_reported(&self) -> bool {
        let error = self.error();
        assert_eq!(self.error(), None);
        error == Some((DAT_ASYNC_ERROR_EP_BROKEN, DAT_EP_TRANSFER_TO_ERROR))
    }

    fn state(&self) -> DAT_EP_STATE {
        let mut state = 0;
        dat!(self.b.table, ep_get_status_func(self.y, &mut state, null_mut(), null_mut())).unwrap();
        state
    }

    fn close(self) {
        self.a.close();
        self.b.close();
    }
}

const NO_MARK: DAT_COUNT = DAT_WATERMARK_INFINITE;

#[test]
fn a_soft_watermark_causes_one_event_for_each_setting() {
    let d = SrqPair::new(|_| {});
    d.post(8);
    assert_eq!(d.set(2, NO_MARK), Ok(()));
    for expected in [false, false, true, false] {
        d.send();
        assert_eq!(d.soft_watermark_reported(), expected);
    }
    // A watermark that is set again is reported again. If it is already exceeded, it is reported at
    // once.
    assert_eq!(d.set(2, NO_MARK), Ok(()));
    assert!(d.soft_watermark_reported());
    assert_eq!(d.set(4, NO_MARK), Ok(()));
    assert!(!d.soft_watermark_reported());
    // If the completion of a buffer was taken, the endpoint no longer holds the buffer.
    for _ in 0..4 {
        assert_eq!(d.take(), DAT_DTO_SUCCESS);
    }
    d.send();
    assert!(!d.soft_watermark_reported());
    assert_eq!(d.set(NO_MARK, NO_MARK), Ok(()));
    d.send();
    assert!(!d.soft_watermark_reported());
    assert_eq!(d.state(), DAT_EP_STATE_CONNECTED);
    d.close();
}

#[test]
fn a_soft_watermark_may_be_an_attribute() {
    let d = SrqPair::new(|attr| attr.srq_soft_hw = 1);
    d.post(3);
    d.send();
    assert!(!d.soft_watermark_reported());
    d.send();
    assert!(d.soft_watermark_reported());
    let mut param = DAT_EP_PARAM::zeroed();
    dat!(d.b.table, ep_query_func(d.y, DAT_EP_FIELD_ALL, &mut param)).unwrap();
    assert_eq!(param.ep_attr.srq_soft_hw, 1);
    d.set(5, NO_MARK).unwrap();
    dat!(d.b.table, ep_query_func(d.y, DAT_EP_FIELD_ALL, &mut param)).unwrap();
    assert_eq!(param.ep_attr.srq_soft_hw, 5);
    d.close();

    // Programs set the attribute to 0, by which they mean no watermark.
    let d = SrqPair::new(|attr| attr.srq_soft_hw = 0);
    d.post(1);
    d.send();
    assert!(!d.soft_watermark_reported());
    d.close();
}

#[test]
fn a_hard_watermark_breaks_the_connection() {
    let d = SrqPair::new(|_| {});
    d.post(4);
    d.set(NO_MARK, 1).unwrap();
    for _ in 0..2 {
        d.send();
    }
    assert_eq!(d.b.next(d.conn).event_number, DAT_CONNECTION_EVENT_BROKEN);
    assert_eq!(d.state(), DAT_EP_STATE_DISCONNECTED);
    assert_eq!([d.take(), d.take()], [DAT_DTO_SUCCESS, DAT_DTO_ERR_FLUSHED]);
    let mut param = DAT_SRQ_PARAM::zeroed();
    dat!(d.b.table, srq_query_func(d.srq, DAT_SRQ_FIELD_ALL, &mut param)).unwrap();
    assert_eq!((param.available_dto_count, param.outstanding_dto_count), (2, 2));
    assert!(
        d.srq_left_reported(),
        "only this event may be raised, because the two watermarks are independent"
    );
    d.close();
}

/// OFED's providers report the same event, because no flushed receive shows that the endpoint takes
/// no more buffers.
#[test]
fn an_endpoint_on_an_srq_reports_that_it_takes_no_more_buffers() {
    for flag in [DAT_CLOSE_ABRUPT_FLAG, DAT_CLOSE_GRACEFUL_FLAG] {
        let d = SrqPair::new(|_| {});
        dat!(d.b.table, ep_disconnect_func(d.y, flag)).unwrap();
        assert_eq!(d.b.next(d.conn).event_number, DAT_CONNECTION_EVENT_DISCONNECTED);
        assert!(d.srq_left_reported());
        // Only endpoints on a shared queue report this event.
        let (mut param, mut event) = (DAT_EP_PARAM::zeroed(), DAT_EVENT::zeroed());
        dat!(d.a.table, ep_query_func(d.x, DAT_EP_FIELD_ALL, &mut param)).unwrap();
        assert_eq!(
            d.a.next(param.connect_evd_handle).event_number,
            DAT_CONNECTION_EVENT_DISCONNECTED
        );
        let empty = Err(Error::of(DAT_QUEUE_EMPTY));
        assert_eq!(dat!(d.a.table, evd_dequeue_func(d.a.async_evd, &mut event)), empty);
        d.close();
    }
}

#[test]
fn an_already_exceeded_hard_watermark_breaks_at_once() {
    let mut d = SrqPair::new(|_| {});
    d.post(6);
    for _ in 0..3 {
        d.send();
    }
    assert_eq!(d.set(NO_MARK, 3), Ok(()));
    assert_eq!(d.state(), DAT_EP_STATE_CONNECTED);
    assert_eq!(d.set(NO_MARK, 2), Ok(()));
    assert_eq!(d.b.next(d.conn).event_number, DAT_CONNECTION_EVENT_BROKEN);
    assert_eq!(d.state(), DAT_EP_STATE_DISCONNECTED);
    // The soft watermark is not reported a second time.
    assert_eq!(d.set(NO_MARK, 2), Ok(()));
    let mut event = DAT_EVENT::zeroed();
    let empty = Err(Error::of(DAT_QUEUE_EMPTY));
    assert_eq!(dat!(d.b.table, evd_dequeue_func(d.conn, &mut event)), empty);

    // The endpoint keeps its queue and its watermark, but it no longer holds the buffers.
    for _ in 0..3 {
        assert_eq!(d.take(), DAT_DTO_SUCCESS);
    }
    dat!(d.b.table, ep_reset_func(d.y)).unwrap();
    d.connect();
    for _ in 0..2 {
        d.send();
    }
    assert_eq!(d.state(), DAT_EP_STATE_CONNECTED);
    d.send();
    assert_eq!(d.b.next(d.conn).event_number, DAT_CONNECTION_EVENT_BROKEN);
    d.close();
}

#[test]
fn watermarks_are_checked_and_accepted_in_every_state() {
    let d = SrqPair::new(|_| {});
    assert_eq!(d.set(-2, 1), Err(Error::arg(2)));
    assert_eq!(d.set(1, DAT_COUNT::MIN), Err(Error::arg(3)));
    let set = |ep| dat!(d.b.table, ep_set_watermark_func(ep, 1, 2));
    assert_eq!(set(d.y), Ok(()));
    dat!(d.b.table, ep_disconnect_func(d.y, DAT_CLOSE_ABRUPT_FLAG)).unwrap();
    assert_eq!(d.state(), DAT_EP_STATE_DISCONNECTED);
    assert_eq!(set(d.y), Ok(()));
    let own = d.b.new_ep();
    assert_eq!(set(own), Ok(()), "an unconnected EP with a queue of its own must take a watermark");
    let mut bare = null_mut();
    let none = null_mut();
    dat!(d.b.table, ep_create_func(d.b.ia, none, none, none, none, null(), &mut bare)).unwrap();
    assert_eq!(set(bare), Ok(()), "an unconfigured EP must take a watermark");

    let (mut attr, mut ep) = (attributes(&d.b), null_mut());
    attr.srq_soft_hw = -2;
    let Side { table, ia, pz, evd, .. } = d.b;
    assert_eq!(
        dat!(table, ep_create_func(ia, pz, evd, evd, evd, &attr, &mut ep)),
        Err(Error::arg(6))
    );
    let with_srq =
        dat!(table, ep_create_with_srq_func(ia, pz, evd, evd, evd, d.srq, &attr, &mut ep));
    assert_eq!(with_srq, Err(Error::arg(7)));
    d.close();
}

#[test]
fn the_queue_of_an_endpoint_has_watermarks_too() {
    let [(a, x), (b, y)] = connected(false);
    for i in 0..3 {
        dat!(b.table, ep_post_recv_func(y, 0, null_mut(), cookie(i), 0)).unwrap();
    }
    dat!(b.table, ep_set_watermark_func(y, 0, 1)).unwrap();
    for _ in 0..2 {
        dat!(a.table, ep_post_send_func(x, 0, null_mut(), cookie(0), 0)).unwrap();
    }
    let statuses = [(); 3].map(|()| b.completion().status);
    assert_eq!(statuses, [DAT_DTO_SUCCESS, DAT_DTO_ERR_FLUSHED, DAT_DTO_ERR_FLUSHED]);
    assert_eq!(b.next(b.evd).event_number, DAT_CONNECTION_EVENT_BROKEN);
    let event = b.next(b.async_evd);
    // SAFETY: the event is an asynchronous error, so this member of the union is valid.
    assert_eq!(unsafe { event.event_data.asynch_error_event_data }.dat_handle, y);
    a.close();
    b.close();
}

#[test]
fn allocated_buffers_are_those_that_have_not_completed() {
    let [(a, x), (b, y)] = connected(false);
    let query = |ep| {
        let (mut buffers, mut span) = (-7, -7);
        dat!(b.table, ep_recv_query_func(ep, &mut buffers, &mut span)).unwrap();
        assert!(buffers <= span, "{buffers} buffers in a span of {span}");
        (buffers, span)
    };
    assert_eq!(query(y), (0, 0));
    for i in 0..3 {
        dat!(b.table, ep_post_recv_func(y, 0, null_mut(), cookie(i), 0)).unwrap();
    }
    // Without an SRQ a buffer is allocated as soon as it is posted.
    assert_eq!(query(y), (3, 3));
    dat!(a.table, ep_post_send_func(x, 0, null_mut(), cookie(0), 0)).unwrap();
    assert_eq!(
        query(y),
        (2, 2),
        "a buffer that has completed must not count, even if its completion was not taken"
    );
    // Each of the two pointers may be NULL.
    let mut count = 0;
    assert_eq!(dat!(b.table, ep_recv_query_func(y, null_mut(), null_mut())), Ok(()));
    assert_eq!(dat!(b.table, ep_recv_query_func(y, &mut count, null_mut())), Ok(()));
    assert_eq!(count, 2);
    assert_eq!(dat!(b.table, ep_recv_query_func(y, null_mut(), &mut count)), Ok(()));
    assert_eq!(count, 2);
    dat!(b.table, ep_disconnect_func(y, DAT_CLOSE_ABRUPT_FLAG)).unwrap();
    assert_eq!(query(y), (0, 0));
    a.close();
    b.close();

    // With an SRQ, a buffer is allocated only from the time when a message takes it until the
    // message is complete.
    let d = SrqPair::new(|_| {});
    d.post(3);
    let mut counts = [-7; 2];
    let [buffers, span] = &mut counts;
    dat!(d.b.table, ep_recv_query_func(d.y, buffers, span)).unwrap();
    d.send();
    assert_eq!(counts, [0, 0]);
    let [buffers, span] = &mut counts;
    dat!(d.b.table, ep_recv_query_func(d.y, buffers, span)).unwrap();
    assert_eq!(counts, [0, 0]);
    d.close();
}

#[test]
fn the_zone_of_an_srq_is_its_own() {
    let (table, name) = mem(false);
    let (a, mut b) = (Side::new(table, &name), Side::new(table, &name));
    let srq = b.new_srq(4);
    let mut buffer = [0u8; 16];
    let in_srq_zone = b.register(&mut buffer);
    // From here on all objects of `b` are in another zone.
    dat!(table, pz_create_func(b.ia, &mut b.pz)).unwrap();
    let mut exposed = [0u8; 16];
    let in_ep_zone = b.register(&mut exposed);
    let mut attr = attributes(&b);
    // An endpoint on an SRQ ignores the value of max_recv_iov.
    attr.max_recv_iov = DAT_COUNT::MAX;
    let mut y = null_mut();
    let Side { ia, pz, evd, .. } = b;
    dat!(table, ep_create_with_srq_func(ia, pz, evd, evd, evd, srq, &attr, &mut y)).unwrap();

    let foreign = dat!(table, srq_post_recv_func(srq, 1, &mut in_ep_zone.local(0, 8), cookie(0)));
    assert_eq!(foreign, Err(Error::of(DAT_PROTECTION_VIOLATION)));
    dat!(table, srq_post_recv_func(srq, 1, &mut in_srq_zone.local(0, 8), cookie(1))).unwrap();

    let x = a.new_ep();
    let (_, qualifier) = b.new_psp(DAT_PSP_CONSUMER_FLAG);
    a.connect(x, qualifier, b"");
    dat!(table, cr_accept_func(b.arrival(), y, 0, null_mut())).unwrap();
    assert_eq!(a.next(a.evd).event_number, DAT_CONNECTION_EVENT_ESTABLISHED);
    assert_eq!(b.next(b.evd).event_number, DAT_CONNECTION_EVENT_ESTABLISHED);
    let mut words = *b"by the endpoint!";
    let source = a.register(&mut words);
    // Messages use the SRQ's zone, and RDMA operations use the endpoint's zone.
    dat!(table, ep_post_send_func(x, 1, &mut source.local(0, 8), cookie(1), 0)).unwrap();
    assert_eq!(b.completion().status, DAT_DTO_SUCCESS);
    let to = in_ep_zone.remote(0, 16);
    dat!(table, ep_post_rdma_write_func(x, 1, &mut source.local(0, 16), cookie(2), &to, 0))
        .unwrap();
    assert_eq!([a.completion().status, a.completion().status], [DAT_DTO_SUCCESS; 2]);
    assert_eq!((&buffer[..8], &exposed), (&b"by the e"[..], b"by the endpoint!"));
    let to = in_srq_zone.remote(0, 16);
    dat!(table, ep_post_rdma_write_func(x, 1, &mut source.local(0, 16), cookie(3), &to, 0))
        .unwrap();
    assert_eq!(a.completion().status, DAT_DTO_ERR_REMOTE_ACCESS);
    a.close();
    b.close();
}

#[test]
fn a_broken_connection_leaves_the_buffers_to_the_others() {
    let d = SrqPair::new(|_| {});
    let mut other = null_mut();
    let Side { table, ia, pz, evd, .. } = d.b;
    let attr = attributes(&d.b);
    dat!(table, ep_create_with_srq_func(ia, pz, d.recv, evd, d.conn, d.srq, &attr, &mut other))
        .unwrap();
    let mut d = SrqPair { y: other, ..d };
    let first = d.x;
    d.connect();
    let mut buffer = [0u8; 4];
    let lmr = d.b.register(&mut buffer);
    for i in 0..2 {
        dat!(table, srq_post_recv_func(d.srq, 1, &mut lmr.local(0, 4), cookie(i))).unwrap();
    }
    let mut words = [1u8; 8];
    let source = d.a.register(&mut words);
    // The message is too long. The buffer that it took completes with an error, and the other
    // buffer stays posted.
    dat!(table, ep_post_send_func(first, 1, &mut source.local(0, 8), cookie(0), 0)).unwrap();
    assert_eq!(d.b.next(d.conn).event_number, DAT_CONNECTION_EVENT_BROKEN);
    assert_eq!(d.take(), DAT_DTO_ERR_LOCAL_LENGTH);
    let mut param = DAT_SRQ_PARAM::zeroed();
    dat!(table, srq_query_func(d.srq, DAT_SRQ_FIELD_ALL, &mut param)).unwrap();
    assert_eq!((param.available_dto_count, param.outstanding_dto_count), (1, 1));
    assert_eq!(param.srq_state, DAT_SRQ_STATE_OPERATIONAL);
    d.send();
    assert_eq!(d.take(), DAT_DTO_SUCCESS);
    let null_attr = dat!(
        table,
        ep_create_with_srq_func(ia, pz, d.recv, evd, d.conn, d.srq, null(), &mut other)
    );
    assert_eq!(null_attr, Err(Error::arg(7)));
    d.close();
}
