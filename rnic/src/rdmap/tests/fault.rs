//! Tests in which the kernel returns `EFAULT`, because registered memory is no longer mapped.

use super::*;

const SIZE: usize = 40_000;

fn statuses(completions: Vec<Wc>) -> Vec<(u64, WcStatus)> {
    completions.into_iter().map(|wc| (wc.id, wc.status)).collect()
}

#[test]
fn the_message_that_cannot_be_read_fails_and_no_other() {
    let mut a = Side::new(cfg());
    let memory = a.buf(SIZE);
    for id in 1..=3 {
        a.post(send(id, &[memory.seg(0, SIZE)]));
    }
    let all = a.stream.tx(&mut a.tx).unwrap();
    a.stream.tx_fault(&mut a.tx).expect("other messages are in the batch");
    let first = a.tx.octets();
    assert_eq!(3 * first, all);
    assert_eq!(a.tx.iov().iter().map(|element| element.iov_len).sum::<usize>(), first);
    a.stream.tx_done(&mut a.tx, first);
    assert_eq!(statuses(a.completions()), [(1, WcStatus::Success)]);

    // The vector first holds the second and the third message. After a fault it holds only the
    // second one.
    assert_eq!(a.stream.tx(&mut a.tx), Ok(2 * first));
    a.stream.tx_fault(&mut a.tx).expect("the vector must keep the second message");
    let failure = a.stream.tx_fault(&mut a.tx).expect_err("the second message must fail");
    assert!(!failure.by_peer);
    assert_eq!(a.stream.tx(&mut a.tx), Err(failure));
    assert!(
        !a.stream.terminate().is_empty(),
        "no frame is partly sent, so there must be a TERMINATE"
    );
    a.stream.flush();
    assert_eq!(statuses(a.completions()), [(2, WcStatus::LocalProtection), (3, WcStatus::Flushed)]);
}

#[test]
fn a_receive_into_unmapped_memory_fails() {
    let Pair { mut a, mut b, .. } = Pair::new(cfg(), 1);
    let (from, to) = (a.buf(SIZE), b.buf(SIZE));
    b.recv(7, &[to.seg(0, SIZE)]);
    a.post(send(1, &[from.seg(0, SIZE)]));
    let n = a.stream.tx(&mut a.tx).unwrap();
    let frame = gathered(&a.tx, n);
    // The first octets are copied through the stage. The rest is read directly to its destination.
    b.stream.rx_octets(&frame[..SIZE / 2]).unwrap();
    b.stream.rx(&mut b.rx).unwrap();
    assert!(b.rx.iov().len() > 1, "the read must go to a destination, and to the stage after it");
    let direct = b.rx.iov()[0].iov_len;
    assert!(b.stream.may_fault_behind(&b.rx, direct - 1));
    assert!(
        !b.stream.may_fault_behind(&b.rx, direct),
        "the stage is always mapped, so no fault is possible after the destination"
    );
    let failure = b.stream.rx_fault();
    assert!(!failure.by_peer);
    assert_eq!(b.stream.rx(&mut b.rx), Err(failure));
    assert_eq!(statuses(b.received()), [(7, WcStatus::LocalProtection)]);
}
