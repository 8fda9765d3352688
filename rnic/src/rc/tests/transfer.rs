//! Over a network that loses nothing.

use super::*;
use crate::{WcOp, WcStatus};

#[test]
fn a_send_a_write_and_a_read_of_each_size() {
    for len in [0, 1, 3, OCTETS - 1, OCTETS, OCTETS + 1, 2 * OCTETS, 5 * OCTETS + 7, 100 * OCTETS + 1] {
        let mut pair = Pair::new();
        let mut rng = Rng(len as u64);
        let [source, read_into] = [pair.a.buf(len + 8).filled(&mut rng), pair.a.buf(len + 8)];
        let [sink, target] = [pair.b.buf(len + 8), pair.b.buf(len + 8)];
        pair.b.recv(1, &[sink.seg(0, len / 3), sink.seg(len / 3, len - len / 3 + 8)]);
        pair.a.post(send(2, &[source.seg(0, len / 2), source.seg(len / 2, len - len / 2)]));
        pair.a.post(write(3, &[source.seg(0, len)], target.remote(0)));
        pair.a.post(read(4, &[read_into.seg(0, len)], target.remote(0)));
        pair.drive().unwrap();
        assert_eq!(sink.bytes()[..len], source.bytes()[..len], "{len}");
        assert_eq!(target.bytes()[..len], source.bytes()[..len], "{len}");
        assert_eq!(read_into.bytes()[..len], source.bytes()[..len], "{len}");
        for buf in [&sink, &target, &read_into] {
            assert_eq!(buf.bytes()[len..], [0; 8]);
        }
        let done = [(2, WcOp::Send), (3, WcOp::Write), (4, WcOp::Read)];
        assert_eq!(pair.a.completions(), done.map(|(id, op)| wc(id, op, len, WcStatus::Success)));
        assert_eq!(pair.b.received(), [wc(1, WcOp::Recv, len, WcStatus::Success)]);
        assert!(pair.a.rc.is_drained() && pair.b.rc.is_drained());
        assert_eq!(pair.a.rc.stats().repeated, 0);
    }
}
